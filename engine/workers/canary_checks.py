"""When a worker's engine is compared with plain transformers, and what provenance says of it."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch

from logitbank.engine.backends.protocol import Backend
from logitbank.engine.weights.config import length_limits
from logitbank.engine.workers.canary import Canary, Reference, compare
from logitbank.engine.workers.events import CanaryChecked, Event
from logitbank.engine.workers.job import Job
from logitbank.store import Bank
from logitbank.store.format.schema import Json, Query

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
        limits = length_limits(job.said)
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

        def take(indices: Sequence[int], logits: torch.Tensor, *_: object) -> None:
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
        self, job: Job, query: Query, reference: Reference, row: torch.Tensor
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
