"""The sentences of findings: value at a checkpoint, change from the first, shift, missing items."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import polars as pl

from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.frames.expected import missing_note
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.change_points import FEWEST, N_WALKS
from logitbank.store.format.schema import folder_name
from logitbank.wording import counted, step_name

Row = Mapping[str, Any]
CROWD = 8
"""Models and runs from which on charts have thin lines, and findings are about all together."""
SKEWED = "a few extreme values, so the interval is probably too short"
"""The note of a mean whose interval is `skewed`."""
UNTRAINED = 0
"""The step of random weights."""
VISIBLE = 0.2
"""The least difference of an extreme from both ends of a curve, as a part of the curve's range."""


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


def missing_text(count: int | None, noun: str = "") -> str:
    """The number of missing items after a sample size; no text if none is missing.

    >>> missing_text(1200), missing_text(1, "version"), missing_text(0)
    (', 1,200 missing', ', 1 version missing', '')
    """
    if not count:
        return ""
    return f", {counted(count, noun) if noun else format(count, ',')} missing"


def size(column: str, *within: str, **nouns: str) -> Callable[[Row], str]:
    """Sample sizes of rows: plural columns; `nouns` name them otherwise.

    >>> size("prompts", "sentences")({"prompts": 192, "sentences": 48, "missing": 3})
    '192 prompts (48 sentences), 3 missing'
    >>> size("items", items="sentence")({"items": 60})
    '60 sentences'
    """

    def text(row: Row) -> str:
        fewer = [name for name in within if (row.get(name) or row[column]) < row[column]]
        parts = ", ".join(counted(row[name], nouns.get(name, name[:-1])) for name in fewer)
        noun = nouns.get(column, column[:-1])
        n = counted(row[column], noun) + (f" ({parts})" if parts else "")
        return n + missing_text(row.get("missing"))

    return text


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


def about(row: Row, figure: str = "") -> dict[str, Any]:
    """The chart, model and run of findings about a row."""
    return {"figure": figure, "series": (row["model"], row["run"])}


def from_row(row: Row, column: str, text: str, *, figure: str = "", **facts: Any) -> Finding:
    """A finding about a number of a row, with its interval: `<column>_low`, or `low`; and so on."""
    low, high = ends_of(row, column)
    shown = {"low": low, "high": high, **about(row, figure), **facts}
    return Finding(text=text, value=row[column], **shown)


def ends_of(row: Row, column: str) -> tuple[float, float]:
    """The ends of the interval of a number: `<column>_low`, or `low`; NaN without one."""
    ends = (row.get(f"{column}_{end}", row.get(end)) for end in ("low", "high"))
    low, high = (math.nan if end is None else float(end) for end in ends)
    return low, high


def extremes(rows: pl.DataFrame, column: str) -> list[Row]:
    """The highest and the lowest checkpoint of a curve, in order, if they are no end of it.

    The interval of each is beyond those of the first and the last checkpoint, and its value differs
    from both by at least `VISIBLE` of the range of the curve.
    """
    known = rows.filter(pl.col(column).is_not_null() & pl.col(column).is_not_nan())
    if len(known) < 3:
        return []
    values = known[column]
    highest, lowest = int(values.arg_max() or 0), int(values.arg_min() or 0)
    least = VISIBLE * (values[highest] - values[lowest])
    ends = [known.row(at, named=True) for at in (0, -1)]
    intervals = [ends_of(end, column) for end in ends]
    found = []
    for at in {highest, lowest}:
        low, high = ends_of(row := known.row(at, named=True), column)
        beyond = all(low > end[1] for end in intervals) or all(high < end[0] for end in intervals)
        if beyond and all(abs(row[column] - end[column]) >= least for end in ends):
            found.append((at, row))
    return [row for _, row in sorted(found, key=itemgetter(0))]


