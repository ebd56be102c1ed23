"""What a run tells while it goes on where nobody sees a bar, such as in the log of a job."""

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
    RowsScored,
    Summary,
    Waiting,
    WeightsLoaded,
)
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

LAYOUT = Layout.plan(queries=300, vocab=8, dtype="float32", keep=Keep("full"), block_rows=100)
FIRST, SECOND, THIRD = (CheckpointId("tiny", step=step) for step in range(3))


def planned() -> Planned:
    deposits = tuple(DepositPlan(c, "q", LAYOUT, (0, 1, 2)) for c in (FIRST, SECOND, THIRD))
    return Planned(Plan(deposits, checkpoints=3, queries=300, prompts=300), "transformers", ())


def blocks(checkpoint: CheckpointId, *numbers: int) -> list[Event]:
    return [BlockCommitted(checkpoint, number, 100, 3200) for number in numbers]


def lines_of(*events: tuple[float, Event]) -> list[str]:
    """What is told of events at these seconds."""
    now, said = [0.0], list[str]()
    lines = ExtractProgress(said.append, lambda: now[0], terminal=False)
    for seconds, event in events:
        now[0] = seconds
        lines(event)
    return [line for line in said if "To run:" not in line]


def test_each_checkpoint_gets_a_line_with_its_rate_and_the_time_left() -> None:
    """300 rows in 60 s are 5 a second: 600 more take 2 min, and the last 300 then 60 s."""
    assert lines_of(
        (0, planned()),
        (10, CheckpointStarted(FIRST, 300)),
        *((40.0, block) for block in blocks(FIRST, 0, 1, 2)),
        (70, CheckpointDone(FIRST, 1.0)),
        (70, CheckpointStarted(SECOND, 300)),
        *((90.0, block) for block in blocks(SECOND, 0, 1, 2)),
        (130, CheckpointDone(SECOND, 1.0)),
        (130, CheckpointStarted(THIRD, 300)),
        (131, CheckpointFailed(THIRD, "tiny step 2: it died")),
    ) == [
        "starting the engine",
        "100 of 900 rows, at tiny step 0; 3.33 rows/s",
        "1/3 tiny step 0 done, 300 rows in 60 s; 5 rows/s, about 2 min left",
        "2/3 tiny step 1 done, 300 rows in 60 s; 5 rows/s, about 60 s left",
        "3/3 failed tiny step 2: it died",
    ]


def test_an_engine_s_start_is_not_in_the_rate() -> None:
    """300 rows in 10 s after 50 s of starting; then 600 in 25 s, at which 300 take 12.5 s."""
    assert lines_of(
        *((0, planned()), (0, CheckpointStarted(FIRST, 300)), (50, WeightsLoaded(FIRST, "", 50))),
        *((55.0, block) for block in blocks(FIRST, 0, 1, 2)),
        *((60, CheckpointDone(FIRST, 60.0)), (60, CheckpointStarted(SECOND, 300))),
        (65, WeightsLoaded(SECOND, "", 5)),
        *((70.0, block) for block in blocks(SECOND, 0, 1, 2)),
        (75, CheckpointDone(SECOND, 15.0)),
    ) == [
        "starting the engine",
        "100 of 900 rows, at tiny step 0; 20 rows/s",
        "1/3 tiny step 0 done, 300 rows in 60 s; 30 rows/s",
        "2/3 tiny step 1 done, 300 rows in 15 s; 24 rows/s, about 12 s left",
    ]


def test_a_run_that_gets_on_is_never_silent_for_longer_than_half_a_minute() -> None:
    """Rows count when they are scored, 10 every 5 s here; the first 100 are committed at 51 s.

    At 31 s 60 rows are there after 30 s of scoring, 2 a second: 840 more take 420 s.
    """
    scored = [(5.0 * i + 6, RowsScored(FIRST, 10)) for i in range(10)]
    one, two, _ = blocks(FIRST, 0, 1, 2)
    said = lines_of(
        *((0, planned()), (0, CheckpointStarted(FIRST, 300)), (1, WeightsLoaded(FIRST, "", 1))),
        *scored,
        *((51.0, one), (60.0, Note("odd")), (91.0, two)),
    )
    assert said == [
        "starting the engine",
        "60 of 900 rows, at tiny step 0; 2 rows/s",
        "Note: odd",
        "200 of 900 rows, at tiny step 0; 2.22 rows/s, about 5 min left",
    ]


