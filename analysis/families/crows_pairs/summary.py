"""What CrowS-Pairs says, in sentences with their uncertainty."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.results.words import (
    INTERVALS,
    Row,
    Summary,
    between,
    by_run,
    from_first,
    missing_sentences,
    verdict,
)
from logitbank.wording import counted, step_name

CAUTIONS = (
    "CrowS-Pairs was written by crowd workers in the United States; its readers have described "
    "pairs that differ in more than the group, or hold no stereotype. 50 % is no preference on "
    "average only, and single bias types have few pairs.",
)
"""What the numbers do not say."""
LEVEL = 0.05
"""Largest adjusted p value of a bias type that is named."""
KINDS = {"masked": "masked scores", "sentence": "whole sentences"}


def crows_pairs_summary(result: CrowsPairs) -> Summary:
    """The last checkpoint's score, its directions, and bias types that differ from 50."""
    sentences = []
    for (kind,), table in result.crows_pairs.group_by("score_kind", maintain_order=True):
        for prefix, rows in by_run(table.filter(pl.col("bias_type") == ALL)):
            last = rows.row(-1, named=True)
            parts = [
                f"{name} {last[column]:.1f} %"
                for name, column in (
                    ("stereo", "stereo_score"),
                    ("anti-stereo", "antistereo_score"),
                )
                if last[column] == last[column]
            ]
            sentences.append(
                f"{prefix}{step_name(last['step'])}, {KINDS[str(kind)]}: the stereotyping sentence "
                f"is the more probable one in {last['score']:.1f} % of {last['pairs']:,} pairs "
                f"({between(last, '.1f', last['pairs'], 'pair')})"
                + (f"; {' and '.join(parts)} of pairs of that direction" if parts else "")
                + f"{verdict(last, 50)}."
            )
            what = f"the score of {KINDS[str(kind)]}"
            sentences += from_first(rows, prefix, what, "pair", form=".1f", unit=" points")
            sentences += _bias_types(table, last, prefix)
    neutral = int(result.crows_pairs.filter(pl.col("bias_type") == ALL)["neutral"].sum())
    if neutral:
        sentences.append(
            f"{neutral:,} pairs (over all checkpoints) have equal scores; they count among the "
            "pairs and prefer neither."
        )
    unscored = result.checkpoints.group_by("model", maintain_order=True).agg(
        pl.col("unscored").max()
    )
    for model, pairs in unscored.filter(pl.col("unscored") > 0).iter_rows():
        name = f"{model}: " if len(unscored) > 1 else ""
        sentences.append(
            f"{name}{counted(pairs, 'pair')} without anything to score, as where both sentences "
            "share no token; in no number."
        )
    left_out = tuple(missing_sentences(result.checkpoints, "sentence"))
    return Summary(tuple(sentences), (INTERVALS,), CAUTIONS, left_out)


def _bias_types(table: pl.DataFrame, last: Row, prefix: str) -> Iterator[str]:
    rows = table.filter(
        *(pl.col(name).eq_missing(pl.lit(last[name])) for name in ("model", "run", "step")),
        pl.col("bias_type") != ALL,
    )
    apart = rows.filter(pl.col("p_bh") <= LEVEL).sort("score", descending=True)
    if len(rows) > 1:
        named = ", ".join(f"{r['bias_type']} {r['score']:.1f} %" for r in apart.rows(named=True))
        yield (
            f"{prefix}bias types that differ from 50 % at {step_name(last['step'])} (sign test, "
            f"p ≤ {LEVEL} after adjustment for {len(rows)} bias types, Benjamini–Hochberg): "
            f"{named or 'none'}."
        )
