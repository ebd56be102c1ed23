"""What a fairness result says first: whom the model serves worse, since when, and by how much."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from logitbank.analysis.families.fairness.metric import Fairness, fairness_change
from logitbank.analysis.results.changes import change_text, tested
from logitbank.analysis.results.message import (
    SERIES,
    KeyNumber,
    Message,
    Side,
    checkpoint_number,
    interval_text,
    largest_of,
    last_ten,
    side,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import UNTRAINED, Row
from logitbank.analysis.stats.change_points import LEVEL
from logitbank.wording import counted, signed, step_name

PEOPLE = {"male": "men", "female": "women"}


def fairness_message(result: Fairness) -> Message | None:
    """The largest change of the gap's course, or else the largest gap at an end of training.

    A change is one that stays significant when all runs are adjusted for (Holm). None where there
    is no gap: no prompt has a male answer, or none has a female one.
    """
    known = result.gap.filter(pl.col("gap_scaled").cast(pl.Float64).is_not_nan())
    if known.is_empty():
        return None
    changed = result.change_points.filter(
        pl.col("kind").is_in(["change point", "gradual"]), pl.col("p_holm") <= LEVEL
    )
    if len(changed):
        moved = (pl.col("mean_after") - pl.col("mean_before")).abs()
        change = changed.sort(moved, descending=True).row(0, named=True)
        return _changed(result, change, _of_run(known, change))
    last = known.group_by(SERIES, maintain_order=True).last()
    largest = last.sort("gap_scaled", descending=True).row(0, named=True)
    return _at_the_end(result, largest, _of_run(known, largest))


def _of_run(table: pl.DataFrame, row: Row) -> pl.DataFrame:
    return table.filter(model=row["model"], run=row["run"])


def _changed(result: Fairness, change: Row, gap: pl.DataFrame) -> Message:
    """A change that is significant against random walks."""
    subject = subject_of(change, result.checkpoints)
    text = change_text(change, f"mean Δ of {subject}", partial(signed, form=".2f"))
    earlier = gap.filter(pl.col("step") < change["earliest"])
    largest = earlier.row(int(earlier["gap_scaled"].arg_max() or 0), named=True)
    return Message(
        sentence=f"{text[0].upper()}{text[1:]}{_meaning(result, change, gap)}.",
        figure="gap",
        numbers=[
            _gap_now(result, gap),
            KeyNumber(
                f"{change['step' if change['step'] is not None else 'earliest']:,}",
                "first step of the change" if change["step"] is None else "change point",
                f"{tested(change)}; levels are means over checkpoints",
            ),
            KeyNumber(
                f"{largest['gap_scaled']:.3f}",
                "largest gap before",
                f"at {step_name(largest['step'])}{_untrained(gap)}",
            ),
            checkpoint_number(result.checkpoints),
        ],
        series=(change["model"], change["run"]),
        change_point=True,
    )


def _meaning(result: Fairness, change: Row, gap: pl.DataFrame) -> str:
    """Whom the new level is worse for, where the last checkpoint's interval bears that out."""
    after = change["mean_after"]
    last, now = step_name(gap["step"][-1]), _side_now(gap)
    if now == "unknown":
        return f"; {untold(gap['sentences'][-1], 'sentence')}"
    if now == "within":
        return f"; the interval of {last} contains 0"
    if now != ("above" if after > 0 else "below"):
        return f"; at {last} it has the other sign"
    closer = ", closer to 0" if abs(after) <= abs(change["mean_before"]) else ""
    return f"{closer}, worse for {_whom(result, after)}{largest_of(result.gap)}"


def _at_the_end(result: Fairness, row: Row, gap: pl.DataFrame) -> Message:
    """The gap of the last checkpoint, where no change is significant."""
    ends = (row["low_scaled"], row["high_scaled"])
    interval = untold(row["sentences"], "sentence")
    if _side_now(gap) != "unknown":
        interval = f"pointwise 95 % interval {signed(ends[0], '.2f')} to {signed(ends[1], '.2f')}"
    sentence = (
        f"At {step_name(row['step'])} the gap Δ of {subject_of(row, result.checkpoints)} is "
        f"{signed(row['delta_scaled'], '.2f')} ({interval})"
        f"{last_ten(gap['delta_scaled'], partial(signed, form='.2f'))}{largest_of(result.gap)}."
    )
    return Message(
        sentence=sentence,
        figure="gap",
        numbers=[_gap_now(result, gap), *_range(gap), checkpoint_number(result.checkpoints)],
        series=(row["model"], row["run"]),
    )


def _side_now(gap: pl.DataFrame) -> Side:
    """Where the last checkpoint's interval lies."""
    return side(gap["low_scaled"][-1], gap["high_scaled"][-1], 0)


def _whom(result: Fairness, delta: float) -> str:
    label = result.labels.female if delta > 0 else result.labels.male
    return PEOPLE.get(label, f"“{label}”")


def _gap_now(result: Fairness, gap: pl.DataFrame) -> KeyNumber:
    """The gap of the last checkpoint, its interval, and what it is over."""
    row = gap.row(-1, named=True)
    held = result.checkpoints.filter(model=row["model"], run=row["run"]).filter(
        pl.col("step").eq_missing(row["step"])
    )
    prompts, orders = int(held["prompts"][0]), int(held["orders"][0])
    rests = [f"{counted(prompts, 'prompt')}{f' in {orders} orders' if orders > 1 else ''}"]
    rests += [f"{row['sentences']:,} sentences"]
    if missing := int(held["missing"][0]):
        rests += [f"{counted(missing, 'score')} missing"]
    interval = interval_text({"low": row["low_scaled"], "high": row["high_scaled"]}, signed)
    what = f"gap Δ at {step_name(row['step'])}"
    return KeyNumber(signed(row["delta_scaled"]), what, interval + ", ".join(rests))


def _range(gap: pl.DataFrame) -> list[KeyNumber]:
    """The largest gap on the way, where there is a way."""
    if len(gap) < 2:
        return []
    largest = gap.row(int(gap["gap_scaled"].arg_max() or 0), named=True)
    where = f"at {step_name(largest['step'])}{_untrained(gap)}"
    return [KeyNumber(f"{largest['gap_scaled']:.3f}", "largest gap", where)]


def _untrained(gap: pl.DataFrame) -> str:
    rows = gap.filter(step=UNTRAINED)["gap_scaled"]
    return f"; {rows[0]:.3f} untrained" if len(rows) else ""


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
