"""Several workers, several runs and clean stops, with real workers on tiny checkpoints."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logitbank.cli.screen.extract import planned
from logitbank.engine.backends import gpus
from logitbank.engine.backends.gpus import visible_devices
from logitbank.engine.plan.parallel import MachinePart, ParallelConfig
from logitbank.engine.plan.sharding import Shard
from logitbank.engine.workers.events import BlockCommitted, CheckpointDone, Event, Summary
from logitbank.errors import UsageError
from logitbank.store import Bank, verify
from tests.support.checkpoints import make_series
from tests.support.paths import ROOT
from tests.support.preloaded import Preloaded
from tests.support.resolved import run
from tests.support.run_driver import (
    BLOCK_ROWS,
    LARGE_BLOCK_ROWS,
    PROMPTS,
    assert_same,
    extraction,
)

STEPS = (0, 1, 2)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_series(tmp_path_factory.mktemp("workers") / "tiny", steps=STEPS)


@pytest.fixture(scope="module")
def full_run(series: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Bank:
    path = tmp_path_factory.mktemp("whole") / "b.zarr"
    with preloaded.workers("transformers"):
        assert run(path, extraction(series, block_rows=PROMPTS)).complete
    return Bank.open(path)


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_fill_one_bank(tmp_path: Path, series: Path, full_run: Bank) -> None:
    """Two checkpoints each by one, and the third by both."""
    done: list[CheckpointDone] = []

    def watch(event: Event) -> None:
        if isinstance(event, CheckpointDone):
            done.append(event)

    request = extraction(series, workers=2, block_rows=LARGE_BLOCK_ROWS)
    summary = run(tmp_path / "b", request, on_event=watch)
    assert summary.complete
    assert summary.workers == 2
    assert sorted(c.step or 0 for c in summary.done) == [*STEPS]
    assert summary.rows == len(STEPS) * PROMPTS
    assert sorted(event.checkpoint.step or 0 for event in done) == [*STEPS]
    assert {"load", "swap", "score", "write", "wait"} <= set(summary.spent)
    assert all(seconds >= 0 for seconds in summary.spent.values())
    assert_same(tmp_path / "b", full_run)


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_shards_that_start_together_on_nothing_fill_one_bank(
    tmp_path: Path, series: Path, full_run: Bank
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def part(i: int) -> Summary:
        request = extraction(series, shard=f"{i}/2", block_rows=LARGE_BLOCK_ROWS)
        return run(tmp_path / "b", request)

    with ThreadPoolExecutor(2) as pool:
        summaries = list(pool.map(part, range(2)))
    assert all(summary.complete for summary in summaries)
    assert sum(summary.rows for summary in summaries) == len(STEPS) * PROMPTS, "nothing twice"
    assert_same(tmp_path / "b", full_run)


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_a_finished_shard_reports_missing_rows_of_the_bank(tmp_path: Path, series: Path) -> None:
    first, second = (
        extraction(series, shard=f"{i}/2", block_rows=LARGE_BLOCK_ROWS) for i in range(2)
    )
    ran = run(tmp_path / "b", first)
    plan = run(tmp_path / "b", first, dry_run=True).plan
    assert (plan.rows, plan.shard) == (0, "0/2")
    assert 0 < ran.rows < len(STEPS) * PROMPTS
    assert plan.missing_rows == len(STEPS) * PROMPTS - ran.rows
    assert plan.missing_checkpoints == 1, "the other shard's"
    text = planned(plan, "transformers")
    assert f"other shards run the missing {plan.missing_rows} results of 1 checkpoints" in text
    assert run(tmp_path / "b", second).complete
    plan = run(tmp_path / "b", first, dry_run=True).plan
    assert planned(plan, "transformers").endswith(
        "Nothing to run: all results are already in the bank."
    )


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_sigterm_ends_a_run_after_the_block_at_hand(
    tmp_path: Path, series: Path, full_run: Bank
) -> None:
    path = tmp_path / "b"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.run_driver", str(path), str(series)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 600
        while len(list(path.glob("tiny/main/*/*/commits/*.json"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 3
    assert "Run the same command to resume" in error
    bank = Bank.open(path)
    assert not verify(bank)
    assert not list(path.rglob(".staging*")), "it ended by itself"
    rows = sum(deposit.rows_committed for deposit in bank.deposits())
    assert BLOCK_ROWS <= rows < len(STEPS) * PROMPTS
    assert run(path, extraction(series)).complete
    assert_same(path, full_run)


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_a_run_stops_before_its_time_is_over(tmp_path: Path, series: Path) -> None:
    """The scheduler's end of the job, minus the time of grace, is in the middle of this run."""

    def late(event: Event) -> None:
        if isinstance(event, BlockCommitted):
            later[0] = 20_000.0

    later = [0.0]
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_JOB_END_TIME", str(int(real()) + 10_000))
        patch.setattr("logitbank.engine.workers.stopping.time.time", lambda: real() + later[0])
        summary = run(tmp_path / "b", extraction(series), on_event=late)
    assert summary.interrupted
    assert 0 < summary.rows < len(STEPS) * PROMPTS
    assert not verify(Bank.open(tmp_path / "b"))
    assert run(tmp_path / "b", extraction(series)).complete


