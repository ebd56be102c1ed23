"""When a worker's engine is compared with plain transformers, and what provenance says of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from logitbank.engine.backends.protocol import Backend
from logitbank.engine.workers.canary import Canary, compare
from logitbank.engine.workers.events import CanaryChecked, Event
from logitbank.engine.workers.job import Job
from logitbank.store import Bank
from logitbank.store.format.schema import Json, Query


class CanaryChecks:
    """The canary of one worker: asked before an engine loads a checkpoint, compared afterwards.

    It evaluates one sequence for each head, at the first load and every so many.
    """

    def __init__(self, *, log: Path, emit: Callable[[Event], None]) -> None:
        self._log, self._emit = log, emit
        self._canary: Canary | None = None

    def ask(self, job: Job, bank: Bank, *, loads: int) -> list[Query]:
        """Begin to evaluate the first query of each head; none where it is not this load's turn."""
        every = job.settings.canary_every
        if every == 0 or loads % every:
            return []
        firsts = [bank.query_set(deposit.query_set).queries[0] for deposit in job.deposits]
        queries = [*{query.head: query for query in reversed(firsts)}.values()]
        for query in queries:
            if self._canary is None:
                self._canary = Canary(job.settings, log=self._log)
            self._canary.ask(job.folder, query)
        return queries

    def check(self, job: Job, backend: Backend, queries: Sequence[Query]) -> dict[str, Json]:
        """Compare the engine with the answers; what provenance says of the differences.

        Raises
        ------
        CanaryError
            The engine differs by more than its compute dtype explains.
        """
        checks = [self._check(job, backend, query) for query in queries]
        difference, rounding = (
            float(f"{max(values):.3g}")
            for values in zip(*((c.difference, c.rounding) for c in checks), strict=True)
        )
        provenance: dict[str, Json] = {"canary_difference": difference}
        return provenance | ({"canary_rounding": rounding} if rounding else {})

    def _check(self, job: Job, backend: Backend, query: Query) -> CanaryChecked:
        assert self._canary is not None
        rows = []
        backend.score([query], lambda _, logits, *__: rows.append(logits[0].float().cpu().clone()))
        reference, dtype = self._canary.answer(), job.settings.compute_dtype
        difference = compare(
            reference,
            rows[-1].numpy(),
            dtype=dtype,
            checkpoint=str(job.checkpoint),
            engine=job.settings.engine,
        )
        limit = reference.limit(dtype)
        print(f"{job.checkpoint}: the canary's logits differ by {difference:.3g} ({limit})")
        allowed = reference.allowed(dtype)
        event = CanaryChecked(job.checkpoint, difference, allowed, reference.rounding)
        self._emit(event)
        return event

    def close(self) -> None:
        """End the canary, whatever it is at; the next `ask` begins another."""
        if self._canary is not None:
            self._canary.close()
            self._canary = None
