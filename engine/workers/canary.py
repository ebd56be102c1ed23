"""Score a few sequences with plain transformers in a process of its own, as a check on an engine.

The process is separate because vLLM patches transformers where it runs. Run as a module: it reads
requests as JSON lines and answers each with one line, logits as base64 float32. What low precision
explains is measured in the same process, by plain transformers alone.
"""

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logitbank.engine.backends.protocol import Backend, EngineSettings
from logitbank.engine.weights.config import length_limits
from logitbank.engine.workers.events import CanaryChecked, Event
from logitbank.engine.workers.job import Job
from logitbank.errors import CanaryError, EngineError
from logitbank.store import Bank
from logitbank.store.format.schema import Json, Query

if TYPE_CHECKING:
    import torch

FLOAT32_LIMIT = 1e-3
"""Largest difference, in logits: sums in another order differ by about 3e-6 at 70M."""
TIMES = 3
FLOOR = {"tf32": 0.02, "float16": 0.02, "bfloat16": 0.15}
"""In low precision, an engine may differ by so many times what plain transformers itself differs by
from float32, on the same sequence, and by this where that happens to be next to nothing."""


class Reference(NamedTuple):
    """What plain transformers says of a sequence."""

    logits: np.ndarray
    """(v,) computed in float32."""
    rounding: float = 0.0
    """Largest difference of its own logits in the run's compute dtype from these."""

    def allowed(self, dtype: str) -> float:
        """How much an engine may differ."""
        return FLOAT32_LIMIT if dtype == "float32" else TIMES * self.rounding + FLOOR[dtype]

    def limit(self, dtype: str) -> str:
        """The same for people, and where it is from."""
        text = f"allowed in {dtype}: {self.allowed(dtype):.3g}"
        if dtype == "float32":
            return text
        how = "float16, which has TF32's ten bits," if dtype == "tf32" else dtype
        return (
            f"{text}, {TIMES} times the {self.rounding:.3g} by which plain transformers in {how}"
            f" differs from itself in float32, and {FLOOR[dtype]:g}"
        )


