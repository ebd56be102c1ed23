"""This product in one process: a bank's worker that scores one checkpoint after another."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from bench.workload import workload
from logitbank.engine.plan.engine_choice import engine_start
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.prepare import Machines, PlanInputs, plan_suite
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run import record_prompts
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.config_identity import config_fields
from logitbank.engine.workers.events import Event, Job, WeightsLoaded
from logitbank.engine.workers.worker import Worker
from logitbank.store import Bank


class Scoring:
    """Each call of `once` scores all prompts into a deposit of its own, at the level `keep`.

    By default rows are whole, in float16.
    """

    def __init__(
        self, checkpoint: str, count: int, prompts: str, *, folder: str, keep: str | None
    ) -> None:
        self._source = Path(checkpoint)
        suite = resolve_suite(
            str(self._source.parent), steps=self._source.name.removeprefix("step")
        )
        asked = workload(count, prompts)
        request = ExtractRequest(suites=suite, prompts=asked, keep=keep or "full", canary_every=0)
        inputs = PlanInputs(
            request=request,
            prompts=[asked],
            bank=None,
            start=engine_start(request),
            machines=Machines.detect(ParallelConfig(), environment=os.environ),
        )
        self._prepared = plan_suite(inputs, suite, self._source)
        self._checkpoint = suite.checkpoints[0].id
        path = Path(folder) / "rounds.zarr"
        shutil.rmtree(path, ignore_errors=True)
        record_prompts(Bank.create(path), self._prepared)
        self._loaded: list[float] = []
        self._worker = Worker(path, log=Path(folder) / "canary.log", emit=self._notice)

    def once(self) -> float:
        """Seconds from weights that are there to the seal."""
        prepared = self._prepared
        checkpoint = replace(self._checkpoint, step=len(self._loaded))
        deposits = tuple(replace(d, checkpoint=checkpoint) for d in prepared.plan.deposits)
        vocab = prepared.config.vocab
        entries = min(prepared.tokenizer.entries, vocab)
        self._worker.run(
            Job(
                *(checkpoint, self._source, deposits, vocab, entries, {}, prepared.settings),
                config_fields(prepared.first),
            )
        )
        return time.perf_counter() - self._loaded[-1]

    def _notice(self, event: Event) -> None:
        if isinstance(event, WeightsLoaded):
            self._loaded.append(time.perf_counter())