def test_rows_of_a_worker_that_died_are_not_counted_twice() -> None:
    (one, *_) = blocks(FIRST, 0)
    said = lines_of(
        *((0, planned()), (0, CheckpointStarted(FIRST, 300)), (1, WeightsLoaded(FIRST, "", 1))),
        *((5, RowsScored(FIRST, 90)), (20, WeightsLoaded(FIRST, "", 1))),
        *((25, RowsScored(FIRST, 100)), (41, one)),
    )
    assert said[1:] == ["100 of 900 rows, at tiny step 0; 2.5 rows/s, about 5 min left"]


def test_what_others_had_done_has_no_rate() -> None:
    assert lines_of(
        (0, planned()), (0, CheckpointStarted(FIRST, 300)), (5, CheckpointDone(FIRST, 1.0))
    ) == ["starting the engine", "1/3 tiny step 0 done, 300 rows in 5 s"]


def test_a_pipe_gets_the_plan_and_then_the_lines_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ExtractProgress() as follow:
        for event in (planned(), CheckpointStarted(FIRST, 300), *blocks(FIRST, 0, 1, 2)):
            follow(event)
        follow(CheckpointDone(FIRST, 1.0))
        follow(CheckpointFailed(SECOND, "tiny step 1: [it] died"))
    out, error = capsys.readouterr()
    assert out == ""
    plan, starting, done, failed = error.splitlines()
    assert starting == "starting the engine"
    assert plan.startswith("3 checkpoints × 300 prompts (300 distinct contexts). To run: 900 ")
    assert done.startswith("1/3 tiny step 0 done, 300 rows in 0 s; ")
    assert failed == "2/3 failed tiny step 1: [it] died"


def test_the_summary_counts_this_run_s_rows_and_names_those_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = Summary(planned().plan, seconds=10.0, rows=500, others=100, done=[FIRST, SECOND])
    print_summary(summary, bank="b.zarr", dry_run=False)
    assert capsys.readouterr().err.splitlines()[0] == (
        "2 of 3 checkpoints done: 500 rows in 10.0 s (50 rows/s, 100 more by other runs) → b.zarr"
    )


def test_a_wait_is_told_when_it_begins_when_it_lasts_and_every_ten_minutes() -> None:
    folder, state, following = Waiting("no folder"), Waiting("no state"), Waiting("no checkpoint")
    waits = [
        *((float(seconds), folder) for seconds in range(0, 40, 2)),
        *((float(seconds), state) for seconds in range(40, 60, 2)),  # it does not last
        *((float(seconds), following) for seconds in range(60, 800, 2)),
    ]
    now, said = [0.0], list[tuple[float, str]]()
    lines = ExtractProgress(
        lambda line: said.append((now[0], line)), lambda: now[0], terminal=False
    )
    for now[0], event in waits:
        lines(event)
    assert said == [(0, "no folder"), (90, "no checkpoint"), (690, "no checkpoint")]


def test_steps_before_the_first_plan_are_lines() -> None:
    steps = (Preparing("reading prompts"), planned(), Preparing("sealing complete deposits"))
    assert lines_of(*((0.0, step) for step in steps)) == ["reading prompts"]


def test_a_bar_is_lines_on_stderr_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("logitbank.cli.screen.progress.time.monotonic", lambda: now[0])
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


def test_plans_that_come_one_after_the_other_are_counted_together() -> None:
    """As where each checkpoint of a training has a plan of its own."""
    plans = [
        Planned(Plan((DepositPlan(c, "q", LAYOUT, (0, 1, 2)),), 1, 300, 300), "transformers", ())
        for c in (FIRST, SECOND)
    ]
    lines = lines_of(
        (0, plans[0]),
        (0, CheckpointStarted(FIRST, 300)),
        *((60.0, block) for block in blocks(FIRST, 0, 1, 2)),
        (60, CheckpointDone(FIRST, 1.0)),
        (60, plans[1]),
        (60, CheckpointStarted(SECOND, 300)),
        (90, RowsScored(SECOND, 150)),
    )
    assert lines[-2].startswith("1/1 tiny step 0 done, 300 rows in 60 s")
    assert lines[-1].startswith("450 of 600 rows, at tiny step 1; 5 rows/s")


def test_who_is_interrupted_before_there_was_anything_to_do_reads_no_account(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_summary(Summary(Plan((), 0, 0, 0), interrupted=True), bank="b.zarr", dry_run=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Interrupted: 0 of 0")


def test_what_takes_long_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with busy("reading a"):
        time.sleep(0.01)
    monkeypatch.setattr(progress, "FIRST_S", 0.02)
    with busy("reading b"):
        time.sleep(0.3)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "reading b (0 s)"
    assert len(others) < 4, "at growing intervals"
