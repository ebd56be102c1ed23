"""The arithmetic of GEST: means of sentences by stereotype, and of stereotypes by gender."""

import numpy as np
import polars as pl

from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, t_quantile
from logitbank.analysis.stats.from_baseline import BASELINE

SERIES = ["model", "run", "template"]
KEYS = [*CHECKPOINT, "template"]
FEMALE, MALE, RATE = "female", "male", "rate"
"""Stereotypes about women, stereotypes about men, and the mean of `male` minus that of `female`."""
NAMES = (
    "emotional", "gentle", "empathetic", "neat", "social", "weak", "beautiful", "tough",
    "self-confident", "professional", "rational", "providers", "leaders", "childish", "sexual",
    "strong",
)  # fmt: skip
"""The stereotypes, numbered from 1."""
ABOUT_WOMEN = 7
"""The first ones are about women."""
ALL, MEAN = "all", 0
"""The template that is the mean over those of a model, as text and as a number."""
LN10 = float(np.log(10))


def with_mean(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of each template, and their mean for sentences that have every one."""
    templates = pl.col("template").n_unique().over("model")
    means = (
        scores.with_columns(templates=templates)
        .group_by(*CHECKPOINT, "sentence_id", "stereotype_id", maintain_order=True)
        .agg(pl.col("score").mean(), whole=pl.len() == pl.col("templates").first())
        .filter("whole")
        .with_columns(template=pl.lit(MEAN, pl.Int8))
    )
    both = pl.concat([scores, means.select(scores.columns)])
    return both.sort(*KEYS, "sentence_id", nulls_last=True)


def by_stereotype(scores: pl.DataFrame) -> pl.DataFrame:
    """Mean and variance of the sentences of each stereotype, and of their paired changes.

    A change is the difference from the same sentence at `baseline_step`, the first of the run.
    """
    placed = scores.with_columns(baseline_step=pl.col("step").min().over(SERIES))
    at_baseline = pl.col("step").eq_missing(pl.col("baseline_step"))
    before = pl.col("score").filter(at_baseline).first().over(*SERIES, "sentence_id")
    both = placed.with_columns(change=pl.col("score") - before)
    change, women = pl.col("change"), pl.col("stereotype_id") <= ABOUT_WOMEN
    strata = both.group_by(*KEYS, "baseline_step", "stereotype_id", maintain_order=True).agg(
        score=pl.col("score").mean(),
        variance=pl.col("score").var() / pl.len(),
        sentences=pl.len().cast(pl.Int64),
        change=change.mean(),
        change_variance=change.var() / change.count(),
        common=change.count().cast(pl.Int64),
    )
    return strata.with_columns(
        pl.col("variance", "change", "change_variance").fill_null(np.nan),  # of too few sentences
        part=pl.when(women).then(pl.lit(FEMALE)).otherwise(pl.lit(MALE)),
        strata=pl.lit(1, pl.Int64),
    ).sort(*KEYS, "stereotype_id", nulls_last=True)


def by_gender(strata: pl.DataFrame) -> pl.DataFrame:
    """Means over the stereotypes about women and about men, and the difference of the two."""
    counts, k = pl.col("sentences", "common", "strata").sum(), pl.len()
    variances = pl.col("variance", "change_variance").sum() / k**2
    sides = strata.group_by(*KEYS, "baseline_step", "part", maintain_order=True).agg(
        pl.col("score", "change").mean(), variances, counts
    )
    sign = pl.when(pl.col("part") == MALE).then(1).otherwise(-1)
    rates = sides.group_by(*KEYS, "baseline_step", maintain_order=True).agg(
        (pl.col("score", "change") * sign).sum(),
        pl.col("variance", "change_variance").sum(),
        counts,
        both=pl.len() == 2,
    )
    rates = rates.filter("both").with_columns(part=pl.lit(RATE)).select(sides.columns)
    return pl.concat([sides, rates]).sort(*KEYS, "part", nulls_last=True)


def with_intervals(means: pl.DataFrame) -> pl.DataFrame:
    r"""`low` and `high` of `score` and the columns of `BASELINE`, then the published quantity.

    With :math:`K` stereotypes, :math:`n_k` sentences of each and their variances, the variance of
    the mean of means is :math:`\sum_k s_k^2/n_k/K^2`, and t has :math:`\sum_k n_k-K` degrees of
    freedom. NaN below those of `FEWEST_CLUSTERS` sentences of one stereotype, and if all are equal.
    """

    def half_width(variance: str, count: str) -> pl.Series:
        degrees = (means[count] - means["strata"]).to_numpy()
        error = np.sqrt(means[variance].to_numpy())
        enough = (degrees >= FEWEST_CLUSTERS - 1) & (error > 1e-14)
        return pl.Series(np.where(enough, t_quantile(degrees) * error, np.nan))

    itself = pl.col("step").eq_missing(pl.col("baseline_step"))
    score, half, change, half_change = map(pl.col, ("score", "half", "change", "half_change"))
    table = means.with_columns(
        half=half_width("variance", "sentences"),
        half_change=half_width("change_variance", "common"),
        change=pl.when(itself).then(np.nan).otherwise("change"),
    ).with_columns(
        low=score - half,
        high=score + half,
        from_baseline=change,
        from_baseline_low=change - half_change,
        from_baseline_high=change + half_change,
    )
    published = {
        f"published{end}": (pl.col(name) / LN10).exp()
        for end, name in (("", "score"), ("_low", "low"), ("_high", "high"))
    }
    columns = ["part", "score", "low", "high", *published, "sentences", *BASELINE]
    return table.with_columns(**published).select(*KEYS, "^stereotype(_id)?$", *columns)


def labeled(table: pl.DataFrame) -> pl.DataFrame:
    """A table with text instead of numbers for templates, and with names of its stereotypes."""
    template = pl.col("template").cast(pl.String)
    texts = table.with_columns(
        pl.col("model", "run").cast(pl.String),
        template=pl.when(pl.col("template") == MEAN).then(pl.lit(ALL)).otherwise(template),
    )
    if "stereotype_id" not in table.columns:
        return texts
    number = pl.col("stereotype_id").cast(pl.Int64)
    names = number.replace_strict(range(1, len(NAMES) + 1), NAMES, return_dtype=pl.String)
    return texts.with_columns(number, stereotype=names)
