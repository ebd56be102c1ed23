"""Find one prompt in a bank by its id, with its scores by every model."""

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.store.read.choose import Steps

_COMPARED = 20_000
"""Ids that are compared with a mistyped one: 0.2 s."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """One prompt, and its scores through training."""

    prompts: str
    """Name of the prompt set."""
    prompt_id: str
    orders: tuple[int | None, ...]
    """Order seeds of the prompt, in the order of the prompt set; one null if it has none."""
    scores: tuple[PromptScores, ...]
    """Scores by every model and run that has the prompt, in all orders or the chosen one."""
    tokens: pl.DataFrame | None = None
    """Table of `top_tokens`, if it was requested."""

    @property
    def table(self) -> pl.DataFrame:
        """The tokens, otherwise one row per checkpoint and option."""
        return pl.concat(map(prompt_rows, self.scores)) if self.tokens is None else self.tokens


def prompt_view(
    bank: Bank,
    prompt_id: str,
    *,
    prompts: str | None = None,
    order: int | None = None,
    models: Collection[str] | str | None = None,
    runs: Collection[str] | str | None = None,
    steps: Steps = None,
) -> PromptView:
    """One prompt and its scores at every checkpoint; parameters and errors are those of `show`."""
    name = prompt_set(bank, prompts, prompt_id=prompt_id)
    rows = bank.prompts(name).filter(pl.col("prompt_id") == prompt_id)
    seeds = rows.select("order_seed").collect()["order_seed"]
    orders = tuple(seeds.unique(maintain_order=True).to_list())
    if order is not None and order not in orders:
        available = ", ".join(str(seed) for seed in orders if seed is not None) or "none"
        raise UsageError(
            f"Prompt {prompt_id!r} has no order {order}. Available orders: {available}."
        )
    scores = tuple(prompt_scores(bank, name, models=models, runs=runs, steps=steps, ids=prompt_id))
    if order is not None:
        scores = tuple(part for each in scores if len((part := each.with_order(order)).prompts))
    if not scores:
        raise BankError(
            f"Prompt {prompt_id!r} has no scores in order {order} at these checkpoints."
            " Run `logitbank extract` to add them."
        )
    return PromptView(name, prompt_id, orders, scores)


def prompt_set(bank: Bank, prompts: str | None, *, prompt_id: str | None = None) -> str:
    """The named prompt set; otherwise the only one, or the only one with a prompt of this id.

    Raises
    ------
    UsageError
        There are several prompt sets, or none has the prompt; similar ids are listed.
    BankError
        The bank has no such prompt set.
    """
    names = bank.prompt_sets if prompts is None else [prompts]
    if not names:
        bank.prompts("any")  # raises
    if prompt_id is not None:
        has_id = pl.col("prompt_id") == prompt_id
        tables = {name: bank.prompts(name) for name in names}
        found = [n for n, rows in tables.items() if len(rows.filter(has_id).head(1).collect())]
        if not found:
            ids = pl.concat(rows.select(pl.col("prompt_id").unique()) for rows in tables.values())
            known = ids.head(_COMPARED).collect()["prompt_id"].unique().sort().to_list()
            near = ", ".join(map(repr, get_close_matches(prompt_id, known, n=3)))
            raise UsageError(
                f"No prompt {prompt_id!r} in {', '.join(names)}. "
                + (f"Similar: {near}." if near else "Leave out --prompt to list prompts.")
            )
        names = found
    if len(names) > 1:
        with_id = "" if prompt_id is None else f" with a prompt {prompt_id!r}"
        raise UsageError(
            f"{bank.address} has several prompt sets{with_id}: {', '.join(names)}."
            " Name one with --prompts."
        )
    bank.prompts(names[0])  # raises if the bank does not have it
    return names[0]
