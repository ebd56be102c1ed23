"""Stops that come at awkward moments, with workers that are played."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.plan import DepositPlan, Plan
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStopped,
    Event,
    Summary,
)
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

CHECKPOINT = CheckpointId("tiny", step=0)
LAYOUT = Layout.plan(queries=30, vocab=8, dtype="float32", keep=Keep("full"), block_rows=10)


class Played:
    """A worker whose last events come all at once, after it was asked to stop."""

    def __init__(self, *last: Event) -> None:
        self._last, self._asked = last, threading.Event()

    def ready(self) -> bool:
        return True

    def run(self, job: object) -> Iterator[Event]:
        yield BlockCommitted(CHECKPOINT, 0, 10, 320)
        assert self._asked.wait(20)
        yield from self._last

    def interrupt(self) -> None:
        self._asked.set()


def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *last: Event) -> Summary:
    plan = Plan((DepositPlan(CHECKPOINT, "q", LAYOUT, (0, 1, 2)),), 1, 30, 30)
    monkeypatch.setattr("logitbank.engine.plan.fit.files_digest", lambda _: "same")
    monkeypatch.setattr(Runner, "_job", lambda *_: SimpleNamespace(settings=None))
    settings = EngineSettings("transformers")
    prepared = SimpleNamespace(
        plan=plan,
        first=tmp_path,
        settings=settings,
        requested=SimpleNamespace(config=None),
        tokenizer=None,
    )
    checkpoints = (SimpleNamespace(id=CHECKPOINT, source=None),)
    extraction = SimpleNamespace(suite=SimpleNamespace(checkpoints=checkpoints))
    fetcher = SimpleNamespace(plan=lambda _: None, done=lambda _: None, hub=None)
    stopping, summary = Stopping(), Summary(plan)

    def ask(event: Event) -> None:
        if isinstance(event, BlockCommitted):
            stopping.ask()

    runner = Runner(
        *cast(Any, (extraction, prepared, fetcher, [Played(*last)], summary, ask, stopping))
    )
    runner.run()
    return summary


def test_what_was_committed_last_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [BlockCommitted(CHECKPOINT, i, 10, 320) for i in (1, 2)]
    summary = stopped(tmp_path, monkeypatch, *blocks, CheckpointStopped(CHECKPOINT))
    assert (summary.rows, summary.interrupted) == (30, True)


def test_what_others_committed_meanwhile_is_not_counted_as_this_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = stopped(tmp_path, monkeypatch, CheckpointDone(CHECKPOINT, 1.0))
    assert (summary.done, summary.rows, summary.others) == ([CHECKPOINT], 10, 20)


def test_an_engine_that_the_same_signal_killed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = CheckpointFailed(CHECKPOINT, "it was killed by signal 15", crash=True)
    summary = stopped(tmp_path, monkeypatch, killed)
    assert (summary.failed, summary.interrupted) == ([], True)


def test_sigterm_is_as_ctrl_c_where_no_block_is_at_hand() -> None:
    stopping = Stopping()
    with stopping.on_sigterm():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert not stopping.requested
        with stopping.watched():
            os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.requested
        os.kill(os.getpid(), signal.SIGTERM)
