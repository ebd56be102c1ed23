"""What curves say first: how a measure of the last checkpoint differs from that of the first."""

import polars as pl

from logitbank.analysis.families.curves.means import Measure
from logitbank.analysis.families.curves.metric import Curves
from logitbank.analysis.results.message import (
    KeyNumber,
    Message,
    apart,
    checkpoint_number,
    interval_text,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, number, step_name

FIRST: tuple[tuple[Measure, str], ...] = (
    ("probability", "the mean probability of the right answer"),
    ("entropy", "the mean entropy of predictions, in nats,"),
)
"""What is said first, and how; agreement with the last checkpoint is 1 there by its meaning."""

_SERIES = ("prompt_set", "model", "run")


def curves_message(result: Curves) -> Message | None:
    """Of the first prompt set with right answers, else with entropy, and its first run.

    None where one checkpoint alone has the measure: there is no way to tell of. Nor is it told of
    answers that all have several tokens, whose probability is a product such as 1e-44.
    """
    known = result.curves.filter(pl.col("value").fill_nan(None).is_not_null())
    ranked = set(known.filter(measure="rank").select(*_SERIES).iter_rows())
    for measure, what in FIRST:
        of_measure = known.filter(measure=measure)
        for rows in of_measure.partition_by(*_SERIES, maintain_order=True):
            long = measure == "probability" and rows.select(*_SERIES).row(0) not in ranked
            if len(rows) > 1 and not long:
                return _message(result, rows, measure, what)
    return None


def _message(result: Curves, rows: pl.DataFrame, measure: Measure, what: str) -> Message:
    first, last = rows.row(0, named=True), rows.row(-1, named=True)
    told = apart(first, last, ""), apart(last, first, "")
    end = ", and their intervals overlap"
    if None in told:
        end = f"; {untold(min(first['prompts'], last['prompts']), 'prompt')}"
    return Message(
        sentence=(
            f"From {step_name(first['step'])} to {step_name(last['step'])} {what} of "
            f"{subject_of(first, result.checkpoints)} in {first['prompt_set']} goes from "
            f"{number(first['value'])} to {number(last['value'])}{'' if any(told) else end}."
        ),
        figure="curves",
        numbers=[
            *(_number(result, row, measure) for row in (last, first)),
            checkpoint_number(result.checkpoints),
        ],
        series=(first["model"], first["run"]),
    )


def _number(result: Curves, row: Row, measure: Measure) -> KeyNumber:
    own = {name: row[name] for name in ("model", "run", "prompt_set")}
    held = result.checkpoints.filter(**own).filter(pl.col("step").eq_missing(pl.lit(row["step"])))
    missing = f", {held['missing'][0]:,} missing" if held["missing"].sum() else ""
    rests = f"{interval_text(row, number)}{counted(row['prompts'], 'prompt')}{missing}"
    return KeyNumber(number(row["value"]), f"{measure} at {step_name(row['step'])}", rests)
