"""Tasks that fail, are lost, are stopped or run out of memory, with scripted workers."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.compatibility import Compatibility
from logitbank.engine.plan.plan import DepositPlan, Plan, joined_plan
from logitbank.engine.workers.events import (
    BlockCommitted,
    Cause,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStopped,
    Event,
    Job,
    Note,
    Summary,
)
from logitbank.engine.workers.ray_worker import RayWorker
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

CHECKPOINT = CheckpointId("tiny", step=0)
LAYOUT = Layout.plan(queries=40, vocab=8, dtype="float32", keep=Keep("full"), block_rows=10)
DEADLINE_S = 120.0
Part = Callable[[Job], Iterator[Event]]


class ScriptedWorker:
    """A worker whose jobs give the events of a function."""

    def __init__(self, part: Part) -> None:
        self._part, self.jobs, self.interrupted = part, list[Job](), threading.Event()

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        self.jobs.append(job)
        yield from self._part(job)

    def interrupt(self) -> None:
        self.interrupted.set()


def run_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: Sequence[ScriptedWorker],
    on_event: Callable[[Event], None] = lambda _: None,
    stopping: Stopping | None = None,
    done: Callable[[int], None] = lambda _: None,
    checkpoints: Sequence[CheckpointId] = (CHECKPOINT,),
) -> Summary:
    """Run checkpoints of four blocks each; those of one model are a suite."""
    monkeypatch.setattr("logitbank.engine.plan.compatibility.files_digest", lambda _: "same")
    monkeypatch.setattr(Compatibility, "check", lambda *_: None)
    monkeypatch.setattr("logitbank.engine.workers.runner._provenance", lambda *_: {})
    settings = EngineSettings("transformers", max_batch_tokens=4096, max_sequences=64)
    nothing = lambda *_: None  # noqa: E731
    found = [SimpleNamespace(id=id, source=None) for id in checkpoints]
    suites = [
        SimpleNamespace(
            plan=Plan(tuple(DepositPlan(c.id, "q", LAYOUT, (0, 1, 2, 3)) for c in own), 1, 40, 40),
            to_run=own,
            first=tmp_path,
            settings=settings,
            config=SimpleNamespace(vocab=8),
            tokenizer=SimpleNamespace(entries=8),
            compatibility=lambda: SimpleNamespace(check=nothing),
        )
        for own in (
            [each for each in found if each.id.model == model]
            for model in dict.fromkeys(id.model for id in checkpoints)
        )
    ]
    fetcher = SimpleNamespace(
        plan=nothing, done=done, folder=lambda *_, **__: tmp_path, fetched=nothing, hub=None
    )
    summary = Summary(joined_plan([each.plan for each in suites]))
    pool = SimpleNamespace(workers=workers)
    arguments = (suites, found, fetcher, pool, summary, on_event, stopping or Stopping())
    Runner(*cast(Any, arguments)).run()
    return summary


def lost(*, memory: bool = False) -> CheckpointFailed:
    return CheckpointFailed(CHECKPOINT, "its worker on n1 is gone", "lost", memory)


def test_a_lost_part_of_a_checkpoint_that_failed_meanwhile_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, failed = threading.Event(), threading.Event()

    def fails(_: Job) -> Iterator[Event]:
        assert begun.wait(DEADLINE_S)
        yield CheckpointFailed(CHECKPOINT, "tiny step 0: not finite")

    def is_lost(_: Job) -> Iterator[Event]:
        begun.set()
        assert failed.wait(DEADLINE_S)
        yield lost()

    def watch(event: Event) -> None:
        if isinstance(event, CheckpointFailed):
            failed.set()

    first, second, done = ScriptedWorker(fails), ScriptedWorker(is_lost), list[int]()
    summary = run_one(tmp_path, monkeypatch, [first, second], watch, done=done.append)
    assert [failure.message for failure in summary.failed] == ["tiny step 0: not finite"]
    assert len(first.jobs) + len(second.jobs) == 2
    assert done[-2:] == [0, 0], "the late part gives its files back, too"


def test_a_worker_that_ray_killed_for_memory_is_followed_by_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(job: Job) -> Iterator[Event]:
        if job.settings.max_batch_tokens == 4096:
            yield BlockCommitted(CHECKPOINT, 0, 10, 320)
        yield lost(memory=True)

    worker, notes = ScriptedWorker(killed), list[str]()

    def watch(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    summary = run_one(tmp_path, monkeypatch, [worker], watch)
    sizes = [(job.settings.max_batch_tokens, job.settings.max_sequences) for job in worker.jobs]
    assert sizes == [(4096, 64), (2048, 32)]
    assert notes == [
        "its worker on n1 is gone; retrying the uncommitted blocks with batches of 2,048 tokens"
    ]
    (failure,) = summary.failed
    assert failure.out_of_memory, "a second death without a block between is the checkpoint's"


def test_retried_failures_do_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the first two checkpoints runs out of memory, is retried and is damaged."""

    def part(job: Job) -> Iterator[Event]:
        if job.checkpoint.step == 2:
            yield CheckpointDone(job.checkpoint, 1.0)
        elif [other.checkpoint for other in worker.jobs].count(job.checkpoint) == 1:
            yield CheckpointFailed(job.checkpoint, "out of memory", "engine", out_of_memory=True)
        else:
            yield CheckpointFailed(job.checkpoint, "damaged")

    worker = ScriptedWorker(part)
    series = [CheckpointId("tiny", step=step) for step in range(3)]
    summary = run_one(tmp_path, monkeypatch, [worker], checkpoints=series)
    assert not summary.aborted
    assert [failure.checkpoint.step for failure in summary.failed] == [0, 1]
    assert [checkpoint.step for checkpoint in summary.done] == [2]
    assert [job.settings.max_batch_tokens for job in worker.jobs] == [4096, 2048, 2048, 1024, 1024]


