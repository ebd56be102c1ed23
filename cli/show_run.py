"""What a run did with its time, its tokens and its prompts, in lines for people."""

from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    from logitbank.engine.events import Summary
    from logitbank.engine.plan import Plan


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
