"""The findings of stereotype accuracy: the common ones, changes over the gap, and ties."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype import ACCURACY, FAMILY
from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import by_series, from_row, totals
from logitbank.wording import counted


def findings(result: Measured) -> list[Finding]:
    """The common findings, how far the accuracy moves over changes of the gap, then ties."""
    found = measured.findings(FAMILY, result)
    changes = result.further.get("over_change")
    if changes is not None:
        for prefix, rows in by_series(result.measures):
            own = changes.join(rows, on=["model", "run"], how="semi")
            found += _over_change(own, prefix)
    for (kind,), rows in result.further["counts"].group_by("kind", maintain_order=True):
        found += totals(rows, {"tied": f"comparisons of {kind} are ties and count ½"})
    return found


def _over_change(changes: pl.DataFrame, prefix: str) -> Iterator[Finding]:
    """How far stereotype accuracy moves over a change of the gender gap (Fig. 3 of the paper)."""
    for row in changes.iter_rows(named=True):
        before, after = (formatted(row[f"delta_{end}"], "+.2f") for end in ("before", "after"))
        text = (
            f"{prefix}{ACCURACY.text}, type {row['type']}, {row['measure']}, change from step "
            f"{row['before']:,} to {row['after']:,}, over which the gender gap Δ goes from "
            f"{before} to {after}"
        )
        yield from_row(
            row, "change", text, form=signed(ACCURACY.form), figure="gap_and_stereotype",
            n=counted(row["sentences"], "sentence"),
        )  # fmt: skip