def course_text(first: Row, inner: Sequence[Row], last: Row, form: str) -> str:
    """The values of a curve at its ends and at its extremes between them.

    >>> values = {0: 0.061, 1100: 0.943, 1400: 0.056}
    >>> points = [{"step": step, "value": value} for step, value in values.items()]
    >>> course_text(points[0], points[1:2], points[2], ".3f")
    '0.061 → 0.943 at step 1,100 → 0.056'
    >>> course_text(points[0], [], points[0], ".3f")
    'stays at 0.061'
    """
    values = [formatted(row["value"], form) for row in (first, *inner, last)]
    if len({*values}) == 1:
        return f"stays at {values[0]}"
    between = zip(values[1:-1], inner, strict=True)
    steps = [f"{value} at {step_name(row['step'])}" for value, row in between]
    return " → ".join([values[0], *steps, values[-1]])


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of one model and run over its checkpoints, and the sentences about it."""

    rows: pl.DataFrame
    """In the order of training, with `column` and the ends of its interval."""
    column: str
    what: str
    """The name of the number, which begins with that of the model if there are several."""
    n: Callable[[Row], str] | str
    """The sample size of a row, or of all."""
    form: str = ".3f"
    figure: str = ""
    baseline: str = ""
    """The value of no effect."""

    @property
    def last(self) -> Row:
        """The row of the last checkpoint."""
        row: Row = self.rows.row(-1, named=True)
        return row

    def at(self, row: Row, which: str = "", **facts: Any) -> Finding:
        """The value at a checkpoint; `which` is why that one, or the part that the row is about."""
        text = f"{self.what}{which} at {step_name(row['step'])}"
        facts = {"form": self.form, "n": self._n(row), "baseline": self.baseline, **facts}
        if row.get("skewed") and ends_of(row, self.column)[0] == ends_of(row, self.column)[0]:
            facts["note"] = SKEWED
        return from_row(row, self.column, text, figure=self.figure, **facts)

    def now(self) -> Finding:
        """The value at the last checkpoint."""
        return self.at(self.last, extreme=self._extreme())

    def _extreme(self) -> str:
        """The extremes within the curve as text."""
        last = self.last[self.column]
        return " and ".join(
            f"{'highest' if row[self.column] > last else 'lowest'} "
            f"{formatted(row[self.column], self.form)} at {step_name(row['step'])}"
            for row in extremes(self.rows, self.column)
        )

    def from_first(self) -> Finding:
        """The value at the last checkpoint, with that at the first if there are several."""
        first = self.rows.row(0, named=True)
        before = f"{formatted(first[self.column], self.form)} at {step_name(first['step'])}"
        if (n := self._n(first)) != self._n(self.last):
            before += f" of {n}"
        baseline = before if len(self.rows) > 1 else ""
        return self.at(self.last, baseline=baseline, extreme=self._extreme())

    def _n(self, row: Row) -> str:
        return self.n if isinstance(self.n, str) else self.n(row)

    def change(self) -> Iterator[Finding]:
        """The last step against the first, paired over the items of both (`from_baseline`)."""
        steps = self.rows.filter(pl.col("step").is_not_null())
        if len(steps) < 2 or steps["common"][-1] == 0:
            return
        row = steps.row(-1, named=True)
        baseline = step_name(row["baseline_step"])
        if math.isnan(row["from_baseline"]):
            text = f"{self.what}: no change to {step_name(row['step'])}"
            yield Finding(
                text=f"{text}, as there is no value at {baseline}.", **about(row, self.figure)
            )
            return
        compared = steps.filter(pl.col("step").is_in([row["step"], row["baseline_step"]]))
        n = self._n(row)
        if "missing" in steps.columns and compared["missing"].sum():
            n = f"{n}; {counted(row['common'], 'item')} in both"
        untrained = ", untrained model" if row["baseline_step"] == UNTRAINED else ""
        yield from_row(
            row, "from_baseline", f"{self.what}, change to {step_name(row['step'])}",
            form=signed(self.form), n=n, figure=self.figure,
            baseline=f"{baseline}{untrained}, paired",
        )  # fmt: skip


def with_extreme(headline: Finding, findings: Sequence[Finding]) -> Finding:
    """The headline, with checkpoints between the first and the last that are beyond both.

    They are those of the first number of the headline's chart, model and run.
    """
    for each in findings:
        if each.value is not None and (each.figure, each.series) == (
            headline.figure, headline.series
        ):  # fmt: skip
            steps = re.findall(r" at (step [\d,]+)", each.extreme)
            if not each.extreme or all(step in headline.text for step in steps):
                return headline
            model, run = each.series
            name = each.text.rpartition(" at ")[0]
            name = name.removeprefix(f"{series_name({'model': model, 'run': run})}: ")
            return replace(headline, extreme=f"{name}: {each.extreme}")
    return headline


def totals(table: pl.DataFrame, texts: Mapping[str, str]) -> Iterator[Finding]:
    """Counts over all checkpoints, by their column: what weakens the numbers, where it occurs."""
    for column, text in texts.items():
        if count := int(table[column].sum()):
            yield Finding(text=f"{count:,} {text}.")


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
            why = "constant, or missing at a checkpoint"
            if row["checkpoints"] < FEWEST:
                why = f"{counted(row['checkpoints'], 'trained checkpoint')}; {FEWEST} are needed"
            if row["checkpoints"] > 1:
                yield Finding(text=f"{what}: no search for change points ({why})", n=n, **about)
            continue
        if row["kind"] == "none":
            yield Finding(text=f"{what}: no significant change point, {_tested(row)}", n=n, **about)
            continue
        span = f"{row['earliest']:,} to {row['latest']:,}"
        if row["kind"] == "gradual":
            text = f"{what}, gradual change from step {span} ({_tested(row)})"
        else:
            reach = f"{row['step']:,}" if row["earliest"] == row["latest"] else span
            where = f"between steps {row['before']:,} and {row['step']:,}"
            text = f"{what}, mean shift {where} (95% set: {reach}; {_tested(row)})"
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
