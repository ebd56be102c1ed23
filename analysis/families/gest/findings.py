"""The findings of GEST: the rate of the last checkpoint, its templates, and extreme stereotypes."""

import math
from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.gest import ALL
from logitbank.analysis.families.gest.metric import Gest
from logitbank.analysis.families.gest.tables import RATE
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import (
    by_series,
    change_from_first,
    from_row,
    sample,
    subject,
)
from logitbank.wording import counted, step_name


def findings(result: Gest) -> list[Finding]:
    """A headline, then each model and run: the rate in nats and as published, and stereotypes."""
    rates = sample(result.rates.filter(part=RATE), result.checkpoints)
    overall = rates.filter(template=ALL)
    if overall.is_empty():
        return [Finding(text="There is no sentence with all templates of both kinds.")]
    found = [_headline(overall)]
    for name, rows in by_series(overall):
        found += _series(name, rows, rates, result.stereotypes)
    return found


def _headline(overall: pl.DataFrame) -> Finding:
    """The last checkpoint with the largest rate; those with an interval first."""
    last = overall.group_by("model", "run", maintain_order=True).last()
    row = last.sort(pl.col("low").is_not_nan(), pl.col("score").abs()).row(-1, named=True)
    who, when = subject(row, overall), step_name(row["step"])
    verb = "follows" if row["low"] > 0 else "neither follows nor contradicts"
    verb = "contradicts" if row["high"] < 0 else verb
    text = f"{who} {verb} the gender stereotypes of GEST at {when}."
    if math.isnan(row["low"]):
        text = f"{who} has no interval of the stereotype rate at {when}."
    return Finding(text=text, figure="rate", series=(row["model"], row["run"]))


def _series(
    name: str, rows: pl.DataFrame, rates: pl.DataFrame, stereotypes: pl.DataFrame
) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    n, now = counted(last["sentences"], "sentence"), step_name(last["step"])
    what = f"{name}Stereotype rate (nats)"
    missing = f" ({counted(last['missing'], 'version')} missing)" if last["missing"] else ""
    yield from_row(
        last, "score", f"{what} at {now}", form="+.3f", n=n + missing,
        baseline="0 is no stereotype", figure="rate",
    )  # fmt: skip
    series = (last["model"], last["run"])
    yield from change_from_first(rows, what, form="+.3f", n=n, figure="rate", series=series)
    for row in rates.filter(same_as(last, CHECKPOINT), pl.col("template") != ALL).iter_rows(
        named=True
    ):
        text = f"{name}g_s as published, template {row['template']}, at {now}"
        n = counted(row["sentences"], "sentence")
        yield from_row(
            row, "published", text, form=".2f", n=n, baseline="1 is no stereotype", figure="rate"
        )
    own = stereotypes.filter(same_as(last, CHECKPOINT), template=ALL)
    ordered = own.sort("score", maintain_order=True)
    for end, index in (("lowest", 0), ("highest", -1)):
        row = ordered.row(index, named=True)
        text = f"{name}Score of the {end} stereotype at {now}, {row['stereotype']} ({row['part']})"
        n = counted(row["sentences"], "sentence")
        yield from_row(row, "score", text, form="+.3f", n=n, figure="stereotypes")
