"""What a run does, and what it did with its time, tokens and prompts, in lines for people."""

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    from logitbank.engine.events import Event, Summary
    from logitbank.engine.plan import Plan
    from logitbank.store.schema import CheckpointId

_QUIET_S = 600.0
"""Longest silence of a run that gets on, where lines are all there is to see of it."""


class ProgressLines:
    """Follows an extraction's events: a line for each checkpoint that is done or has failed.

    For where a bar cannot be drawn, such as the log of a job. A checkpoint that takes long gets a
    line every ten minutes. Rates and times left are those of the run so far, all workers together.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._planned: Counter[CheckpointId] = Counter()
        self._left: Counter[CheckpointId] = Counter()
        self._started: dict[CheckpointId, float] = {}
        self._ended = self._committed = 0
        self._last = 0.0

    def __call__(self, event: "Event") -> None:
        from logitbank.engine import events

        match event:
            case events.Planned(plan=plan):
                for deposit in plan.deposits:
                    self._planned[deposit.checkpoint] += deposit.rows
                self._left = self._planned.copy()
            case events.CheckpointStarted(checkpoint=checkpoint):
                self._started.setdefault(checkpoint, self._clock())
                self._last = self._last or self._clock()
            case events.BlockCommitted(checkpoint=checkpoint, rows=rows):
                self._committed += rows
                self._left[checkpoint] = max(0, self._left[checkpoint] - rows)
                if self._clock() - self._last > _QUIET_S:
                    rows = self._planned[checkpoint] - self._left[checkpoint]
                    of = f"{rows:,} of {self._planned[checkpoint]:,} rows"
                    self._tell(f"{checkpoint}: {of}{self._rate()}")
            case events.CheckpointDone(checkpoint=checkpoint):
                seconds = self._clock() - self._started.get(checkpoint, self._clock())
                rows = self._planned[checkpoint]
                self._end(checkpoint)
                told = f"{checkpoint} done, {rows:,} rows in {_duration(seconds)}"
                self._tell(f"{self._count()} {told}{self._rate()}")
            case events.CheckpointFailed(checkpoint=checkpoint, message=message):
                self._end(checkpoint)
                self._tell(f"{self._count()} failed {message}")

    def _tell(self, line: str) -> None:
        self._last = self._clock()
        self._say(line)

    def _end(self, checkpoint: "CheckpointId") -> None:
        self._ended += 1
        self._left.pop(checkpoint, None)

    def _count(self) -> str:
        return f"{self._ended:,}/{len(self._planned):,}"

    def _rate(self) -> str:
        """Rows a second and the time left; nothing where that cannot be reckoned."""
        seconds = self._clock() - min(self._started.values(), default=self._clock())
        if not (seconds > 0 and self._committed):
            return ""
        rate, left = self._committed / seconds, self._left.total()
        time_left = f", about {_duration(left / rate)} left" if left else ""
        return f"; {rate:,.3g} rows a second{time_left}"


def account(summary: "Summary") -> list[str]:
    """Where the workers' time went, and what was asked and did not have to be run.

    `score` is the only time in which a GPU is busy with prompts; shares are of all workers' time.
    """
    from logitbank.engine.events import Phase

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
    from logitbank.engine.plan import readable_bytes

    plan, estimate = summary.plan, summary.estimate
    if not plan.rows:
        return []
    size = f"about {plan.files:,} files, {readable_bytes(plan.bytes)} before compression"
    if estimate is None:
        return [f"{size}; --sample measures how long it will take"]
    many = f"{estimate.workers} workers" if estimate.workers > 1 else "1 worker"
    return [
        size,
        f"about {_duration(estimate.seconds)} on {many} (GPU-hours {estimate.worker_hours:.2g}), "
        f"downloads apart: {estimate.load_s:.3g} s to start, {estimate.checkpoint_s:.3g} s a "
        f"checkpoint, {estimate.tokens:,} tokens at {estimate.tokens_per_s:,.0f} a second",
    ]


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
    return (
        f"{plan.prompts:,} prompts{orders} → {plan.queries:,} distinct queries "
        f"({max(0, plan.asked - plan.queries):,} shared)"
    )


def _tokens(summary: "Summary") -> str:
    if not summary.tokens:
        return ""
    share = summary.reused / summary.tokens
    return f"; {summary.tokens:,} tokens, {share:.0%} of them not run again (prefix cache)"
