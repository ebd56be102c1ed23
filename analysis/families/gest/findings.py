"""The findings of GEST: the rate of the last checkpoint, its templates, and extreme stereotypes."""

import math
from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.gest import ALL
from logitbank.analysis.families.gest.metric import Gest
from logitbank.analysis.families.gest.tables import RATE, of_all, of_each
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import Curve, about, by_series, sample, size, subject
from logitbank.wording import step_name

N = size("sentences", missing="version")


def findings(result: Gest) -> list[Finding]:
    """A headline, then each model and run: the rate in nats and as published, and stereotypes."""
    rates = of_all(result.rates).filter(part=RATE)
    overall = sample(rates.filter(template=ALL), result.checkpoints)
    if overall.is_empty():
        return [Finding(text="There is no sentence with all templates of both kinds.")]
    found = [_headline(overall)]
    for name, rows in by_series(overall):
        found += _series(name, rows, rates, of_all(result.stereotypes))
        found += _languages(name, rows, of_each(result.rates).filter(part=RATE, template=ALL))
    return found


def _languages(name: str, rows: pl.DataFrame, rates: pl.DataFrame) -> Iterator[Finding]:
    """The languages with the lowest and the highest rate at the last checkpoint."""
    now = same_as(rows.row(-1, named=True), CHECKPOINT)
    own = rates.filter(now).sort("score", maintain_order=True)
    what = f"{name}Stereotype rate (nats)"
    rate = Curve(own, "score", what, size("sentences"), "+.3f", "languages", "0 is no stereotype")
    for end, index in (("lowest", 0), ("highest", -1)) if len(own) > 1 else ():
        row = own.row(index, named=True)
        yield rate.at(row, f", {end}: {row['language']},")


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
    return Finding(text=text, **about(row, "rate"))


def _series(
    name: str, rows: pl.DataFrame, rates: pl.DataFrame, stereotypes: pl.DataFrame
) -> Iterator[Finding]:
    rate = Curve(
        rows, "score", f"{name}Stereotype rate (nats)", N, "+.3f", "rate", "0 is no stereotype"
    )
    yield rate.now()
    yield from rate.change()
    now = same_as(rate.last, CHECKPOINT)
    templates = rates.filter(now, pl.col("template") != ALL)
    published = Curve(
        templates, "published", f"{name}g_s as published", N, ".2f", "rate", "1 is no stereotype"
    )
    for row in templates.iter_rows(named=True):
        yield published.at(row, f", template {row['template']},")
    own = stereotypes.filter(now, template=ALL).sort("score", maintain_order=True)
    score = Curve(own, "score", f"{name}Score", N, "+.3f", "stereotypes")
    for end, index in (("lowest", 0), ("highest", -1)):
        row = own.row(index, named=True)
        yield score.at(row, f" of the {end} stereotype, {row['stereotype']} ({row['part']}),")
