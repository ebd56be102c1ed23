"""`sa_gender` and JSD-P, both of the same cubes of WinoBias's scores: they are read once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import Axes
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import Cube, each_cube
from logitbank.analysis.families.fairness.samples import samples
from logitbank.analysis.families.fairness.tables import jsd_table
from logitbank.analysis.families.stereotype.shares import (
    Measured,
    by_order,
    joined,
    measured,
    most_of,
    no_score,
    orders_of,
)
from logitbank.analysis.frames.batches import Scan, frames_of
from logitbank.analysis.frames.expressions import jsd_parts
from logitbank.analysis.frames.pieces import CHECKPOINT, together
from logitbank.analysis.frames.shared import made_of
from logitbank.errors import BankError

FAMILY, MEASURE = "winobias", "sa_gender"
COLUMNS = ("stereotype", "asked")
"""Of the prompts, besides what fairness reads."""
JSD_SCHEMA = {
    "model": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "gold": pl.String,
    "jsd_p": pl.Float64,
    "sd": pl.Float64,
}


class Genders(NamedTuple):
    """What is made of a cube."""

    shares: Measured
    jsd_p: pl.DataFrame


def genders(winobias: Scan, labels: FairnessLabels, expected: pl.DataFrame | None) -> list[Genders]:
    """Of one frame after another.

    `expected` has model, type, sentence_id and `most`, the orders that were asked; without it, what
    is in all frames is found before.
    """
    made = made_of(winobias, MEASURE)
    if made is not None:
        return made
    # Alone: of what is shared, the same would be made twice.
    each = partial(
        each_cube, frames_of(winobias)[:], labels=labels, ties="competition", columns=COLUMNS
    )
    whole = expected is not None
    if expected is None:
        expected = most_of(each(lambda _: lambda data: orders_of(compared(data, labels))))
    return each(prepare(expected, labels, whole=whole))


def prepare(
    expected: pl.DataFrame, labels: FairnessLabels, *, whole: bool = True
) -> Callable[[Axes], Callable[[Cube], Genders]]:
    """For `each_cube`: what is made of every cube."""

    def prepared(axes: Axes) -> Callable[[Cube], Genders]:
        none = axes.resampled(resamples=0, seed=0)

        def made(data: Cube) -> Genders:
            rows = compared(data, labels)
            shares = measured(rows, by_order, expected, whole=whole, measure=MEASURE)
            parts = [*np.moveaxis(jsd_parts(data.logits, data.gold), -1, 0)]
            table = jsd_table(data.checkpoints, samples(data, parts, none), labels=labels)
            return Genders(shares, _of_answers(table, labels))

        return made

    return prepared


def shares_table(parts: Sequence[Genders]) -> pl.DataFrame:
    """The rows of `sa_gender`; refused where there is none."""
    table = joined([part.shares for part in parts])
    if table.is_empty():
        raise no_score(FAMILY)
    return table


def jsd_p_table(parts: Sequence[Genders]) -> pl.DataFrame:
    """JSD-P of the right answer."""
    return together([part.jsd_p for part in parts])


def compared(data: Cube, labels: FairnessLabels) -> pl.DataFrame:
    """One row per checkpoint, prompt and order that is scored: the right gender's and the other's.

    A prompt is its own unit: a sentence of one's own may be asked about both people.
    """
    prompts = data.axes.prompts
    gendered = (prompts["stereotype"] == "pro") & (prompts["asked"] == "referred")
    chosen = np.flatnonzero(gendered.fill_null(False).to_numpy())
    gold = data.gold[chosen]
    if len(neither := chosen[gold > 1]):
        raise BankError(
            f"the answer of prompt {prompts['prompt_id'][int(neither[0])]!r} is neither "
            f"{labels.male} nor {labels.female} ({len(neither):,} such prompts); scan one prompt "
            "set whose pro-stereotyped prompts ask for a gender"
        )
    # By prompt, then by order: (c, p, s).
    own, other = (data.logits[:, :, chosen, at].transpose(0, 2, 1) for at in (gold, 1 - gold))
    c, p, s = np.nonzero(~np.isnan(own))
    orders = pl.Series(data.axes.seeds, dtype=pl.Int64).cast(pl.String)
    return data.checkpoints[c].select(
        *CHECKPOINT,
        type=pl.lit(2, pl.Int64),
        sentence_id=prompts["prompt_id"].gather(chosen[p]),
        order=orders.gather(s),
        own=pl.Series(own[c, p, s]),
        other=pl.Series(other[c, p, s]),
    )


def _of_answers(table: pl.DataFrame, labels: FairnessLabels) -> pl.DataFrame:
    answer = (pl.col("gold") == pl.col("option")) & pl.col("gold").is_in(labels[:2])
    return table.filter(answer, pl.col("scaled").is_not_nan()).select(
        *CHECKPOINT, "gold", jsd_p="scaled", sd="sd_scaled"
    )
