"""Processes forked from one that has made the engine's imports, in place of new ones.

The imports of transformers take 9 s of CPU and vLLM's 18; all else that a tiny engine does takes 1
to 4. A server, `python -m tests.support.preloaded serve`, makes them once and forks for every
process that is asked for; it starts no thread, engine or model itself. There is a server for each
engine: vLLM patches transformers where it is imported, which reference checks must not see. All
workers of pytest use the same ones, which end with the run of the tests.
"""

import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, ClassVar

import pytest

from logitbank.analysis.families import BUILT_IN
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.workers import reference_check, worker_process
from tests.support.paths import ROOT
from tests.support.shared import HELD, locked, shared_folder

COMMANDS, COMMAND = "commands", "tests.support.logitbank_command"
"""The server of the command line, and the module of its processes."""
IMPORTS: dict[EngineName, tuple[str, ...]] = {
    "transformers": (
        "logitbank.engine.workers.worker",
        "logitbank.engine.backends.hf.backend",
        "transformers.models.bert.modeling_bert",
        "transformers.models.gpt_neox.modeling_gpt_neox",
    ),
    "vllm": (
        "logitbank.engine.workers.worker",
        "logitbank.engine.backends.vllm.masked",
    ),
    COMMANDS: (
        COMMAND,
        *(f"logitbank.analysis.families.{name}" for name in BUILT_IN),
        "rich.table",
        "rich.progress",
        "scipy.stats",
    ),
}
AHEAD: dict[EngineName, tuple[str, ...]] = {
    "transformers": (),
    COMMANDS: (),
    "vllm": (
        "vllm.v1.worker.cpu_worker",
        "vllm.v1.core.sched.scheduler",
        "vllm.v1.attention.backends.cpu_attn",
        "vllm.model_executor.layers.quantization.online.base",
        "vllm.model_executor.models.transformers",
        "transformers.models.gpt_neox.modeling_gpt_neox",
    ),
}
"""What an engine imports as it starts, 500 modules in 4 s of CPU, where this version has it."""
SERVERS = "LOGITBANK_TEST_SERVERS"
"""Environment variable: addresses of the servers that a module's processes come from, as JSON."""
_NUMBER = struct.Struct("i")


def require_engine() -> None:
    """Skip the test where no engine is installed. Nothing is imported."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def require_vllm() -> None:
    """Skip the test where vLLM is not installed. Nothing is imported."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")


class Preloaded:
    """The servers, each started at its first use in any process of the tests."""

    def __init__(self) -> None:
        kept = os.environ.keys() - {"COLUMNS", "NO_COLOR"}  # a terminal has its own
        self._environment = {name: os.environ[name] for name in kept}

    @contextlib.contextmanager
    def workers(self, engine: EngineName) -> Iterator[None]:
        """Workers for this engine, and all reference checks, come from the servers."""
        servers = {
            "logitbank.engine.workers.serve": self.address(engine),
            "logitbank.engine.workers.reference_check": self.address("transformers"),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SERVERS, json.dumps(servers))
            processes_from_servers(patch.setattr)
            yield

    def logitbank(self, *arguments: object, tty: IO[Any], environment: dict[str, str]) -> "Process":
        """The command on a terminal."""
        command = [sys.executable, "-m", COMMAND, *map(str, arguments)]
        address = self.address(COMMANDS)
        return Process(address, command, stdin=tty, stdout=tty, stderr=tty, env=environment)

    def command(self, module: str, *arguments: object, output: IO[Any]) -> "Process":
        """A module of the tests that runs the command line, with its imports."""
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return Process(self.address(COMMANDS), command, stdout=output, stderr=output)

    def running(self) -> list[int]:
        """Processes from servers that this process has asked for and that have not ended."""
        return [process.pid for process in Process.started if process.returncode is None]

    def run(self, engine: EngineName, tmp: Path, function: str, *arguments: object) -> Any:
        """What `module:function` returns in a new process. Its arguments are pickled into `tmp`."""
        request, reply, output = (tmp / f"{name}.pickle" for name in ("request", "reply", "output"))
        request.write_bytes(pickle.dumps((function, arguments)))
        command = [
            sys.executable,
            "-m",
            "tests.support.preloaded",
            "work",
            str(request),
            str(reply),
        ]
        with output.open("wb") as log:
            process = Process(self.address(engine), command, stdout=log, stderr=log)
        assert process.wait() == 0, output.read_text()[-3000:]
        return pickle.loads(reply.read_bytes())

    def address(self, engine: EngineName) -> str:
        """The socket of a server, which is started if it is the first use."""
        address = str(shared_folder() / engine)
        with locked(engine):
            if not Path(address).exists():
                self._start(engine, address)
        return address

    def _start(self, engine: EngineName, address: str) -> None:
        own: dict[str, str] = {}
        if engine != COMMANDS:
            own = worker_process.worker_environment(EngineSettings(engine))
        # Whoever connects before the imports are done waits.
        with socket.socket(socket.AF_UNIX) as listener, open(f"{address}.log", "wb") as log:
            listener.bind(address)
            listener.listen()
            end = str(shared_folder() / HELD)
            number = str(listener.fileno())
            subprocess.run(
                [sys.executable, "-m", "tests.support.preloaded", "serve", number, engine, end],
                cwd=ROOT,
                env=self._environment | own,
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )


