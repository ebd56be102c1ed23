"""A comparison of two banks in sentences."""

from typing import Any

import polars as pl

from logitbank.analysis.comparison.results import Comparison
from logitbank.analysis.family import families
from logitbank.wording import counted, step_name


def comparison_summary(comparison: Comparison) -> list[str]:
    """What differs, how much, and what only one has."""
    d = comparison.logits
    lines = [
        f"Both have {_pairs(len(d))} with {counted(int(d['rows'].sum()), 'row')}:"
        f" {counted(int(d['entries'].sum()), 'logit')} differ by up to"
        f" {_number(d['max_logit_difference'].max())} and by"
        f" {_number(_mean(d, 'mean_logit_difference', 'entries'))} on average."
    ]
    lines += [f"{side.upper()}: {_how(d, side)}." for side in ("a", "b")]
    lines += _rounding(d)
    full = d.filter(pl.col("max_kl").is_not_null())
    if len(full):
        lines.append(
            f"KL(A‖B) is up to {_number(full['max_kl'].max())} nats and"
            f" {_number(_mean(full, 'mean_kl', 'rows'))} on average, over"
            f" {counted(int(full['rows'].sum()), 'full row')}."
        )
    rest = d.filter(pl.col("max_kl").is_null())
    for (a, b), part in rest.group_by("kept_a", "kept_b", maintain_order=True):
        lines.append(
            f"No KL of {_pairs(len(part))}: it needs full rows of as many outputs in both, and A"
            f" keeps {a} and B {b}; there the logits that both list are compared."
        )
    changed, options = int(d["ranks_changed"].sum()), int(d["options"].sum())
    if options:
        share = 100 * changed / options
        most = max(d["max_rank_change"].drop_nulls())
        lines.append(
            f"Of {options:,} ranks of options {changed:,} ({share:.3g} %) changed, by up to"
            f" {most:,}."
        )
    lines.append(
        f"The highest token changed in {d['argmax_changed'].sum():,} of {d['rows'].sum():,} rows."
    )
    for (prompts, metric), part in comparison.metrics.group_by(
        "prompts", "metric", maintain_order=True
    ):
        moved = part.filter(pl.col("difference").is_finite())
        if len(moved):
            top = moved.sort(pl.col("difference").abs(), descending=True).row(0, named=True)
            lines.append(
                f"{prompts}, {str(metric).replace('_', ' ')}: moves by up to"
                f" {_number(abs(top['difference']))}, from {_number(top['a'])} to"
                f" {_number(top['b'])} at {_where(top)}."
            )
    if comparison.unmeasured:
        lines.append(
            f"No metrics of {', '.join(comparison.unmeasured)}: they are compared of prompt sets of"
            f" {' and '.join(name for name, own in families().items() if own.headline)}, over what"
            " both banks have."
        )
    if unequal := d.filter(~pl.col("same_weights")).height:
        lines.append(f"Of {unequal:,} of them the weights are not the same.")
    for side in ("a", "b"):
        only = comparison.only.filter(pl.col(f"only_{side}") > 0)
        if len(only):
            lines.append(
                f"Only {side.upper()} has {counted(int(only[f'only_{side}'].sum()), 'row')}, of"
                f" {_pairs(len(only))}."
            )
    return lines


def _how(d: pl.DataFrame, side: str) -> str:
    """Which engines, in which compute dtypes, and what is stored."""
    made = d.select(f"engine_{side}", f"compute_{side}", f"kept_{side}").unique(maintain_order=True)
    return "; ".join(
        f"engine {engine or 'not told'}, computed in {compute or 'a dtype not told'}, keeps {kept}"
        for engine, compute, kept in made.iter_rows()
    )


def _rounding(d: pl.DataFrame) -> list[str]:
    """What of the differences of full rows the dtypes of storage explain."""
    full = d.drop_nulls("rounding")
    if full.is_empty():
        return []
    dtypes = (sorted({kept.split()[-1] for kept in full[f"kept_{s}"]}) for s in ("a", "b"))
    a, b = (" and ".join(names) for names in dtypes)
    above = full.filter(pl.col("max_logit_difference") > pl.col("rounding")).height
    rest = f"{above:,} of {_pairs(len(full))} differ by more" if above else "none differs by more"
    return [
        f"Rounding of the stored rows ({a} in A, {b} in B) explains up to"
        f" {_number(full['rounding'].max())} by itself; {rest}."
    ]


def _pairs(number: int) -> str:
    return counted(number, "checkpoint × query set", "checkpoints × query sets")


def _mean(frame: pl.DataFrame, value: str, weight: str) -> float:
    part = frame.drop_nulls(value)
    return float((part[value] * part[weight]).sum()) / max(int(part[weight].sum()), 1)


def _number(value: object) -> str:
    return "–" if value is None else f"{value:.3g}"


def _where(row: dict[str, Any]) -> str:
    run = "" if row["run"] == "main" else f" {row['run']}"
    group = f" ({row['group']})" if row["group"] else ""
    return f"{row['model']}{run} {step_name(row['step'])}{group}"
