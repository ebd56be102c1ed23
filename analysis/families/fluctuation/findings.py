"""The findings of fluctuation: CVs of the plateau and correlations, then those of the measures."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.families.fluctuation import CERTAINTY, FAMILY, LN_R
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.finding import Finding
from logitbank.analysis.results import measured
from logitbank.analysis.results.series import Row, about, by_series, from_row, subject, totals
from logitbank.wording import counted, step_name

KEYS = ["model", "run", "verb", "plateau"]
AGREEMENT = 0.8
"""Correlation above which two checkpoints count as similar."""


def findings(result: Fluctuation) -> list[Finding]:
    """A headline, each model and run, pairs of runs, the measures, and what weakens the numbers."""
    spread = result.spread.filter(
        pl.col("measure") == "cv_r", pl.col("n") > 0, pl.col("median").is_finite()
    ).join(result.plateaus, on=KEYS, maintain_order="left")
    ranked = spread.sort("median", descending=True, maintain_order=True)
    found = [*_headline(ranked)]
    for prefix, rows in by_series(spread):
        found += _series(result, prefix, rows.sort("median", descending=True, maintain_order=True))
    measures = measured.findings(replace(FAMILY, measures=(LN_R, CERTAINTY)), result.headline)
    return [*found, *_runs(result.run_pairs), *measures, *_limits(result)]


def _headline(ranked: pl.DataFrame) -> Iterator[Finding]:
    """The finding about the plateau whose median profession has the largest CV."""
    for row in ranked.head(1).iter_rows(named=True):
        yield Finding(
            text=(
                f"P(he) / P(she) of the median profession varies by {row['median']:.0%} between "
                f"checkpoints ({subject(row, ranked).removeprefix('The ')}, plateau)."
            ),
            **about(row, "trajectories"),
        )


def _series(result: Fluctuation, prefix: str, ranked: pl.DataFrame) -> Iterator[Finding]:
    """The verb and plateau of largest median CV in detail, the medians of others."""
    row, *others = ranked.rows(named=True)
    where = f"{prefix}“{row['verb']}” from {step_name(row['first_step'])}: "
    yield _median(prefix, row)
    own = result.professions.filter(pl.col(key) == row[key] for key in KEYS)
    top = own.filter(pl.col("cv_r") == row["max"]).row(0, named=True)
    if row["n"] > 1:
        text = f"{where}largest CV of R, {top['occupation']}"
        yield from_row(row, "max", text, n=_basis(row), figure="trajectories")
    text = f"{where}CV of the prior's R, without a profession"
    n = counted(row["checkpoints"], "checkpoint")
    yield from_row(row, "prior_cv", text, n=n, figure="trajectories")
    yield from _correlations(result, where, row)
    yield from _checkpoints(result.checkpoint_pairs, f"{prefix}“{row['verb']}”: ", row)
    for other in others:
        yield _median(prefix, other)


def _basis(row: Row) -> str:
    excluded = f" ({row['excluded']:,} left out)" if row["excluded"] else ""
    checkpoints = counted(row["checkpoints"], "checkpoint")
    return f"{counted(row['n'], 'profession')}{excluded}, {checkpoints}"


def _median(prefix: str, row: Row) -> Finding:
    where = f"{prefix}“{row['verb']}” from {step_name(row['first_step'])}: "
    text = f"{where}median CV of R"
    return from_row(row, "median", text, n=_basis(row), figure="certainty_cv")


def _correlations(result: Fluctuation, where: str, row: Row) -> Iterator[Finding]:
    """Correlations of the CV with certainty, and with the most correlated letter case."""
    known = result.correlations.filter(
        *(pl.col(key) == row[key] for key in KEYS), pl.col("y") == "cv_r", pl.col("r").is_not_nan()
    )
    for x in ("certainty", "frequency"):
        rows = known.filter(x=x).sort(pl.col("r").abs(), descending=True, maintain_order=True)
        for each in rows.head(1).iter_rows(named=True):
            what = "certainty" if x == "certainty" else f"corpus frequency ({each['case']})"
            several = f", largest of {len(rows)} cases" if len(rows) > 1 else ""
            text = f"{where}correlation of {what} with the CV of R{several}"
            n = counted(each["n"], "profession")
            yield from_row(each, "r", text, n=n, form=".2f", figure="certainty_cv")


def _checkpoints(pairs: pl.DataFrame, where: str, row: Row) -> Iterator[Finding]:
    known = pairs.filter(*(pl.col(key) == row[key] for key in KEYS[:3]), pl.col("r").is_not_nan())
    if len(known) == 1:
        (pair,) = known.rows(named=True)
        steps = f"{step_name(pair['step_a'])} and {pair['step_b']:,}"
        text = f"{where}correlation of R between {steps}"
        yield from_row(pair, "r", text, n=counted(pair["n"], "profession"), form=".2f")
    elif len(known):
        yield Finding(
            text=f"{where}pairs of checkpoints with r > {AGREEMENT} in R",
            value=float((known["r"] > AGREEMENT).sum() / len(known)), form=".0%",
            n=f"{counted(len(known), 'pair')}, {counted(known['n'][0], 'profession')}",
            **about(row, "checkpoint_pairs"),
        )  # fmt: skip


def _runs(pairs: pl.DataFrame) -> Iterator[Finding]:
    """The correlation of the runs that agree least, of each model, verb and plateau."""
    known = pairs.filter(pl.col("measure") == "mean_r", pl.col("r").is_not_nan())
    for rows in known.partition_by("model", "verb", "plateau", maintain_order=True):
        row = rows.sort("r", maintain_order=True).row(0, named=True)
        least = f", lowest of {len(rows):,} pairs" if len(rows) > 1 else ""
        yield Finding(
            text=(
                f"{row['model']}, “{row['verb']}” from {step_name(row['plateau'])}: correlation of "
                f"mean R between {row['run_a']} and {row['run_b']}{least}"
            ),
            value=row["r"], low=row["low"], high=row["high"], form=".2f",
            n=counted(row["n"], "profession"), figure="run_pairs" if len(rows) > 1 else "",
        )  # fmt: skip


def _limits(result: Fluctuation) -> Iterator[Finding]:
    """Things in the data that weaken the numbers, where there are any."""
    counts = {
        "merged_rows": "rows repeat another exactly and count once",
        "an_priors": "prior rows with “an” are not used: the prior has “a” for all professions",
    }
    yield from totals(pl.DataFrame([result.settings]), counts)
    lengths = sorted(result.plateaus["checkpoints"].to_list())
    if lengths[0] < lengths[-1]:
        yield Finding(
            text=(
                f"Plateaus have {lengths[0]:,} to {lengths[-1]:,} checkpoints. CVs over "
                "plateaus of different lengths cannot be compared."
            )
        )
