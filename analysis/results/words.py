"""Sentences that several families of metrics say: ends, changes, gaps and missing scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import polars as pl

from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.stats.shares import too_few
from logitbank.wording import signed, step_name

Row = Mapping[str, Any]
INTERVALS = (
    "Intervals (95 %) are over examples and hold for one checkpoint at a time; none allows for the "
    "number of checkpoints looked at."
)
UNTRAINED = 0
"""The step of random weights, from whose gap no percentage is given."""


@dataclass(frozen=True, slots=True)
class Summary(Sequence[str]):
    """The sentences of a result, one after the other: `left_out` comes after the findings."""

    findings: tuple[str, ...]
    """What the numbers are."""
    notes: tuple[str, ...] = ()
    """How the numbers are to be read."""
    cautions: tuple[str, ...] = ()
    """What the numbers do not say."""
    left_out: tuple[str, ...] = ()
    """What the numbers are without, of that which was asked. Never cut off or folded, as findings
    are where there are many."""

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...

    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        return self._all[at]

    def __len__(self) -> int:
        return len(self._all)

    @property
    def _all(self) -> tuple[str, ...]:
        return (*self.findings, *self.left_out, *self.notes, *self.cautions)


def by_run(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each model and run, and how sentences about them begin."""
    groups = table.partition_by("model", "run", maintain_order=True)
    for rows in groups:
        model, run = rows["model"][0], rows["run"][0]
        name = f"{model}{'' if run == 'main' else f' {run}'}: "
        yield name if len(groups) > 1 else "", rows


def best_and_last(
    rows: pl.DataFrame, column: str, *, best: str = "best at "
) -> list[dict[str, Any]]:
    """The row where a column is largest and the last row, each with its `role` in a sentence."""
    last = {**rows.row(-1, named=True), "role": "last, " if len(rows) > 1 else ""}
    top = rows.row(int(rows[column].arg_max() or 0), named=True)
    if top["step"] == last["step"] or not top[column] > last[column]:
        return [last]
    return [{**top, "role": best}, last]


def from_first(
    rows: pl.DataFrame, prefix: str, what: str, noun: str, *, form: str = ".3f", unit: str = ""
) -> Iterator[str]:
    """The last step against the first, in the measure's own unit and over what both have."""
    steps = rows.filter(pl.col("step").is_not_null())
    if len(steps) < 2 or steps["common"][-1] == 0:
        return
    row = steps.row(-1, named=True)
    first = row["baseline_step"]
    untrained = ", the untrained model" if first == UNTRAINED else ""
    low, high = (row[f"from_baseline_{end}"] for end in ("low", "high"))
    change = signed(row["from_baseline"], form)
    interval = too_few(row["common"], noun)
    if low == low:
        interval = f"{signed(low, form)} to {signed(high, form)}, in pairs"
    yield (
        f"{prefix}{step_name(row['step'])} against step {first:,}{untrained}: {what} "
        f"{change}{unit} ({interval})."
    )


def between(row: Row, form: str, clusters: int, noun: str) -> str:
    """The interval of a row, or why it has none."""
    if row["low"] == row["low"]:
        return f"{row['low']:{form}} to {row['high']:{form}}"
    return too_few(clusters, noun)


def verdict(row: Row, middle: float) -> str:
    """Said only where the interval is on one side."""
    if row["low"] > middle:
        return ", more stereotypical than not"
    return ", less stereotypical than not" if row["high"] < middle else ""


def missing_sentences(coverage: pl.DataFrame, noun: str) -> Iterator[str]:
    """How many are missing at how many checkpoints, if any are."""
    incomplete = coverage.filter(pl.col("missing") > 0)
    if len(incomplete):
        yield missing_sentence(int(incomplete["missing"].sum()), noun, checkpoints=len(incomplete))
