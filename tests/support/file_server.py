"""A static web server that counts requests and can misbehave.

It sends whole files and ranges of them, `bytes=-N` included. It runs in its own process, so that a
reader that holds the interpreter still gets its answers.
"""

import gzip
import json
import re
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.process_server import CONTROL, ProcessServer, byte_range


@dataclass(frozen=True, slots=True)
class Sent:
    """One answer."""

    path: str
    range: str | None
    status: int
    bytes: int


class FileServer(ProcessServer):
    """The server of a folder, from construction to `close`."""

    module = "tests.support.file_server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = self.endpoint

    def behave(self, **how: Any) -> None:
        """Set how to answer, and forget the log.

        `status` answers all requests with it; `cut` and `change` are patterns of paths whose body
        is cut short or has its first byte changed, `gone` of those answered 404. `limited` is how
        many of the next answers are 429 with the headers `limit`. `chunked` sends no length.
        `packed` compresses whole answers: "heeding" the request, or "always".
        """
        self.control(how)

    def log(self) -> list[Sent]:
        return [Sent(*row) for row in self.logged()]


class _State:
    how: dict[str, Any] = {}  # noqa: RUF012
    log: list[tuple[str, str | None, int, int]] = []  # noqa: RUF012


def _handler(folder: Path, state: _State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the receipt of its headers

        def do_POST(self) -> None:
            state.how = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.log.clear()
            self._send(200, b"", {})

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path == CONTROL:
                self._send(200, json.dumps(state.log).encode(), {})
                return
            path = unquote(self.path).lstrip("/")
            how, file = state.how, folder / path
            if how.get("limited", 0) > 0:
                how["limited"] -= 1
                self._log(path, 429, 0)
                self._send(429, b"", how.get("limit", {}))
                return
            status = how.get("status") or (200 if file.is_file() else 404)
            status = 404 if re.search(how.get("gone", "(?!)"), path) else status
            if status != 200:
                self._log(path, status, 0)
                self._send(status, b"", {})
                return
            content = file.read_bytes()
            etag = f'"{file.stat().st_mtime_ns:x}"'
            if self.headers.get("If-None-Match") == etag:
                self._log(path, 304, 0)
                self._send(304, b"", {"ETag": etag})
                return
            if re.search(how.get("change", "(?!)"), path):
                content = bytes([content[0] ^ 1]) + content[1:]
            headers, body = {"ETag": etag}, content
            if span := byte_range(self.headers.get("Range"), len(content)):
                status, body = 206, content[span.start : span.stop]
                headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{len(content)}"
            identity = "identity" in (self.headers.get("Accept-Encoding") or "")
            if how.get("packed") == "always" or (how.get("packed") == "heeding" and not identity):
                headers["Content-Encoding"], body = "gzip", gzip.compress(body)
            cut = bool(re.search(how.get("cut", "(?!)"), path))
            self._log(path, status, len(body) // 2 if cut else len(body))
            self._send(status, body, headers, cut=cut)

        def _log(self, path: str, status: int, size: int) -> None:
            state.log.append((path, self.headers.get("Range"), status, size))

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False
        ) -> None:
            self.send_response(status)
            chunked = status in (200, 206) and state.how.get("chunked") and self.path != CONTROL
            length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": len(body)}
            for name, value in {**headers, **length}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if chunked:
                self.wfile.writelines((b"%x\r\n%b\r\n" % (len(body), body), b"0\r\n\r\n"))
            elif self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = self.close_connection or cut

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # a reader that does not want the rest hangs up


def main() -> None:
    server = _Server(("127.0.0.1", 0), _handler(Path(sys.argv[1]), _State()))
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
