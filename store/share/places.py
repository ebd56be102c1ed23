"""Objects at a URL: S3 through obstore, web servers and the Hub through huggingface_hub."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from logitbank.errors import MissingExtraError, RemoteError, UsageError
from logitbank.store.files import disk
from logitbank.store.files.objects import Digest
from logitbank.store.share.hub_token import keep_token
from logitbank.store.share.urls import HUB

Advance = Callable[[int], None]
"""Called with the number of bytes that have just arrived."""
TRIES = 5
LONGEST_WAIT_S = 300.0
"""The longest wait that a server may ask for: the Hub counts requests in windows of 5 minutes."""
_FIRST_WAIT_S = 0.1
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_PIECE = 2**20
_LIBRARIES = ("obstore", "huggingface_hub", "httpx", "httpcore", "httpx2", "httpcore2")
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


_REFUSALS = ("UnauthenticatedError", "PermissionDeniedError")
_REFUSED = re.compile(
    r"<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken)</Code>"
    r"|status code: 40[13]"
)


class Answer(NamedTuple):
    """An object that a server sends."""

    etag: str | None
    is_whole: bool
    """False if it begins at the byte that was requested."""
    pieces: Iterator[bytes]


class Fetched(NamedTuple):
    """A small object."""

    data: bytes
    etag: str | None


@dataclass(frozen=True)
class Place:
    """A URL and what sends its objects. Every failure is a RemoteError that names the URL."""

    url: str
    source: "_Web | _Bucket" = field(repr=False, compare=False)

    def read(self, path: str, *, limit: int = 2**30) -> Fetched:
        """A small object.

        Raises
        ------
        FileNotFoundError
            It does not exist.
        RemoteError
            The server does not send it, or it has more than `limit` bytes.
        """
        fetched = self.read_changed(path, None, limit=limit)
        assert fetched is not None, "the request has no ETag"
        return fetched

    def read_changed(self, path: str, etag: str | None, *, limit: int) -> Fetched | None:
        """As `read`; None if the object still has this ETag."""
        with explained(f"{self.url}/{path}"), self.source.get(path, unless=etag) as answer:
            if answer is None:
                return None
            data = bytearray()
            for piece in answer.pieces:
                data += piece
                if len(data) > limit:
                    raise RemoteError(f"{self.url}/{path} is larger than {limit:,} bytes; refused")
            return Fetched(bytes(data), answer.etag)

    def download(
        self, path: str, expected: Digest, to: Path, advance: Advance = lambda _: None
    ) -> None:
        """Fetch an object into a file, or the rest of it after an interruption.

        The file appears whole and checked, or not at all.

        Raises
        ------
        FileNotFoundError
            It does not exist.
        RemoteError
            The server does not send it, or sends other bytes.
        """
        part = to.with_name(f".{to.name}.part")
        url = f"{self.url}/{path}"
        digest, size = hashlib.sha256(), 0
        with disk.naming_full(to, expected.bytes), part.open("a+b") as file, explained(url):
            file.seek(0)
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
            is_resumed = size > 0
            if size < expected.bytes or size == 0:
                with self.source.get(path, start=size) as answer:
                    assert answer is not None, "the request has no ETag"
                    if answer.is_whole:
                        digest, size = hashlib.sha256(), 0
                        file.truncate(0)
                    for piece in answer.pieces:
                        digest.update(piece)
                        size += len(piece)
                        file.write(piece)
                        if size > expected.bytes:  # it may have no end
                            break
        if Digest(digest.hexdigest(), size) != expected:
            part.unlink()
            if is_resumed:  # what was left there may be of another object
                self.download(path, expected, to, advance)
                return
            raise RemoteError(
                f"{url} does not hold the bytes that its bank lists for it: it was changed, or"
                " damaged on the way. Run the same command again. If that does not help, ask its"
                " publisher to push again"
            )
        part.replace(to)
        advance(size)


def place_at(url: str) -> Place:
    """The place at a URL; no request is sent yet.

    Raises
    ------
    MissingExtraError
        A library of the extra `remote` is not installed.
    UsageError
        The URL names no repository.
    """
    if url.startswith("s3:"):
        return Place(url, _Bucket(s3_store(url)))
    try:
        from huggingface_hub import constants, get_token
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs huggingface_hub; install it with `pip install 'logitbank[remote]'`"
        ) from error
    if not url.startswith("hf:"):
        return Place(url, _Web(quote(url, safe=":/%[]@")))
    match = HUB.fullmatch(url)
    if match is None:
        raise UsageError(f"{url} names no repository; write hf://datasets/owner/name")
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    keep_token(endpoint)
    revision = quote(match["revision"] or "main", safe="")
    address = f"{endpoint}/datasets/{match['repo']}/resolve/{revision}"
    token = get_token()
    return Place(url, _Web(address, {"Authorization": f"Bearer {token}"} if token else {}))


@dataclass(frozen=True)
class _Web:
    """A folder of a web server."""

    address: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @contextmanager
    def get(
        self, path: str, *, start: int = 0, unless: str | None = None
    ) -> Iterator[Answer | None]:
        url = f"{self.address}/{quote(path)}"
        headers = {**self.headers, "Accept-Encoding": "identity", "User-Agent": "logitbank"}
        headers |= {"If-None-Match": unless} if unless else {}
        headers |= {"Range": f"bytes={start}-"} if start else {}
        with ExitStack() as stack:
            response = _response(stack, url, headers)
            status = response.status_code
            if status == 304:
                yield None
            elif status == 404:
                raise FileNotFoundError(url)
            elif status in (401, 403):
                raise PermissionError(url)
            elif status not in (200, 206):
                raise _StatusError(f"{status} {response.reason_phrase}")
            else:
                # httpx decompresses where a server compresses although it was asked not to.
                pieces = response.iter_bytes(_PIECE)
                yield Answer(response.headers.get("ETag"), status == 200, pieces)


class _StatusError(Exception):
    """A status that is no success."""


def _response(stack: ExitStack, url: str, headers: Mapping[str, str]) -> Any:
    """A response, after a few tries with the waits that the server requests."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    for attempt in range(1, TRIES + 1):
        wait = _FIRST_WAIT_S * 2**attempt
        try:
            # Redirects to another host go without the token: httpx sees to that.
            request = get_session().stream(
                "GET", url, headers=headers, follow_redirects=True, timeout=60.0
            )
            response = stack.enter_context(request)
        except Exception as error:
            if not _is_transport(error) or attempt == TRIES:
                raise
        else:
            wait = max(wait, _requested_wait(response.headers))
            is_last = attempt == TRIES or wait > LONGEST_WAIT_S
            if response.status_code not in _TRANSIENT or is_last:
                return response
            stack.close()
        time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _requested_wait(headers: Mapping[str, str]) -> float:
    """Seconds that `Retry-After`, or the Hub's `RateLimit`, requests; 0 if neither does."""
    after = str(headers.get("retry-after", ""))
    limit = re.search(r"r=0\b.*t=(\d{1,9})", str(headers.get("ratelimit", "")))
    return float(after) if after.isdecimal() else float(limit[1]) if limit else 0.0


