"""What comparing filters and searching for one give."""

from dataclasses import dataclass

import polars as pl

from logitbank.analysis.results.tables import Result
from logitbank.store.filter.filters import Filter


@dataclass(frozen=True, slots=True)
class DebiasComparison(Result):
    """Every row begins with model, run, step, filter (none, untrained, trained) and its `label`."""

    comparison: pl.DataFrame
    """Language and condition (plain, or with the prefix); StereoSet's intra-sentence lms, ss, iCAT
    with 95 % intervals, over so many `examples`, of which so many are `missing`; `icat_change`
    against the plain model without a filter, over the `common` examples that both have; UnQover's
    measures, means over the bank's categories (they know no prefix and no language: of plain rows
    only). The ideal and the random model stand at the end."""
    unqover: pl.DataFrame
    """UnQover's measures by category and split."""


@dataclass(frozen=True, slots=True)
class DebiasSearch(Result):
    """What every point costs and gains."""

    points: pl.DataFrame
    """One row for each point: `kind` (none, filter, untrained, temperature, prior), `k`,
    `regularisation`, `temperature`; `chosen_by` mean |C| on attributes that the fit has not seen
    and lms on half of StereoSet's terms; and what is told of it: `abs_c`, `mu`, `positional`,
    `attributive` and `coverage` on the other part's instances, `lms`, `ss` and `icat` on the other
    half of the terms, over so many `examples`. `front`: no other has both less |C| and more lms.
    `best`: the one chosen. A prior needs the options' own prompts, so StereoSet's scores are null
    for it."""
    by: Filter
    """The filter that was chosen, of those that were trained."""
