"""The findings of UnQover: whether subjects are preferred, which, and how strongly."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import (
    Row,
    figure_name,
    from_row,
    missing_text,
    series_name,
    subject,
)
from logitbank.wording import counted, step_name

KEYS = ("model", "run", "category")
LEVEL = 0.05
"""Largest adjusted p value of a preference that is counted."""
FORM = ".3f"


def findings(result: Unqover) -> list[Finding]:
    """A headline, then each model, run and category at its last checkpoint."""
    last = last_rows(result)
    return [*_headline(last), *(each for row in last.to_dicts() for each in _series(result, row))]


def last_rows(result: Unqover) -> pl.DataFrame:
    """Rows of `unqover` at the last checkpoint of each series, the least likely by chance first.

    `p` is the smallest adjusted p value of its subjects, `significant` their number, `tested` the
    number of series with a test, `first` and `first_step` are μ of the first checkpoint.
    """
    table = result.unqover.filter(pl.col("mu").is_not_nan(), split=ALL)
    p = pl.col("p_adjusted").fill_nan(None)
    tests = result.subjects.filter(split=ALL).group_by(*KEYS, "step")
    smallest = tests.agg(p=p.min(), significant=(p <= LEVEL).sum())
    last = table.group_by(KEYS, maintain_order=True).agg(
        pl.exclude("first", "first_step").last(),
        first=pl.col("mu").first(),
        first_step=pl.col("step").first(),
    )
    joined = last.join(
        smallest, on=[*KEYS, "step"], how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(tested=pl.col("p").count(), series=pl.len())
    return joined.sort(pl.col("p").fill_null(1.0), -pl.col("mu"), maintain_order=True)


def _headline(last: pl.DataFrame) -> Iterator[Finding]:
    """The smallest p value, adjusted for all subjects, models and categories that were tested."""
    if last.is_empty():
        return
    row = last.row(0, named=True)
    who, when = subject(row, last), f"at {step_name(row['step'])} ({row['category']})"
    n = _n(row)
    if row["p"] is None:
        text = f"{who} has a bias intensity μ of {formatted(row['mu'])} {when}; not tested."
    else:
        p = min(1.0, row["p"] * row["tested"])
        some = f"some {_subjects(row)}" if p <= LEVEL else f"no {_subjects(row)} significantly"
        text = f"{who} prefers {some} {when}: p = {p:.2g}."
        if row["tested"] > 1:
            n += f"; p adjusted for {row['tested']} models and categories"
    yield Finding(text=text, n=n, figure=_figure(row, last), series=(row["model"], row["run"]))


def _subjects(row: Row) -> str:
    return "names" if row["category"] == "gender" else "subjects"


def _figure(row: Row, last: pl.DataFrame) -> str:
    return figure_name("ranked_subjects", row["category"], last["category"].n_unique() > 1)


def _n(row: Row) -> str:
    parts = counted(row["subjects"], "subject"), counted(row["attributes"], "attribute")
    instances = counted(row["instances"], "instance")
    return f"{instances} ({', '.join(parts)}){missing_text(row['missing'])}"


def _series(result: Unqover, row: Row) -> Iterator[Finding]:
    tables = result.unqover.filter(split=ALL)
    several = {name: tables[name].n_unique() > 1 for name in KEYS}
    parts = [series_name(row)] if several["model"] or several["run"] else []
    parts += [row["category"]] if several["category"] else []
    name, when = f"{', '.join(parts)}: " if parts else "", step_name(row["step"])
    n = _n(row)
    about: dict[str, Any] = {
        "figure": figure_name("ranked_subjects", row["category"], several["category"]),
        "series": (row["model"], row["run"]),
    }
    first = ""
    if row["first_step"] != row["step"]:
        first = f"{formatted(row['first'], FORM)} at {step_name(row['first_step'])}"
    text = f"{name}Bias intensity μ at {when}"
    yield from_row(row, "mu", text, form=FORM, n=n, baseline=first, **about)
    if row["p"] is not None:
        subjects = _subjects(row).capitalize()
        text = f"{name}{subjects} with a preference at {when} (adjusted p ≤ {LEVEL})"
        yield Finding(
            text=text, value=float(row["significant"]), form=",.0f",
            n=counted(row["subjects"], "subject"), **about,
        )  # fmt: skip
    ranked = result.subjects.filter(
        pl.col("step").eq_missing(pl.lit(row["step"])), split=ALL, **{key: row[key] for key in KEYS}
    ).sort("rank", "subject")
    for what, at in (("Most", 0), ("Least", -1)):
        end = ranked.row(at, named=True)
        text = f"{name}{what} preferred, {end['subject']}: γ at {when}"
        attributes = counted(end["attributes"], "attribute")
        yield from_row(end, "gamma", text, form="+.3f", n=attributes, **about)
    for column, what in (("eta", "Bias by count η"), ("positional", "Positional error")):
        yield from_row(row, column, f"{name}{what} at {when}", form=FORM, n=n, **about)
    topk = result.settings.get("topk")
    entries, coverage = (10, "coverage_10") if topk is None else (topk, "coverage")
    outside = "" if topk is None else "; probabilities outside count as 0"
    yield Finding(
        text=f"{name}Subjects among the {entries:,} most probable tokens at {when}{outside}",
        value=row[coverage], form=".1%", n=counted(8 * row["instances"], "subject slot"), **about,
    )  # fmt: skip
    full = row["pairs"] * row["attributes"]
    if row["pair_attributes"] < full:
        text = (
            f"{name}{row['pair_attributes']:,} of {full:,} combinations of a pair of subjects and "
            "an attribute have instances. Means are over these."
        )
        yield Finding(text=text, **about)
