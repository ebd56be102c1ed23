"""Find one prompt in a bank by its id, with what every model made of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank

_LOOKED_AT = 20_000
"""Ids that are compared with a mistyped one: 0.2 s."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """One prompt, and its scores through training."""

    prompts: str
    """Name of the prompt set."""
    prompt_id: str
    orders: tuple[int | None, ...]
    """Order seeds of the prompt, in the order of the prompt set; one null where it has none."""
    scores: tuple[PromptScores, ...]
    """Of every model and run that was asked it; all orders, or the one that was chosen."""


def prompt_view(
    bank: Bank,
    prompt_id: str,
    *,
    prompts: str | None = None,
    order: int | None = None,
    models: Collection[str] | str | None = None,
    runs: Collection[str] | str | None = None,
) -> PromptView:
    """One prompt and its scores at every checkpoint.

    Parameters
    ----------
    bank
        Or a view.
    prompts
        Prompt set; needed where several have a prompt of this id.
    order
        Only the prompt with this order seed; all orders if None.
    models, runs
        Keep these; all if None.

    Raises
    ------
    UsageError
        No prompt has this id, several prompt sets have one, or it has no such order.
    BankError
        The bank has no such prompts, or no scores of it by such models.
    """
    name = chosen_set(bank, prompts, prompt_id=prompt_id)
    rows = bank.prompts(name).filter(pl.col("prompt_id") == prompt_id)
    seeds = rows.select("order_seed").collect()["order_seed"]
    orders = tuple(seeds.unique(maintain_order=True).to_list())
    if order is not None and order not in orders:
        available = ", ".join(str(seed) for seed in orders if seed is not None)
        has = f"it has {available}" if available else "its options have no orders: leave that out"
        raise UsageError(f"prompt {prompt_id!r} has no order {order}; {has}")
    all_scores = prompt_scores(bank, name, models=models, runs=runs, ids=prompt_id)
    if order is not None:
        all_scores = (
            part for scores in all_scores if (part := of_order(scores, order)) is not None
        )
    scores = tuple(all_scores)
    if not scores:
        raise BankError(
            f"none of these checkpoints was asked prompt {prompt_id!r} in order {order}; run "
            "`logitbank extract` to ask them"
        )
    return PromptView(name, prompt_id, orders, scores)


def of_order(scores: PromptScores, order: int | None) -> PromptScores | None:
    """The scores of one prompt in one order of its options; None where there are none."""
    seeds = scores.prompts["order_seed"].to_list()
    return scores.only(seeds.index(order)) if order in seeds else None


def chosen_set(bank: Bank, prompts: str | None, *, prompt_id: str | None = None) -> str:
    """The prompt set asked for; else the only one, or the only one with a prompt of this id.

    Raises
    ------
    UsageError
        There are several to choose from, or none has such a prompt; near ids are named.
    BankError
        The bank has no such prompt set.
    """
    sets = bank.prompt_sets if prompts is None else [prompts]
    if not sets:
        bank.prompts("any")  # says that there are none
    if prompt_id is None:
        if len(sets) > 1:
            raise UsageError(
                f"{bank.address} has several prompt sets, {', '.join(sets)}; name one with"
                " --prompts, or a prompt with --prompt"
            )
        bank.prompts(sets[0])
        return sets[0]
    holding = [name for name in sets if _holds(bank.prompts(name), prompt_id)]
    if len(holding) == 1:
        return holding[0]
    if holding:
        raise UsageError(
            f"prompt {prompt_id!r} is in several prompt sets, {', '.join(holding)}; name one with"
            " --prompts"
        )
    near = _near(bank, sets, prompt_id)
    what = (
        f"near are {', '.join(map(repr, near))}"
        if near
        else "list them with --format csv and without --prompt"
    )
    raise UsageError(f"there is no prompt {prompt_id!r} in {', '.join(sets)}; {what}")


def _holds(table: pl.LazyFrame, prompt_id: str) -> bool:
    return not table.filter(pl.col("prompt_id") == prompt_id).head(1).collect().is_empty()


def _near(bank: Bank, sets: Sequence[str], wanted: str) -> list[str]:
    """At most three ids: those that contain the text, else those spelt like it."""
    ids = pl.concat([bank.prompts(name).select(pl.col("prompt_id").unique()) for name in sets])
    within = ids.filter(
        pl.col("prompt_id").str.to_lowercase().str.contains(wanted.lower(), literal=True)
    )
    if similar := within.collect()["prompt_id"].unique().sort().head(3).to_list():
        return similar
    known = ids.head(_LOOKED_AT).collect()["prompt_id"].unique().sort().to_list()
    return get_close_matches(wanted, known, n=3)
