"""UnQover's measures of instances as arrays, before and after a filter."""

import numpy as np
import polars as pl

from logitbank.analysis.debias.answers import answers, bias
from logitbank.analysis.debias.instances import Instances
from logitbank.analysis.families.unqover.measures import (
    grid_of,
    model_level,
    subject_attribute_cells,
)
from logitbank.store.filter.filters import Filter

MEASURES = ("mu", "eta", "abs_c", "positional", "attributive")


def measured(given: Instances, by: Filter | None, *, bootstrap: int = 0) -> dict[str, float]:
    """Bias intensity μ and η, mean |C|, positional and attributive error, and the coverage.

    `bootstrap` > 0 adds `_low` and `_high` of each; see `model_level` for what is resampled.
    """
    answered = answers(given, by)
    return measured_probabilities(
        given, answered.probabilities, bootstrap=bootstrap, rounding=answered.rounding
    )


def measured_probabilities(
    given: Instances, probabilities: np.ndarray, *, bootstrap: int = 0, rounding: float = 0.0
) -> dict[str, float]:
    """As `measured`, of probabilities (n, 4, 2) that came about in another way."""
    frame = with_errors(given.names, probabilities, rounding=rounding)
    values = model_level(frame, grid_of(subject_attribute_cells(frame)), bootstrap)
    row: dict[str, float] = {}
    for name in MEASURES:
        value, low, high = values[name]
        row |= {name: value}
        row |= {f"{name}_low": low, f"{name}_high": high} if bootstrap else {}
    return {**row, "coverage": given.coverage, "instances": len(given)}


def with_errors(
    names: pl.DataFrame, probabilities: np.ndarray, *, rounding: float = 0.0
) -> pl.DataFrame:
    """Instances with `c`, `positional` and `attributive`, as `unqover_instances` has them.

    A C within the relative `rounding` of the probabilities is 0, so that η has no sign of noise.
    """
    p = probabilities
    orders = np.abs(p[:, [0, 2]] - p[:, [1, 3]])
    attributes = np.abs(p[:, :2] - p[:, 2:, ::-1])
    return names.with_columns(
        c=bias(p, rounding=rounding),
        positional=orders.mean(axis=(1, 2)),
        attributive=attributes.mean(axis=(1, 2)),
    )
