"""Check an engine against plain transformers, which evaluates a few sequences in another process.

The process is separate because vLLM patches transformers in its own. It also measures the rounding
of low precision, by plain transformers alone.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.protocol import Backend
from logitbank.engine.weights.config import length_limits
from logitbank.engine.workers.events import Event, Job, ReferenceChecked
from logitbank.engine.workers.worker_process import MALLOC
from logitbank.errors import EngineError, ReferenceCheckError
from logitbank.store import Bank
from logitbank.store.format.schema import Json, Query

if TYPE_CHECKING:
    import torch

FLOAT32_LIMIT = 1e-3
"""Largest difference, in logits: sums in another order differ by about 3e-6 at 70M."""
ROUNDING_FACTOR = 3
FLOOR = {"tf32": 0.02, "float16": 0.02, "bfloat16": 0.15}
"""In low precision, an engine may differ by `ROUNDING_FACTOR` times the rounding of plain
transformers on the same sequence, and by this in addition, as a rounding may be tiny by chance."""
_RANDOM_QUERIES = 3
"""Random queries of each query set, in addition to those chosen by length."""


class Reference(NamedTuple):
    """Result of plain transformers for a sequence."""

    logits: np.ndarray
    """(v,) computed in float32."""
    rounding: float = 0.0
    """Largest difference of its logits in the run's compute dtype from these."""

    def allowed(self, dtype: str) -> float:
        """Largest allowed difference of an engine."""
        if dtype == "float32":
            return FLOAT32_LIMIT
        return ROUNDING_FACTOR * self.rounding + FLOOR[dtype]

    def describe_limit(self, dtype: str) -> str:
        """The allowed difference as text, with its reason."""
        text = f"allowed in {dtype}: {self.allowed(dtype):.3g}"
        if dtype == "float32":
            return text
        rounding = f"the rounding of plain transformers, {self.rounding:.3g}"
        return f"{text} = {ROUNDING_FACTOR} × {rounding}, + {FLOOR[dtype]:g}"


def compare(
    reference: Reference, logits: np.ndarray, *, dtype: str, checkpoint: str, engine: str = "vllm"
) -> float:
    """Largest difference between an engine's logits (v,) and the reference.

    Raises
    ------
    ReferenceCheckError
        The difference exceeds the allowed one, or other logits are finite. Logits that are not
        finite in both are left to scoring, which refuses them and names the prompt.
    """
    # In low precision both engines rightly differ, so neither is better than the other.
    other = engine_named(engine).advice
    advice = f"use {other}" if other else "report this architecture"
    if dtype != "float32":
        advice = "use --compute-dtype float32"
    exact = reference.logits
    if exact.shape != logits.shape:
        raise ReferenceCheckError(
            f"{checkpoint}: the engine gives {len(logits)} logits, plain transformers "
            f"{len(exact)}; {advice}"
        )
    finite = np.isfinite(exact)
    same_finite = np.array_equal(finite, np.isfinite(logits))
    worst = float(np.abs(exact - logits)[finite].max(initial=0)) if same_finite else np.inf
    if worst > reference.allowed(dtype):
        raise ReferenceCheckError(
            f"{checkpoint}: the engine's logits differ from plain transformers by {worst:.3g}"
            f" ({reference.describe_limit(dtype)}), so its results are not stored; {advice}"
        )
    return worst


