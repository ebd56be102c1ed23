"""This product in one process: a bank's worker that scores one checkpoint after another."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.workload import Kind, workload
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.levels import asked_level
from logitbank.engine.plan.prepare import prepare
from logitbank.engine.run import record_prompts
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.said import said_of_model
from logitbank.engine.workers.events import Event, WeightsLoaded
from logitbank.engine.workers.job import Job
from logitbank.engine.workers.worker import Worker
from logitbank.store import Bank


class Scoring:
    """Each call of `once` scores all prompts into a deposit of its own, at the level `keep`.

    Where none is given, rows are whole and float16, unless the prompts are sentences, or have
    options of many tokens: full rows of every token of a sentence are 1 MB a sentence, so what is
    kept is what is asked.
    """

    def __init__(
        self,
        checkpoint: str,
        count: int,
        prompts: Kind = "plain",
        *,
        engine: str,
        folder: str,
        words: int | None = None,
        keep: str | None = None,
    ) -> None:
        self._source = Path(checkpoint)
        suite = resolve_suite(
            str(self._source.parent), steps=self._source.name.removeprefix("step")
        )
        # As `extract` has it: auto is vLLM unless another engine has less to run.
        settings = EngineSettings(
            "transformers" if engine == "transformers" else "vllm", canary_every=0
        )
        asked = workload(count, prompts, words=words)
        few = "options" if prompts in ("sentences", "options") else "full"
        level = asked_level(keep or few, None if keep else "float16")
        self._prepared = prepare(
            None,
            Extraction(
                *(suite, (asked,), settings),
                any_engine=engine == "auto",
                keep=level.keep,
                dtype=level.dtype,
            ),
            self._source,
        )
        self._checkpoint = suite.checkpoints[0].id
        path = Path(folder) / "rounds.zarr"
        shutil.rmtree(path, ignore_errors=True)
        record_prompts(Bank.create(path), self._prepared)
        self._loaded: list[float] = []
        self.on_loaded: Callable[[], None] = lambda: None
        self.worker = Worker(path, log=Path(folder) / "canary.log", emit=self._notice)

    def once(self) -> float:
        """Seconds from weights that are there to the seal."""
        prepared = self._prepared
        checkpoint = replace(self._checkpoint, step=len(self._loaded))
        deposits = tuple(replace(d, checkpoint=checkpoint) for d in prepared.plan.deposits)
        vocab = prepared.requested.config.vocab
        # Rounds are told apart: one of the same weights, made alike, would be copied and not run.
        made_of = {"round": len(self._loaded)}
        entries = min(prepared.tokenizer.entries, vocab)
        self.worker.run(
            Job(
                *(checkpoint, self._source, deposits, vocab, entries, made_of, prepared.settings),
                said_of_model(prepared.first),
            )
        )
        return time.perf_counter() - self._loaded[-1]

    def _notice(self, event: Event) -> None:
        if isinstance(event, WeightsLoaded):
            self.on_loaded()
            self._loaded.append(time.perf_counter())
