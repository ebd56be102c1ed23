"""Reads banks made to harm in processes that may take 6 GB of addresses.

`python -m tests.support.bounded_reader` makes the imports once, and forks for the path in every
line that it is given. It reads no bank itself: Zarr and Polars start threads at their first use,
and threads do not survive a fork.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from logitbank.errors import LogitbankError
from logitbank.store import Bank, verify
from tests.support.paths import ROOT

SECONDS = 120


class BoundedReader:
    """The process, and what it answers."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.bounded_reader"],
            cwd=ROOT,
            env=os.environ | {"POLARS_MAX_THREADS": "2", "RAYON_NUM_THREADS": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def look(self, bank: Path) -> dict[str, Any]:
        """What every way of reading makes of the bank."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{bank}\n")
        self._process.stdin.flush()
        code, answers = json.loads(self._process.stdout.readline())
        assert code == 0, "its traceback is in stderr"
        found: dict[str, Any] = json.loads(answers)
        assert found["peak_mb"] < 1000, found
        return found


def _tried(read: Callable[[], object]) -> str:
    try:
        read()
    except LogitbankError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def _answers(path: str) -> dict[str, object]:
    bank = Bank.open(path)
    answers = {
        "verify": [str(damage) for damage in verify(bank)],
        "info": _tried(lambda: bank.info()),
        "scan": _tried(lambda: bank.scan("parity").collect()),
        "rows": _tried(lambda: [d.logprobs() for d in bank.deposits()]),
        "row": _tried(lambda: [d.logprobs([0]) for d in bank.deposits()]),
        "normalised": _tried(lambda: [d.logprobs(normalised=True) for d in bank.deposits()]),
        "logsumexp": _tried(lambda: [d.logsumexp() for d in bank.deposits()]),
        "group": _tried(
            lambda: [array[:] for d in bank.deposits() for array in d.group.array_values()]
        ),
        "side": _tried(
            lambda: bank.to_xarray(bank.prompts("parity").collect()["query_set"][0]).load()
        ),
    }
    # Not getrusage, which counts what the parent had when it started this process.
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = [line for line in status if line.startswith("VmHWM")]
    return answers | {"peak_mb": int(peak.split()[1]) // 1024}


def _forked(path: str) -> tuple[int, str]:
    """Exit code of a process that reads the bank, and its answers as JSON."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        try:
            os.write(write, json.dumps(_answers(path)).encode())
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as answers:
        text = answers.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


if __name__ == "__main__":
    import polars  # noqa: F401  once, before the forks
    import xarray  # noqa: F401
    import zarr  # noqa: F401
    import zarrs  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_forked(line.rstrip("\n"))), flush=True)
