"""Objects of a web server: through obstore, and plainly where a server does what obstore cannot.

obstore hears no `Retry-After`, takes no answer without a length, and gives on what a server has
compressed on its own. Such an answer is asked for again with the standard library, in streams that
the caller bounds.
"""

import logging
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib import error as failures
from urllib import request as asking
from urllib.parse import quote, urljoin

from logitbank.store.remote.hub_token import Origin
from logitbank.store.remote.retry_after import seconds_to_wait

LOG = logging.getLogger("logitbank")
TRIES = 5
LONGEST_WAIT_S = 300.0
"""The longest wait that a server may ask for: the Hub counts requests in windows of 5 minutes."""
_TOLD_FROM_S = 5.0
_FIRST_S = 0.1
_TIMEOUT_S = 60.0
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_PLAINLY = re.compile(
    rf"Content-Length Header missing|status code: ({'|'.join(map(str, _TRANSIENT))}) "
    r"|error sending request"
)
_REDIRECTS = (301, 302, 303, 307, 308)


class WebError(Exception):
    """An answer that is none; `kind` is what obstore calls such an error."""

    def __init__(self, text: str, kind: str = "GenericError") -> None:
        super().__init__(text)
        self.kind = kind


class NotModifiedError(WebError):
    """The object is what it was."""


class NoRangesError(WebError):
    """The server gives whole objects only."""


@dataclass(frozen=True)
class Web:
    """A folder of a web server."""

    store: Any = field(repr=False)
    """obstore's."""
    address: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, path: str, options: Mapping[str, Any] | None = None) -> Any:
        """What `obstore.get` gives: `meta`, with an `e_tag`, and `stream`.

        Raises
        ------
        FileNotFoundError
            It is not there.
        WebError, obstore's errors
            The server does not give it.
        """
        import obstore

        url = f"{self.address}/{quote(path)}"
        origin = Origin.of(url)
        _waits.hold(origin)
        try:
            answer = obstore.get(self.store, path, options=dict(options or {}) or None)  # type: ignore[arg-type]
            if not _encoding(answer.attributes):
                return answer
        except FileNotFoundError:
            raise
        except Exception as error:
            if not _PLAINLY.search(str(error)):
                raise
        for tried in range(1, TRIES + 1):
            _waits.hold(origin)
            try:
                return _ask(url, self.headers, options or {})
            except failures.HTTPError as error:
                error.close()
                _refuse(error)
                wait = seconds_to_wait(dict(error.headers)) or _FIRST_S * 2**tried
                if tried == TRIES or wait > LONGEST_WAIT_S:
                    raise WebError(_limited(error, wait)) from error
                _waits.put_off(origin, wait, url)
            except (OSError, HTTPException) as error:
                if tried == TRIES:
                    raise WebError("error sending request") from error
                time.sleep(_FIRST_S * 2**tried)
        raise AssertionError("at least one try")


class _Answer:
    """An answer as obstore's: its bytes in pieces, decompressed where the server compressed."""

    def __init__(self, response: Any, *, expected: int | None) -> None:
        self._response, self._expected = response, expected
        self.meta = {"e_tag": response.headers.get("ETag")}

    def stream(self, min_chunk_size: int) -> Iterator[bytes]:
        gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if self._encoded else None
        length = self._response.headers.get("Content-Length", "")
        came = 0
        with self._response:
            while piece := self._read(min_chunk_size):
                came += len(piece)
                yield from _unpacked(gzip, piece, min_chunk_size) if gzip else (piece,)
        expected = int(length) if length.isdecimal() else self._expected
        if (expected is not None and came < expected) or (gzip and not gzip.eof):
            raise WebError("body error")

    @property
    def _encoded(self) -> bool:
        return bool(_encoding(self._response.headers))

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._response.read(size))
        except (OSError, HTTPException) as error:
            raise WebError("body error") from error


def _unpacked(gzip: Any, piece: bytes, size: int) -> Iterator[bytes]:
    """Yield pieces of at most `size`, however much was packed into one."""
    try:
        while piece and not gzip.eof:
            yield gzip.decompress(piece, size)
            piece = gzip.unconsumed_tail
    except zlib.error as error:
        raise WebError(f"it sends what is no gzip: {error}") from error


