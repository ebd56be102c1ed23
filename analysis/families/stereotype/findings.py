"""The findings of stereotype accuracy: the last and the highest checkpoint."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.families.stereotype.tables import TYPE
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import (
    Curve,
    Row,
    about,
    by_series,
    from_row,
    size,
    subject,
    totals,
)
from logitbank.wording import counted, step_name

NAMES = {"sa": "Stereotype accuracy", "sa_gender": "sa_gender"}
FIGURE = "stereotype_accuracy"


def findings(result: StereotypeAccuracy) -> list[Finding]:
    """A headline, then each measure of each model and run, then ties."""
    table = result.stereotype_accuracy.filter(pl.col("accuracy").is_not_nan())
    if table.is_empty():
        return [Finding(text="There is no sentence with all of its orders.")]
    found = [_headline(table)]
    for (measure, kind), rows in table.group_by("measure", "type", maintain_order=True):
        what = NAMES[str(measure)] + ("" if kind == TYPE else f", Type {kind}")
        for name, of_series in by_series(rows):
            found += _series(f"{name}{what}", of_series)
            found += _over_change(result, f"{name}{what}", of_series.row(0, named=True))
    for (measure,), rows in table.group_by("measure", maintain_order=True):
        found += totals(
            rows, {"tied": f"comparisons of {NAMES[str(measure)]} are ties and count ½"}
        )
    return found


def _headline(table: pl.DataFrame) -> Finding:
    """The last checkpoint that is farthest from one half, of pronouns if there are any.

    One with an interval comes first: a few sentences are seldom half and half.
    """
    rows = table.filter(measure=table["measure"].min())
    kinds = rows["type"].to_list()
    rows = rows.filter(type=TYPE if TYPE in kinds else kinds[0])
    last = rows.group_by("model", "run", maintain_order=True).last()
    distance = (pl.col("accuracy") - 0.5).abs()
    row = last.sort(pl.col("low").is_not_nan(), distance).row(-1, named=True)
    who, share = subject(row, table), formatted(row["accuracy"], ".0%")
    text = f"{who} prefers the stereotype in {share} of sentences at {step_name(row['step'])}."
    if not (row["low"] > 0.5 or row["high"] < 0.5):
        text = f"{who} has no significant stereotype of occupations at {step_name(row['step'])}."
    return Finding(text=text, **about(row, FIGURE))


def _series(what: str, rows: pl.DataFrame) -> Iterator[Finding]:
    accuracy = Curve(
        rows, "accuracy", what, size("sentences"), figure=FIGURE, baseline="0.5 is no stereotype"
    )
    yield accuracy.now()
    yield from accuracy.change()
    yield from accuracy.highest()


def _over_change(result: StereotypeAccuracy, what: str, row: Row) -> Iterator[Finding]:
    """How far stereotype accuracy moves over a change of the gender gap (Fig. 3 of the paper)."""
    if result.over_change is None:
        return
    same = {name: row[name] for name in ("model", "run", "measure", "type")}
    for moved in result.over_change.filter(**same).iter_rows(named=True):
        before, after = (formatted(moved[f"delta_{end}"], "+.2f") for end in ("before", "after"))
        text = (
            f"{what}, change from step {moved['before']:,} to {moved['after']:,}, over which the "
            f"gender gap Δ goes from {before} to {after}"
        )
        yield from_row(
            moved, "change", text, form="+.3f", figure="gap_and_stereotype",
            n=counted(moved["sentences"], "sentence"),
        )  # fmt: skip
