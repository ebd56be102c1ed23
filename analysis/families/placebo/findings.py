"""The findings of placebos: whether the target changes more than the placebo."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.placebo import FAMILY
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import Curve, Row, about, by_series, missing_text, subject
from logitbank.wording import counted, step_name

KINDS = ("changed", "odds")
TEXTS = {measure.key: measure for measure in FAMILY.measures}


def findings(result: Measured) -> list[Finding]:
    """Whether the target exceeds the placebo at the last checkpoint, then each measure."""
    table = result.measures.filter(pl.col("value").is_not_nan())
    if table.is_empty():
        return [Finding(text="There is no pair of prompts with all scores.")]
    row, odds = (table.filter(measure=f"{kind}, difference").row(-1, named=True) for kind in KINDS)
    who = subject(row, table)
    if row["low"] > 0:
        verdict = "the target changes more answers than the placebo"
    elif odds["low"] > 0:
        verdict = "the target moves log-odds more than the placebo"
    else:
        verdict = "the target's effect does not exceed the placebo's"
    headline = Finding(
        text=f"{who} at {step_name(row['step'])}: {verdict}.", **about(row, "placebo")
    )
    return [headline, *(each for name, rows in by_series(table) for each in _series(name, rows))]


def _series(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    for kind in KINDS:
        parts = {
            part: rows.filter(measure=f"{kind}, {part}")
            for part in ("difference", "target", "placebo")
        }
        measure = TEXTS[f"{kind}, difference"]
        target, placebo = (
            formatted(parts[part]["value"][-1], measure.form.lstrip("+"))
            for part in ("target", "placebo")
        )
        what = f"{name}{measure.text}, target minus placebo"
        curve = Curve(parts["difference"], "value", what, _pairs, measure.form, "placebo")
        yield curve.at(curve.last, baseline=f"target {target}, placebo {placebo}, paired")
        yield from curve.change()


def _pairs(row: Row) -> str:
    return counted(row["clusters"], "pair") + missing_text(row["missing"], "edit")
