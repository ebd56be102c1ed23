"""The findings of minimal pairs: those of the score, then sign tests, ties and unscored pairs."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import about, by_series, totals
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import counted

LEVEL = 0.05
"""Largest adjusted p value of a group that counts as different from chance."""
NEUTRAL = {"neutral": "pairs (over all checkpoints) have equal scores and count as not preferred"}


def findings(family: Family, result: Measured) -> list[Finding]:
    """The common findings about the score, then what is particular to pairs."""
    tests = result.further["tests"]
    overall = tests.filter(group=ALL)
    found = measured.findings(replace(family, measures=family.measures[:1]), result)
    for prefix, rows in by_series(tests):
        found += _groups(rows, prefix)
    found += totals(overall, NEUTRAL)
    for model, pairs in overall.group_by("model", maintain_order=True).agg(
        pl.col("unscored").first()
    ).iter_rows():  # fmt: skip
        if pairs:
            text = f"{model}: {counted(pairs, 'pair')} without a token to score; in no number."
            found.append(Finding(text=text))
    return found


def _groups(tests: pl.DataFrame, prefix: str) -> Iterator[Finding]:
    """How many groups of the last checkpoint differ from chance."""
    last = tests.row(-1, named=True)
    groups = tests.filter(same_as(last, CHECKPOINT), pl.col("group") != ALL)
    if len(groups) < 2:
        return
    apart = groups.filter(pl.col("p_bh") <= LEVEL)["group"].sort().to_list()
    names = f" ({', '.join(apart)})" if 0 < len(apart) <= 5 else ""
    yield Finding(
        text=f"{prefix}Groups different from 50% (sign test, adjusted p ≤ {LEVEL})",
        value=len(apart), form=",.0f", n=f"{counted(len(groups), 'group')}{names}",
        **about(last, "measures"),
    )  # fmt: skip
