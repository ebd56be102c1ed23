"""One prompt of a bank through training, or the prompts with the largest change."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.prompts.lookup import PromptView, prompt_set, prompt_view
from logitbank.analysis.prompts.scores import Measure, prompt_scores
from logitbank.analysis.prompts.top_tokens import top_tokens as tokens_after
from logitbank.analysis.prompts.view import movements
from logitbank.errors import UsageError
from logitbank.notebook import printable
from logitbank.store import Bank, open_bank
from logitbank.store.read.choose import Steps


@dataclass(frozen=True, slots=True, repr=False)
class PromptMoves:
    """The prompts of a set by the change of their options' probabilities."""

    prompts: str
    """Name of the prompt set."""
    measure: Measure
    tables: Mapping[tuple[str, str], pl.DataFrame]
    """By model and run: the prompts, those with the largest change first."""
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
        view = prompt_view(opened, prompt, prompts=name, order=order, **chosen)
        if top_tokens is None:
            return view
        tokens = tokens_after(opened, prompt, k=top_tokens, prompts=name, **chosen)
        if order is not None:
            tokens = tokens.filter(order_seed=order)
        return replace(view, tokens=tokens)
    measure: Measure = "probability"
    tables = {}
    for scores in prompt_scores(opened, name, **chosen):
        tables[scores.model, scores.run] = movements(scores)
        measure = scores.measure
    columns = ["prompt_id", "order_seed", "text"]
    texts = opened.prompts(name).select(columns).unique(columns[:2], keep="first").collect()
    return PromptMoves(name, measure, tables, texts)
