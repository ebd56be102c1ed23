"""Objects of banks at URLs: one protocol, and web servers and the Hub through huggingface_hub."""

import base64
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from logitbank.errors import LogitbankError, MissingExtraError, RemoteError, UsageError
from logitbank.store.files import disk
from logitbank.store.files.objects import Digest
from logitbank.store.format import index
from logitbank.store.share.urls import HUB, check_environment
from logitbank.whole_files import whole_file
from logitbank.wording import public_url, without_credentials

MAX_BYTES = 2**30
"""Bytes of the largest object that is read into memory."""
ANSWER_S = 300.0
"""Seconds that a connection, and each answer or piece of one, may take."""
MOST_WAIT_S = 60
"""Seconds that a server may ask to wait before a request is repeated."""
SLOW_S, SLOWEST = 120.0, 1000.0
"""Seconds after which an object must come with so many bytes a second, on average."""
_LIBRARIES = ("obstore", "huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2")
_REFUSED = re.compile(
    r"<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken)</Code>"
    r"|status code: 40[13]|\b40[13] (Client|Unauthorized|Forbidden)"
)
_ODD = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""Errors of libraries at answers that are not of the protocol, such as the page of a login."""
_REASONS = (re.compile(r"<Code>(\w+)</Code>"), re.compile(r"status code: (\d+ [A-Za-z ]+)"))


class Remote(Protocol):
    """Objects below one URL. `explained` turns the errors of libraries into a RemoteError."""

    @property
    def url(self) -> str: ...

    def get(self, path: str) -> AbstractContextManager[Iterable[bytes]]:
        """The bytes of an object, in chunks. Raises FileNotFoundError if it does not exist."""


def read(remote: Remote, path: str) -> bytes:
    """A small object.

    Raises FileNotFoundError, or RemoteError if it is not sent or is too large.
    """
    url, data = f"{remote.url}/{path}", bytearray()
    with explained(url), remote.get(path) as chunks:
        for chunk in _steady(url, chunks):
            data += chunk
            require_small(url, path, len(data))
    return bytes(data)


def _steady(url: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of an object, or a RemoteError if its server sends them too slowly."""
    start, size = time.monotonic(), 0
    for chunk in chunks:
        size += len(chunk)
        seconds = time.monotonic() - start
        if seconds > SLOW_S and size < SLOWEST * seconds:
            raise RemoteError(
                f"{url} came with {size / seconds:,.0f} bytes a second. The minimum is"
                f" {SLOWEST:,.0f}. Check the network, then run the same command again to resume."
            )
        yield chunk


def require_small(url: str, path: str, size: int) -> None:
    """Refuse an object that is too large for memory with a RemoteError."""
    limit = index.MAX_BYTES if path == index.NAME else MAX_BYTES
    if size > limit:
        raise RemoteError(f"{url} has more than {limit:,} bytes, so it is not read.")


def download(remote: Remote, path: str, expected: Digest, to: Path) -> None:
    """Fetch an object into a file, which appears whole and verified or not at all.

    Raises FileNotFoundError, or RemoteError if it is not sent or has other bytes.
    """
    url, digest, size = f"{remote.url}/{path}", hashlib.sha256(), 0
    with disk.naming_full(to, expected.bytes), whole_file(to, is_shared=False) as part:
        with part.open("wb") as file, explained(url), remote.get(path) as chunks:
            for chunk in _steady(url, chunks):
                digest.update(chunk)
                size += len(chunk)
                file.write(chunk)
                if size > expected.bytes:  # a stranger's object may have no end
                    break
        if Digest(digest.hexdigest(), size) != expected:
            raise RemoteError(
                f"{url} does not have the bytes that its bank lists. It was changed, or damaged"
                " during the transfer. Run the same command again. If that does not help, ask its"
                " publisher to push again."
            )


