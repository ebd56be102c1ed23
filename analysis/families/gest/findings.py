"""The findings of GEST: those of the rate, and the stereotypes with extreme scores."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.families.gest import ABOUT_WOMEN, FAMILY, NAMES, PUBLISHED_RATE, RATE
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import Curve, by_series, size
from logitbank.analysis.stats.summary import ALL


def findings(result: Measured) -> list[Finding]:
    """The common findings about the rate, then the extreme stereotypes of each model and run."""
    found = measured.findings(shown(result), result)
    for prefix, rows in by_series(of_stereotypes(result)):
        found += _extremes(rows, prefix)
    return found


def shown(result: Measured) -> Family:
    """The family with the measures of findings and charts: the rate, in both units.

    The scores of each kind of stereotypes also contain how probable the words are anyway. They are
    shown if there is no rate.
    """
    known = result.measures.filter(pl.col("value").is_not_nan())["measure"]
    return replace(FAMILY, measures=(RATE, PUBLISHED_RATE)) if RATE.key in known else FAMILY


def of_stereotypes(result: Measured) -> pl.DataFrame:
    """The scores of stereotypes, mean of templates, over all languages."""
    table = result.further["stereotypes"].filter(pl.col("score").is_not_nan(), template=ALL)
    return table.filter(language=ALL) if "language" in table.columns else table


def _extremes(rows: pl.DataFrame, prefix: str) -> Iterator[Finding]:
    """The stereotypes with the lowest and the highest score at the last checkpoint."""
    last = rows.filter(same_as(rows.row(-1, named=True), CHECKPOINT))
    last = last.sort("score", maintain_order=True)
    n = size("items", items="sentence")
    score = Curve(last, "score", f"{prefix}Score (nats)", n, "+.3f", "stereotypes")
    for end, at in (("lowest", 0), ("highest", -1)):
        row = last.row(at, named=True)
        whom = "women" if NAMES.index(row["stereotype"]) < ABOUT_WOMEN else "men"
        yield score.at(row, f" of the {end} stereotype, {row['stereotype']} (about {whom}),")
