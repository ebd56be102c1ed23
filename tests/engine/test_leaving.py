"""A stop finishes a block that is nearly done, and leaves one that would take too long."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from logitbank.engine.backends.protocol import Sink, Tokens
from logitbank.engine.plan.prepare import make_plan
from logitbank.engine.workers import worker
from logitbank.engine.workers.events import Event, Summary, WeightsLoaded
from logitbank.engine.workers.worker import Worker
from logitbank.store import Bank, Query, verify
from tests.support.fakes import (
    FakeBackend,
    InProcess,
    go,
    questions,
    request_for,
    write_series,
)

TEXTS = tuple(f" the{' a' * (i % 7)} nurse{' said' * (i // 7)}" for i in range(20))


class SlowBackend(FakeBackend):
    """Takes 20 ms a query, and asks its worker to stop after some."""

    def __init__(self, stop_after: int) -> None:
        super().__init__()
        self._stop_after = stop_after
        self.worker: Worker | None = None

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        def slow(indices: Sequence[int], logits: object) -> None:
            time.sleep(0.02)
            if self.scored == self._stop_after:
                assert self.worker is not None
                assert self.worker.stop(), "a block is at hand"
            sink(indices, logits)  # type: ignore[arg-type]

        return super().score(queries, slow)


def stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, after: int, finish_s: float
) -> tuple[Summary, SlowBackend]:
    backend = SlowBackend(after)
    begin = Worker.run

    def begun(self: Worker, job: object) -> None:
        backend.worker = self
        begin(self, job)  # type: ignore[arg-type]

    monkeypatch.setattr(worker, "FINISH_S", finish_s)
    monkeypatch.setattr(Worker, "run", begun)
    monkeypatch.setattr(InProcess, "backend", backend)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    series = write_series(tmp_path / "tiny", "step0")
    return go(tmp_path / "b", series, questions(*TEXTS), block_rows=10), backend


@pytest.mark.parametrize(
    ("finish_s", "scored", "rows"), [(0.0, 14, 10), (60.0, 20, 20)], ids=["left", "finished"]
)
def test_the_block_at_hand_is_left_where_it_would_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finish_s: float, scored: int, rows: int
) -> None:
    """The stop comes with the 14th query, the fourth of the second block."""
    summary, backend = stopped(tmp_path, monkeypatch, after=13, finish_s=finish_s)
    assert summary.interrupted
    assert summary.exit_code == 3
    assert summary.rows == rows
    assert backend.scored + (finish_s == 0) == scored, "the query that was at hand is not counted"
    (deposit,) = Bank.open(tmp_path / "b").deposits()
    assert deposit.rows_committed == rows
    assert not verify(tmp_path / "b")
    assert not list((tmp_path / "b").rglob(".staging*"))


def test_a_worker_that_loads_weights_has_nothing_at_hand(tmp_path: Path) -> None:
    events: list[Event] = []
    idle = Worker(tmp_path, log=tmp_path / "log", emit=events.append)
    assert not idle.stop()
    assert not any(isinstance(event, WeightsLoaded) for event in events)


def planned_blocks(tmp_path: Path, *, keep: str, gpu: bool, parameters: int) -> int:
    """Rows of a block that is planned for a model of so many float16 parameters."""
    series = write_series(tmp_path / "tiny", "step0", dtype="float16")
    with (series / "step0" / "model.safetensors").open("wb") as file:
        file.truncate(2 * parameters)
    prompts = questions(" the nurse" + " said" * 36)
    request = request_for(series, prompts, block_rows=None, keep=keep)
    (deposit,) = make_plan(request, None, series / "step0", gpu=gpu).plan.deposits
    return deposit.layout.block_rows


@pytest.mark.parametrize(
    ("keep", "gpu", "parameters", "rows"),
    [
        ("options", False, 1_000_000_000, 64),  # 1.5 s a row: the least
        ("topk:4", False, 14_000_000, 1024),  # 21 ms a row: 1,411 in 30 s
        ("options", False, 100_000, 4096),
        ("options", True, 1_000_000_000, 4096),
        ("full", False, 1_000_000_000, 4096),  # of 640 outputs; by bytes alone
    ],
)
def test_blocks_of_scores_take_half_a_minute(
    tmp_path: Path, keep: str, gpu: bool, parameters: int, rows: int
) -> None:
    assert planned_blocks(tmp_path, keep=keep, gpu=gpu, parameters=parameters) == rows
