"""Many models and runs: findings about their distribution, and a row with a sparkline for each."""

from collections.abc import Mapping, Sequence
from math import isclose
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
MEASURED: Mapping[str, Sequence[str]] = {"measures": ()}
"""The table of families without a screen of their own."""
WHOLE = ["all", "overall"]
"""Groups that are all items together."""
LISTED = 3
"""Outliers that a sentence names."""


def digest(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings to show, and those about single models and runs if there are many.

    A number of at least `CROWD` of them becomes its median, range and outliers.
    """
    models = len({finding.series for finding in findings if finding.series})
    if models < CROWD:
        return [*findings], []
    facts: dict[tuple[str, str, str], list[tuple[Finding, str]]] = {}
    for each in findings:
        if each.series and each.value is not None and each.value == each.value:
            name = series_name(dict(zip(("model", "run"), each.series, strict=True)))
            what = each.text.removeprefix(f"{name}: ")
            facts.setdefault((what, each.form, each.figure), []).append((each, name))
    shown = [
        _distribution(*fact, found, models)
        for fact, found in facts.items()
        if len(found) >= CROWD and any(each.value for each, _ in found)
    ]
    shown += [finding for finding in findings if not finding.series]
    return shown, [finding for finding in findings if finding.series]


def _distribution(
    what: str, form: str, figure: str, found: Sequence[tuple[Finding, str]], models: int
) -> Finding:
    """One number of many models and runs: findings and names, perhaps not of all `models`.

    Those beyond the fences are outliers if their own interval excludes the median, and otherwise
    only the farthest.
    """
    in_order = sorted(found, key=lambda each: each[0].value or 0.0)
    values = [each.value or 0.0 for each, _ in in_order]
    lower, middle, upper = quantiles(values, n=4, method="inclusive")
    reach = FENCE * (upper - lower)
    beyond = [
        each for each, value in zip(in_order, values, strict=True)
        if not lower - reach <= value <= upper + reach
    ]  # fmt: skip
    apart = [each for each in beyond if _excludes(each[0], middle)]
    ends = [_end([name for each, name in in_order if isclose(each.value or 0.0, end)],
                 formatted(end, form))
            for end in (values[0], values[-1])]  # fmt: skip
    number = f"{len(found)} of {models}" if len(found) < models else f"{models}"
    groups = {"outliers": apart, "farthest": [each for each in beyond if each not in apart]}
    named = "".join(f", {word} {_names(each, form)}" for word, each in groups.items() if each)
    return Finding(
        text=f"{what}, median of {number} models and runs", value=median(values), form=form,
        figure=figure, note=f"range {ends[0]} to {ends[1]}{named}",
    )  # fmt: skip


def _excludes(finding: Finding, value: float) -> bool:
    """Whether the interval of a finding excludes a value; not without one."""
    low, high = finding.low, finding.high
    return low is not None and high is not None and (low > value or high < value)


def _names(found: Sequence[tuple[Finding, str]], form: str) -> str:
    named = [f"{name} ({formatted(each.value or 0.0, form)})" for each, name in found[:LISTED]]
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return f"{', '.join(named)}{more}"


def _end(names: Sequence[str], value: str) -> str:
    """An end of a range, and who is there."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{value} ({names[0]}{more})"


def model_tables(family: Family, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """`models` and `model_groups` of the family's first number.

    They have its name, its values at the first and the last checkpoint, the change, and the curve
    as a sparkline: one row per model and run, of all groups together or of the first one; and one
    per group, if there are several. None for fewer than `CROWD` models and runs.
    """
    for name, columns in (family.screen or MEASURED).items():
        table = tables.get(name, pl.DataFrame())
        if not {"model", "run", "step"} <= {*table.columns}:
            continue
        shown = [c for c in table.columns if c in columns or name == "measures"]
        column = next((c for c in shown if table.schema[c].is_float()), None)
        known = table if column is None else table.drop_nulls(column)
        if column is None or known.select("model", "run").n_unique() < CROWD:
            continue
        keys = [c for c in shown if table.schema[c] == pl.String and c not in ("model", "run")]
        value = pl.col(column)
        groups = known.group_by("model", "run", *keys, maintain_order=True).agg(
            *([] if "measure" in keys else [pl.lit(column).alias("measure")]),
            first=value.first(), last=value.last(),
            change=value.last() - value.first(),
            curve=value.map_batches(_sparkline, return_dtype=pl.String, returns_scalar=True),
            checkpoints=pl.len(),
        )  # fmt: skip
        whole = (
            pl.any_horizontal(pl.col(key).is_in(WHOLE) for key in keys) if keys else pl.lit(True)
        )
        of_all = groups.filter(whole) if keys and groups.select(whole.any()).item() else groups
        models = of_all.unique(["model", "run"], keep="first", maintain_order=True)
        return {"models": models} | ({"model_groups": groups} if len(groups) > len(models) else {})
    return {}


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
