"""A proxy between the product and a server, which spoils the answers to chosen requests.

Faults happen at named requests, never by chance:

* `html`: the page of a login, with status 200;
* `cut`: half of the body, as if it were all;
* `torn`: half of the body, then the connection ends;
* `flip`: one flipped bit in the middle of the body;
* `wait`: status 429 with a `Retry-After` that is no number;
* `drip`: 64 bytes each twentieth of a second.
"""

import http.client
import re
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

PAGE = b"<html><body>Sign in to the network</body></html>"
_OF_CONNECTION = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class FaultProxy:
    """The proxy in front of `server` (`http://host:port`), in threads; a context manager."""

    def __init__(self, server: str) -> None:
        self.server = server.removeprefix("http://")
        self.fault, self.match, self.left = "", "", 0
        self.spoilt: list[str] = []
        """Requests whose answer was spoilt."""
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._proxy.server_port}"
        self._thread = threading.Thread(target=self._proxy.serve_forever, args=(0.02,))
        self._thread.start()

    def spoil(self, fault: str = "", match: str = "", times: int = 10**6) -> None:
        """Spoil the next answers to requests (`GET /path?query`) in which a pattern is found."""
        self.fault, self.match, self.left, self.spoilt = fault, match, times if fault else 0, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._thread.join()
        self._proxy.server_close()


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the receipt of its headers

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            upstream = http.client.HTTPConnection(proxy.server, timeout=60)
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            data, headers = answer.read(), answer.getheaders()
            size = answer.getheader("Content-Length")
            upstream.close()
            request = f"{self.command} {self.path}"
            fault = ""
            if proxy.left > 0 and re.search(proxy.match, request):
                proxy.left -= 1
                proxy.spoilt.append(request)
                fault = proxy.fault
            self._send(answer.status, headers, data, size, fault)

        def _send(
            self,
            status: int,
            headers: list[tuple[str, str]],
            data: bytes,
            size: str | None,
            fault: str,
        ) -> None:
            half = len(data) // 2
            if fault == "html":
                status, data, size = 200, PAGE, None
                headers = [("Content-Type", "text/html"), ("ETag", '"0"')]
            elif fault == "wait":
                status, data, size, headers = 429, b"", None, [("Retry-After", "soon")]
            elif fault == "cut":
                data, size = data[:half], None
            elif fault == "flip" and data:
                data = data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _OF_CONNECTION:
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            self.send_header("Content-Length", size if is_head and size else str(len(data)))
            self.end_headers()
            if is_head:
                return
            if fault == "torn":
                self.wfile.write(data[:half])
                self.close_connection = True
            elif fault == "drip":
                for start in range(0, len(data), 64):
                    self.wfile.write(data[start : start + 64])
                    self.wfile.flush()
                    time.sleep(0.05)
            else:
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client gave up
                super().handle()

    return Handler
