"""What a page says first: one sentence, the figure that shows it, and a few numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from logitbank.analysis.results.words import Row
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.wording import counted

SERIES = ["model", "run"]
Side = Literal["above", "below", "within", "unknown"]
"""Where an interval lies: all above a value, all below it, around it; unknown without one."""


class KeyNumber(NamedTuple):
    """A number beside the first figure of a page."""

    value: str
    what: str
    """What it is, without a verb: `checkpoints`."""
    rests_on: str = ""
    """Its interval, and over how many prompts it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The most important finding of an analysis, in plain words."""

    sentence: str
    figure: str
    """The figure that shows it, as `interactive_figures` names it."""
    numbers: Sequence[KeyNumber]
    series: tuple[str, ...]
    """The model and run that it is about, and whatever else tells series of its figure apart."""
    change_point: bool = False
    """Whether it is a change that random walks seldom show. The value of one checkpoint is none: a
    curve that only fluctuates around no effect has most of its intervals on one side of it."""


def side(low: float | None, high: float | None, middle: float) -> Side:
    """Where an interval lies; NaN and None are no ends.

    >>> side(51, 60, 50), side(40, 49, 50), side(45, 55, 50), side(float("nan"), None, 50)
    ('above', 'below', 'within', 'unknown')
    """
    if low is None or high is None or low != low or high != high:
        return "unknown"
    if low > middle:
        return "above"
    return "below" if high < middle else "within"


def on_one_side(low: str, high: str, middle: float) -> pl.Expr:
    """Whether the interval in two columns leaves the value out; not so where there is none."""
    ends = [pl.col(name).cast(pl.Float64).fill_nan(None) for name in (low, high)]
    both = ends[0].is_not_null() & ends[1].is_not_null()
    return (both & ((ends[0] > middle) | (ends[1] < middle))).fill_null(False)


def last_ten(values: pl.Series, form: Callable[[float], str]) -> str:
    """`, 0.1 to 0.3 over the last 10 checkpoints`; nothing of a single one."""
    last = values.drop_nulls().drop_nans().tail(10)
    if len(last) < 2:
        return ""
    low, high = (form(float(end)) for end in (last.min(), last.max()))  # type: ignore[arg-type]
    return f", {low} to {high} over the last {len(last)} checkpoints"


def largest_of(table: pl.DataFrame) -> str:
    """`, largest of 3 runs`, where a table has several."""
    runs = table.select(SERIES).n_unique()
    return f", largest of {runs:,} runs" if runs > 1 else ""


def missing_text(row: Row) -> str:
    """`, 2 missing`, to end what is said of numbers; nothing where none is missing."""
    return f", {row['missing']:,} missing" if row["missing"] else ""


def apart(low: Row, high: Row, value: str) -> bool | None:
    """Whether the interval `value` of one row lies below that of another; None without both.

    Intervals that overlap may still be of different values: this errs on the side of chance.
    """
    ends = [row[name] for row in (low, high) for name in (f"{value}low", f"{value}high")]
    if any(end is None or end != end for end in ends):
        return None
    return bool(ends[1] < ends[2])


def interval_text(row: Row, form: Callable[[float], str], value: str = "") -> str:
    """`95 %: 0.1 to 0.2; ` of the columns `low` and `high` after `value`; nothing without them."""
    low, high = row[f"{value}low"], row[f"{value}high"]
    known = side(low, high, 0) != "unknown"
    return f"95 %: {form(low)} to {form(high)}; " if known else ""


def untold(clusters: int, noun: str) -> str:
    """Why nothing can be said of chance: what has no interval says no direction.

    >>> untold(4, "sentence")
    '4 sentences are too few to tell that from chance'
    """
    if clusters >= FEWEST_CLUSTERS:
        return "no interval was made that would tell that from chance"
    verb = "is" if clusters == 1 else "are"
    return f"{counted(clusters, noun)} {verb} too few to tell that from chance"


def checkpoint_number(table: pl.DataFrame) -> KeyNumber:
    """How many checkpoints of which models and runs, from columns model, run and step."""
    checkpoints = table.unique(["model", "run", "step"])
    steps = checkpoints["step"].drop_nulls().unique().sort()
    span = f", steps {steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else ""
    models, runs = table["model"].n_unique(), table.select("model", "run").n_unique()
    of = f"{counted(models, 'model')}, " if models > 1 else ""
    what = "checkpoint" if len(checkpoints) == 1 else "checkpoints"
    return KeyNumber(f"{len(checkpoints):,}", what, f"{of}{counted(runs, 'run')}{span}")


def subject_of(row: Row, table: pl.DataFrame) -> str:
    """What a sentence calls the model of a row: by its name where the table has several series."""
    if table.select(SERIES).n_unique() == 1:
        return "the model"
    return str(row["model"]) if row["run"] == "main" else f"{row['model']} {row['run']}"
