"""Scores of pronouns laid out densely, by frames of a few checkpoints each.

What is held of a frame that was read is 16 bytes for each cell, in place of 44 for each score.
"""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.fluctuation.scores import MASK, PRONOUNS
from logitbank.analysis.frames.batches import check_apart
from logitbank.analysis.frames.codes import Codes, distinct
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.pieces import AGAIN
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

PRIOR = f"a {MASK}"
"""The only prior that is used, whatever the article of a profession."""
Name = tuple[str, str, str]


class Cells(NamedTuple):
    """Scores of every series at every step, NaN where there is none."""

    names: Sequence[Name]
    """(k,) model, run and verb of each series, sorted."""
    steps: Codes
    """(m,) ascending."""
    occupations: pl.Series
    """(t,) sorted, with article."""
    values: Floats
    """(k, m + 1, t + 1, 2): the release after the steps, the prior after the professions."""
    an_priors: int
    """Prior rows with “an”, which are not used."""
    merged: int
    """Rows that repeat another exactly."""


def cells_of(scores: Iterable[pl.DataFrame], expected: pl.Series) -> Cells:
    """The cells of all frames, and those of `expected` professions.

    Raises
    ------
    UsageError
        No rows, a checkpoint in two frames, a score outside [0, 1], or two different scores of the
        same thing.
    """
    parts = [_laid_out(frame, expected) for frame in scores if len(frame)]
    if not parts:
        raise UsageError("there are no scores; name a bank or table that has some")
    if len(parts) == 1:
        return parts[0]
    check_apart([_checkpoints(part) for part in parts])
    return _together(parts)


def cell_name(row: dict[str, object]) -> str:
    """A cell, for messages."""
    sentence = f"“{row['pronoun']} {row['verb']} {row['occupation']}”"
    return f"{sentence} at {checkpoint_name(row)}"


def _laid_out(scores: pl.DataFrame, expected: pl.Series) -> Cells:
    _check_range(scores)
    used = scores
    unused = scores["prior"] & (scores["occupation"] != PRIOR)
    if an_priors := int(unused.sum()):
        used = scores.filter(~unused)
    keys, series = distinct(used.select("model", "run", "verb"))
    occupations, profession = _with_asked(*_professions(used), expected)
    steps, step = _steps(used["step"])
    dense = np.full((len(keys), len(steps) + 1, len(occupations) + 1, 2), np.nan)
    she = (used["pronoun"] == PRONOUNS[1]).to_numpy()
    place = ((series * dense.shape[1] + step) * dense.shape[2] + profession) * 2 + she
    values = used["score"].to_numpy()
    dense.reshape(-1)[place] = values
    _check_conflicts(used, stored=dense.reshape(-1)[place], given=values)
    merged = len(used) - int(np.count_nonzero(~np.isnan(dense)))
    names = used.select("model", "run", "verb")[keys].cast(pl.String).rows()
    order = sorted(range(len(names)), key=names.__getitem__)
    ordered = dense if order == [*range(len(order))] else dense[order]
    return Cells([names[at] for at in order], steps, occupations, ordered, an_priors, merged)


def _checkpoints(part: Cells) -> pl.DataFrame:
    """model, run and step of what has any score."""
    steps = [*part.steps.tolist(), None]
    rows = {
        (*part.names[series][:2], steps[step])
        for series, step in np.argwhere(~np.isnan(part.values).all(axis=(2, 3)))
    }
    schema = {"model": pl.String, "run": pl.String, "step": pl.Int64}
    return pl.DataFrame([*rows], schema=schema, orient="row")


def _together(parts: list[Cells]) -> Cells:
    """Of all parts, each of which is let go when it is laid out."""
    names = sorted({name for part in parts for name in part.names})
    steps = np.unique(np.concatenate([part.steps for part in parts]))
    occupations = pl.concat([part.occupations for part in parts]).unique().sort()
    values = np.full((len(names), len(steps) + 1, len(occupations) + 1, 2), np.nan)
    an_priors, merged = (sum(counts) for counts in zip(*(part[4:] for part in parts), strict=True))
    while parts:
        part = parts.pop()
        place = np.ix_(
            np.array([names.index(name) for name in part.names]),
            np.append(np.searchsorted(steps, part.steps), len(steps)),
            np.append(occupations.search_sorted(part.occupations).to_numpy(), len(occupations)),
        )
        own = values[place]
        values[place] = np.where(np.isnan(part.values), own, part.values)
    return Cells(names, steps, occupations, values, an_priors, merged)


def _check_range(scores: pl.DataFrame) -> None:
    # 1e-6 above 1 is a softmax summed in float32.
    fine = scores["score"].is_between(0, 1 + 1e-6).fill_null(False)
    if not fine.all():
        rows = scores.filter(~fine)
        row = rows.row(0, named=True)
        if row["score"] is not None and not isfinite(row["score"]):
            raise BankError(
                f"the score of {cell_name(row)} is {row['score']} ({len(rows)} such rows); {AGAIN}"
            )
        raise UsageError(
            f"the score {row['score']} of {cell_name(row)} is not within 0 and 1 ({len(rows)} such "
            "rows); scores are probabilities over the whole vocabulary"
        )


def _check_conflicts(rows: pl.DataFrame, *, stored: Floats, given: Floats) -> None:
    other = np.flatnonzero(stored != given)
    if len(other):
        row = rows.row(int(other[0]), named=True)
        raise UsageError(
            f"{cell_name(row)} has two scores, {given[other[0]]} and {stored[other[0]]} "
            f"({len(other)} such rows); keep one of them"
        )


def _professions(scores: pl.DataFrame) -> tuple[pl.Series, Codes]:
    """Professions, sorted; and which of them each row is about, the prior after the last."""
    rows, codes = distinct(scores.select("occupation", "prior"))
    names = scores.select("occupation", "prior")[rows].with_row_index("code")
    names = names.with_columns(pl.col("occupation").cast(pl.String)).sort("prior", "occupation")
    places = np.empty(len(names), np.int64)
    places[names["code"].to_numpy()] = np.arange(len(names))
    professions = names.filter(~pl.col("prior"))["occupation"]
    return professions, np.minimum(places[codes], len(professions))


def _with_asked(
    occupations: pl.Series, profession: Codes, expected: pl.Series
) -> tuple[pl.Series, Codes]:
    """The professions with those that nobody has a score of; the rows are about the same ones."""
    everything = pl.concat([occupations, expected]).unique().sort()
    if len(everything) == len(occupations):
        return occupations, profession
    places = np.append(everything.search_sorted(occupations).to_numpy(), len(everything))
    return everything, places[profession]


def _steps(column: pl.Series) -> tuple[Codes, Codes]:
    """Steps, ascending; and which of them each row is about, a release after the last."""
    rows, codes = distinct(column.to_frame())
    known = column.gather(rows)
    order = known.arg_sort(nulls_last=True).to_numpy()
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows))
    return known.gather(order).drop_nulls().to_numpy(), places[codes]
