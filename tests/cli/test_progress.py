"""What a run prints while it goes on without a terminal, such as in the log of a job."""

import time

import pytest

from logitbank.cli.screen import progress
from logitbank.cli.screen.extract import ExtractProgress, print_summary
from logitbank.cli.screen.progress import busy, byte_progress, count_progress
from logitbank.engine.plan.plan import DepositPlan, Plan
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStarted,
    Event,
    Note,
    Planned,
    Preparing,
    ReferenceChecked,
    RowsScored,
    Summary,
    Waiting,
    WeightsLoaded,
)
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

LAYOUT = Layout.plan(queries=300, vocab=8, dtype="float32", keep=Keep("full"), block_rows=100)
STARTING = "starting the engine: importing torch, transformers"
FIRST, SECOND, THIRD = (CheckpointId("tiny", step=step) for step in range(3))


def planned(*checkpoints: CheckpointId) -> Planned:
    deposits = tuple(DepositPlan(c, "q", LAYOUT, (0, 1, 2)) for c in checkpoints)
    plan = Plan(deposits, checkpoints=len(deposits), queries=300, prompts=300)
    return Planned(plan, "transformers", ())


def screen_lines(*events: tuple[float, Event]) -> list[str]:
    """The lines printed for events at these seconds."""
    now, printed = [0.0], list[str]()
    lines = ExtractProgress(printed.append, lambda: now[0])
    for now[0], event in events:
        lines(event)
    return [line for line in printed if "To run:" not in line]


def test_each_checkpoint_has_a_line_with_its_rate_and_the_time_left() -> None:
    """300 results in 10 s after 50 s of starting; 600 in 40 s are 15 a second: 300 take 20 s."""
    assert screen_lines(
        (0, planned(FIRST, SECOND, THIRD)),
        (0, CheckpointStarted(FIRST, 300)),
        (50, WeightsLoaded(FIRST, "", 50)),
        (51, ReferenceChecked(FIRST, 2e-6, allowed=1e-3, rounding=0.0)),
        (55, RowsScored(FIRST, 100)),
        (55, BlockCommitted(FIRST, 0, 100, 3200)),
        (60, RowsScored(FIRST, 200)),
        (60, CheckpointDone(FIRST, 60.0)),
        (60, CheckpointStarted(SECOND, 300)),
        (65, WeightsLoaded(SECOND, "", 5)),
        (70, RowsScored(SECOND, 300)),
        (90, CheckpointDone(SECOND, 15.0)),
        (90, CheckpointStarted(THIRD, 300)),
        (91, CheckpointFailed(THIRD, "tiny step 2: it died")),
    ) == [
        STARTING,
        "reference check of tiny step 0: difference 2e-06",
        "1/3 tiny step 0: 300 results in 60 s; 30 results/s",
        "2/3 tiny step 1: 300 results in 30 s; 15 results/s, about 20 s left",
        "3/3 failed: tiny step 2: it died",
    ]


def test_a_run_prints_a_line_at_least_every_half_minute() -> None:
    """At 31 s 60 rows are scored in 30 s, 2 a second: 840 more take 420 s."""
    scored = [(5.0 * i + 6, RowsScored(FIRST, 10)) for i in range(10)]
    assert screen_lines(
        (0, planned(FIRST, SECOND, THIRD)),
        (0, CheckpointStarted(FIRST, 300)),
        (1, WeightsLoaded(FIRST, "", 1)),
        *scored,
        (60, Note("odd")),
    ) == [
        STARTING,
        "60 of 900 results, at tiny step 0; 2 results/s",
        "Note: odd",
    ]


def test_rows_of_a_failed_worker_are_not_counted_twice() -> None:
    lines = screen_lines(
        (0, planned(FIRST, SECOND, THIRD)),
        (0, CheckpointStarted(FIRST, 300)),
        (1, WeightsLoaded(FIRST, "", 1)),
        (5, RowsScored(FIRST, 90)),
        (20, WeightsLoaded(FIRST, "", 1)),
        (41, RowsScored(FIRST, 100)),
    )
    assert lines[1:] == ["100 of 900 results, at tiny step 0; 2.5 results/s, about 5 min left"]


