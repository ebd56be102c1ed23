"""One prompt of a bank through training, or which of a set move most."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from logitbank.analysis.frames.sources import step_given
from logitbank.analysis.prompts.lookup import PromptView, chosen_set, prompt_view
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.prompts.top_tokens import PromptTokens, prompt_tokens
from logitbank.analysis.prompts.view import Between, changes
from logitbank.errors import UsageError
from logitbank.notebook import printable
from logitbank.store import Bank, open_bank


@dataclass(frozen=True, slots=True, repr=False)
class PromptMoves:
    """The prompts of a set by how much their options' probabilities move."""

    prompts: str
    """Name of the prompt set."""
    between: Between | None
    """The two steps that they are compared at; None for all of training."""
    series: Iterable[tuple[PromptScores, pl.DataFrame]]
    """Of every model and run its scores at some checkpoints, and its prompts in order, those that
    move most first: read one after the other, each time."""

    @property
    def table(self) -> pl.DataFrame:
        """The prompts of every model and run, those that move most first."""
        return pl.concat(table for _, table in self.series)

    def __repr__(self) -> str:
        return printable(f"<PromptMoves of {self.prompts}; .table has them>")

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


@dataclass(slots=True)
class _EachTime:
    """Reads anew whenever it is gone through again: scores of many runs would fill memory."""

    read: Callable[[], Iterator[tuple[PromptScores, pl.DataFrame]]]
    begun: Iterator[tuple[PromptScores, pl.DataFrame]] | None
    """What was begun when it was made, so that what is wrong is said then."""

    def __iter__(self) -> Iterator[tuple[PromptScores, pl.DataFrame]]:
        begun, self.begun = self.begun, None
        return self.read() if begun is None else begun


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
    """A prompt and its probabilities through training, or the prompts that move most.

    Parameters
    ----------
    prompts
        Prompt set; needed where the bank has several.
    prompt
        Id of a prompt. Without it, all of the set are listed.
    order
        Order seed of the prompt's options; all orders if None.
    models, runs
        Only these.
    between
        List what differs most between two steps, each a number or `release`.
    top_tokens
        Of a prompt, this many most probable tokens after it, in place of its options.

    Raises
    ------
    UsageError
        There is no such prompt, or an argument is of the other use.
    BankError
        The bank has no such prompts, or no scores of them.
    """
    opened = open_bank(bank, models=models, prompts=prompts, rows=top_tokens is not None)
    if prompt is not None:
        if between is not None:
            raise UsageError("--between lists prompts; leave it out, or --prompt")
        view = prompt_view(opened, prompt, prompts=prompts, order=order, models=models, runs=runs)
        return view if top_tokens is None else prompt_tokens(opened, view, top_tokens)
    if top_tokens is not None:
        raise UsageError("--top-tokens is of one prompt; name that with --prompt")
    if order is not None:
        raise UsageError(f"--order {order} is of one prompt; name that with --prompt")
    steps = None if between is None else (_step(between[0]), _step(between[1]))
    name = chosen_set(opened, prompts)
    read = partial(changes, opened, name, between=steps, models=models, runs=runs)
    return PromptMoves(name, steps, _EachTime(read, begun=read()))


def _step(given: int | str | None) -> int | None:
    return step_given(given, "--between") if isinstance(given, str) else given
