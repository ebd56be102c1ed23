"""The findings of LAMBADA: accuracy and perplexity of the last and the best checkpoint."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.series import (
    by_series,
    change_from_first,
    from_row,
    sample,
    subject,
)
from logitbank.wording import counted, step_name


def findings(result: Lambada) -> list[Finding]:
    """A headline, then each model and run, then ties."""
    table = sample(result.lambada, result.checkpoints)
    best = (
        table.group_by("model", "run", maintain_order=True).last().sort("acc").row(-1, named=True)
    )
    headline = Finding(
        text=(
            f"{subject(best, table)} predicts the last word of {best['acc']:.0%} of passages at "
            f"{step_name(best['step'])}."
        ),
        figure="lambada",
        series=(best["model"], best["run"]),
    )
    found = [headline, *(each for name, rows in by_series(table) for each in _series(name, rows))]
    for column, what in (
        ("tied", "last words share the largest logit with another token and count as wrong"),
        ("inexact", "ranks are bounds, counted among rounded scores"),
    ):
        if count := int(table[column].sum()):
            found.append(Finding(text=f"{count:,} {what} (over all checkpoints)."))
    return found


def _series(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    top = rows.row(int(rows["acc"].arg_max() or 0), named=True)
    n = counted(last["examples"], "example") + last["missing_text"]
    series = (last["model"], last["run"])
    about: dict[str, Any] = {"n": n, "figure": "lambada", "series": series}
    now = step_name(last["step"])
    yield from_row(last, "acc", f"{name}Accuracy at {now}", form=".1%", **about)
    yield from change_from_first(rows, f"{name}Accuracy", form="+.1%", **about)
    if top["acc"] > last["acc"]:
        highest = f"{name}Highest accuracy, at {step_name(top['step'])}"
        yield from_row(top, "acc", highest, form=".1%", **about)
    yield from_row(last, "perplexity", f"{name}Perplexity at {now}", form=",.3g", **about)
