"""The results of training a filter and of comparing filters."""

from dataclasses import dataclass

import polars as pl

from logitbank.analysis.results.tables import Result
from logitbank.store.filter.filters import Filter

FILTERS = ("none", "untrained", "trained", "erased")
NONE, UNTRAINED, TRAINED, ERASED = FILTERS
ERASED_FROM = "erased_from"
"""Name in the provenance of a model from which `debias_erase` erased a concept."""
REFERENCE = "reference"
"""Label of the ideal and of the random model."""
ROUNDING = 1e-6
"""Error of probabilities: logits of 16 have one of 1e-6 in float32."""


def without_rounding(table: pl.DataFrame) -> pl.DataFrame:
    """η as 0, without an interval, where a filter leaves a mean |C| below `ROUNDING`.

    The signs of such C are rounding: η was 0.19 and 0.73 for filters of equal |C|.
    """
    rounded = (pl.col("filter") != NONE) & (pl.col("abs_c") < ROUNDING)
    values = {"eta": 0.0, "eta_low": float("nan"), "eta_high": float("nan")}
    return table.with_columns(
        pl.when(rounded).then(value).otherwise(name).alias(name)
        for name, value in values.items()
        if name in table.columns
    )


@dataclass(frozen=True, slots=True)
class Debias(Result):
    """A trained filter and its effect."""

    bias: pl.DataFrame
    """One row for each split × filter (none, untrained, trained): `mu`, `eta`, `abs_c`,
    `positional`, `attributive`, each with its 95 % interval; `coverage`, `instances`, and `missing`
    instances without a score. A filter that truncates gives subjects outside its k the
    probability 0."""
    losses: pl.DataFrame
    """Loss before each step."""
    by: Filter
    untrained: Filter


@dataclass(frozen=True, slots=True)
class DebiasComparison(Result):
    """Every row begins with model, run, step, filter (none, untrained, trained, or erased),
    its `label` and k.

    Rows without a filter have the k of the largest filter, or 8."""

    comparison: pl.DataFrame
    """Language and condition (plain, or with the prefix); StereoSet's intra-sentence lms, ss, iCAT
    with 95 % intervals, numbers of `examples` and of `missing` ones; `icat_change` against the
    plain model without a filter, over the `common` examples of both; UnQover's measures, means
    over the bank's categories, in plain English rows only, as its questions are; `candidates_in_k`
    and `subjects_in_k`, the shares of StereoSet's candidates and of UnQover's subjects
    among the k highest logits. The ideal and the random model are the last rows."""
    unqover: pl.DataFrame
    """UnQover's measures by category and split."""
