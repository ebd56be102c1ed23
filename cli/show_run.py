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
