"""Output of an extraction: its plan, its progress and a summary."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, get_args

from rich.markup import escape
from rich.progress import TextColumn

from logitbank.cli.output import one_line, say
from logitbank.cli.screen.progress import bars
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.engine.plan.plan import Plan
    from logitbank.engine.workers.events import Event, Summary
    from logitbank.store.format.schema import CheckpointId

_QUIET_S = 30.0
"""Seconds without a line after which progress is printed, without a terminal."""


class ExtractProgress:
    """Prints the events of an extraction as lines; on a terminal there is also a bar.

    The rate counts the rows of all workers since the first weights were loaded.
    """

    def __init__(
        self, say: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._bar = bars(TextColumn("{task.completed:,.0f}/{task.total:,.0f}{task.fields[rate]}"))
        self._task = self._bar.add_task("", total=1, rate="", visible=False)
        self._planned: Counter[CheckpointId] = Counter()
        self._scored: Counter[CheckpointId] = Counter()
        self._committed: Counter[CheckpointId] = Counter()
        self._started: dict[CheckpointId, float] = {}
        self._ended: set[CheckpointId] = set()
        self._loaded: float | None = None
        self._last_line = 0.0
        self._waiting = self._engine = ""

    def __enter__(self) -> "ExtractProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: "Event") -> None:
        from logitbank.engine.workers import events

        match event:
            case events.Planned(plan=plan, engine=engine, notes=notes):
                if plan.rows or not self._planned:  # --watch plans again and again
                    self._line(planned(plan, engine))
                for note in notes:
                    self._line(f"Note: {note}")
                self._engine = engine
                for deposit in plan.deposits:
                    self._planned[deposit.checkpoint] += deposit.rows
            case events.SuiteFailed(suite=suite, message=message):
                self._line(f"Suite {suite} cannot be run: {message}")
            case events.Note(text=text):
                self._line(f"Note: {text}")
            case events.Waiting(text=text):
                if text != self._waiting:
                    self._line(text)
                self._waiting = text
            case events.Preparing(text=text):
                if not self._planned and text != self._waiting:
                    self.phase(text)
                self._describe(text)
            case events.CheckpointStarted(checkpoint=checkpoint):
                if not self._started:
                    self.phase(f"starting the engine: importing torch, {self._engine}")
                self._started.setdefault(checkpoint, self._clock())
            case events.WeightsLoaded(checkpoint=checkpoint):
                self._loaded = self._loaded or self._clock()
                # A new worker scores the blocks again that a failed worker had not committed.
                self._scored[checkpoint] = self._committed[checkpoint]
                self._describe(f"{len(self._ended) + 1}/{len(self._planned)} {checkpoint}")
            case events.ReferenceChecked(checkpoint=checkpoint, difference=difference):
                self.phase(f"reference check of {checkpoint}: difference {difference:.2g}")
            case events.RowsScored(checkpoint=checkpoint, rows=rows):
                self._scored[checkpoint] += rows
                self._advance(checkpoint)
            case events.BlockCommitted(checkpoint=checkpoint, rows=rows):
                self._committed[checkpoint] += rows
                self._advance(checkpoint)
            case events.CheckpointDone(checkpoint=checkpoint):
                self._ended.add(checkpoint)
                seconds = self._clock() - self._started.get(checkpoint, self._clock())
                size = counted(self._planned[checkpoint], "result")
                text = f"{checkpoint}: {size} in {duration(seconds)}{self._rate()}"
                self._line(f"{self._count()} {text}")
            case events.CheckpointFailed(checkpoint=checkpoint, message=message):
                self._ended.add(checkpoint)
                self._line(f"{self._count()} failed: {message}")

    def _line(self, text: str) -> None:
        self._last_line = self._clock()
        self._say(one_line(text))

    def phase(self, text: str) -> None:
        """Print what begins now."""
        self._describe(text)
        self._line(text)
        self._waiting = text

    def _describe(self, text: str) -> None:
        self._bar.update(self._task, description=escape(one_line(text)), visible=True)

    def _advance(self, checkpoint: "CheckpointId") -> None:
        scored, total = self._rows_scored(), self._planned.total()
        self._bar.update(self._task, completed=scored, total=total or 1, rate=self._rate())
        if self._bar.disable and self._clock() - self._last_line >= _QUIET_S:
            self._line(f"{scored:,} of {counted(total, 'result')}, at {checkpoint}{self._rate()}")

    def _rows_scored(self) -> int:
        return sum(max(rows, self._committed[c]) for c, rows in self._scored.items())

    def _count(self) -> str:
        return f"{len(self._ended):,}/{len(self._planned):,}"

    def _rate(self) -> str:
        """Rows per second; after half a minute also the time left."""
        scored = self._rows_scored()
        seconds = 0.0 if self._loaded is None else self._clock() - self._loaded
        if not scored or not seconds:
            return ""
        rate = scored / seconds
        left = sum(n - self._scored[c] for c, n in self._planned.items() if c not in self._ended)
        time_left = f", about {duration(left / rate)} left" if left and seconds > _QUIET_S else ""
        return f"; {_rate(rate)} results/s{time_left}"


def planned(plan: "Plan", engine: str) -> str:
    """A plan's checkpoints and prompts, and how much is already in the bank."""
    size = (
        f"{counted(plan.checkpoints, 'checkpoint')} × {counted(plan.prompts, 'prompt')} "
        f"({counted(plan.queries, 'distinct context')})"
    )
    shard = f" in shard {plan.shard}" if plan.shard else ""
    if plan.rows:
        existing = ""
        if plan.existing and not shard:
            results = f"{plan.existing + plan.rows:,} results"
            existing = f"; {plan.existing:,} of {results} are in the bank"
        return (
            f"{size}{existing}. To run{shard}: {counted(plan.rows, 'result')} of "
            f"{counted(len(plan.to_run), 'checkpoint')}, {readable_bytes(plan.bytes)} before "
            f"compression, engine {engine}."
        )
    if plan.missing_rows:
        return (
            f"{size}. Nothing to run{shard}: other shards run the missing "
            f"{counted(plan.missing_rows, 'result')} of {plan.missing_checkpoints:,} checkpoints."
        )
    return f"{size}. Nothing to run: all results are already in the bank."