@dataclass(frozen=True)
class Web:
    """A folder of a web server."""

    url: str
    """Its URL for people."""
    address: str = field(repr=False)
    """Its URL for requests."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        huggingface_hub_for(self.url)

    @contextmanager
    def get(self, path: str) -> Iterator[Iterable[bytes]]:
        from huggingface_hub.utils import http_stream_backoff  # type: ignore[attr-defined]

        headers = {**self.headers, "Accept-Encoding": "identity", "User-Agent": "logitbank"}
        failure: Exception | None = None
        token = _IS_WEB.set(not self.url.startswith("hf:"))
        # The library repeats requests that got no answer or a transient error, and waits as long as
        # the server requests. A redirect to another host does not receive the token.
        with (
            _reset(token),
            http_stream_backoff(
                "GET",
                f"{self.address}/{quote(path)}",
                max_retries=4,
                base_wait_time=0.2,
                headers=headers,
                follow_redirects=True,
                timeout=ANSWER_S,
            ) as response,
        ):
            if response.status_code == 404:
                raise FileNotFoundError(path)
            if response.status_code != 200:
                reason = f"{response.status_code} {response.reason_phrase}"
                raise _error(f"{self.url}/{path}", reason)
            try:
                yield response.iter_bytes()  # as they come: a slow server is seen
            except Exception as error:  # raised here, the library would repeat the request
                failure = error
        if failure is not None:
            raise failure


def web(url: str) -> Web:
    """The folder of a web server at an `https://` or `http://` URL."""
    address, headers = without_user(url)
    return Web(public_url(url), quote(address, safe=":/%[]@"), headers)


def without_user(url: str) -> tuple[str, dict[str, str]]:
    """An address without user name and password, and the header that sends them.

    Libraries write addresses into their logs.
    """
    scheme, _, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    user, at, host = where.rpartition("@")
    if not at:
        return url, {}
    name = base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
    return f"{scheme}://{host}{slash}{path}", {"Authorization": f"Basic {name}"}


def hub_files(url: str, revision: str | None = None) -> Web:
    """The files of a dataset repository; `revision` replaces that of the URL."""
    hub = huggingface_hub_for(url)
    match = HUB.fullmatch(url)
    assert match is not None, "urls.bank_url checks it"
    endpoint, headers = without_user(os.environ.get("HF_ENDPOINT") or hub.constants.ENDPOINT)
    commit = quote(revision or match["revision"] or "main", safe="")
    if token := hub.get_token():
        headers = {"Authorization": f"Bearer {token}"}
    return Web(url, f"{endpoint.rstrip('/')}/datasets/{match['repo']}/resolve/{commit}", headers)


def huggingface_hub_for(url: str) -> Any:
    """The module huggingface_hub, or MissingExtraError."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs huggingface_hub. Fix: pip install 'logitbank[remote]'"
        ) from error
    for handler in logging.getLogger("huggingface_hub").handlers:
        if _hide not in handler.filters:
            handler.addFilter(_hide)
    if _bounded_client not in _FACTORIES:
        _FACTORIES.append(_bounded_client)
        huggingface_hub.set_client_factory(_bounded_client)
    check_environment()
    token = huggingface_hub.get_token() or ""
    if not (token.isascii() and token.isprintable()):
        raise UsageError("HF_TOKEN has a character that no token has. Copy it again.")
    return huggingface_hub


_FACTORIES: list[object] = []
_IS_WEB: ContextVar[bool] = ContextVar("_IS_WEB", default=False)
"""Whether a request goes to a web server, which `HF_HUB_OFFLINE` is not about."""


@contextmanager
def _reset(token: Token[bool]) -> Iterator[None]:
    try:
        yield
    finally:
        _IS_WEB.reset(token)


def _unless_web(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """A hook of the Hub's client that leaves requests to web servers alone."""
    return lambda request: None if _IS_WEB.get() else hook(request)


def _bounded_client() -> Any:
    """The library's client, with bounds for what a server may make it wait."""
    from huggingface_hub.utils._http import default_client_factory

    client = default_client_factory()
    client.timeout = ANSWER_S
    hooks = client.event_hooks  # each access of the attribute copies it
    hooks["request"] = [_unless_web(hook) for hook in hooks["request"]]
    hooks["response"].append(_bound_waits)
    client.event_hooks = hooks
    return client


def _bound_waits(response: Any) -> None:
    """Bound the waits that an answer asks for, and drop those that are no number."""
    after = response.headers.pop("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", after):
        response.headers["retry-after"] = str(min(int(after), MOST_WAIT_S))
    limit = response.headers.pop("ratelimit", "")
    if re.fullmatch(r'"[\w-]{1,40}" *; *r *= *[0-9]{1,9} *; *t *= *[0-9]{1,9}', limit):
        before, _, seconds = limit.rpartition("=")
        response.headers["ratelimit"] = f"{before}={min(int(seconds), MOST_WAIT_S)}"
    if not re.fullmatch(r'[\w"; =,-]{0,200}', response.headers.get("ratelimit-policy", "")):
        del response.headers["ratelimit-policy"]


def _hide(record: logging.LogRecord) -> bool:
    """Remove credentials from a message of the library, which logs the addresses of requests."""
    record.msg, record.args = without_credentials(record.getMessage()), ()
    return True


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn an error of a library into a RemoteError with the URL and the next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(url) from error
    except LogitbankError:
        raise
    except BaseException as error:
        is_odd = isinstance(error, _ODD) or type(error).__name__ == "PanicException"
        if not is_odd and type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        if is_odd:
            raise _error(url, f"an invalid answer, {type(error).__name__}") from None
        text = f"{type(error).__name__}: {error}".split("\n\nDebug source")[0].strip()
        reason = without_credentials(text)
        # A traceback would show the library's message.
        raise _error(url, reason) from (error if reason == text else None)


def absent(error: FileNotFoundError) -> RemoteError:
    """The error of an object that the index of a bank lists and that `download` did not find."""
    return RemoteError(
        f"The bank lists {error}, which does not exist. Ask its publisher to run"
        " `logitbank verify` and to push again."
    )


def _error(url: str, reason: str) -> RemoteError:
    if _REFUSED.search(reason) or reason.startswith(("Unauthenticated", "PermissionDenied")):
        return RemoteError(f"{url} refuses access. Fix: {_sign_in(url)}.")
    found = [match[1] for pattern in _REASONS if (match := pattern.search(reason))]
    reason = (found or [reason])[0].strip()
    return RemoteError(
        f"{url} is not available ({reason.splitlines()[0][:200]}). Check the address and the"
        " network, then run the same command again to resume."
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
