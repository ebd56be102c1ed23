"""Tests of fairness: male against female, and one model against another.

A test belongs to one checkpoint, so tables come from some of the checkpoints at a time; `adjusted`
then has all of them.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.fairness.axes import CHECKPOINT, GoldCounts
from logitbank.analysis.families.fairness.baseline import (
    BASELINE_SCHEMA,
    DRAWS,
    Difference,
    gender_difference,
    model_difference,
    with_baseline,
    with_difference,
)
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import Cube
from logitbank.analysis.families.fairness.samples import Sample
from logitbank.analysis.frames.expressions import Floats, scaled
from logitbank.analysis.stats.significance import (
    SIGNIFICANCE,
    TestResult,
    benjamini_hochberg,
    mann_whitney,
    mean_present,
    rank_biserial,
    wilcoxon,
)

Unit = Literal["prompt", "prompt_order", "seed"]
MANN_WHITNEY, WILCOXON = "mann_whitney", "wilcoxon"

RESULT_SCHEMA = {
    "test": pl.String,  # MANN_WHITNEY or WILCOXON
    "origin": pl.String,  # published or ours
    "unit": pl.String,
    "statistic": pl.Float64,
    "p": pl.Float64,
    "p_bh": pl.Float64,  # Benjamini–Hochberg over the checkpoints of a run; ours
    "n1": pl.Int64,
    "n2": pl.Int64,
    "effect": pl.Float64,
    "significant": pl.Boolean,  # p < 0.01, the published rule
    "significant_bh": pl.Boolean,
    **BASELINE_SCHEMA,
}
COMPARISON_SCHEMA = {
    "model": pl.String,
    "other_model": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "option": pl.String,
    **RESULT_SCHEMA,
}
_LATER = {"p_bh", "significant_bh", *BASELINE_SCHEMA} - {"rank_biserial", "difference", "sentences"}
COMPARISON_ROWS: dict[str, pl.DataType | type[pl.DataType]] = {
    **{name: dtype for name, dtype in COMPARISON_SCHEMA.items() if name not in _LATER},
    DRAWS: pl.List(pl.Float64),
}
"""The columns of rows that are not yet `adjusted`."""


def gender_tests(
    data: Cube, parts: Floats, delta: Difference, ranks: Sequence[Sample], *, unit: Unit
) -> pl.DataFrame:
    """Male (sample 1) against female (sample 2) gold prompts, for JSD-P and for Average Rank.

    Mann–Whitney is the published test. Wilcoxon is ours: the pro- and anti-stereotyped versions
    of a sentence are a pair, and the difference is male minus female. `delta` is that of JSD-P in
    nats, `ranks` are samples by gold option. Rows are not yet `adjusted`.
    """
    male, female = data.gold == 0, data.gold == 1
    parts = with_ties(parts, data.inexact)
    pairs = data.axes.twins
    measures = {
        "jsd_p": (parts[..., 0], parts[..., 1], delta.in_unit(scaled)),
        "average_rank": (data.ranks, data.ranks, gender_difference(ranks[0], ranks[1])),
    }
    tables = []
    for measure, (first, second, difference) in measures.items():
        a = observations(first[:, :, male], unit=unit)
        b = observations(second[:, :, female], unit=unit)
        d = observations(first[:, :, pairs[0]] - second[:, :, pairs[1]], unit=unit)
        base = with_difference(data.checkpoints.with_columns(measure=pl.lit(measure)), difference)
        tables += [
            _result_rows(base, mann_whitney(a, b, missing="omit"), MANN_WHITNEY, unit, towards=-1),
            _result_rows(base, wilcoxon(d, missing="omit"), WILCOXON, unit, towards=-1),
        ]
    return pl.concat(tables)


def comparison_table(
    data: Cube,
    parts: Floats,
    counts: GoldCounts,
    *,
    unit: Unit,
    models: tuple[str, str] | None,
    labels: FairnessLabels,
) -> pl.DataFrame:
    """JSD-P of two models on neutral prompts, for the male and for the female option.

    Checkpoints of the same run name and step are compared, on the prompts that both have;
    Wilcoxon pairs the same prompt. Rows are not yet `adjusted`.
    """
    shared = None if models is None else shared_checkpoints(data.checkpoints, models)
    if models is None or shared is None or shared.is_empty():
        return pl.DataFrame(schema=COMPARISON_ROWS)
    neutral = data.gold == 2
    parts = with_ties(parts, data.inexact)
    clusters = data.axes.clusters[neutral]
    tables = []
    for option in (0, 1):
        first, second = (
            parts[shared[side].to_numpy()][:, :, neutral, option] for side in ("first", "second")
        )
        difference = first - second  # NaN where either model lacks the prompt
        means = model_difference(difference, counts[2], clusters).in_unit(scaled)
        first, second = (np.where(np.isnan(difference), np.nan, x) for x in (first, second))
        a, b = observations(first, unit=unit), observations(second, unit=unit)
        d = observations(difference, unit=unit)
        base = with_difference(shared.select(*CHECKPOINT, option=pl.lit(labels[option])), means)
        tables += [
            _result_rows(base, mann_whitney(a, b, missing="omit"), MANN_WHITNEY, unit, towards=1),
            _result_rows(base, wilcoxon(d, missing="omit"), WILCOXON, unit, towards=1),
        ]
    rows = pl.concat(tables).with_columns(other_model=pl.lit(models[1]))
    return rows.select(*COMPARISON_ROWS)


def adjusted(rows: pl.DataFrame, *, group: str) -> pl.DataFrame:
    """Tests of all checkpoints, sorted, with the correction for their number and the baseline.

    A family is a model, run, `group` and test.
    """
    rows = rows.sort(CHECKPOINT, nulls_last=True, maintain_order=True)
    rows = with_baseline(rows, group=(group, "test")).with_row_index("at")
    p, p_bh = rows["p"].to_numpy(), np.full(len(rows), np.nan)
    for (at,) in rows.group_by("model", "run", group, "test").agg("at").select("at").rows():
        p_bh[at] = benjamini_hochberg(p[at])
    tests = rows.with_columns(p_bh=p_bh, significant_bh=p_bh < SIGNIFICANCE)
    first = [name for name in rows.columns if name != "at" and name not in RESULT_SCHEMA]
    return tests.select(*first, *RESULT_SCHEMA)


TIE_DECIMALS = 12
"""To which values are rounded before they are ranked. The same answers in another order have sums
that differ in the last bit, about 1e-16 of a JSD-P of at most 0.35 nats, and would not tie; 1e-12
is also what a divergence may be below zero by rounding. Ranks are whole numbers and their means,
which it leaves as they are."""


ROUNDED_LOGITS = 1e-6
"""Nats of JSD-P that two values may differ by and be equal, where logits were rounded apart from
their log-sum-exp, as those of scores that were made later: half a unit in the last place of a
float32 logit below 64 is 1.9e-6, of which JSD-P takes at most 0.17."""


def with_ties(parts: Floats, inexact: NDArray[np.bool_]) -> Floats:
    """JSD-P (c, s, p, o) whose values within `ROUNDED_LOGITS` of the one below are equal to it.

    Only at checkpoints with `inexact` (c, s, p) scores; at others equal logits give equal values.
    """
    out = parts.copy()
    for at in np.flatnonzero(inexact.any(axis=(1, 2))):
        values = parts[at].ravel()
        order = np.argsort(values)  # NaN last, and apart: a comparison with it is false
        ascending = values[order]
        same = np.diff(ascending, prepend=-np.inf) <= ROUNDED_LOGITS
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        values[order] = ascending[first]
        out[at] = values.reshape(parts[at].shape)
    return out


def observations(values: Floats, *, unit: Unit) -> Floats:
    """(c, s, p) to (c, n): the values that a test takes as independent; NaN stays missing.

    Rounded to `TIE_DECIMALS`: tests are about ranks, and what differs by rounding is a tie.
    """
    if unit == "prompt":
        values = mean_present(values, axis=1)
    elif unit == "seed":
        values = mean_present(values, axis=2)
    else:
        values = values.reshape(len(values), -1)
    return np.round(values, TIE_DECIMALS)


def shared_checkpoints(checkpoints: pl.DataFrame, models: tuple[str, str]) -> pl.DataFrame:
    """Checkpoints of the first model, with the row of each model's checkpoint."""
    rows = checkpoints.with_row_index("first")
    one = rows.filter(pl.col("model") == models[0])
    other = rows.filter(pl.col("model") == models[1]).select("run", "step", second="first")
    return one.join(other, on=["run", "step"], how="inner", nulls_equal=True, maintain_order="left")


def _result_rows(
    base: pl.DataFrame, result: TestResult, test: str, unit: Unit, *, towards: Literal[1, -1]
) -> pl.DataFrame:
    """One test's rows under the checkpoints of `base`; `towards` 1 counts the first sample's."""
    origin = "published" if test == MANN_WHITNEY else "ours"
    return base.hstack(
        [
            *(
                pl.Series(name, [text] * len(base), dtype=pl.String)
                for name, text in (("test", test), ("origin", origin), ("unit", unit))
            ),
            pl.Series("statistic", result.statistic),
            pl.Series("p", result.p),
            pl.Series("n1", result.n1.astype(np.int64)),
            pl.Series("n2", result.n2.astype(np.int64)),
            pl.Series("effect", result.effect),
            pl.Series("rank_biserial", towards * rank_biserial(result.effect) + 0.0),  # no −0
            pl.Series("significant", result.p < SIGNIFICANCE),
        ]
    )
