"""The change of the gap between two steps, in a sentence."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from logitbank.analysis.families.fairness.metric import fairness_change
from logitbank.analysis.results.words import UNTRAINED
from logitbank.wording import signed


def change_sentence(gap: pl.DataFrame, before: int, after: int) -> str:
    """The gap's change between two steps of one model and run, from its rows of `gap`.

    In the gap's own unit; beside it the published percentage, but not of the gap of an untrained
    model, nor of one whose interval includes zero.
    """
    percent = fairness_change(gap, before, after)
    rows = {row["step"]: row for row in gap.iter_rows(named=True)}
    first, last = rows[before], rows[after]
    moved = compared(first["gap_scaled"], last["gap_scaled"])
    became = f"became {moved}" if moved else "stayed the same to three decimals"
    deltas = [signed(row["delta_scaled"]) for row in (first, last)]
    text = f"From step {before:,} to step {after:,} the gap {became}: Δ = {deltas[0]} → {deltas[1]}"
    if why := _no_percentage(first):
        text += f"; no percentage, since {why}"
    else:
        text += f"; a fairness change of {signed(percent, '.1f')} %"
    turned = {delta[0] for delta in deltas} == {"+", "−"}
    return f"{text}.{' It is the other way round.' if turned else ''}"


def _no_percentage(row: Mapping[str, Any]) -> str:
    """Why there is no percentage of a gap; nothing where there is one."""
    if row["step"] == UNTRAINED:
        return "step 0 is the untrained model"
    if row["gap_scaled"] == 0:
        return "the gap before is zero"
    if not (row["low_scaled"] > 0 or row["high_scaled"] < 0):
        known = row["low_scaled"] == row["low_scaled"]
        return f"the gap before {'may be zero' if known else 'has no interval'}"
    return ""


def compared(before: float, after: float) -> str:
    """How much larger or smaller a gap is; nothing where three decimals are the same."""
    if f"{before:.3f}" == f"{after:.3f}":
        return ""
    size = f"{abs(after - before):.3f}"
    size = "less than 0.001" if float(size) == 0 else size
    return f"{size} {'larger' if after > before else 'smaller'}"