def test_rows_of_other_runs_have_no_rate() -> None:
    assert screen_lines(
        (0, planned(FIRST)), (0, CheckpointStarted(FIRST, 300)), (5, CheckpointDone(FIRST, 1.0))
    ) == [STARTING, "1/1 tiny step 0: 300 results in 5 s"]


def test_plans_of_watch_are_counted_together() -> None:
    lines = screen_lines(
        (0, planned(FIRST)),
        (0, CheckpointStarted(FIRST, 300)),
        (0.5, WeightsLoaded(FIRST, "", 1)),
        (60, RowsScored(FIRST, 300)),
        (60, CheckpointDone(FIRST, 1.0)),
        (60, planned(SECOND)),
        (90, RowsScored(SECOND, 150)),
    )
    assert lines[-1].startswith("450 of 600 results, at tiny step 1; 5.03 results/s")


def test_a_wait_is_printed_once() -> None:
    folder, checkpoint = Waiting("no folder"), Waiting("no checkpoint")
    waits = [*((60.0 * i, folder) for i in range(9)), *((600.0 + i, checkpoint) for i in range(9))]
    assert screen_lines(*waits) == ["no folder", "no checkpoint"]


def test_phases_are_named_until_the_plan_is_made() -> None:
    steps = (Preparing("reading prompts"), planned(FIRST), Preparing("sealing complete deposits"))
    assert screen_lines(*((0.0, step) for step in steps)) == ["reading prompts"]


def test_a_pipe_gets_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with ExtractProgress() as lines:
        for event in (Preparing("planning"), planned(FIRST), CheckpointFailed(FIRST, "[it] died")):
            lines(event)
    out, error = capsys.readouterr()
    assert out == ""
    planning, plan, failed = error.splitlines()
    assert planning == "planning"
    assert plan.startswith("1 checkpoint × 300 prompts (300 distinct contexts). To run: 300 ")
    assert failed == "1/1 failed: [it] died"


def summary_lines(summary: Summary, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_summary(summary, bank="b.zarr", dry_run=False)
    return capsys.readouterr().err.splitlines()


def test_the_summary_counts_the_rows_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(FIRST, SECOND, THIRD).plan
    summary = Summary(plan, seconds=10.0, rows=500, others=100, done=[FIRST, SECOND])
    first = (
        "2 of 3 checkpoints done: 500 results in 10.0 s (50 results/s, 100 more by other runs) → "
    )
    assert summary_lines(summary, capsys) == [f"{first}b.zarr"]
    summary.interrupted = True
    assert summary_lines(summary, capsys)[-1] == (
        "Interrupted: 2 of 3 checkpoints saved. Run the same command to resume."
    )


def test_the_summary_of_a_failure_ends_with_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(Plan((), checkpoints=2, queries=1, prompts=1))
    summary.failed = [
        CheckpointFailed(FIRST, "tiny step 0: it died", log_tail=("Segmentation fault",)),
        CheckpointFailed(SECOND, "tiny step 1: no weights"),
    ]
    title, log, *_, last = summary_lines(summary, capsys)
    assert "b.zarr.log about tiny step 0" in title
    assert log == "  Segmentation fault"
    assert "Run the same command" in last


def test_a_bar_prints_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with byte_progress("verifying") as sizes, count_progress() as counts:
        for now[0] in range(20):
            sizes(int(now[0]) * 1_000_000, 20_000_000)
            counts.about(f"part {now[0]}", int(now[0]) * 1_000, 20_000)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "verifying: 5 MB of 20 MB",
        "part 5: 5,000 of 20,000",
        "verifying: 15 MB of 20 MB",
        "part 15: 15,000 of 20,000",
    ]


def test_long_work_prints_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 60.0)
    with busy("reading a"):
        time.sleep(0.01)
    monkeypatch.setattr(progress, "FIRST_S", 0.02)
    with busy("reading b"):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading b (0 s)"
    assert 1 <= len(lines) <= 4  # at growing intervals


def test_what_the_command_has_printed_is_not_printed_again() -> None:
    steps = (Preparing("reading suites and prompts"),) * 2
    assert screen_lines(*((0.0, step) for step in steps)) == ["reading suites and prompts"]