@pytest.mark.parametrize("ends_all", [False, True])
def test_a_suite_on_which_the_engine_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_all: bool
) -> None:
    """The third of its checkpoints is not tried; a full disk is everybody's."""

    def part(job: Job) -> Iterator[Event]:
        if job.checkpoint.model == "good":
            yield CheckpointDone(job.checkpoint, 1.0)
        else:
            cause: Cause = "fatal" if ends_all else "engine"
            yield CheckpointFailed(job.checkpoint, "no kernel", cause)

    worker = ScriptedWorker(part)
    series = [CheckpointId(model, step=step) for model in ("bad", "good") for step in range(3)]
    summary = run_one(tmp_path, monkeypatch, [worker], checkpoints=series)
    assert summary.aborted == ends_all
    failed, done = ([0], []) if ends_all else ([0, 1], [0, 1, 2])
    assert [(f.checkpoint.model, f.checkpoint.step) for f in summary.failed] == [
        ("bad", step) for step in failed
    ]
    assert [(id.model, id.step) for id in summary.done] == [("good", step) for step in done]


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError("Task was killed due to the node running low on memory.\nMore"), True),
        (ValueError("The actor died: the node was running low on memory"), True),
        (
            ValueError("(1) The process is killed by SIGKILL by OOM killer due to high memory"),
            False,
        ),
    ],
)
def test_the_reason_of_a_lost_ray_worker_is_read(error: Exception, memory: bool) -> None:
    def dies(*_: object) -> Iterator[object]:
        raise error
        yield

    raised = {"OutOfMemoryError": MemoryError, "RayTaskError": LookupError, "RayError": Exception}
    ray = SimpleNamespace(exceptions=SimpleNamespace(**raised), kill=lambda _: None)
    worker = RayWorker(cast(Any, SimpleNamespace(ray=ray, marker=None)))
    run = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=dies))
    worker._actor = SimpleNamespace(run=run)
    (failed,) = worker.run(cast(Any, SimpleNamespace(checkpoint=CHECKPOINT)))
    assert isinstance(failed, CheckpointFailed)
    assert (failed.cause, failed.out_of_memory) == ("lost", memory)
    assert f"is gone ({str(error).splitlines()[0]})" in failed.message


# Stops


@pytest.mark.parametrize(
    ("last", "done", "rows", "others"),
    [
        (
            [*(BlockCommitted(CHECKPOINT, i, 10, 320) for i in (1, 2, 3)),
             CheckpointStopped(CHECKPOINT)], [], 40, 0,
        ),
        ([CheckpointDone(CHECKPOINT, 1.0)], [CHECKPOINT], 10, 30),
        ([CheckpointFailed(CHECKPOINT, "it was killed by signal 15", "crash")], [], 10, 0),
    ],
    ids=["last commits count", "rows of other runs do not", "a death by the signal is no failure"],
)  # fmt: skip
def test_events_after_a_stop_are_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    last: list[Event],
    done: list[CheckpointId],
    rows: int,
    others: int,
) -> None:
    stopping = Stopping()

    def part(_: Job) -> Iterator[Event]:
        yield BlockCommitted(CHECKPOINT, 0, 10, 320)
        assert worker.interrupted.wait(DEADLINE_S)
        yield from last

    def stop(event: Event) -> None:
        if isinstance(event, BlockCommitted):
            stopping.request()

    worker = ScriptedWorker(part)
    summary = run_one(tmp_path, monkeypatch, [worker], stop, stopping)
    assert (summary.done, summary.rows, summary.others) == (done, rows, others)
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
