"""What a model is asked after each layer: where options of prompts are, and which is right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.options.conditions import asked
from logitbank.analysis.prompts.layout import Codes, PromptLayout, layout
from logitbank.analysis.prompts.scores import PromptScores


class Places(NamedTuple):
    """Where pieces of options are in one query set, each (n,)."""

    row: Codes
    token: Codes
    piece: Codes
    """Index of the piece."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts with two options or more, u of them, each option order counted; o options."""

    prompt_id: NDArray[np.str_]
    """(u,)"""
    answered: NDArray[np.bool_]
    """(u,) whether the prompt names a right option."""
    first_option: Codes
    """(u,) its first option; the others follow."""
    right: Codes
    """(u,) its right option, or else its first."""
    first_piece: Codes
    """(o,) the first piece of each option; the others follow."""
    pieces: int
    long: int
    """Prompts left out, as they need whole rows."""
    places: pl.DataFrame
    """query_set, row, token, piece, and whether its value is to be a log-probability: `long`."""

    @classmethod
    def of(cls, table: pl.DataFrame, *, several_tokens: bool) -> Self:
        """Of a table of prompts as `Bank.prompts` gives it, for the query sets of one model.

        Where all options of a prompt are one token each at one position, their logits tell as much
        as their log-probabilities. Other prompts are left out unless `several_tokens`.
        """
        whole = layout(table)
        long = _long(whole)
        prompt = whole.options["prompt"].to_numpy()
        several = np.bincount(prompt, minlength=len(whole.prompts)) > 1
        kept = several & _without_conditions(whole)
        left_out = np.zeros_like(kept) if several_tokens else kept & long
        ids = whole.prompts["prompt_id"]
        count = ids.filter(pl.Series(left_out)).n_unique() if left_out.any() else 0
        if not (kept & ~left_out).all():
            numbers = np.flatnonzero(kept & ~left_out)
            key = ["prompt_id", "order_seed"]
            names = whole.prompts.select(key)[numbers]
            table = table.join(names, on=key, how="semi", nulls_equal=True, maintain_order="left")
            whole = layout(table)
            long, prompt = _long(whole), whole.options["prompt"].to_numpy()
        starts = np.flatnonzero(np.diff(prompt, prepend=-1))
        answer = whole.options["is_answer"].fill_null(False).to_numpy()
        none = len(prompt)
        right = np.where(answer, np.arange(none), none)
        right = np.minimum.reduceat(right, starts) if none else starts
        of_piece = np.repeat(long[prompt], whole.options["pieces"].to_numpy())
        return cls(
            whole.prompts["prompt_id"].to_numpy().astype(np.str_),
            right < none,
            starts,
            np.where(right < none, right, starts),
            whole.first,
            len(of_piece),
            count,
            whole.places.with_columns(long=pl.Series(of_piece)[whole.places["piece"]]),
        )

    def places_in(self, query_set: str) -> Iterator[tuple[bool, Places]]:
        """Those in one query set: whose values are logits, and whose are log-probabilities."""
        own = self.places.filter(pl.col("query_set") == query_set)
        for (long,), part in own.group_by("long", maintain_order=True):
            columns = (part[name].to_numpy().astype(np.int64) for name in ("row", "token", "piece"))
            yield bool(long), Places(*columns)

    def first(self, options: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(l, u) whether the right one of options (l, o) is larger than every other; not of NaN."""
        others = options.copy()
        others[:, self.right] = -np.inf
        most = np.maximum.reduceat(others, self.first_option, axis=1) if others.size else others
        return np.asarray(options[:, self.right] > most)

    def logprob(self, options: NDArray[np.float64]) -> NDArray[np.float64]:
        """(l, u) log-probability of the right one among the options of a prompt; NaN spreads."""
        if not options.size:
            return options
        with np.errstate(invalid="ignore"):  # of NaN
            sums = np.logaddexp.reduceat(options, self.first_option, axis=1)
        return np.asarray(options[:, self.right] - sums)


def _long(whole: PromptLayout) -> NDArray[np.bool_]:
    """(p,) whether options of a prompt have several tokens, or are scored at several positions."""
    prompt = whole.options["prompt"].to_numpy()
    pieces = whole.options["pieces"].to_numpy()
    of_place = np.repeat(prompt, pieces)[whole.places["piece"].to_numpy()]
    rows = whole.places.select("query_set", "row").with_columns(prompt=of_place).unique()
    positions = np.bincount(rows["prompt"].to_numpy(), minlength=len(whole.prompts))
    many = np.zeros(len(whole.prompts), bool)
    np.logical_or.at(many, prompt, pieces > 1)
    return np.asarray(many | (positions > 1))


def _without_conditions(whole: PromptLayout) -> NDArray[np.bool_]:
    """(p,) whether a prompt is more than the condition of others."""
    nothing = np.zeros((0, len(whole.options)))
    everything = (whole.prompts.with_row_index("at"), whole.options)
    scores = PromptScores("", "", (), *everything, nothing, nothing.astype(np.int64))
    kept = np.zeros(len(whole.prompts), bool)
    kept[asked(scores).prompts["at"].to_numpy()] = True
    return kept
