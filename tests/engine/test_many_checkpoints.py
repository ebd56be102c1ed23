"""A plan of many checkpoints: what is asked of it once is not asked for each of them."""

from pathlib import Path

import pytest

from logitbank.engine.plan.plan import Plan
from logitbank.engine.run import run
from logitbank.store import Bank
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import CheckpointId
from tests.support.fakes import (
    FakeBackend,
    InProcess,
    go,
    questions,
    request_for,
    write_series,
)


def test_a_plan_is_gone_through_as_often_for_many_checkpoints_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of 5,000 it took 20 s, of which the rest of the plan took one."""
    series, seen = write_series(tmp_path / "series", "step0"), list[int]()
    for step in range(1, 30):
        (series / f"step{step}").symlink_to(series / "step0")
    hashed = list[int]()
    monkeypatch.setattr(QuerySet, "__hash__", lambda each: hashed.append(1) or len(each))
    to_run = Plan.to_run.fget
    assert to_run is not None

    def counted(plan: Plan) -> tuple[CheckpointId, ...]:
        seen.append(len(plan.deposits))
        return to_run(plan)

    monkeypatch.setattr(InProcess, "backend", FakeBackend())
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    monkeypatch.setattr(Plan, "to_run", property(counted))
    times = []
    for steps in ("0,1", "all"):
        request = request_for(series, questions("A"), steps=steps)
        summary = run(tmp_path / "b.zarr", request, dry_run=True)
        assert summary.plan.checkpoints == len(summary.plan.deposits)
        times.append((len(seen), len(hashed)))
        seen.clear()
        hashed.clear()
    assert times[0] == times[1]


def test_queries_are_read_as_often_for_many_checkpoints_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: FakeBackend
) -> None:
    """For each it took 8 µs a row."""
    series = write_series(tmp_path / "series", *(f"step{step}" for step in range(5)))
    read, reads = Bank.query_set, list[str]()
    monkeypatch.setattr(
        Bank, "query_set", lambda bank, name: reads.append(name) or read(bank, name)
    )
    times = []
    for bank, steps in (("few", "0,1"), ("many", "all")):
        prompts = questions("A man said", "A woman said")
        assert go(tmp_path / f"{bank}.zarr", series, prompts, steps=steps).complete
        times.append(len(reads))
        reads.clear()
    assert times[0] == times[1] > 0