class ReferenceProcess:
    """A new process that evaluates sequences with plain transformers on the CPU."""

    def __init__(self, *, log: Path) -> None:
        self._connection, child = Pipe()
        descriptor = child.fileno()
        module = "logitbank.engine.workers.reference_check"
        # Freed weights go back to the system, unlike those of a worker.
        environment = {name: value for name, value in os.environ.items() if name not in MALLOC}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
            )
        child.close()

    def request(self, *request: object) -> None:
        """Start an evaluation; `reply` waits for it."""
        self._connection.send(request)

    def reply(self) -> object:
        """The rows, a message, or the exit code of a process that ended without an answer."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return self._process.wait()

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


class ReferenceFork:
    """A forked process that evaluates sequences, each time in a fork of its own.

    It has imported plain transformers and nothing else, so that an evaluation starts at once.
    """

    def __init__(self, process: int, connection: "Connection[object, object]") -> None:
        self._process, self._connection, self._runs = process, connection, False

    @classmethod
    def start(cls, *unwanted: "Connection[Any, Any]") -> Self | None:
        """Fork this process, which must not have imported an engine; None if that is unsafe.

        macOS allows no fork of a process with its frameworks loaded. The child closes the
        `unwanted` connections.
        """
        if sys.platform != "linux" or threading.active_count() > 1 or "vllm" in sys.modules:
            return None
        try:
            import_plain_models()
        except Exception:  # the import of the engine reports it
            return None
        connection, child = Pipe()
        gc.freeze()  # pages with garbage to collect would be copied
        if process := os.fork():
            child.close()
            return cls(process, connection)
        code = 1
        try:
            for each in (connection, *unwanted):
                each.close()
            _serve_forks(child)
            code = 0
        finally:
            os._exit(code)

    def request(self, *request: object) -> None:
        """Start an evaluation; `reply` waits for it."""
        self._connection.send(request)
        self._runs = True

    def reply(self) -> object:
        """The rows, a message, or the exit code of a process that ended without an answer."""
        self._runs = False
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return 1

    def close(self) -> None:
        """End the evaluation, not this process, which waits for the next."""
        if self._runs:
            with suppress(OSError):
                self._connection.send(None)
            self.reply()

    def end(self) -> None:
        """End this process."""
        self._connection.close()
        os.waitpid(self._process, 0)


def import_plain_models() -> None:
    """Import the code of plain models, without scikit-learn.

    transformers imports it for assisted generation if it is installed, which takes a quarter of the
    time.
    """
    hidden = "sklearn" not in sys.modules
    if hidden:
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        import_module("logitbank.engine.backends.plain_logits")
    finally:
        if hidden:
            del sys.modules["sklearn"]


def _serve_forks(connection: "Connection[object, Any]") -> None:
    """Fork for each request, and send its answer or its exit code, until the worker ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    while True:
        try:
            if (request := connection.recv()) is None:
                continue  # to stop an evaluation that has just ended
        except EOFError:
            return
        answers, child = Pipe(duplex=False)
        if (process := os.fork()) == 0:
            child.send(_answer(request))
            os._exit(0)
        child.close()
        if answers not in wait([connection, answers]):  # the worker stops the evaluation, or ended
            os.kill(process, signal.SIGKILL)
        try:
            answer = answers.recv_bytes()
        except (EOFError, OSError):
            answer = b""
        answers.close()
        _, status = os.waitpid(process, 0)
        if answer:
            connection.send_bytes(answer)
        else:
            connection.send(os.waitstatus_to_exitcode(status))


def _answer(request: Any) -> object:
    """The rows of a request, or a message."""
    try:
        from transformers.utils import logging

        from logitbank.engine.backends.plain_logits import evaluate

        logging.disable_progress_bar()
        return evaluate(*request)
    except Exception as error:  # the parent reports it
        return f"{type(error).__name__}: {error}"


