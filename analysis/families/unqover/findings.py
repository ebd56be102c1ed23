"""The findings of UnQover: whether subjects are preferred, its measures, and which subjects."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.unqover import FAMILY
from logitbank.analysis.families.unqover.metric import Unqover, with_counts
from logitbank.analysis.families.unqover.tables import ALL
from logitbank.analysis.finding import Finding
from logitbank.analysis.results import measured
from logitbank.analysis.results.series import (
    Curve,
    Row,
    about,
    figure_name,
    series_name,
    size,
    subject,
)
from logitbank.wording import counted, step_name

KEYS = ("model", "run", "category")
LEVEL = 0.05
"""Largest adjusted p value of a preference that is counted."""
N = size("instances", "subjects", "attributes")


def findings(result: Unqover) -> list[Finding]:
    """Headlines, the subjects of each model, run and category, and the measures."""
    last = last_rows(result)
    subjects = (each for row in last.to_dicts() for each in _series(result, row))
    headline, *measures = measured.findings(FAMILY, result.headline)
    return [*_headline(last), headline, *subjects, *measures]


def last_rows(result: Unqover) -> pl.DataFrame:
    """Rows of `with_counts` at the last checkpoint of each series, the smallest p value first.

    `p` is the smallest adjusted p value of its subjects, `significant` their number, `tested` the
    number of series with a test.
    """
    table = with_counts(result).filter(split=ALL)
    p = pl.col("p_adjusted").fill_nan(None)
    tests = result.subjects.filter(split=ALL).group_by(*KEYS, "step")
    smallest = tests.agg(p=p.min(), significant=(p <= LEVEL).sum())
    last = table.group_by(KEYS, maintain_order=True).last()
    joined = last.join(
        smallest, on=[*KEYS, "step"], how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(tested=pl.col("p").count(), series=pl.len())
    return joined.sort("p", -pl.col("mu"), nulls_last=True, maintain_order=True)


def _headline(last: pl.DataFrame) -> Iterator[Finding]:
    """The smallest p value, adjusted for all subjects, models and categories that were tested."""
    for row in last.drop_nulls("p").head(1).to_dicts():
        who, when = subject(row, last), f"at {step_name(row['step'])} ({row['category']})"
        p, n = min(1.0, row["p"] * row["tested"]), N(row)
        some = f"some {_subjects(row)}" if p <= LEVEL else f"no {_subjects(row)} significantly"
        if row["tested"] > 1:
            n += f"; p adjusted for {row['tested']} models and categories"
        several = last["category"].n_unique() > 1
        figure = figure_name("ranked_subjects", row["category"], several)
        yield Finding(text=f"{who} prefers {some} {when}: p = {p:.2g}.", n=n, **about(row, figure))


def _subjects(row: Row) -> str:
    return "names" if row["category"] == "gender" else "subjects"


def _series(result: Unqover, row: Row) -> Iterator[Finding]:
    table = with_counts(result).filter(split=ALL)
    several = {name: table[name].n_unique() > 1 for name in KEYS}
    parts = [series_name(row)] if several["model"] or several["run"] else []
    parts += [row["category"]] if several["category"] else []
    name, when = f"{', '.join(parts)}: " if parts else "", step_name(row["step"])
    figure = figure_name("ranked_subjects", row["category"], several["category"])
    own = {key: row[key] for key in KEYS}
    if row["p"] is not None:
        subjects = _subjects(row).capitalize()
        text = f"{name}{subjects} with a preference at {when} (adjusted p ≤ {LEVEL})"
        yield Finding(
            text=text, value=float(row["significant"]), form=",.0f",
            n=counted(row["subjects"], "subject"), **about(row, figure),
        )  # fmt: skip
    now = pl.col("step").eq_missing(pl.lit(row["step"]))
    ranked = result.subjects.filter(now, split=ALL, **own).sort("rank", "subject")
    gamma = Curve(ranked, "gamma", f"{name}γ", size("attributes"), "+.3f", figure)
    for what, index in (("most", 0), ("least", -1)):
        end = ranked.row(index, named=True)
        yield gamma.at(end, f" of the {what} preferred, {end['subject']},")
    topk = result.settings.get("topk")
    entries, coverage = (10, "coverage_10") if topk is None else (topk, "coverage")
    outside = "" if topk is None else "; probabilities outside count as 0"
    yield Finding(
        text=f"{name}Subjects among the {entries:,} most probable tokens at {when}{outside}",
        value=row[coverage], form=".1%", n=N(row), **about(row, figure),
    )  # fmt: skip
    full = row["pairs"] * row["attributes"]
    if row["pair_attributes"] < full:
        text = (
            f"{name}{row['pair_attributes']:,} of {full:,} combinations of a pair of subjects and "
            "an attribute have instances. Means are over these."
        )
        yield Finding(text=text, **about(row, figure))
