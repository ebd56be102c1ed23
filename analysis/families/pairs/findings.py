"""The findings of minimal pairs: the last checkpoint's score, and its highest and lowest groups."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.pairs.metric import Pairs
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import (
    Curve,
    about,
    by_series,
    sample,
    size,
    subject,
    totals,
)
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import counted, step_name

LEVEL = 0.05
"""Largest adjusted p value of a group that counts as different from chance."""
NEUTRAL = {"neutral": "pairs (over all checkpoints) have equal scores and count as not preferred"}
KINDS = {"masked": "masked scores", "sentence": "whole sentences"}


def score_name(result: Pairs) -> str:
    """The name of the score: of stereotypes where the pairs have directions."""
    if result.settings["sides"] == "good bad":
        return "Accuracy"
    return "Stereotype preferred" if "stereo_score" in result.pairs.columns else "Preference"


def findings(result: Pairs) -> list[Finding]:
    """A headline, then each kind of score, model and run, then ties and unscored pairs."""
    measure = score_name(result)
    percent = pl.col("score", "low", "high", "^from_baseline(_low|_high)?$") / 100
    table = sample(result.pairs, result.checkpoints).with_columns(percent)
    overall = table.filter(group=ALL)
    found = [_headline(overall, measure)]
    several = overall["score_kind"].n_unique() > 1
    for (kind,), rows in overall.group_by("score_kind", maintain_order=True):
        what = f"{measure}, {KINDS[str(kind)]}" if several else measure
        for prefix, of_series in by_series(rows):
            found += _series(table, of_series, f"{prefix}{what}")
    found += totals(overall, NEUTRAL)
    of_models = result.checkpoints.group_by("model", maintain_order=True)
    for model, pairs in of_models.agg(pl.col("unscored").max()).iter_rows():
        if pairs:
            text = f"{model}: {counted(pairs, 'pair')} without a token to score; in no number."
            found.append(Finding(text=text))
    return found


def _headline(overall: pl.DataFrame, measure: str) -> Finding:
    """The last checkpoint that is farthest from chance."""
    last = overall.group_by("model", "run", "score_kind", maintain_order=True).last()
    row = last.sort((pl.col("score") - 0.5).abs()).row(-1, named=True)
    which = {"Accuracy": "good", "Stereotype preferred": "stereotyping"}.get(measure, "first")
    text = (
        f"{subject(row, overall)} prefers the {which} sentence in {row['score']:.0%} of pairs at "
        f"{step_name(row['step'])}."
    )
    return Finding(text=text, **about(row, "pairs"))


def _series(table: pl.DataFrame, rows: pl.DataFrame, what: str) -> Iterator[Finding]:
    n, chance = size("pairs", missing="sentence"), "50% by chance"
    score = Curve(rows, "score", what, n, ".1%", "pairs", chance)
    yield score.now()
    yield from score.change()
    own = table.filter(same_as(score.last, [*CHECKPOINT, "score_kind"]), pl.col("group") != ALL)
    groups = own.sort("score", maintain_order=True).drop("missing")
    if len(groups) < 2:
        return
    lowest, *_, highest = groups.rows(named=True)
    of_group = Curve(groups, "score", what, n, ".1%", "groups", chance)
    if highest["score"] > lowest["score"]:
        for name, row in (("highest", highest), ("lowest", lowest)):
            yield of_group.at(row, f", {name} group, {row['group']},")
    apart = groups.filter(pl.col("p_bh") <= LEVEL)["group"].sort().to_list()
    names = f" ({', '.join(apart)})" if 0 < len(apart) <= 5 else ""
    yield Finding(
        text=f"{what}, groups different from 50% (sign test, adjusted p ≤ {LEVEL})",
        value=len(apart), form=",.0f", n=f"{counted(len(groups), 'group')}{names}",
        **about(score.last, "groups"),
    )  # fmt: skip
