"""Servers on the loopback address for tests, each in its own process."""

import json
import re
import subprocess
import sys
from typing import Any, Self
from urllib.request import Request, urlopen

CONTROL = "/.control"
"""Path at which a test reads a server's log (GET), or sets its behaviour and clears the log."""


class ProcessServer:
    """`python -m MODULE ARGUMENT …`, which prints its port and serves until it is killed."""

    module: str

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", self.module, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, method: str, path: str, data: bytes = b"") -> bytes:
        with urlopen(Request(self.endpoint + path, data=data, method=method)) as answer:
            return bytes(answer.read())

    def control(self, behaviour: object) -> None:
        """Set the behaviour, and clear the log."""
        self.request("POST", CONTROL, json.dumps(behaviour).encode())

    def logged(self) -> list[Any]:
        rows: list[Any] = json.loads(self.request("GET", CONTROL))
        return rows


def byte_range(header: str | None, size: int) -> range | None:
    """The bytes that a `Range` header names; None without one."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if not match or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    return range(int(first), min(int(last) + 1 if last else size, size))
