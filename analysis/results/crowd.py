"""Many models and runs: findings about their distribution, and a row with a sparkline for each."""

from collections.abc import Mapping, Sequence
from math import isclose
from operator import itemgetter
from statistics import median, quantiles

import polars as pl

from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import CROWD, series_name

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 16
"""Characters of a sparkline."""
FENCE = 1.5
"""Outliers are so many interquartile ranges beyond the quartiles (Tukey)."""
LISTED = 3
"""Outliers that a sentence names."""


def digest(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings to show, and those about single models and runs if there are many.

    A number of at least `CROWD` of them becomes its median, range and outliers.
    """
    if len({finding.series for finding in findings if finding.series}) < CROWD:
        return [*findings], []
    facts: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for each in findings:
        if each.series and each.value is not None and each.value == each.value:
            name = series_name(dict(zip(("model", "run"), each.series, strict=True)))
            what = each.text.removeprefix(f"{name}: ")
            facts.setdefault((what, each.form, each.figure), []).append((each.value, name))
    shown = [_distribution(*fact, each) for fact, each in facts.items() if len(each) >= CROWD]
    shown += [finding for finding in findings if not finding.series]
    return shown, [finding for finding in findings if finding.series]


def _distribution(what: str, form: str, figure: str, found: Sequence[tuple[float, str]]) -> Finding:
    """One number of many models and runs: values and names."""
    in_order = sorted(found, key=itemgetter(0))
    values = [value for value, _ in in_order]
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    reach = FENCE * (upper - lower)
    beyond = [each for each in in_order if not lower - reach <= each[0] <= upper + reach]
    named = [f"{name} ({formatted(value, form)})" for value, name in beyond[:LISTED]]
    more = f" and {len(beyond) - LISTED} more" if len(beyond) > LISTED else ""
    ends = [_end([name for value, name in in_order if isclose(value, end)], formatted(end, form))
            for end in (values[0], values[-1])]  # fmt: skip
    outliers = f", outliers {', '.join(named)}{more}" if named else ""
    return Finding(
        text=f"{what}, median of {len(found)} models and runs", value=median(values), form=form,
        figure=figure, note=f"range {ends[0]} to {ends[1]}{outliers}",
    )  # fmt: skip


def _end(names: Sequence[str], value: str) -> str:
    """An end of a range, and who is there."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{value} ({names[0]}{more})"


def model_table(family: Family, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """One row per model, run and group: the name of the family's first number, its values at the
    first and the last checkpoint, the change, and the curve as a sparkline.

    None for fewer than `CROWD` models and runs.
    """
    for name, columns in family.screen.items():
        table = tables.get(name, pl.DataFrame())
        if not {"model", "run", "step"} <= {*table.columns}:
            continue
        column = next((c for c in columns if table.schema[c].is_float()), None)
        known = table if column is None else table.drop_nulls(column)
        if column is None or known.select("model", "run").n_unique() < CROWD:
            continue
        keys = ["model", "run", *(c for c in columns if table.schema[c] == pl.String)]
        value = pl.col(column)
        return known.group_by(keys, maintain_order=True).agg(
            *([] if "measure" in keys else [pl.lit(column).alias("measure")]),
            first=value.first(), last=value.last(),
            change=value.last() - value.first(),
            curve=value.map_batches(_sparkline, return_dtype=pl.String, returns_scalar=True),
            checkpoints=pl.len(),
        )  # fmt: skip
    return None


def _sparkline(values: pl.Series) -> str:
    """
    >>> _sparkline(pl.Series([0.0, 0.5, 1.0]))
    '▁▅█'
    """
    numbers = values.fill_nan(None).drop_nulls().to_list()
    if not numbers:
        return ""
    count = min(WIDTH, len(numbers))
    chosen = [numbers[round(i * (len(numbers) - 1) / max(1, count - 1))] for i in range(count)]
    least, most = min(chosen), max(chosen)
    span = (most - least) or 1.0
    return "".join(BARS[round((v - least) / span * (len(BARS) - 1))] for v in chosen)
