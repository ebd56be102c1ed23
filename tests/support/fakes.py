"""A fake engine, for tests of everything but engines."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from logitbank.engine.backends.protocol import EngineName, EngineSettings, Loaded, Sink, Tokens
from logitbank.engine.plan.share import ALONE, Share
from logitbank.engine.workers.events import Event
from logitbank.engine.workers.job import Job
from logitbank.engine.workers.serve import failure
from logitbank.engine.workers.worker import Worker
from logitbank.errors import LogitbankError, WeightsError
from logitbank.store.format.schema import Json, Query


class FakeBackend:
    """Logits made from the checkpoint's folder name and the query's ids, and a count of work.

    A folder name with `nan` gives a logit that is not finite for queries that end in an even id;
    one with `broken` fails to load.
    """

    name: EngineName = "transformers"

    def __init__(self, vocab: int = 640) -> None:
        self.vocab = vocab
        self.loads: list[str] = []
        self.scored = 0
        self._folder = ""

    def load(self, folder: Path, *, checkpoint: str) -> Loaded:
        if "broken" in folder.name:
            raise WeightsError(f"{checkpoint}: {folder.name} is broken")
        self._folder = folder.name
        self.loads.append(folder.name)
        return Loaded("weights of " + folder.name, self.vocab, 0.0)

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        for i, query in enumerate(queries):
            sink([i], torch.tensor(self.logits(query))[None])
            self.scored += 1
        return Tokens(sum(len(query.ids) for query in queries), 0)

    def logits(self, query: Query) -> np.ndarray:
        own = query.ids[: query.position + 1] if query.head == "next_token" else query.ids
        seed = [*self._folder.encode(), *own]
        row = np.random.default_rng(seed).standard_normal(self.vocab).astype(np.float32)
        if "nan" in self._folder and own[-1] % 2 == 0:
            row[3] = np.nan
        return row

    def describe(self) -> dict[str, Json]:
        return {"engine": "fake"}

    def close(self) -> None:
        pass


class InProcess:
    """Stands in for WorkerProcess: the real Worker with the fake engine, in this process."""

    backend = FakeBackend()
    on_gpu = False

    def __init__(self, bank: Path, settings: EngineSettings, share: Share = ALONE) -> None:
        self._bank = bank
        self._worker: Worker | None = None

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        pass

    def use(self, settings: EngineSettings) -> None:
        pass

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        events: list[Event] = []
        if self._worker is None:
            log = self._bank.with_suffix(".log")
            self._worker = Worker(self._bank, log=log, emit=events.append)
            self._worker._backend = self.backend
        self._worker._emit = events.append
        try:
            self._worker.run(job)
        except LogitbankError as error:
            events.append(failure(job, error))
        yield from events

    def interrupt(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    kill = stop
