"""What fluctuation says first: how much the pronouns' ratio wanders between checkpoints."""

import polars as pl

from logitbank.analysis.drawing.paper import shortened
from logitbank.analysis.drawing.sheet import said
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.results.message import KeyNumber, Message, checkpoint_number, subject_of
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, step_name

KEYS = ["model", "run", "verb", "plateau"]


def fluctuation_message(result: Fluctuation) -> Message | None:
    """Of the plateau whose median profession wanders most; a CV has no interval.

    None where no profession has all of its scores in a plateau.
    """
    spread = result.spread.filter(pl.col("measure") == "cv_r", pl.col("n") > 0)
    rows = spread.join(result.plateaus, on=KEYS, maintain_order="left").filter(
        pl.col("median").is_finite()
    )
    if rows.is_empty():
        return None
    row = rows.sort("median", descending=True, maintain_order=True).row(0, named=True)
    subject = subject_of(row, result.plateaus)
    return Message(
        sentence=(
            f"From {step_name(row['first_step'])} on, how many times as probable {subject} makes "
            f"“he” as “she” varies between checkpoints by {100 * row['median']:.0f} % of its mean, "
            f"for the median profession{_among(result)}."
        ),
        figure="certainty_cv",
        numbers=[
            _median(row),
            *_largest(result, row),
            KeyNumber(f"{row['prior_cv']:.3f}", "CV of the prior’s own R", "no profession named"),
            checkpoint_number(result.checkpoints),
        ],
        series=(row["model"], row["run"], *(said(key, row[key]) for key in KEYS[2:])),
    )


def _among(result: Fluctuation) -> str:
    """Of how many plateaus it is the largest, and whether these are of one length."""
    lengths = result.plateaus["checkpoints"]
    if len(lengths) == 1:
        return ""
    other = "; others are longer or shorter, which changes a CV" if lengths.n_unique() > 1 else ""
    return f", the largest of {len(lengths):,} plateaus{other}"


def _median(row: Row) -> KeyNumber:
    excluded = f", {row['excluded']:,} left out" if row["excluded"] else ""
    rests = (
        f"{counted(row['n'], 'profession')}{excluded}, after “{row['verb']}”; "
        f"{counted(row['checkpoints'], 'checkpoint')}, no interval"
    )
    return KeyNumber(f"{row['median']:.3f}", "median CV of R", rests)


def _largest(result: Fluctuation, row: Row) -> list[KeyNumber]:
    """The profession that wanders most, where there are several."""
    if row["n"] < 2:
        return []
    own = result.professions.filter(pl.col(key) == row[key] for key in KEYS)
    named = own.filter(pl.col("cv_r") == row["max"])["occupation"]
    return [KeyNumber(f"{row['max']:.3f}", "largest CV of R", shortened(named[0]))]