def _ask(url: str, headers: Mapping[str, str], options: Mapping[str, Any]) -> _Answer:
    """One request; HTTPError where it is refused."""
    sent = {**headers, "Accept-Encoding": "identity", "User-Agent": "logitbank"}
    if etag := options.get("if_none_match"):
        sent["If-None-Match"] = etag
    length: int | None = None
    if (part := options.get("range")) is not None:
        first, end = (part["offset"], None) if isinstance(part, Mapping) else part
        length = None if end is None else end - first
        sent["Range"] = f"bytes={first}-{'' if end is None else end - 1}"
    response = _opener.open(asking.Request(url, headers=sent), timeout=_TIMEOUT_S)
    encoding = _encoding(response.headers)
    if part is not None and (response.status != 206 or encoding):
        response.close()
        raise NoRangesError("it sends whole objects", "NotSupportedError")
    if encoding not in ("", "gzip", "x-gzip"):
        response.close()
        raise WebError(f"it sends what it compressed as {encoding[:20]!r}, and was asked not to")
    return _Answer(response, expected=length)


def _refuse(error: failures.HTTPError) -> None:
    """Raise what an answer means, unless asking again may help."""
    if error.code == 304:
        raise NotModifiedError("it is what it was") from error
    if error.code == 404:
        raise FileNotFoundError(error.url) from error
    if error.code in (401, 403):
        raise WebError(str(error.code), "PermissionDeniedError") from error
    if error.code not in _TRANSIENT:
        raise WebError(_status(error)) from error


def _status(error: failures.HTTPError) -> str:
    return f"status code: {error.code} {error.reason}"


def _limited(error: failures.HTTPError, wait: float) -> str:
    if wait <= LONGEST_WAIT_S:
        return _status(error)
    return f"it asks to wait {wait:,.0f} s, and at most {LONGEST_WAIT_S:.0f} s are waited"


def _encoding(headers: Mapping[str, str]) -> str:
    """How a server has packed what it sends; empty where it has not."""
    encoding = (headers.get("Content-Encoding") or "").strip().lower()
    return "" if encoding == "identity" else encoding


class _Redirects(asking.HTTPRedirectHandler):
    """Followed without what shows who asks, and never from TLS to none."""

    def redirect_request(
        self, req: asking.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage,
        newurl: str,
    ) -> asking.Request | None:  # fmt: skip
        old, new = Origin.of(req.full_url), Origin.of(urljoin(req.full_url, newurl))
        if code not in _REDIRECTS or new.scheme not in (old.scheme, "https"):
            return None
        to = asking.Request(newurl, headers=dict(req.header_items()))
        if not old.covers(new):
            to.remove_header("Authorization")
        to.remove_header("Host")
        return to


def _make_opener() -> asking.OpenerDirector:
    """Web servers alone: the standard one would open files too."""
    opener = asking.OpenerDirector()
    for handler in (
        asking.ProxyHandler, asking.HTTPHandler, asking.HTTPSHandler, _Redirects,
        asking.HTTPErrorProcessor, asking.HTTPDefaultErrorHandler,
    ):  # fmt: skip
        opener.add_handler(handler())
    return opener


_opener = _make_opener()


class _Waits:
    """What servers asked to wait for, which holds for all threads that ask them."""

    def __init__(self) -> None:
        self._until: dict[Origin, float] = {}
        self._lock = threading.Lock()

    def put_off(self, origin: Origin, seconds: float, url: str) -> None:
        with self._lock:
            before, until = self._until.get(origin, 0.0), time.monotonic() + seconds
            self._until[origin] = max(before, until)
        if seconds >= _TOLD_FROM_S and until - before >= _TOLD_FROM_S:
            LOG.warning("%s limits requests; going on in %.0f s", url, seconds)

    def hold(self, origin: Origin) -> None:
        while (left := self._until.get(origin, 0.0) - time.monotonic()) > 0:
            time.sleep(left)


_waits = _Waits()