def _is_transport(error: Exception) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    return "TransportError" in names and _library(error) in _LIBRARIES


@dataclass(frozen=True)
class _Bucket:
    """A prefix of an S3-compatible store."""

    store: Any

    @contextmanager
    def get(
        self, path: str, *, start: int = 0, unless: str | None = None
    ) -> Iterator[Answer | None]:
        import obstore

        options: Any = {"if_none_match": unless} if unless else {}
        options |= {"range": {"offset": start}} if start else {}
        try:
            result = obstore.get(self.store, path, options=options or None)
        except obstore.exceptions.NotModifiedError:
            yield None
            return
        pieces = (bytes(piece) for piece in result.stream(min_chunk_size=_PIECE))
        yield Answer(result.meta["e_tag"], start == 0, pieces)


def s3_store(url: str, *, write: bool = False) -> Any:
    """obstore's store of an `s3://bucket/prefix`."""
    environment = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    return _s3_store(url, write, tuple(sorted(environment.items())))


@lru_cache(maxsize=64)  # a store keeps its connections
def _s3_store(url: str, write: bool, environment: tuple[tuple[str, str], ...]) -> Any:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs obstore; install it with `pip install 'logitbank[remote]'`"
        ) from error
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    given = dict(environment)
    endpoint = next((v for k, v in given.items() if k.startswith("AWS_ENDPOINT")), "")
    options: Any = {
        "client_options": {
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": "10s",
            "read_timeout": "60s",
            "timeout": "2h",  # of a whole object; the default, 30 s, is less than a shard may take
        },
        "retry_config": {
            "max_retries": 4,
            "backoff": {"init_backoff": timedelta(milliseconds=100)},
            "retry_timeout": timedelta(minutes=5),
        },
    }
    if "AWS_SKIP_SIGNATURE" not in given and not write:
        # Without credentials, obstore asks the machine for some and takes ten seconds to fail.
        options["skip_signature"] = not any(name in given for name in _CREDENTIALS)
    return S3Store(bucket, prefix=prefix or None, **options)


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn a library's error into a RemoteError with the URL and the next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(url) from error
    except Exception as error:
        if (
            not isinstance(error, _StatusError | PermissionError)
            and _library(error) not in _LIBRARIES
        ):
            raise
        raise RemoteError(_message(url, error)) from error


def _library(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]


def _message(url: str, error: Exception) -> str:
    text = str(error).split("\n\nDebug source")[0].strip()
    status = getattr(getattr(error, "response", None), "status_code", None)
    kind = type(error).__name__
    is_refused = status in (401, 403) or isinstance(error, PermissionError)
    if is_refused or kind in _REFUSALS or _REFUSED.search(text):
        return f"{url} refuses access; {_sign_in(url)}"
    if code := re.search(r"<Code>(\w+)</Code>", text):
        reason = code[1]
    elif found := re.search(r"status code: (\d+ [A-Za-z ]+)", text):
        reason = found[1].strip()
    elif "error sending request" in text or "Connect" in kind:
        reason = "no connection"
    elif "body error" in text or "Protocol" in kind or "Read" in kind:
        reason = "the answer broke off"
    else:
        reason = text.splitlines()[0][:200] if text else kind
    return (
        f"{url} is not available ({reason}). Check the address and the network, and run the same"
        " command again: what arrived is kept"
    )


def _sign_in(url: str) -> str:
    if url.startswith("s3:"):
        return (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to keys with access, or"
            " AWS_SKIP_SIGNATURE=false to use the rights of this machine"
        )
    if url.startswith("hf:"):
        return "set HF_TOKEN to a token with access, or run `hf auth login`"
    return "ask its publisher for an address that you may read"
