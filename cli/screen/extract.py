"""What an extraction prints: its plan, its progress, and what it did."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, get_args

from rich.progress import TextColumn

from logitbank.cli.output import clean, err, say
from logitbank.cli.screen.progress import bars
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.engine.plan.plan import Plan
    from logitbank.engine.workers.events import Event, Summary
    from logitbank.store.format.schema import CheckpointId

_QUIET_S = 30.0
"""Longest silence of a run that makes progress, where there is no terminal."""
_WAITING_S = 600.0
"""Longest silence of `--watch` while there is nothing to do."""


def _say_line(line: str) -> None:
    say(clean(line))


class ExtractProgress:
    """Follows the events of an extraction: a bar on a terminal, lines elsewhere.

    A line is printed for each checkpoint that is done or failed, and after half a minute without
    one. Rates are those of the run so far, all workers together, from when the first weights were
    loaded. The time left is printed from the second checkpoint on, or after half a minute.
    """

    def __init__(
        self,
        say: Callable[[str], None] = _say_line,
        clock: Callable[[], float] = time.monotonic,
        *,
        terminal: bool | None = None,
    ) -> None:
        self._say, self._clock = say, clock
        self._terminal = err.is_interactive if terminal is None else terminal
        self._bar = bars(TextColumn("{task.completed:,.0f}/{task.total:,.0f}{task.fields[rate]}"))
        self._task = self._bar.add_task("", total=1, rate="", visible=False)
        self._planned: Counter[CheckpointId] = Counter()
        self._left: Counter[CheckpointId] = Counter()
        self._pending: Counter[CheckpointId] = Counter()
        self._started: dict[CheckpointId, float] = {}
        self._ended = self._committed = 0
        self._loaded: float | None = None
        self._last_line = 0.0
        self._waiting: tuple[str, float] | None = None
        self._last_wait = ""

    def __enter__(self) -> "ExtractProgress":
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: "Event") -> None:
        from logitbank.engine.workers import events

        match event:
            case events.Planned(plan=plan, engine=engine, notes=notes):
                if plan.rows or not self._planned:  # each time that a training has saved something
                    self._print(planned(plan, engine))
                for note in notes:
                    self._print(f"Note: {note}")
                for deposit in plan.deposits:
                    self._planned[deposit.checkpoint] += deposit.rows
                    self._left[deposit.checkpoint] += deposit.rows
            case events.Note(text=text):
                self._print(f"Note: {text}")
            case events.Waiting(text=text):
                self._wait(text)
            case events.Preparing(text=text):
                if self._terminal or not self._planned:  # lines only before the first plan
                    self._line(text)
            case events.CheckpointStarted(checkpoint=checkpoint):
                if not self._started:
                    self._line("starting the engine")
                self._started.setdefault(checkpoint, self._clock())
            case events.WeightsLoaded(checkpoint=checkpoint):
                self._loaded = self._clock() if self._loaded is None else self._loaded
                del self._pending[checkpoint]  # rows of a worker that died are scored again
                self._show(f"{self._ended + 1}/{len(self._planned)} {checkpoint}")
            case events.RowsScored(checkpoint=checkpoint, rows=rows):
                self._pending[checkpoint] += rows
                self._advance(checkpoint)
            case events.BlockCommitted(checkpoint=checkpoint, rows=rows):
                self._committed += rows
                self._left[checkpoint] = max(0, self._left[checkpoint] - rows)
                self._pending[checkpoint] = max(0, self._pending[checkpoint] - rows)
                self._advance(checkpoint)
            case events.CheckpointDone(checkpoint=checkpoint):
                seconds = self._clock() - self._started.get(checkpoint, self._clock())
                rows = self._planned[checkpoint]
                self._end(checkpoint)
                text = f"{checkpoint} done, {counted(rows, 'row')} in {duration(seconds)}"
                if not self._terminal:
                    self._line(f"{self._count()} {text}{self._rate()}")
            case events.CheckpointFailed(checkpoint=checkpoint, message=message):
                self._end(checkpoint)
                self._print(f"{self._count()} failed {message}")

    def _print(self, text: str) -> None:
        """A line that stays, whether or not there is a bar."""
        self._last_line = self._clock()
        self._say(text)

    def _line(self, text: str) -> None:
        """The description of the bar, or a line if there is none."""
        if self._terminal:
            self._show(text)
        else:
            self._print(text)

    def _show(self, text: str) -> None:
        self._bar.update(self._task, description=clean(text), visible=True)

    def _advance(self, checkpoint: "CheckpointId") -> None:
        scored, total = self._committed + self._pending.total(), self._planned.total()
        if self._terminal:
            rate = self._rate().partition(",")[0]
            self._bar.update(self._task, completed=scored, total=total or 1, rate=rate)
        elif self._clock() - self._last_line >= _QUIET_S:
            self._print(f"{scored:,} of {counted(total, 'row')}, at {checkpoint}{self._rate()}")

    def _wait(self, text: str) -> None:
        """A line when a wait begins, after half a minute, and every ten minutes."""
        now = self._clock()
        first = self._waiting is None
        if self._waiting is None or self._waiting[0] != text:
            self._waiting = (text, now)
        lasted = first or now - self._waiting[1] >= _QUIET_S
        if lasted and (text != self._last_wait or now - self._last_line >= _WAITING_S):
            self._last_wait = text
            self._print(text)

    def _end(self, checkpoint: "CheckpointId") -> None:
        self._ended += 1
        self._left.pop(checkpoint, None)
        self._pending.pop(checkpoint, None)

    def _count(self) -> str:
        return f"{self._ended:,}/{len(self._planned):,}"

    def _rate(self) -> str:
        """Rows per second and the time left; nothing before anything is scored."""
        now = self._clock()
        began = min(self._started.values(), default=now) if self._loaded is None else self._loaded
        scored = self._committed + self._pending.total()
        if now <= began or not scored:
            return ""
        rate, left = scored / (now - began), self._left.total() - self._pending.total()
        known = self._ended > 1 or now - began > _QUIET_S
        time_left = f", about {duration(left / rate)} left" if left and known else ""
        return f"; {rate:,.3g} rows/s{time_left}"


def planned(plan: "Plan", engine: str) -> str:
    """What a plan will run, and what the bank already has."""
    size = (
        f"{counted(plan.checkpoints, 'checkpoint')} × {counted(plan.prompts, 'prompt')} "
        f"({counted(plan.queries, 'distinct context')})"
    )
    shard = f" in shard {plan.shard}" if plan.shard else ""
    if plan.rows:
        complete = plan.checkpoints - len(plan.to_run)
        had = f"; {complete:,} of {plan.checkpoints:,} already in the bank" * bool(complete)
        return (
            f"{size}{had if not shard else ''}. To run{shard}: {counted(plan.rows, 'row')} of "
            f"{counted(len(plan.to_run), 'checkpoint')}, {readable_bytes(plan.bytes)} before "
            f"compression, engine {engine}."
        )
    if plan.missing_rows:
        return (
            f"{size}. Nothing to run{shard}: other shards run the missing "
            f"{counted(plan.missing_rows, 'row')} of {plan.missing_checkpoints:,} checkpoints."
        )
    return f"{size}. Nothing to run: all of it is already in the bank."


def print_summary(summary: "Summary", *, bank: str, dry_run: bool) -> None:
    """What an extraction did, and what to do next."""
    if dry_run:
        for line in forecast(summary):
            say(line)
        say("Dry run: nothing was written.")
        return
    explained = [failure for failure in summary.failed if failure.log_tail]
    if explained:
        about = explained[-1]
        say(f"Last lines of {clean(bank)}.log about {clean(about.checkpoint)}:", style="dim")
        for line in about.log_tail:
            say("  " + clean(line), style="dim")
    if summary.plan.rows or summary.failed:
        for line in account(summary, bank):
            say(line)
    if summary.interrupted:
        done, planned_ = len(summary.done), len(summary.plan.to_run)
        say(
            f"Interrupted: {done:,} of {counted(planned_, 'checkpoint')} done. "
            "Run the same command to resume."
        )
    elif summary.failed:
        untried = len(summary.plan.to_run) - len(summary.done) - len(summary.failed)
        if untried > 0:
            say(
                f"{counted(untried, 'checkpoint')} not tried: "
                "the cause is likely to affect them too."
            )
        say("Run the same command to retry what failed, or exclude it with --steps.")


def account(summary: "Summary", bank: str) -> Iterator[str]:
    """Rows and rate, where the workers' time went, and how many tokens were run.

    Only in `score` is a GPU busy with prompts; percentages are of all workers' time.
    """
    from logitbank.engine.workers.events import Phase

    plan = summary.plan
    rate = summary.rows / summary.seconds if summary.seconds else 0
    others = f", {summary.others:,} more by other runs" * bool(summary.others)
    yield (
        f"{len(summary.done):,} of {counted(len(plan.to_run), 'checkpoint')} done: "
        f"{counted(summary.rows, 'row')} in {summary.seconds:,.1f} s ({rate:,.3g} rows/s{others}) "
        f"→ {clean(bank)}"
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
    contexts = f"{counted(plan.prompts, 'prompt')}{orders}: {plan.queries:,} distinct contexts"
    if not summary.tokens:
        yield contexts
        return
    why = "prefix cache" if summary.prefix_cache else "shared prefixes"
    saved = f", {summary.reused / summary.tokens:.0%} saved by {why}" * bool(summary.reused)
    yield f"{contexts}, {counted(summary.tokens, 'token')}{saved}"


def forecast(summary: "Summary") -> Iterator[str]:
    """What a plan will take: files, bytes, and the time that a sample measured."""
    from logitbank.engine.plan.levels import least_lossless, level_sizes

    plan, estimate = summary.plan, summary.estimate
    if not plan.rows:
        return
    total = readable_bytes(plan.bytes)
    yield f"Size: about {counted(plan.files, 'file')}, {total} before compression"
    if estimate is not None:
        yield (
            f"Time: about {duration(estimate.seconds)} on {counted(estimate.workers, 'worker')} "
            f"(GPU-hours {estimate.worker_hours:.2g}) without downloads: {estimate.load_s:.3g} s "
            f"to start, {estimate.checkpoint_s:.3g} s per checkpoint, "
            f"{counted(estimate.tokens, 'token')} at {estimate.tokens_per_s:,.0f} tokens/s"
        )
        yield (
            f"Measured on {counted(estimate.rows, 'context')} of one checkpoint "
            f"({estimate.rows / plan.rows:.2g} of the plan) in {duration(estimate.sample_s)}"
        )
    if summary.models > 1:
        number = f"{summary.models:,}"
        yield f"Configs differ ({number} models): each worker starts up to {number} engines."
    sizes = level_sizes(plan.deposits)
    least = least_lossless(sizes)
    width = max(len(str(size)) for size in sizes)
    yield "Size at each storage level, before compression:"
    for size in sizes:
        heads = f", of which LM heads {readable_bytes(size.heads)}" if size.heads else ""
        best = " (smallest lossless: --keep auto)" if size == least else ""
        yield f"  {size!s:{width}}  {readable_bytes(size.bytes)}{heads}{best}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(40), duration(600), duration(11_520)
    ('40 s', '10 min', '3.2 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
