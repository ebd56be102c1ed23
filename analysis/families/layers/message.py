"""What layers say first: how often the right option wins at the end, and from which layer on."""

import polars as pl

from logitbank.analysis.families.layers.metric import Layers
from logitbank.analysis.families.layers.study import settled_from
from logitbank.analysis.results.message import (
    SERIES,
    KeyNumber,
    Message,
    apart,
    checkpoint_number,
    interval_text,
    missing_text,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, number, step_name


def layers_message(result: Layers) -> Message | None:
    """Of the first prompt set, and its first run; None where nothing is known of options."""
    known = result.settled.filter(pl.col("settled").is_finite())
    parts = known.partition_by("prompt_set", *SERIES, maintain_order=True)
    if not parts:
        return None
    first, last = parts[0].row(0, named=True), parts[0].row(-1, named=True)
    ends = [_share(result, row) for row in (first, last)]
    told = apart(ends[0], ends[1], ""), apart(ends[1], ends[0], "")
    unknown = f"; {untold(last['prompts'], 'prompt')}" if None in told else ""
    then = f", and stays so from layer {settled_from(last)} on (median)"
    return Message(
        sentence=(
            f"At {step_name(last['step'])} the right option of {last['prompt_set']} is the first "
            f"for {subject_of(last, result.checkpoints)} in {100 * last['settled']:.0f} % of "
            f"prompts after layer {last['last']}"
            f"{'' if last['layer'] is None else then}{unknown}."
        ),
        figure="layers",
        numbers=[
            _key(result, last, ends[1]),
            *([_key(result, first, ends[0])] if len(parts[0]) > 1 else []),
            _depth(last),
            checkpoint_number(result.checkpoints),
        ],
        series=(last["model"], last["run"]),
    )


def _share(result: Layers, row: Row) -> Row:
    """The row of the last layer of a checkpoint."""
    own = result.layers.filter(**{n: row[n] for n in (*SERIES, "prompt_set")}, layer=row["last"])
    return own.filter(pl.col("step").eq_missing(pl.lit(row["step"]))).row(0, named=True)


def _key(result: Layers, row: Row, share: Row) -> KeyNumber:
    own = result.checkpoints.filter(**{n: row[n] for n in (*SERIES, "prompt_set")})
    about = own.filter(pl.col("step").eq_missing(pl.lit(row["step"]))).row(0, named=True)
    rests = f"{interval_text(share, number)}{counted(row['prompts'], 'prompt')}"
    what = f"share with the right option first at {step_name(row['step'])}"
    return KeyNumber(number(row["settled"]), what, rests + missing_text(about))


def _depth(row: Row) -> KeyNumber:
    what = f"layer from which on it is so at {step_name(row['step'])}"
    return KeyNumber(settled_from(row), what, f"median; {row['last']} is the last")