class ReferenceCheck:
    """Checks the engine of one worker at its first two checkpoints and every n-th.

    The second one is the first whose weights are swapped in. An evaluation has a process of its
    own, and overlaps with the load of the engine.
    """

    def __init__(
        self, *, log: Path, emit: Callable[[Event], None], fork: ReferenceFork | None = None
    ) -> None:
        self._log, self._emit, self._fork = log, emit, fork
        self._process: ReferenceProcess | ReferenceFork | None = None

    def start(self, job: Job, bank: Bank, *, loads: int) -> list[Query]:
        """Start the evaluation of some queries; empty if this checkpoint is not checked."""
        every = job.settings.canary_every
        if not job.checked or every == 0 or (loads > 1 and loads % every):
            return []
        limits = length_limits(job.config)
        sets = [bank.query_set(deposit.query_set).queries for deposit in job.deposits]
        selected = (query for each in sets for query in select_queries(each, limits))
        queries = [*dict.fromkeys(selected)]
        self.close()
        self._process = self._fork or ReferenceProcess(log=self._log)
        with suppress(OSError):  # its end is noticed when the answer is read
            self._process.request(job.folder, queries, job.settings)
        return queries

    def finish(self, job: Job, backend: Backend, queries: Sequence[Query]) -> dict[str, Json]:
        """Compare the engine with the references, and return provenance of the differences.

        Raises
        ------
        ReferenceCheckError
            The engine differs by more than its compute dtype explains.
        """
        assert self._process is not None
        rows: dict[int, torch.Tensor] = {}

        def take(indices: Sequence[int], logits: "torch.Tensor", *_: object) -> None:
            rows.update(zip(indices, logits.float().cpu().clone(), strict=True))

        backend.score(queries, take)
        references = _references(self._process.reply(), self._log)
        self.close()  # it has the weights of a whole model in memory
        checks = [
            _check(job, query, reference, rows[i].numpy())
            for i, (query, reference) in enumerate(zip(queries, references, strict=True))
        ]
        self._emit(max(checks, key=lambda check: check.difference / check.allowed))
        difference = max(check.difference for check in checks)
        rounding = max(check.rounding for check in checks)
        provenance: dict[str, Json] = {"canary_difference": float(f"{difference:.3g}")}
        if rounding:
            provenance["canary_rounding"] = float(f"{rounding:.3g}")
        return provenance

    def close(self) -> None:
        """End the process; the next `start` begins another."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def kill(self) -> None:
        """End an evaluation because this process ends now, with which forks end."""
        if isinstance(self._process, ReferenceProcess):
            self._process.close()


def _references(reply: object, log: Path) -> list[Reference]:
    """The references in a reply, or its message as an error."""
    if isinstance(reply, list):
        return [Reference(logits, rounding) for logits, rounding in reply]
    if isinstance(reply, str):
        raise EngineError(f"the reference check could not run: {reply}")
    if reply != -signal.SIGKILL:
        raise EngineError(f"the reference check's process ended; see the end of {log}")
    raise EngineError(
        "the reference check's process was killed by signal 9 (out of memory?): it needs the"
        " weights in float32, in addition to the engine; use a machine with more memory, or"
        " --canary-every 0"
    )


def _check(job: Job, query: Query, reference: Reference, logits: np.ndarray) -> ReferenceChecked:
    dtype, tokens = job.settings.compute_dtype, len(query.ids)
    difference = compare(
        reference,
        logits,
        dtype=dtype,
        checkpoint=f"{job.checkpoint}, a sequence of {tokens} tokens",
        engine=job.settings.engine,
    )
    print(
        f"{job.checkpoint}: reference check: logits differ by {difference:.3g} at {tokens} tokens"
        f" ({reference.describe_limit(dtype)})"
    )
    allowed = reference.allowed(dtype)
    return ReferenceChecked(job.checkpoint, difference, allowed, reference.rounding)


def select_queries(queries: Sequence[Query], limits: Sequence[int]) -> list[Query]:
    """The queries of a set that are checked.

    They are the shortest and the longest, the nearest on either side of each of `limits`, and three
    random ones, which are always the same.

    Examples
    --------
    >>> queries = [Query((7,) * n, n - 1) for n in range(1, 101)]
    >>> [len(query.ids) for query in select_queries(queries, [32])][:4]
    [1, 32, 33, 100]
    """
    ordered = sorted(queries, key=_context_length)
    selected = [ordered[0]]
    for limit in limits:
        for shorter, longer in pairwise(ordered):
            if _context_length(shorter) <= limit < _context_length(longer):
                selected += [shorter, longer]
                break
    selected.append(ordered[-1])
    selected += random.Random(0).sample(ordered, min(_RANDOM_QUERIES, len(ordered)))
    return [*dict.fromkeys(selected)]


def _context_length(query: Query) -> int:
    return query.position + 1 if query.head == "next_token" else len(query.ids)


def main(descriptor: int) -> None:
    """Evaluate one request from the pipe `descriptor`."""
    # A scheduler sends SIGTERM to every process of a job, and the worker still needs an answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection: Connection[object, Any] = Connection(descriptor)
    with suppress(EOFError):
        request = connection.recv()  # before the slow imports, on which the sender may wait
        import_plain_models()
        connection.send(_answer(request))
        connection.recv()  # until the worker closes the pipe


if __name__ == "__main__":
    main(int(sys.argv[1]))
