"""One prompt of a bank through training, or the prompts with the largest change."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from logitbank.analysis.frames.banks import parse_step
from logitbank.analysis.prompts.lookup import PromptView, prompt_set, prompt_view
from logitbank.analysis.prompts.scores import Measure
from logitbank.analysis.prompts.top_tokens import PromptTokens, prompt_tokens
from logitbank.analysis.prompts.view import Between, changes
from logitbank.errors import UsageError
from logitbank.notebook import printable
from logitbank.store import Bank, open_bank


@dataclass(frozen=True, slots=True, repr=False)
class PromptMoves:
    """The prompts of a set by the change of their options' probabilities."""

    prompts: str
    """Name of the prompt set."""
    between: Between | None
    """The two steps that are compared; None for all of training."""
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
    between: tuple[int | str | None, int | str | None] | None = None,
    top_tokens: int | None = None,
) -> PromptView | PromptTokens | PromptMoves:
    """A prompt and its probabilities through training, or the prompts with the largest change.

    Parameters
    ----------
    prompts
        Prompt set; needed if the bank has several.
    prompt
        Id of a prompt. Without it, all prompts of the set are listed.
    order
        Order seed of the prompt's options; all orders if None.
    models, runs
        Only these.
    between
        Compare two steps, each a number or `release`, instead of all of training.
    top_tokens
        Number of most probable tokens after the prompt, which are shown instead of its options.

    Raises
    ------
    UsageError
        There is no such prompt, or an argument does not go with the others.
    BankError
        The bank has no such prompts, or no scores of them.
    """
    opened = open_bank(bank, models=models, prompts=prompts, rows=top_tokens is not None)
    if prompt is not None:
        if between is not None:
            raise UsageError("--between lists prompts. Leave it out, or leave out --prompt.")
        view = prompt_view(opened, prompt, prompts=prompts, order=order, models=models, runs=runs)
        return view if top_tokens is None else prompt_tokens(opened, view, top_tokens)
    if top_tokens is not None or order is not None:
        option = "--top-tokens" if order is None else "--order"
        raise UsageError(f"{option} is for a single prompt. Name one with --prompt.")
    steps = None
    if between is not None:
        steps = _step(between[0]), _step(between[1])
    name = prompt_set(opened, prompts)
    tables = changes(opened, name, between=steps, models=models, runs=runs)
    columns = ["prompt_id", "order_seed", "text"]
    texts = opened.prompts(name).select(columns).unique(columns[:2], keep="first").collect()
    return PromptMoves(name, steps, tables.measure, tables.by_run, texts)


def _step(step: int | str | None) -> int | None:
    return parse_step(step, "--between") if isinstance(step, str) else step
