"""An S3 server on the loopback address, in a process of its own, with one bucket.

moto answers the protocol, conditional puts and ranges included. A small application before it
counts requests, and refuses all after a given number.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

BUCKET = "banks"
CONTROL = "/.control"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """The server, from construction to `close`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.s3_server"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}
        self.request("PUT", f"/{BUCKET}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def request(self, method: str, path: str, data: bytes = b"") -> bytes:
        with urlopen(Request(self.endpoint + path, data=data, method=method)) as answer:
            return bytes(answer.read())

    def behave(self, *, puts: int | None = None, status: str = "503 Service Unavailable") -> None:
        """Forget the log; after so many puts, answer every further request with `status`."""
        self.request("POST", CONTROL, json.dumps([puts, status]).encode())

    def log(self) -> list[tuple[str, str, int]]:
        """Method, path and bytes of the body of each request."""
        return [tuple(row) for row in json.loads(self.request("GET", CONTROL))]

    def puts(self) -> dict[str, int]:
        """Bytes of what was put, by path in the bucket."""
        prefix = f"/{BUCKET}/"
        return {p.removeprefix(prefix): n for method, p, n in self.log() if method == "PUT"}


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _counting(application: Application) -> Application:
    log: list[tuple[str, str, int]] = []
    limit: list[Any] = [None, ""]

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if path == CONTROL:
            body = json.dumps(log).encode()
            if method == "POST":
                limit[:] = json.loads(environ["wsgi.input"].read(size))
                log.clear()
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        if limit[0] is not None and sum(m == "PUT" for m, _, _ in log) >= limit[0]:
            environ["wsgi.input"].read(size)
            start(limit[1], [("Content-Length", "0")])
            return []
        log.append((method, path, size))
        return application(environ, start)

    return answer


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    os.environ.update(ENVIRONMENT)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _counting(application), threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