def test_each_worker_has_its_gpu_or_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 8})
    assert [MachinePart(i, 2).environment() for i in range(2)] == [
        {"CUDA_VISIBLE_DEVICES": "4", "OMP_NUM_THREADS": "2"},
        {"CUDA_VISIBLE_DEVICES": "7", "OMP_NUM_THREADS": "2"},
    ]
    assert ParallelConfig.detect(workers="auto").workers == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [MachinePart(i, 2).cores() for i in range(2)] == [{2, 3}, {5, 8}]
    assert MachinePart(1, 2).environment() == {"OMP_NUM_THREADS": "2"}
    assert MachinePart().environment() == {}
    assert MachinePart(5, 8).cores() == set(), "more workers than cores"
    assert MachinePart(5, 8).environment() == {"OMP_NUM_THREADS": "1"}
    assert ParallelConfig.detect(workers="auto").workers == 1
    with pytest.raises(UsageError, match="--workers 0 is invalid"):
        ParallelConfig.detect(workers=0)


@pytest.mark.parametrize(
    ("listing", "free", "chosen"),
    [
        ("GPU 0: A\nGPU 1: A\n", "300, GPU-a\n81000, GPU-b\n", {"CUDA_VISIBLE_DEVICES": "GPU-b"}),
        ("GPU 0: A\n", "300, GPU-a\n", {}),
        ("GPU 0: A\n  MIG 3g: (UUID: MIG-1)\n  MIG 3g: (UUID: MIG-2)\n", "9, GPU-a\n", {}),
    ],
)
def test_a_single_worker_takes_the_emptiest_card(
    listing: str, free: str, chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "nvidia_smi", lambda *_: listing)
    monkeypatch.setattr(gpus, "run_nvidia_smi", lambda *_: free)
    assert MachinePart().environment() == chosen
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert MachinePart().environment() == {}, "the user's choice"


@pytest.mark.parametrize(
    ("named", "devices"),
    [
        ("", []),
        (" ", []),
        ("NoDevFiles", []),
        ("-1", []),
        ("-1,0,1", []),
        ("1,-1,0", ["1"]),
        ("1,,0", ["1"]),
        (" 4, 7", ["4", "7"]),
        ("GPU-8932f937,MIG-3a", ["GPU-8932f937", "MIG-3a"]),
        ("MIG-GPU-8932f937/1/0", ["MIG-GPU-8932f937/1/0"]),
    ],
)
def test_what_follows_the_first_name_of_no_device_is_not_visible(
    named: str, devices: list[str]
) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": named}) == devices


def test_the_scheduler_s_words_are_taken() -> None:
    slurm = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_MAX": "7"}
    slurm |= {"SLURM_ARRAY_TASK_COUNT": "4", "SLURM_JOB_END_TIME": "4000000000"}
    assert ParallelConfig.detect(environment=slurm) == ParallelConfig(
        1, Shard(1, 4), 4_000_000_000.0
    )
    assert ParallelConfig.detect(shard="0/2", environment=slurm).shard == Shard(0, 2)
    past = slurm | {"SLURM_JOB_END_TIME": "1700000000"}
    assert ParallelConfig.detect(environment=past).job_end is None
