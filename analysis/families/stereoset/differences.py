"""The table of differences: a condition against the plain one, pair by pair."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from logitbank.analysis.families.stereoset.blocks import Outcomes
from logitbank.analysis.families.stereoset.measures import (
    MEASURES,
    Measures,
    Resampler,
    in_order,
    of_terms,
    term_counts,
    term_macro,
)
from logitbank.analysis.families.stereoset.scores import KEYS, PLAIN
from logitbank.analysis.families.stereoset.tables import Scope, frame, whole, with_intervals

DIFFERENCES: Mapping[str, type[pl.DataType]] = {
    **dict.fromkeys(("task", "domain"), pl.String),
    **{f"{name}{end}": pl.Float64 for name in MEASURES for end in ("", "_low", "_high")},
    **{f"{name}{end}": pl.Float64 for end in ("_plain", "_condition") for name in MEASURES},
    "examples": pl.Int64,
}
"""Columns of the differences, after the keys."""


def difference_table(
    scopes: Sequence[Scope], keys: pl.DataFrame, resampler: Resampler
) -> list[pl.DataFrame]:
    """Every condition minus plain, over the examples that both have, with paired intervals."""
    plain_at = _plain_of(keys)
    tables = []
    for scope in scopes:
        block = scope.block
        place = {int(at): i for i, at in enumerate(block.at)}
        pairs = [
            (i, place[plain])
            for at, i in place.items()
            if (plain := plain_at.get(at)) in place and block.kinds[i] == block.kinds[place[plain]]
        ]
        if not pairs:
            continue
        condition, base = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
        chosen = Outcomes(*(values[:, scope.members] for values in block.outcomes))
        common = chosen.present[condition] * chosen.present[base]
        codes = in_order(block.terms[scope.members])
        with_it, without = (
            of_terms(term_counts(chosen.taken(side).among(common), codes))
            for side in (condition, base)
        )
        present = np.count_nonzero(~np.isnan(with_it.ss), axis=1)
        after, before = term_macro(with_it), term_macro(without)
        intervals = resampler.difference_intervals(
            resampler.draws(with_it), resampler.draws(without), present
        )
        tables.append(
            frame(
                len(condition),
                {
                    "at": block.at[condition],
                    "task": block.task,
                    "domain": scope.domain,
                    **with_intervals(_minus(after, before), intervals),
                    **{f"{name}_plain": value for name, value in before._asdict().items()},
                    **{f"{name}_condition": value for name, value in after._asdict().items()},
                    "examples": whole(common),
                },
            )
        )
    return tables


def _plain_of(keys: pl.DataFrame) -> dict[int, int]:
    """Of every row with another condition, the row that differs in nothing but being plain."""
    others = [name for name in KEYS if name != "condition"]
    rows = list(zip(keys["condition"], keys.select(others).iter_rows(), strict=True))
    plain = {key: at for at, (condition, key) in enumerate(rows) if condition == PLAIN}
    return {
        at: plain[key]
        for at, (condition, key) in enumerate(rows)
        if condition != PLAIN and key in plain
    }


def _minus(a: Measures, b: Measures) -> Measures:
    return Measures(a.lms - b.lms, a.ss - b.ss, a.icat - b.icat)
