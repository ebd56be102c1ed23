"""An S3 server with one bucket.

moto implements the protocol, with conditional puts and ranges. A small application in front of it
counts requests, and refuses all requests after a given number.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.process_server import CONTROL, ProcessServer

BUCKET = "banks"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


class S3Server(ProcessServer):
    """The server, from construction to `close`."""

    module = "tests.support.s3_server"

    def __init__(self) -> None:
        super().__init__()
        self.environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}
        self.request("PUT", f"/{BUCKET}")

    def behave(self, *, puts: int | None = None, status: str = "503 Service Unavailable") -> None:
        """Clear the log; after this many puts, answer every further request with `status`."""
        self.control([puts, status])

    def log(self) -> list[tuple[str, str, int]]:
        """Method, path and bytes of the body of each request."""
        return [tuple(row) for row in self.logged()]

    def puts(self) -> dict[str, int]:
        """Bytes of the last put of each path in the bucket, in their order."""
        puts: dict[str, int] = {}
        for method, path, size in self.log():
            if method == "PUT":
                name = path.removeprefix(f"/{BUCKET}/")
                puts.pop(name, None)
                puts[name] = size
        return puts


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
        if "/.logitbank-" not in path:  # the try whether the store heeds conditions
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
