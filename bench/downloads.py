"""One large file over several connections against one, from servers that limit each connection."""

import hashlib
import json
import multiprocessing
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from bench.figures import Figure
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.ranges import Connections

FILE_BYTES = 256 << 20
ROUND_TRIP_S = 0.03
"""Before each answer: about what an answer of a hub far away takes."""
_SEND_BYTES = 1 << 18


def downloads(tmp: Path, *, size: int = FILE_BYTES, rounds: int = 3) -> Iterator[Figure]:
    """At 20 MB/s a connection, at 100, and where nothing limits them."""
    weights = tmp / "model.safetensors"
    weights.write_bytes(os.urandom(size))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    for rate, target in ((20_000_000, 3.5), (100_000_000, None), (None, None)):
        with _server(weights, digest, rate) as endpoint:
            seconds = {1: list[float](), 4: list[float]()}
            for at in range(rounds):
                for connections, times in seconds.items():
                    cache = tmp / f"{rate}-{connections}-{at}"
                    times.append(_fetch_s(endpoint, cache, connections))
        ratios = [one / four for one, four in zip(seconds[1], seconds[4], strict=True)]
        limit = f"{rate // 10**6} MB/s a connection" if rate else "connections without a limit"
        yield Figure(
            f"a file of {size >> 20} MiB over four connections against one, {limit}",
            median(ratios), "×", f"≥ {target} ×" if target else "",
            median(ratios) >= target if target else None, ratios,
            f"{median(seconds[4]):.2f} s against {median(seconds[1]):.2f} s",
        )  # fmt: skip


def _fetch_s(endpoint: str, cache: Path, connections: int) -> float:
    hub = Hub(endpoint, cache_dir=cache, connections=Connections(a_file=connections))
    start = time.monotonic()
    folder = hub.fetch("lab/toy", "main")
    seconds = time.monotonic() - start
    (folder / "model.safetensors").resolve().unlink()
    return seconds


@contextmanager
def _server(weights: Path, digest: str, rate: int | None) -> Iterator[str]:
    """A hub of one repository in a process of its own; yields its address."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(there, weights, digest, rate), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve(there: Connection, weights: Path, digest: str, rate: int | None) -> None:
    size, commit = weights.stat().st_size, "0" * 40
    config = b'{"model_type": "gpt_neox"}'
    tree = [
        {"type": "file", "path": "config.json", "size": len(config), "oid": "1" * 40},
        {"type": "file", "path": weights.name, "size": size, "oid": "2" * 40}
        | {"lfs": {"oid": digest, "size": size, "pointerSize": 134}},
    ]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            time.sleep(ROUND_TRIP_S)
            if "/tree/" in self.path:
                self._whole(json.dumps(tree).encode())
            elif "/api/" in self.path:
                self._whole(json.dumps({"id": "lab/toy", "sha": commit}).encode())
            elif self.path.endswith("config.json"):
                self._whole(config)
            elif "signed" in self.path:
                self._part()
            else:  # as hubs do: to an address elsewhere
                self.send_response(302)
                port = self.server.server_address[1]
                self.send_header("Location", f"http://localhost:{port}/signed?of=weights")
                self.send_header("X-Linked-ETag", f'"{digest}"')
                self.send_header("X-Linked-Size", str(size))
                self.send_header("X-Repo-Commit", commit)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _whole(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def _part(self) -> None:
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first = int(match[1]) if match else 0
            last = int(match[2]) if match and match[2] else size - 1
            self.send_response(206 if match else 200)
            self.send_header("Content-Length", str(last + 1 - first))
            if match:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.end_headers()
            start, sent = time.monotonic(), 0
            with weights.open("rb") as file:
                while left := last + 1 - first - sent:
                    sent += self.connection.sendfile(file, first + sent, min(left, _SEND_BYTES))
                    if rate:
                        time.sleep(max(0.0, start + sent / rate - time.monotonic()))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    there.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()
