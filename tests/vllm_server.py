"""Work that needs vLLM, each piece in a process of its own: forks of `python -m tests.vllm_server`.

vLLM patches transformers where it is imported, so it stays out of the tests' own process. Its
imports take five times as long as the start of a tiny engine: one server makes them, and each piece
of work is done in a fork of it, which has seen no engine and no weights yet.
"""

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).parents[1]


def require_vllm() -> None:
    """Skip the test where vLLM is not installed. Nothing is imported."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")


class VllmServer:
    """Started at the first piece of work, and ended with the `with`, or with this process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, tmp: Path, function: str, *arguments: object) -> Any:
        """What `module:function` returns in a new process. Its arguments are pickled into `tmp`."""
        request, reply = tmp / "request.pickle", tmp / "reply.pickle"
        request.write_bytes(pickle.dumps((function, arguments)))
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{tmp}\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline()
        assert code, self._log.read_text()[-3000:]
        assert code == "0\n", _output(tmp).read_text()[-3000:]
        return pickle.loads(reply.read_bytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def _start(self) -> "subprocess.Popen[str]":
        with self._log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.vllm_server"],
                cwd=ROOT,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )


def _output(tmp: Path) -> Path:
    return tmp / "output.log"


def _serve() -> None:
    import logitbank.engine.vllm_masked
    import logitbank.engine.vllm_positions  # noqa: F401

    for line in sys.stdin:
        tmp = Path(line.removesuffix("\n"))
        pid = os.fork()
        if pid == 0:
            _work(tmp)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)  # vLLM's own exit handlers can hang for seconds


def _work(tmp: Path) -> None:
    """In the fork, which ends here."""
    code = 1
    try:
        output = os.open(_output(tmp), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        function, arguments = pickle.loads((tmp / "request.pickle").read_bytes())
        module, name = function.split(":")
        result = getattr(importlib.import_module(module), name)(*arguments)
        (tmp / "reply.pickle").write_bytes(pickle.dumps(result))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
