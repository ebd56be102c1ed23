"""A fake engine, and checkpoints and prompts for it, for tests of everything but engines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from logitbank.engine.backends.protocol import EngineStart, Loaded, Sink, Tokens
from logitbank.engine.plan.parallel import ALONE, MachinePart
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.workers.events import Event, Job, Summary
from logitbank.engine.workers.serve import failure
from logitbank.engine.workers.worker import Worker
from logitbank.errors import LogitbankError
from logitbank.store.format.schema import Json, Query
from tests.support.checkpoints import VOCAB, write_tokenizer
from tests.support.resolved import run

TEXTS = (" the nurse said", " the doctor said he", " the clerk was busy")


class FakeBackend:
    """Logits made from the checkpoint's folder name and the query's ids, and a count of work."""

    def __init__(self, vocab: int = 640) -> None:
        self.vocab = vocab
        self.loads: list[str] = []
        self.scored = 0
        self._folder = ""

    def load(self, folder: Path, *, checkpoint: str, digests: Mapping[str, str] = {}) -> Loaded:
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
        return np.random.default_rng(seed).standard_normal(self.vocab).astype(np.float32)

    def describe(self) -> dict[str, Json]:
        return {"engine": "transformers"}

    def close(self) -> None:
        pass


class InProcess:
    """Stands in for WorkerProcess: the real Worker with the fake engine, in this process."""

    backend = FakeBackend()
    on_gpu = False

    def __init__(self, bank: Path, engine: EngineStart, share: MachinePart = ALONE) -> None:
        self._bank = bank
        self._worker: Worker | None = None
        self._events: list[Event] = []

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        pass

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        self._events = events = []
        if self._worker is None:
            log = self._bank.with_suffix(".log")
            self._worker = Worker(self._bank, log=log, emit=self._emit)
            self._worker._backend = self.backend
        try:
            self._worker.run(job)
        except LogitbankError as error:
            events.append(failure(job, error))
        yield from events

    def _emit(self, event: Event) -> None:
        self._events.append(event)

    def interrupt(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    kill = stop


def write_series(folder: Path, *names: str, **config: object) -> Path:
    """Checkpoint folders with a config and a tokenizer; the fake engine reads no weights."""
    sizes = {"model_type": "gpt_neox", "vocab_size": VOCAB, "max_position_embeddings": 64}
    for name in names:
        write_tokenizer(folder / name)
        (folder / name / "config.json").write_text(json.dumps(sizes | config))
        save_file({}, folder / name / "model.safetensors")
    return folder


def questions(*texts: str, options: tuple[str, ...] = (" male", " female")) -> PromptSet:
    listed = tuple(Option(o.strip(), o) for o in options)
    return PromptSet(
        "mine",
        tuple(
            Prompt(f"p{i}", text, listed, options[0].strip(), columns={"length": len(text)})
            for i, text in enumerate(texts)
        ),
    )


def request_for(series: Path, *prompts: PromptSet, **changes: Any) -> ExtractRequest:
    """A request for the fake engine, whose suite and prompts are resolved."""
    defaults = {"engine": "transformers", "canary_every": 0, "block_rows": 2, "dtype": "float32"}
    steps = changes.pop("steps", "all")
    suite = resolve_suite(str(series), steps=steps)
    return ExtractRequest(suites=suite, prompts=prompts, **(defaults | changes))


def go(path: Path, series: Path, *prompts: PromptSet, **changes: Any) -> Summary:
    return run(path, request_for(series, *prompts, **changes))
