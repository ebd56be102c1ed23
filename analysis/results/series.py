"""What findings of several families share: names of series and charts, changes, sample sizes."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.expected import missing_note
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.change_points import FEWEST, N_WALKS
from logitbank.store.format.schema import folder_name
from logitbank.wording import counted, step_name

Row = Mapping[str, Any]
UNTRAINED = 0
"""The step of random weights."""


def by_series(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each model and run, and the start of findings about them."""
    groups = table.partition_by("model", "run", maintain_order=True)
    for rows in groups:
        yield f"{series_name(rows.row(0, named=True))}: " if len(groups) > 1 else "", rows


def series_name(row: Row) -> str:
    """The model, and its run unless it is the main one."""
    return str(row["model"]) if row["run"] == "main" else f"{row['model']} {row['run']}"


def subject(row: Row, table: pl.DataFrame) -> str:
    """The model of a row as the subject of a sentence."""
    several = table.select("model", "run").n_unique() > 1
    return series_name(row) if several else "The model"


def figure_name(kind: str, part: str, several: bool) -> str:
    """The name of the chart of a prompt set or category, with its name if there are several.

    >>> figure_name("accuracy", "my set", True), figure_name("accuracy", "my set", False)
    ('accuracy-my%20set', 'accuracy')
    """
    return f"{kind}-{folder_name(part)}" if several else kind


def sample(table: pl.DataFrame, coverage: pl.DataFrame) -> pl.DataFrame:
    """A table with `missing` of its checkpoints, and `missing_text`: `, 3 missing`, or nothing."""
    joined = table.join(
        coverage.select(*CHECKPOINT, "missing"), on=CHECKPOINT, how="left", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip
    texts = [missing_text(count) for count in joined["missing"]]
    return joined.with_columns(missing_text=pl.Series(texts, dtype=pl.String))


def missing_text(count: int | None) -> str:
    """The number of missing items after a sample size; no text if none is missing.

    >>> missing_text(1200), missing_text(0)
    (', 1,200 missing', '')
    """
    return f", {count:,} missing" if count else ""


def missing_sentences(table: pl.DataFrame, noun: str, *keys: str) -> list[str]:
    """How many items are missing at how many checkpoints: of each model, run and `keys`, or all.

    `table` has the column `missing`; no sentences if nothing is.
    """
    incomplete = table.filter(pl.col("missing") > 0)
    parts = [incomplete] if len(incomplete) else []
    if keys:
        parts = incomplete.partition_by("model", "run", *keys, maintain_order=True)
    sentences = []
    for rows in parts:
        row = rows.row(0, named=True)
        prefix = f"{series_name(row)}, {', '.join(str(row[key]) for key in keys)}: "
        checkpoints = rows.select(CHECKPOINT).n_unique()
        text = missing_note(int(rows["missing"].sum()), noun, checkpoints=checkpoints)
        sentences.append(f"{prefix}{text}" if keys else text)
    return sentences


def from_row(row: Row, column: str, text: str, **about: Any) -> Finding:
    """A finding about a number of a row, with its interval: `<column>_low`, or `low`; and so on."""
    ends = {end: row.get(f"{column}_{end}", row.get(end)) for end in ("low", "high")}
    about.setdefault("series", (row["model"], row["run"]))
    return Finding(text=text, value=row[column], **ends, **about)


def change_from_first(
    rows: pl.DataFrame, what: str, *, form: str, n: str, figure: str, series: tuple[str, ...]
) -> Iterator[Finding]:
    """The last step against the first, paired over the items of both (`from_baseline`)."""
    steps = rows.filter(pl.col("step").is_not_null())
    if len(steps) < 2 or steps["common"][-1] == 0:
        return
    row = steps.row(-1, named=True)
    compared = steps.filter(pl.col("step").is_in([row["step"], row["baseline_step"]]))
    if "missing" in steps.columns and compared["missing"].sum():
        n = f"{n}; {counted(row['common'], 'item')} in both"
    untrained = ", untrained model" if row["baseline_step"] == UNTRAINED else ""
    yield Finding(
        text=f"{what}, change to {step_name(row['step'])}", value=row["from_baseline"],
        low=row["from_baseline_low"], high=row["from_baseline_high"], form=form, n=n,
        baseline=f"{step_name(row['baseline_step'])}{untrained}, paired", figure=figure,
        series=series,
    )  # fmt: skip


def change_findings(
    changes: pl.DataFrame, what: str, *, form: str, figure: str, series: tuple[str, ...]
) -> Iterator[Finding]:
    """The change points of one curve, as rows of `CHANGE_COLUMNS`; `what` names the curve."""
    for row in changes.iter_rows(named=True):
        about: dict[str, Any] = {"figure": figure, "series": series}
        n = counted(row["checkpoints"], "checkpoint")
        if row["from_step"] is not None:
            n += f" from step {row['from_step']:,} to {row['last_step']:,}"
        if row["kind"] is None:
            if row["checkpoints"] >= FEWEST:
                text = f"{what}: no search for change points (constant, or missing at a checkpoint)"
                yield Finding(text=text, n=n, **about)
            continue
        if row["kind"] == "none":
            yield Finding(text=f"{what}: no significant change point, {_tested(row)}", n=n, **about)
            continue
        span = f"{row['earliest']:,} to {row['latest']:,}"
        if row["kind"] == "gradual":
            text = f"{what}, gradual change from step {span} ({_tested(row)})"
        else:
            reach = "" if row["earliest"] == row["latest"] else f"95% range {span}; "
            text = f"{what}, mean shift at step {row['step']:,} ({reach}{_tested(row)})"
        before = formatted(row["mean_before"], form.lstrip("+"))
        yield Finding(
            text=text, value=row["mean_after"] - row["mean_before"], form=form, n=n,
            baseline=f"{before} before", **about,
        )  # fmt: skip


def p_text(row: Row) -> str:
    """The p value of a row of changes, with its error; `≤` where it is the least there is.

    >>> p_text({"p_random_walk": 0.0312, "p_error": 0.0017}), p_text({"p_random_walk": 1e-5})
    ('p = 0.031 ± 0.002', 'p ≤ 0.0001')
    """
    if row["p_random_walk"] <= 1 / (N_WALKS + 1):
        return "p ≤ 0.0001"
    error = f" ± {row['p_error']:.1g}" if row["p_error"] else ""
    return f"p = {row['p_random_walk']:.2g}{error}"


def _tested(row: Row) -> str:
    """The p value of a row, its null, and that of all runs where there are several."""
    several = row.get("p_holm")
    holm = "" if several in (None, row["p_random_walk"]) else f"; Holm over runs {several:.2g}"
    return f"{p_text(row)}, random-walk null{holm}"
