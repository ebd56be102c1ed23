"""The findings of stereotype accuracy: the last and the most stereotypical checkpoint."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.families.stereotype.tables import TYPE
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import (
    Row,
    by_series,
    change_from_first,
    from_row,
    missing_text,
    subject,
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
    for (measure,), rows in table.group_by("measure", maintain_order=True):
        if tied := int(rows["tied"].sum()):
            text = f"{tied:,} comparisons of {NAMES[str(measure)]} are ties and count ½."
            found.append(Finding(text=text))
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
    return Finding(text=text, figure=FIGURE, series=(row["model"], row["run"]))


def _series(what: str, rows: pl.DataFrame) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    top = rows.row(int(rows["accuracy"].arg_max() or 0), named=True)
    series = (last["model"], last["run"])
    yield _share(f"{what} at {step_name(last['step'])}", last)
    yield from change_from_first(rows, what, form="+.3f", n=_n(last), figure=FIGURE, series=series)
    if top["accuracy"] > last["accuracy"]:
        yield _share(f"{what}, most stereotypical at {step_name(top['step'])}", top)


def _share(text: str, row: Row) -> Finding:
    return from_row(
        row, "accuracy", text, n=_n(row), baseline="0.5 is no stereotype", figure=FIGURE
    )


def _n(row: Row) -> str:
    return counted(row["sentences"], "sentence") + missing_text(row["missing"])