class Canary:
    """A child process that evaluates sequences with plain transformers on the CPU."""

    def __init__(self, settings: EngineSettings, *, log: Path) -> None:
        self._settings = asdict(settings)
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "logitbank.engine.workers.canary"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
            )

    def ask(self, folder: Path, queries: Sequence[Query]) -> None:
        """Start an evaluation; `answers` collects it."""
        asked = [asdict(query) for query in queries]
        request = {"folder": folder, "queries": asked, "settings": self._settings}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request, default=str) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None

    def answers(self) -> list[Reference]:
        """What plain transformers says of each query that was asked for."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._dead()
        reply = json.loads(line)
        if "error" in reply:
            raise EngineError(f"the canary could not run: {reply['error']}")
        return [
            Reference(np.frombuffer(base64.b64decode(logits), np.float32), rounding)
            for logits, rounding in reply["references"]
        ]

    def _dead(self) -> EngineError:
        code = self._process.wait()
        if code != -signal.SIGKILL:
            return EngineError(f"the canary process ended; see the end of {self._log}")
        return EngineError(
            "the canary process was killed by signal 9 (out of memory?): it holds the weights in "
            "float32, beside the engine; use a machine with more memory, or --canary-every 0"
        )

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.kill()  # it holds nothing
        self._process.wait()


def compare(
    reference: Reference, logits: np.ndarray, *, dtype: str, checkpoint: str, engine: str = "vllm"
) -> float:
    """Largest difference between an engine's logits (v,) and the canary's.

    Raises
    ------
    CanaryError
        If it exceeds what the compute dtype explains, or other logits are finite. Where both
        have the same that are not, scoring refuses them and names the prompt.
    """
    # In low precision both engines are right to differ, so neither is recommended for the other.
    advice = "use --engine transformers" if engine == "vllm" else "report this architecture"
    if dtype != "float32":
        advice = "use --compute-dtype float32"
    exact = reference.logits
    if exact.shape != logits.shape:
        raise CanaryError(
            f"{checkpoint}: the engine gives {len(logits)} logits, plain transformers "
            f"{len(exact)}; {advice}"
        )
    finite = np.isfinite(exact)
    alike = np.array_equal(finite, np.isfinite(logits))
    worst = float(np.abs(exact - logits)[finite].max(initial=0)) if alike else np.inf
    if worst > reference.allowed(dtype):
        raise CanaryError(
            f"{checkpoint}: the canary's logits differ from plain transformers by {worst:.3g} "
            f"({reference.limit(dtype)}); the engine is not to be trusted with this model: {advice}"
        )
    return worst


_DRAWN = 3
"""Queries of each set that are drawn at random, beside those that are chosen by length."""


class CanaryChecks:
    """The canary of one worker: asked before an engine loads a checkpoint, compared afterwards.

    It evaluates a few queries of each query set, at the first load and every so many.
    """

    def __init__(self, *, log: Path, emit: Callable[[Event], None]) -> None:
        self._log, self._emit = log, emit
        self._canary: Canary | None = None

    def ask(self, job: Job, bank: Bank, *, loads: int) -> list[Query]:
        """Begin to evaluate queries of each set; none where it is not this load's turn."""
        every = job.settings.canary_every
        if every == 0 or loads % every:
            return []
        limits = length_limits(job.config)
        sets = [bank.query_set(deposit.query_set).queries for deposit in job.deposits]
        queries = [*dict.fromkeys(query for each in sets for query in chosen(each, limits))]
        if self._canary is None:
            self._canary = Canary(job.settings, log=self._log)
        self._canary.ask(job.folder, queries)
        return queries

    def check(self, job: Job, backend: Backend, queries: Sequence[Query]) -> dict[str, Json]:
        """Compare the engine with the answers; what provenance says of the differences.

        Raises
        ------
        CanaryError
            The engine differs by more than its compute dtype explains.
        """
        assert self._canary is not None
        rows: dict[int, torch.Tensor] = {}

        def take(indices: Sequence[int], logits: "torch.Tensor", *_: object) -> None:
            rows.update(zip(indices, logits.float().cpu().clone(), strict=True))

        backend.score(queries, take)
        references = self._canary.answers()
        checks = [
            self._check(job, query, reference, rows[i])
            for i, (query, reference) in enumerate(zip(queries, references, strict=True))
        ]
        worst = max(checks, key=lambda checked: checked.difference / checked.allowed)
        self._emit(worst)
        difference, rounding = (
            float(f"{max(values):.3g}")
            for values in zip(*((c.difference, c.rounding) for c in checks), strict=True)
        )
        provenance: dict[str, Json] = {"canary_difference": difference}
        return provenance | ({"canary_rounding": rounding} if rounding else {})

    def _check(
        self, job: Job, query: Query, reference: Reference, row: "torch.Tensor"
    ) -> CanaryChecked:
        dtype = job.settings.compute_dtype
        difference = compare(
            reference,
            row.numpy(),
            dtype=dtype,
            checkpoint=f"{job.checkpoint}, a sequence of {len(query.ids)} tokens",
            engine=job.settings.engine,
        )
        limit = reference.limit(dtype)
        print(
            f"{job.checkpoint}: the canary's logits differ by {difference:.3g}"
            f" at {len(query.ids)} tokens ({limit})"
        )
        return CanaryChecked(
            job.checkpoint, difference, reference.allowed(dtype), reference.rounding
        )

    def close(self) -> None:
        """End the canary, whatever it is at; the next `ask` begins another."""
        if self._canary is not None:
            self._canary.close()
            self._canary = None


def chosen(queries: Sequence[Query], limits: Sequence[int]) -> list[Query]:
    """The queries of a set that are checked.

    They are the shortest and the longest, the nearest on either side of each of `limits`, and three
    at random, always the same.

    Examples
    --------
    >>> queries = [Query((7,) * n, n - 1) for n in range(1, 101)]
    >>> [len(query.ids) for query in chosen(queries, [32])][:4]
    [1, 32, 33, 100]
    """
    ordered = sorted(queries, key=_length)
    found = [ordered[0]]
    for limit in limits:
        found += next(
            ([a, b] for a, b in pairwise(ordered) if _length(a) <= limit < _length(b)), []
        )
    found.append(ordered[-1])
    found += random.Random(0).sample(ordered, min(_DRAWN, len(ordered)))
    return [*dict.fromkeys(found)]


def _length(query: Query) -> int:
    """Tokens that the answer depends on."""
    return query.position + 1 if query.head == "next_token" else len(query.ids)


def _serve() -> None:
    # A scheduler's reaches every process of a job, and the worker still waits for an answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)  # before long imports: whoever sends a long line waits for that
        try:
            from transformers.utils import logging

            from logitbank.engine.backends.plain_logits import evaluate

            logging.disable_progress_bar()
            queries = [Query(**query) for query in request["queries"]]
            settings = EngineSettings(**request["settings"])
            references = evaluate(Path(request["folder"]), queries, settings)
            reply: dict[str, object] = {
                "references": [
                    (base64.b64encode(logits.tobytes()).decode(), rounding)
                    for logits, rounding in references
                ]
            }
        except Exception as error:  # the parent decides; this process only reports
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve()
