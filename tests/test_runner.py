"""Pieces that fail, are lost, or lack memory, with workers that are played."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logitbank.engine.backend import EngineSettings
from logitbank.engine.events import (
    CheckpointFailed,
    Event,
    Summary,
)
from logitbank.engine.job import Job
from logitbank.engine.plan import DepositPlan, Plan
from logitbank.engine.runner import Runner
from logitbank.engine.stopping import Stopping
from logitbank.store.schema import CheckpointId, Keep, Layout

CHECKPOINT = CheckpointId("tiny", step=0)
LAYOUT = Layout.plan(queries=40, vocab=8, dtype="float32", keep=Keep("full"), block_rows=10)
DEADLINE_S = 20.0
Part = Callable[[Job], Iterator[Event]]


class Played:
    """A worker that runs jobs as the test says."""

    def __init__(self, part: Part) -> None:
        self._part, self.jobs = part, list[Job]()

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        self.jobs.append(job)
        yield from self._part(job)

    def interrupt(self) -> None:
        pass


def played(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: Sequence[Played],
    on_event: Callable[[Event], None] = lambda _: None,
) -> Summary:
    """What comes of one checkpoint of four blocks."""
    plan = Plan((DepositPlan(CHECKPOINT, "q", LAYOUT, (0, 1, 2, 3)),), 1, 40, 40)
    monkeypatch.setattr("logitbank.engine.runner.files_digest", lambda _: "same")
    monkeypatch.setattr(Runner, "_check_fit", lambda *_: None)
    monkeypatch.setattr("logitbank.engine.runner.made_of", lambda *_: {})
    settings = EngineSettings("transformers", max_batch_tokens=4096, max_sequences=64)
    prepared = SimpleNamespace(
        plan=plan,
        first=tmp_path,
        settings=settings,
        config=SimpleNamespace(vocab=8),
        tokenizer=SimpleNamespace(entries=8),
    )
    checkpoints = (SimpleNamespace(id=CHECKPOINT, source=None),)
    extraction = SimpleNamespace(suite=SimpleNamespace(checkpoints=checkpoints))
    nothing = lambda *_: None  # noqa: E731
    fetcher = SimpleNamespace(plan=nothing, done=nothing, folder=lambda *_, **__: tmp_path)
    summary = Summary(plan)
    arguments = (extraction, prepared, fetcher, workers, summary, on_event, Stopping())
    Runner(*cast(Any, arguments)).run()
    return summary


def lost(**more: bool) -> CheckpointFailed:
    return CheckpointFailed(CHECKPOINT, "its worker on n1 is gone", lost=True, **more)


def test_a_lost_part_of_a_checkpoint_that_failed_meanwhile_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fails(_: Job) -> Iterator[Event]:
        yield CheckpointFailed(CHECKPOINT, "tiny step 0: not finite")

    def is_lost(_: Job) -> Iterator[Event]:
        assert failed.wait(DEADLINE_S)
        yield lost()

    def watch(event: Event) -> None:
        if isinstance(event, CheckpointFailed):
            failed.set()

    first, second = Played(fails), Played(is_lost)
    summary = played(tmp_path, monkeypatch, [first, second], watch)
    assert [failure.message for failure in summary.failed] == ["tiny step 0: not finite"]
    assert len(first.jobs) + len(second.jobs) == 2