class Process:
    """What the engine uses of subprocess.Popen. The command is `python -m MODULE ARGUMENT…`."""

    stdin: IO[Any] | None = None
    stdout: IO[Any] | None = None
    returncode: int | None = None
    started: ClassVar[weakref.WeakSet["Process"]] = weakref.WeakSet()

    def __init__(
        self,
        address: str,
        command: Sequence[str],
        *,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any],
        stderr: IO[Any],
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        text: bool = False,
    ) -> None:
        self._address, self._waiting = address, threading.Lock()
        mode = "" if text else "b"
        with contextlib.ExitStack() as theirs:
            if stdin == subprocess.PIPE:
                source, write = os.pipe()
                self.stdin = os.fdopen(write, f"w{mode}")
            elif stdin == subprocess.DEVNULL:
                source = os.open(os.devnull, os.O_RDONLY)
            else:
                assert not isinstance(stdin, int)
                source = os.dup(stdin.fileno())
            theirs.callback(os.close, source)
            if stdout == subprocess.PIPE:
                read, target = os.pipe()
                self.stdout = os.fdopen(read, f"r{mode}")
                theirs.callback(os.close, target)
            else:
                assert not isinstance(stdout, int)
                target = stdout.fileno()
            descriptors = [source, target, stderr.fileno(), *pass_fds]
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.connect(address)
            environment = dict(os.environ if env is None else env)
            request = [*command[2:]], environment, [*pass_fds], os.getcwd()
            socket.send_fds(self._connection, [pickle.dumps(request)], descriptors)
        self.pid = self._receive()
        self.started.add(self)

    def wait(self, timeout: float | None = None) -> int:
        with self._waiting:  # two threads may wait, as for subprocess.Popen
            if self.returncode is None:
                self._connection.settimeout(timeout)
                try:
                    self.returncode = self._receive()
                except TimeoutError:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
                self._connection.close()
            return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _receive(self) -> int:
        with contextlib.suppress(ConnectionResetError):
            if received := self._connection.recv(_NUMBER.size):
                number: int = _NUMBER.unpack(received)[0]
                return number
        self._connection.close()
        raise RuntimeError(f"the server ended: {Path(f'{self._address}.log').read_text()[-3000:]}")


def _popen(command: Sequence[str], **options: Any) -> Process:
    address = json.loads(os.environ[SERVERS])[command[2]]
    return Process(address, command, **options)


_SUBPROCESS = SimpleNamespace(
    Popen=_popen,
    PIPE=subprocess.PIPE,
    DEVNULL=subprocess.DEVNULL,
    TimeoutExpired=subprocess.TimeoutExpired,
)


def processes_from_servers(change: Callable[[object, str, object], None] = setattr) -> None:
    """Make workers and reference checks of this process come from the servers in SERVERS."""
    for module in (worker_process, reference_check):
        change(module, "subprocess", _SUBPROCESS)


def _serve(listener: socket.socket, engine: EngineName, held: str) -> None:
    """Fork for every connection, and tell it the process's id and, at last, its exit code."""
    if os.fork():
        os._exit(0)  # the process of the tests that asked may end before others
    end = os.open(held, os.O_RDONLY)
    gc.disable()
    for module in IMPORTS[engine]:
        importlib.import_module(module)
    for module in AHEAD[engine]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.enable()
    os.fsync = lambda fd: None  # as in the process of the tests
    gc.freeze()  # forks collect garbage over what is theirs: vLLM does so five times as it starts
    reference_check.subprocess = _SUBPROCESS  # type: ignore[assignment]  # of the workers to be forked
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([end, ended, listener], [], [])
        if end in ready:
            os._exit(0)  # the tests are over; vLLM's own exit handlers can hang for seconds
        if ended in ready:
            os.read(ended, 4096)
            for pid, connection in [*running.items()]:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    del running[pid]
                    _tell(connection, os.waitstatus_to_exitcode(status))
                    connection.close()
        if listener in ready:
            connection, _ = listener.accept()
            request, descriptors, _, _ = socket.recv_fds(connection, 2**20, 32)
            pid = os.fork()
            if pid == 0:
                for unwanted in (connection, listener, *running.values()):
                    unwanted.close()
                _become(*pickle.loads(request), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            running[pid] = connection
            _tell(connection, pid)


def _tell(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(_NUMBER.pack(number))


def _become(
    command: list[str],
    environment: dict[str, str],
    numbers: list[int],
    folder: str,
    descriptors: list[int],
) -> None:
    """Go on as `python -m`, with these descriptors as 0, 1, 2 and the numbers; does not return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 1000) for descriptor in descriptors]
        for descriptor, number in zip(above, (0, 1, 2, *numbers), strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(folder)
        os.environ.update(environment)  # imports have set some too
        module, *sys.argv[1:] = command
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _work(request: str, reply: str) -> None:
    function, arguments = pickle.loads(Path(request).read_bytes())
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(reply).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        number, name, pipe = sys.argv[2:]
        _serve(socket.socket(fileno=int(number)), name, pipe)  # type: ignore[arg-type]
    else:
        _work(*sys.argv[2:])
