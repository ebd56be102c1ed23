"""A dry run with a sample: how long the whole will take, and nothing is left behind."""

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from logitbank.cli.screen.extract import forecast
from logitbank.engine import sample
from logitbank.engine.plan.plan import Plan
from logitbank.engine.workers.events import CheckpointDone, Estimate, Summary, joined_estimate
from logitbank.errors import EngineError
from logitbank.store import CheckpointId
from tests.support.checkpoints import make_series
from tests.support.fakes import TEXTS, FakeBackend, go, questions, request_for, write_series
from tests.support.resolved import run
from tests.support.run_driver import PROMPTS, extraction
from tests.support.run_driver import questions as many_questions


def test_workers_share_the_work_and_each_starts_its_engines() -> None:
    one = Estimate(20, 40, 100, checkpoints=10, tokens=100_000, workers=1, rows=30)
    assert one.seconds == 20 + 40 + 100
    two = replace(one, workers=2)
    assert two.seconds == 20 + 70
    assert two.worker_hours == pytest.approx(180 / 3600)
    both = joined_estimate([two, Estimate(10, 4, 6, checkpoints=2, tokens=600, workers=2)])
    assert both == Estimate(30, 44, 106, checkpoints=12, tokens=100_600, workers=2, rows=30)
    assert both.seconds == 30 + 75


@pytest.mark.usefixtures("quick_workers")
def test_a_sample_is_measured_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1))  # torch has a temporary folder, too
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    summary = run(tmp_path / "b.zarr", extraction(series), dry_run=True)
    estimate = summary.estimate
    assert estimate is not None
    assert estimate.checkpoints == 2
    assert 2 * PROMPTS * 14 <= estimate.tokens <= 2 * PROMPTS * 30
    assert estimate.score_s > 0
    assert estimate.start_s > 0
    assert {p.name for p in tmp_path.iterdir()} == {"tiny", "temporary"}
    assert not list((tmp_path / "temporary").iterdir())
    text = list(forecast(summary))
    assert text[0].startswith("Size: about 84 files, ")
    assert " on 1 worker (GPU-hours " in text[1]
    # A twelfth of 560 rows is 46; five runs of 9 neighbours are 45 of them.
    assert text[2].startswith("Measured on 45 contexts of one checkpoint (0.08 of the plan) in ")


def test_the_start_of_an_engine_is_measured_with_its_imports(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 60.0, 70.0])  # before the worker, after its first job, at the end
    monkeypatch.setattr(sample, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    spent = {"load": 1.0, "swap": 2.0, "score": 3.0}
    done = CheckpointDone(CheckpointId("sample"), 6.0, spent, tokens=30)  # type: ignore[arg-type]
    monkeypatch.setattr(sample, "_run", lambda *_: done)
    series = write_series(tmp_path / "tiny", "step0")
    write_series(series, "step1", layer_norm_eps=0.5)  # another model
    request = request_for(series, questions(*TEXTS))
    estimate = run(tmp_path / "b", request, dry_run=True).estimate
    assert estimate is not None
    assert (estimate.start_s, estimate.fixed_s) == (2 * 55.0, 2 * 2.0)
    assert estimate.score_s == pytest.approx(estimate.tokens / 10)
    assert estimate.sample_s == 70.0


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_a_sample_is_less_than_a_tenth_of_the_plan(
    checkpoints: int, tmp_path: Path, backend: FakeBackend
) -> None:
    names = [f"step{i}" for i in range(checkpoints)]
    series = write_series(tmp_path / "tiny", *names)
    summary = run(tmp_path / "b.zarr", request_for(series, many_questions()), dry_run=True)
    assert summary.plan.rows == checkpoints * PROMPTS
    assert 16 <= backend.scored <= 0.1 * summary.plan.rows


@pytest.mark.usefixtures("backend")
def test_files_are_counted_as_the_format_says(tmp_path: Path) -> None:
    """What the plan says is what a run adds, but for the bank's own files and its tables."""
    series = write_series(tmp_path / "tiny", "step0", "step1")
    for keep in ("full", "options"):
        plan = go(tmp_path / keep, series, questions(*TEXTS), keep=keep).plan
        files = [p for p in (tmp_path / keep / "tiny" / "main").rglob("*") if p.is_file()]
        assert plan.files == len(files) - 1, keep  # but the run's own group


def test_a_failed_sample_reports_its_cause(tmp_path: Path, backend: FakeBackend) -> None:
    backend.vocab += 1
    request = request_for(write_series(tmp_path / "tiny", "step0"), questions(*TEXTS))
    with pytest.raises(EngineError, match="641"):
        run(tmp_path / "b.zarr", request, dry_run=True)


def test_a_plan_of_nothing_has_no_forecast() -> None:
    assert not list(forecast(Summary(Plan((), checkpoints=1, queries=1, prompts=1))))


def test_no_time_is_measured_for_other_machines(tmp_path: Path) -> None:
    series = write_series(tmp_path / "tiny", "step0")
    request = request_for(series, questions(*TEXTS), ray="auto")
    summary = run(tmp_path / "b", request, dry_run=True)
    assert summary.estimate is None
    assert any(line.startswith("Time: unknown.") for line in forecast(summary))
    assert next(forecast(summary)).endswith("before compression")