def print_summary(summary: "Summary", *, bank: str, dry_run: bool) -> None:
    """Print what an extraction did, or would do, and what to do next."""
    if dry_run:
        for line in forecast(summary):
            say(line)
        say("Dry run: nothing was written.")
        return
    explained = [failure for failure in summary.failed if failure.log_tail]
    if explained:
        say(one_line(f"Last lines of {bank}.log about {explained[-1].checkpoint}:"), style="dim")
        for line in explained[-1].log_tail:
            say(f"  {one_line(line)}", style="dim")
    if summary.plan.rows or summary.failed:
        for line in account(summary, bank):
            say(line)
    saved, total = len(summary.done), len(summary.plan.to_run)
    if summary.interrupted:
        say(
            f"Interrupted: {saved:,} of {counted(total, 'checkpoint')} saved. "
            "Run the same command to resume."
        )
        return
    if summary.failed_suites:
        names = ", ".join(failure.suite for failure in summary.failed_suites)
        say(one_line(f"{counted(len(summary.failed_suites), 'suite')} not run: {names}."))
    if summary.failed:
        untried = total - saved - len(summary.failed)
        if untried > 0:
            say(f"{counted(untried, 'checkpoint')} not tried: they would probably fail too.")
        say("Run the same command to retry failed checkpoints, or exclude them with --steps.")


def _rate(rate: float) -> str:
    """Rows per second in three digits, without an exponent."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def account(summary: "Summary", bank: str) -> Iterator[str]:
    """Rows and rate, the time of all workers by phase, and the tokens that were run."""
    from logitbank.engine.workers.events import Phase

    plan = summary.plan
    rate = _rate(summary.rows / summary.seconds if summary.seconds else 0)
    others = f", {summary.others:,} more by other runs" if summary.others else ""
    yield (
        f"{len(summary.done):,} of {counted(len(plan.to_run), 'checkpoint')} done: "
        f"{counted(summary.rows, 'result')} in {summary.seconds:,.1f} s ({rate} results/s{others}) "
        f"→ {bank}"
    )
    total = sum(summary.spent.values())
    if not total:
        return
    phases = ", ".join(
        f"{phase} {summary.spent[phase]:,.1f} s ({summary.spent[phase] / total:.0%})"
        for phase in get_args(Phase)
        if phase in summary.spent
    )
    yield f"Time of {counted(summary.workers, 'worker')}: {phases}"
    orders = f" in {plan.orders} option orders" if plan.orders > 1 else ""
    tokens = f", {counted(summary.tokens, 'token')}" if summary.tokens else ""
    if summary.reused:
        tokens += f", {summary.reused / summary.tokens:.0%} saved by shared prefixes"
    yield f"{counted(plan.prompts, 'prompt')}{orders}: {plan.queries:,} distinct contexts{tokens}"


def forecast(summary: "Summary") -> Iterator[str]:
    """The needs of a plan: files, bytes, and the time that a sample measured."""
    from logitbank.engine.plan.levels import level_sizes

    plan, estimate = summary.plan, summary.estimate
    if not plan.rows:
        return
    total = readable_bytes(plan.bytes)
    yield f"Size: about {counted(plan.files, 'file')}, {total} before compression"
    if estimate is not None:
        yield (
            f"Time: about {duration(estimate.seconds)} on {counted(estimate.workers, 'worker')} "
            f"(GPU-hours {estimate.worker_hours:.2g}) without downloads and reference checks: "
            f"{estimate.start_s:.3g} s to start, "
            f"{estimate.fixed_s / estimate.checkpoints:.3g} s per checkpoint, "
            f"{counted(estimate.tokens, 'token')} at "
            f"{estimate.tokens / max(estimate.score_s, 1e-9):,.0f} tokens/s"
        )
        yield (
            f"Measured on {counted(estimate.rows, 'context')} of one checkpoint "
            f"({estimate.rows / plan.rows:.2g} of the plan) in {duration(estimate.sample_s)}"
        )
    else:
        yield "Time: unknown. No sample is measured here, because a Ray cluster has other machines."
    if summary.models > 1:
        number = f"{summary.models:,}"
        yield f"Configs differ ({number} models): each worker starts up to {number} engines."
    sizes = level_sizes(plan.deposits)
    width = max(len(str(size)) for size in sizes)
    yield "Size at each storage level, before compression:"
    for size in sizes:
        heads = f", of which LM heads {readable_bytes(size.heads)}" if size.heads else ""
        yield f"  {size!s:{width}}  {readable_bytes(size.bytes)}{heads}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(40), duration(600), duration(11_520)
    ('40 s', '10 min', '3.2 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
