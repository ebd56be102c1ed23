"""One prompt of a bank through training, or the prompts with the largest change."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.prompts.lookup import prompt_set
from logitbank.analysis.prompts.scores import Measure, PromptScores, prompt_scores
from logitbank.analysis.prompts.top_tokens import top_tokens as tokens_after
from logitbank.analysis.prompts.view import moves_of_runs, prompt_rows
from logitbank.errors import BankError, UsageError
from logitbank.notebook import printable
from logitbank.store import Bank, open_bank
from logitbank.store.read.choose import Steps


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


@dataclass(frozen=True, slots=True, repr=False)
class PromptMoves:
    """The prompts of a set by the change of their options' probabilities."""

    prompts: str
    """Name of the prompt set."""
    measure: Measure
    tables: Mapping[tuple[str, str], pl.DataFrame]
    """The prompts of each model and run, those with the largest change first."""
    texts: pl.DataFrame
    """prompt_id, order_seed and text of every prompt."""

    @property
    def table(self) -> pl.DataFrame:
        """The prompts of every model and run, those with the largest change first."""
        return pl.concat(self.tables.values())

    def __repr__(self) -> str:
        return printable(f"<PromptMoves of {self.prompts}; .table has them>")

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def show(
    bank: str | Path | Bank,
    *,
    prompts: str | None = None,
    prompt: str | None = None,
    order: int | None = None,
    models: Collection[str] | None = None,
    runs: Collection[str] | None = None,
    steps: Steps = None,
    top_tokens: int | None = None,
) -> PromptView | PromptMoves:
    """A prompt and its probabilities through training, or the prompts with the largest change.

    Parameters
    ----------
    prompts
        Prompt set; needed if the bank has several.
    prompt
        Id of a prompt. Without it, all prompts of the set are listed.
    order
        Order seed of the prompt's options; all orders if None.
    models, runs, steps
        Only these checkpoints. Two steps, such as `"0,512"`, compare these two.
    top_tokens
        Number of most probable tokens after the prompt, which are shown instead of its options.

    Raises
    ------
    UsageError
        There is no such prompt, or an argument does not go with the others.
    BankError
        The bank has no such prompts, or no scores of them.
    """
    if prompt is None and (top_tokens is not None or order is not None):
        option = "--top-tokens" if order is None else "--order"
        raise UsageError(f"{option} is for a single prompt. Name one with --prompt.")
    opened = open_bank(
        bank, models=models, steps=steps, prompts=prompts, rows=top_tokens is not None
    )
    name = prompt_set(opened, prompts, prompt_id=prompt)
    chosen: dict[str, Any] = {"models": models, "runs": runs, "steps": steps}
    if prompt is not None:
        return _view(opened, name, prompt, order, top_tokens, chosen)
    measure: Measure = "probability"
    tables = {}
    for moves in moves_of_runs(prompt_scores(opened, name, few=True, **chosen)):
        measure = moves.scores.measure
        tables[moves.scores.model, moves.scores.run] = moves.table
    columns = ["prompt_id", "order_seed", "text"]
    texts = opened.prompts(name).select(columns).unique(columns[:2], keep="first").collect()
    return PromptMoves(name, measure, tables, texts)


def _view(
    bank: Bank,
    name: str,
    prompt_id: str,
    order: int | None,
    top_tokens: int | None,
    chosen: Mapping[str, Any],
) -> PromptView:
    """One prompt and its scores at the chosen checkpoints."""
    rows = bank.prompts(name).filter(pl.col("prompt_id") == prompt_id)
    seeds = rows.select("order_seed").collect()["order_seed"]
    orders = tuple(seeds.unique(maintain_order=True).to_list())
    if order is not None and order not in orders:
        available = ", ".join(str(seed) for seed in orders if seed is not None) or "none"
        raise UsageError(
            f"Prompt {prompt_id!r} has no order {order}. Available orders: {available}."
        )
    scores = tuple(prompt_scores(bank, name, ids=prompt_id, **chosen))
    tokens = None
    if top_tokens is not None:
        tokens = tokens_after(bank, prompt_id, k=top_tokens, prompts=name, **chosen)
    if order is not None:
        scores = tuple(part for each in scores if len((part := each.with_order(order)).prompts))
        tokens = None if tokens is None else tokens.filter(order_seed=order)
    if not scores:
        raise BankError(
            f"Prompt {prompt_id!r} has no scores in order {order} at these checkpoints."
            " Run `logitbank extract` to add them."
        )
    return PromptView(name, prompt_id, orders, scores, tokens)
