"""The findings of stereotype accuracy: the last and the highest checkpoint."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.families.stereotype.tables import TYPE
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import Curve, about, by_series, size, subject, totals
from logitbank.wording import step_name

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
