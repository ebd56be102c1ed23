"""Sentences about the change points of a curve."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.stats.change_points import FEWEST, N_WALKS

Row = Mapping[str, Any]
NOTE = (
    "Change points are tested against curves without one, most of them random walks: neighbouring "
    "checkpoints share their weights, so their agreement is no evidence. The p value is the "
    "largest of six such nulls, ± its Monte-Carlo error."
)
"""How a change point is to be read."""


def p_text(row: Row) -> str:
    """The p value of a row of changes, with its error; `≤` where it is the least there is.

    >>> p_text({"p_random_walk": 0.0312, "p_error": 0.0017}), p_text({"p_random_walk": 1e-5})
    ('p = 0.031 ± 0.002', 'p ≤ 0.0001')
    """
    if row["p_random_walk"] <= 1 / (N_WALKS + 1):
        return "p ≤ 0.0001"
    return f"p = {row['p_random_walk']:.2g} ± {row['p_error']:.1g}"


def tested(row: Row) -> str:
    """The p value of a row, its null, and that of all runs where there are several."""
    several = row.get("p_holm")
    holm = "" if several in (None, row["p_random_walk"]) else f"; Holm over runs {several:.2g}"
    return f"{p_text(row)}, random-walk null{holm}"


def change_text(row: Row, what: str, form: Callable[[float], str]) -> str:
    """A change point or a gradual change: where it is, and between which levels."""
    before, after = form(row["mean_before"]), form(row["mean_after"])
    verb = "rises" if row["mean_after"] > row["mean_before"] else "falls"
    if row["kind"] == "gradual":
        return (
            f"{what} {verb} gradually between steps {row['earliest']:,} and {row['latest']:,}, "
            f"from {before} to {after}"
        )
    sure = row["earliest"] == row["latest"]
    reach = "" if sure else f" (95 %: {row['earliest']:,} to {row['latest']:,})"
    return f"change point at step {row['step']:,}{reach}: {what} {verb} from {before} to {after}"


def change_sentences(
    rows: pl.DataFrame, what: str, form: Callable[[float], str], *, first_step: int
) -> Iterator[str]:
    """What the rows of one curve say of its course.

    Parameters
    ----------
    what
        Name of the curve, within a sentence: `mean Δ`.
    first_step
        The first step of the curve, from which the search may begin later.
    """
    begin = rows["from_step"][0] if len(rows) else None
    if begin is not None and begin > first_step and rows["kind"][0] is not None:
        yield (
            f"Checkpoints before step {begin:,} are left out of the search for changes of {what} "
            "(untrained phase, or `from_step`)."
        )
    for row in rows.iter_rows(named=True):
        if row["kind"] is None:
            yield f"No change point of {what} was looked for: {untested(row)}."
        elif row["kind"] == "none":
            yield (
                f"No change point of {what} is significant from step {row['from_step']:,} to "
                f"{row['last_step']:,} ({tested(row)}, {row['checkpoints']} checkpoints)."
            )
        else:
            text = change_text(row, what, form)
            fit = "; a logistic curve fits better than a jump" if row["kind"] == "gradual" else ""
            yield f"{text[0].upper()}{text[1:]} ({tested(row)}{fit})."


def untested(row: Row) -> str:
    """Why no change was searched for."""
    if row["checkpoints"] < FEWEST:
        return f"fewer than {FEWEST} checkpoints"
    return "constant, or missing at a checkpoint"
