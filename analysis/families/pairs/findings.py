"""The findings of minimal pairs: the last checkpoint's score, and its highest and lowest groups."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from logitbank.analysis.families.pairs.metric import ALL, Pairs
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

LEVEL = 0.05
"""Largest adjusted p value of a group that counts as different from chance."""
KINDS = {"masked": "masked scores", "sentence": "whole sentences"}


def score_name(result: Pairs) -> str:
    """What the score is: of stereotypes where the pairs have directions."""
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
    if neutral := int(overall["neutral"].sum()):
        text = f"{neutral:,} pairs (over all checkpoints) have equal scores and count as not"
        found.append(Finding(text=f"{text} preferred."))
    unscored = result.checkpoints.group_by("model", maintain_order=True).agg(
        pl.col("unscored").max()
    )
    for model, pairs in unscored.filter(pl.col("unscored") > 0).iter_rows():
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
    return Finding(text=text, figure="pairs", series=(row["model"], row["run"]))


def _series(table: pl.DataFrame, rows: pl.DataFrame, what: str) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    series = (last["model"], last["run"])
    chance: dict[str, Any] = {"form": ".1%", "baseline": "50% by chance"}
    n = counted(last["pairs"], "pair")
    missing = last["missing_text"] and f" ({counted(last['missing'], 'sentence')} missing)"
    now = f"{what} at {step_name(last['step'])}"
    yield from_row(last, "score", now, n=f"{n}{missing}", figure="pairs", **chance)
    yield from change_from_first(rows, what, form="+.1%", n=n, figure="pairs", series=series)
    own = table.filter(same_as(last, [*CHECKPOINT, "score_kind"]), pl.col("group") != ALL)
    groups = own.sort("score", maintain_order=True)
    if len(groups) < 2:
        return
    lowest, *_, highest = groups.rows(named=True)
    if highest["score"] > lowest["score"]:
        for name, row in (("highest", highest), ("lowest", lowest)):
            text, n = f"{what}, {name} group, {row['group']}", counted(row["pairs"], "pair")
            yield from_row(row, "score", text, n=n, figure="groups", **chance)
    apart = groups.filter(pl.col("p_bh") <= LEVEL)["group"].sort().to_list()
    names = f" ({', '.join(apart)})" if 0 < len(apart) <= 5 else ""
    yield Finding(
        text=f"{what}, groups different from 50% (sign test, adjusted p ≤ {LEVEL})",
        value=len(apart), form=",.0f", n=f"{counted(len(groups), 'group')}{names}",
        figure="groups", series=series,
    )  # fmt: skip
