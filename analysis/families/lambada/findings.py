"""The findings of LAMBADA: accuracy and perplexity of the last and the best checkpoint."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.series import (
    Curve,
    about,
    by_series,
    sample,
    size,
    subject,
    totals,
)
from logitbank.wording import step_name

TOTALS = {
    "tied": "last words share the largest logit with another token and count as wrong (over all "
    "checkpoints)",
    "inexact": "ranks are bounds, counted among rounded scores (over all checkpoints)",
}


def findings(result: Lambada) -> list[Finding]:
    """A headline, then each model and run, then ties."""
    table = sample(result.lambada, result.checkpoints)
    last = table.group_by("model", "run", maintain_order=True).last()
    found = [each for name, rows in by_series(table) for each in _series(name, rows)]
    best = last.sort("acc").row(-1, named=True)
    text = (
        f"{subject(best, table)} predicts the last word of {best['acc']:.0%} of passages at "
        f"{step_name(best['step'])}."
    )
    return [Finding(text=text, **about(best, "lambada")), *found, *totals(table, TOTALS)]


def _series(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    n = size("examples")
    accuracy = Curve(rows, "acc", f"{name}Accuracy", n, ".1%", "lambada")
    yield accuracy.now()
    yield from accuracy.change()
    yield from accuracy.highest()
    yield Curve(rows, "perplexity", f"{name}Perplexity", n, ",.3g", "lambada").now()
