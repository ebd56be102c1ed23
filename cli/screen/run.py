"""What a run does, and what it did with its time, tokens and prompts, in lines for people."""

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.engine.plan.plan import Plan
    from logitbank.engine.workers.events import Event, Summary
    from logitbank.store.format.schema import CheckpointId

_QUIET_S = 30.0
"""Longest silence of a run that gets on, where lines are all there is to see of it."""
_WAITING_S = 600.0
"""Longest silence of one that waits for a training."""


class ProgressLines:
    """Follows an extraction's events: a line for each checkpoint that is done or has failed.

    For where a bar cannot be drawn, such as the log of a job. Where nothing else was told for half
    a minute, a line has the rows that are scored, of all that were planned. Rates are those of the
    run so far, all workers together, from when the first weights were loaded: an engine's start
    comes once. The time left is told from the second checkpoint on, or after half a minute.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._planned: Counter[CheckpointId] = Counter()
        self._left: Counter[CheckpointId] = Counter()
        self._pending: Counter[CheckpointId] = Counter()
        self._started: dict[CheckpointId, float] = {}
        self._ended = self._committed = 0
        self._last = 0.0
        self._waiting: tuple[str, float] | None = None
        self._waiting_told = ""
        self._loaded: float | None = None

    def __call__(self, event: "Event") -> None:
        from logitbank.engine.workers import events

        match event:
            case events.Planned(plan=plan):
                for deposit in plan.deposits:
                    self._planned[deposit.checkpoint] += deposit.rows
                    self._left[deposit.checkpoint] += deposit.rows
            case events.Waiting(text=text):
                self._wait(text)
            case events.Preparing(text=text):
                self._tell(text)
            case events.CheckpointStarted(checkpoint=checkpoint):
                if not self._started:
                    self._tell("starting the engine")
                self._started.setdefault(checkpoint, self._clock())
            case events.WeightsLoaded(checkpoint=checkpoint):
                self._loaded = self._clock() if self._loaded is None else self._loaded
                del self._pending[checkpoint]  # of a worker that died and was replaced
            case events.RowsScored(checkpoint=checkpoint, rows=rows):
                self._pending[checkpoint] += rows
                self._break_silence(checkpoint)
            case events.BlockCommitted(checkpoint=checkpoint, rows=rows):
                self._committed += rows
                self._left[checkpoint] = max(0, self._left[checkpoint] - rows)
                self._pending[checkpoint] = max(0, self._pending[checkpoint] - rows)
                self._break_silence(checkpoint)
            case events.CheckpointDone(checkpoint=checkpoint):
                seconds = self._clock() - self._started.get(checkpoint, self._clock())
                rows = self._planned[checkpoint]
                self._end(checkpoint)
                text = f"{checkpoint} done, {counted(rows, 'row')} in {_duration(seconds)}"
                self._tell(f"{self._count()} {text}{self._rate()}")
            case events.CheckpointFailed(checkpoint=checkpoint, message=message):
                self._end(checkpoint)
                self._tell(f"{self._count()} failed {message}")

    def _break_silence(self, checkpoint: "CheckpointId") -> None:
        if self._clock() - self._last >= _QUIET_S:
            scored, total = self._committed + self._pending.total(), self._planned.total()
            self._tell(f"{scored:,} of {counted(total, 'row')}, at {checkpoint}{self._rate()}")

    def _wait(self, text: str) -> None:
        """Say at once that a wait begins, what is still waited for after half a minute, and then
        only now and then."""
        now = self._clock()
        first = self._waiting is None
        if self._waiting is None or self._waiting[0] != text:
            self._waiting = (text, now)
        lasted = first or now - self._waiting[1] >= _QUIET_S
        if lasted and (text != self._waiting_told or now - self._last >= _WAITING_S):
            self._waiting_told = text
            self._tell(text)

    def _tell(self, line: str) -> None:
        self._last = self._clock()
        self._say(line)

    def _end(self, checkpoint: "CheckpointId") -> None:
        self._ended += 1
        self._left.pop(checkpoint, None)
        self._pending.pop(checkpoint, None)

    def _count(self) -> str:
        return f"{self._ended:,}/{len(self._planned):,}"

    def _rate(self) -> str:
        """Rows a second and the time left; nothing where that cannot be reckoned."""
        now = self._clock()
        seconds = now - min(self._started.values(), default=now)
        if self._loaded is not None and now > self._loaded:
            seconds = now - self._loaded
        scored = self._committed + self._pending.total()
        if not (seconds > 0 and scored):
            return ""
        rate, left = scored / seconds, self._left.total() - self._pending.total()
        known = self._ended > 1 or seconds > _QUIET_S
        time_left = f", about {_duration(left / rate)} left" if left and known else ""
        return f"; {rate:,.3g} rows a second{time_left}"


def planned(plan: "Plan", engine: str) -> str:
    """What a plan will run. Only where nobody has anything left to do, the bank “has all of” it."""
    from logitbank.wording import readable_bytes

    size = f"{counted(plan.checkpoints, 'checkpoint')} × {counted(plan.prompts, 'prompt')}"
    share = f" in share {plan.shard}" if plan.shard else ""
    if plan.rows:
        return (
            f"{size} ({counted(plan.queries, 'distinct query', 'distinct queries')} each); to run"
            f"{share}: {counted(plan.rows, 'row')} over"
            f" {counted(len(plan.to_run), 'checkpoint')}, {readable_bytes(plan.bytes)} before"
            f" compression, engine {engine}"
        )
    if plan.missing_rows:
        return (
            f"nothing to run{share}: what the bank lacks is for other shares:"
            f" {counted(plan.missing_rows, 'row')} of {plan.missing_checkpoints:,} of"
            f" {counted(plan.checkpoints, 'checkpoint')}"
        )
    return f"nothing to run: the bank has all of {size}"


def account(summary: "Summary") -> list[str]:
    """Where the workers' time went, and what was asked and did not have to be run.

    `score` is the only time in which a GPU is busy with prompts; shares are of all workers' time.
    """
    from logitbank.engine.workers.events import Phase

    total = sum(summary.spent.values())
    if not total:
        return []
    parts = [
        f"{phase} {summary.spent[phase]:,.1f} s ({summary.spent[phase] / total:.0%})"
        for phase in get_args(Phase)
        if phase in summary.spent
    ]
    workers = f"{summary.workers} workers'" if summary.workers > 1 else "worker's"
    return [f"{workers} time: {', '.join(parts)}", _asked(summary.plan) + _tokens(summary)]


def forecast(summary: "Summary") -> list[str]:
    """What a plan will take: files, bytes, and time where a sample was measured."""
    from logitbank.wording import readable_bytes

    plan, estimate = summary.plan, summary.estimate
    if not plan.rows:
        return []
    size = f"about {counted(plan.files, 'file')}, {readable_bytes(plan.bytes)} before compression"
    levels = [*_starts(summary), *_levels(plan)]
    if estimate is None:
        return [size, *levels]
    many = counted(estimate.workers, "worker")
    return [
        size,
        f"about {_duration(estimate.seconds)} on {many} (GPU-hours {estimate.worker_hours:.2g}), "
        f"downloads apart: {estimate.load_s:.3g} s to start, {estimate.checkpoint_s:.3g} s a "
        f"checkpoint, {counted(estimate.tokens, 'token')} at {estimate.tokens_per_s:,.0f} a second",
        f"measured on {counted(estimate.rows, 'query', 'queries')} of one checkpoint, "
        f"{estimate.rows / plan.rows:.2g} of the plan, in {_duration(estimate.sample_s)}",
        *levels,
    ]


def _starts(summary: "Summary") -> list[str]:
    """How often engines are started if configs differ."""
    if summary.models <= 1:
        return []
    return [
        f"the configs are of {summary.models:,} models: each worker starts an engine"
        f" {summary.models:,} times, at most"
    ]


def _levels(plan: "Plan") -> list[str]:
    """What the plan would take at each keep level, and which loses nothing for least."""
    from logitbank.engine.plan.levels import least_lossless, level_sizes
    from logitbank.wording import readable_bytes

    sizes = level_sizes(plan.deposits)
    least = least_lossless(sizes)
    width = max(len(str(size)) for size in sizes)
    lines = ["at each level, before compression:"]
    for size in sizes:
        heads = f", {readable_bytes(size.heads)} of it heads" if size.heads else ""
        best = "; of those that lose nothing, it takes least: --keep auto" if size == least else ""
        lines.append(f"  {size!s:{width}}  {readable_bytes(size.bytes)}{heads}{best}")
    return lines


def _duration(seconds: float) -> str:
    """Seconds for people.

    >>> _duration(40), _duration(600), _duration(11_520)
    ('40 s', '10 min', '3.2 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _asked(plan: "Plan") -> str:
    """How many queries became one: shared by prompts, option orders and prompt sets."""
    orders = f" in {plan.orders} orders" if plan.orders > 1 else ""
    asking = f"{counted(plan.prompts, 'prompt')}{orders} ask{'s' if plan.prompts == 1 else ''}"
    repeated = plan.positions - plan.queries
    if repeated <= 0:
        return f"{asking} {counted(plan.queries, 'distinct query', 'distinct queries')}"
    return (
        f"{asking} {plan.positions:,} queries; {repeated:,} repeat{'s' if repeated == 1 else ''}"
        f" another, {plan.queries:,} {'is' if plan.queries == 1 else 'are'} distinct"
    )


def _tokens(summary: "Summary") -> str:
    if not summary.tokens:
        return ""
    tokens = f"; {counted(summary.tokens, 'token')}"
    if not summary.reused:
        return tokens
    share = summary.reused / summary.tokens
    why = "prefix cache" if summary.prefix_cache else "what queries share is run once"
    return f"{tokens}, {share:.0%} of them not run again ({why})"
