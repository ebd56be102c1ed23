"""What a fairness result says first: whom the model serves worse, since when, and by how much."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from logitbank.analysis.families.fairness.metric import Fairness, fairness_change
from logitbank.analysis.results.message import (
    SERIES,
    KeyNumber,
    Message,
    Side,
    checkpoint_number,
    interval_text,
    on_one_side,
    side,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import UNTRAINED, Row, p_against_wandering
from logitbank.wording import counted, signed, step_name

PEOPLE = {"male": "men", "female": "women"}


def fairness_message(result: Fairness) -> Message | None:
    """The largest change of the gap's level, or else the largest gap at an end of training.

    None where there is no gap: no prompt has a male answer, or none has a female one.
    """
    known = result.gap.filter(pl.col("gap_scaled").cast(pl.Float64).is_not_nan())
    if known.is_empty():
        return None
    changed = result.onset.drop_nulls("onset_step")
    if len(changed):
        moved = (pl.col("delta_after") - pl.col("delta_before")).abs()
        change = changed.sort(moved, descending=True).row(0, named=True)
        return _changed(result, change, _of_run(known, change))
    last = known.group_by(SERIES, maintain_order=True).last()
    clear = on_one_side("low_scaled", "high_scaled", 0)
    largest = last.sort(clear, "gap_scaled", descending=True).row(0, named=True)
    return _at_the_end(result, largest, _of_run(known, largest))


def _of_run(table: pl.DataFrame, row: Row) -> pl.DataFrame:
    return table.filter(model=row["model"], run=row["run"])


def _changed(result: Fairness, change: Row, gap: pl.DataFrame) -> Message:
    """A change of level, which was told from wandering."""
    before, after = change["delta_before"], change["delta_after"]
    steps = gap.filter(pl.col("step") < change["earliest"])["step"]
    first, last = steps[-1], change["latest"]
    when = f"After step {first:,}" if change["earliest"] == last else (
        f"Between step {first:,} and step {last:,}"
    )  # fmt: skip
    subject = subject_of(change, result.checkpoints)
    levels = f"from {signed(before, '.2f')} to {signed(after, '.2f')}"
    now = _side_now(gap)
    if now == "unknown":
        few = untold(gap["sentences"][-1], "sentence")
        told = f"the gap of {subject} changes, {levels}; {few}."
    elif abs(after) <= abs(before):
        told = f"{subject} comes closer to serving men and women alike: the gap goes {levels}."
        if not set(result.labels[:2]) <= set(PEOPLE):
            told = f"{subject} comes to have a smaller gap: it goes {levels}."
    elif now == ("above" if after > 0 else "below"):
        told = f"{subject} comes to serve {_whom(result, after)} worse: the gap goes {levels}."
    else:  # the new level is a mean over checkpoints, of which the last one does not bear it out
        told = (
            f"the gap of {subject} changes, {levels}; at {step_name(gap['step'][-1])} it cannot be "
            "told from zero."
            if now == "within"
            else f"the gap of {subject} changes, {levels}, and later its sign."
        )
    earlier = gap.filter(pl.col("step") < change["onset_step"])
    largest = earlier.row(int(earlier["gap_scaled"].arg_max() or 0), named=True)
    sure = change["earliest"] == change["latest"]
    reach = "" if sure else f"95 %: {change['earliest']:,} to {last:,}; "
    return Message(
        sentence=f"{when} {told}",
        figure="gap",
        numbers=[
            _gap_now(result, gap),
            KeyNumber(
                f"{change['onset_step']:,}",
                "first checkpoint of the new level",
                f"{reach}{p_against_wandering(change['p'])} against a gap that only wanders; "
                "levels are means over checkpoints",
            ),
            KeyNumber(
                f"{largest['gap_scaled']:.3f}",
                "largest gap before",
                f"at {step_name(largest['step'])}{_untrained(gap)}",
            ),
            checkpoint_number(result.checkpoints),
        ],
        series=(change["model"], change["run"]),
        certain=now != "unknown",
    )


def _at_the_end(result: Fairness, row: Row, gap: pl.DataFrame) -> Message:
    """The gap of the last checkpoint, where no change of level was found."""
    delta, subject = row["delta_scaled"], subject_of(row, result.checkpoints)
    now = _side_now(gap)
    where = f"At {step_name(row['step'])}"
    if now == "within":
        sentence = f"{where} no gap of {subject} can be told from zero."
    elif now == "unknown":
        few = untold(row["sentences"], "sentence")
        sentence = f"{where} the gap Δ of {subject} is {signed(delta, '.2f')}; {few}."
    else:
        sentence = f"{where} {subject} serves {_whom(result, delta)} worse, by a gap of "
        sentence += f"{signed(delta, '.2f')}."
    return Message(
        sentence=sentence,
        figure="gap",
        numbers=[_gap_now(result, gap), *_range(gap), checkpoint_number(result.checkpoints)],
        series=(row["model"], row["run"]),
        certain=now in ("above", "below"),
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
