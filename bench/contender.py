"""Processes that take turns: each holds one engine, and times one round when it is told to.

`python -m bench.contender KIND REQUEST.json`. A line "go" on standard input starts a round, whose
seconds go out as one line. Everything else that engines print goes to standard error.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

Round = Callable[[], float]
"""Runs once and gives the seconds that count."""


class Contender:
    """The caller's side of one process."""

    def __init__(
        self, kind: str, log: Path, *, environment: Mapping[str, str] = {}, **request: Any
    ) -> None:
        self._log, start = log, time.perf_counter()
        path = log.with_suffix(".json")
        path.write_text(json.dumps(request, default=str))
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.contender", kind, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | environment,
            )
        self._line()  # ready
        self.setup_s = time.perf_counter() - start
        """From the start of the process to an engine that can work."""

    def round(self) -> float:
        """Seconds of one round."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            tail = "\n".join(self._log.read_text().splitlines()[-20:])
            raise RuntimeError(f"a benchmark process ended; the end of {self._log}:\n{tail}")
        return line


def serve(prepare: Callable[..., Round], request: Path, replies: TextIO) -> None:
    run = prepare(**json.loads(request.read_text()))
    print("ready", file=replies, flush=True)
    for _ in sys.stdin:
        print(run(), file=replies, flush=True)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    from bench.contenders import KINDS

    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print to standard output
    serve(KINDS[sys.argv[1]], Path(sys.argv[2]), own)
    sys.stdout.flush()
    os._exit(0)  # vLLM's own exit handlers can hang for seconds
