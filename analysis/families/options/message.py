"""What any prompt set says first: how often the answer wins, or which option has most."""

import polars as pl

from logitbank.analysis.drawing.paper import shortened
from logitbank.analysis.families.options.metric import OptionScores, clusters_of
from logitbank.analysis.results.level_message import level_message
from logitbank.analysis.results.message import (
    SERIES,
    KeyNumber,
    Message,
    apart,
    checkpoint_number,
    interval_text,
    missing_text,
    side,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, number, step_name

_share = "{:.3f}".format


def option_message(result: OptionScores) -> Message | None:
    """Accuracy where prompts have answers, else shares; of single options their probability."""
    answers = result.answers.drop_nulls("accuracy")
    if len(answers):
        return level_message(
            answers, value="accuracy", middle=0, figure="accuracy", what="accuracy",
            form=lambda share: f"{100 * share:.1f} %", over=_over, sentence=_accuracy,
        )  # fmt: skip
    shares = result.shares.with_columns(pl.col("share", "probability").fill_nan(None))
    shared = shares.drop_nulls("share")
    if len(shared):
        return _of_shares(shared)
    return _of_probability(shares) if result.exp_name == "probability" else None


def _accuracy(subject: str, row: Row) -> str:
    unknown = side(row["low"], row["high"], 0) == "unknown"
    end = f"; {untold(*clusters_of(row))}" if unknown else ""
    share = f"{100 * row['accuracy']:.0f} %"
    return (
        f"At {step_name(row['step'])} {subject} finds the right answer the most probable option "
        f"in {share} of prompts{end}."
    )


def _over(row: Row) -> str:
    several = 0 < row["sentences"] < row["prompts"]
    sentences = f", {counted(row['sentences'], 'sentence')}" if several else ""
    return counted(row["prompts"], "prompt") + sentences + missing_text(row)


def _of_shares(shares: pl.DataFrame) -> Message:
    """Of the last checkpoints, the one whose first two options are farthest apart."""
    ends = []
    for rows in shares.partition_by(SERIES, maintain_order=True):
        last = rows.filter(pl.col("step").eq_missing(pl.lit(rows["step"][-1], pl.Int64)))
        first, *others = last.sort("share", descending=True, maintain_order=True).to_dicts()
        second = others[0] if others else None
        clear = second is not None and apart(second, first, "")
        lead = first["share"] - second["share"] if second else 0.0
        ends.append((bool(clear), lead, first, second))
    clear, _, first, second = max(ends, key=lambda end: end[:2])
    numbers = [_number(row) for row in (first, second) if row]
    return Message(
        sentence=_shares_said(subject_of(first, shares), first, second),
        figure="shares",
        numbers=[*numbers, checkpoint_number(shares)],
        series=(first["model"], first["run"]),
    )


def _shares_said(subject: str, first: Row, second: Row | None) -> str:
    where, name = f"At {step_name(first['step'])}", _name(first)
    if second is None:
        return f"{where} {subject} gives {name} a share of {first['share']:.2f} on average."
    told = apart(second, first, "")
    if told:
        share = f"{first['share']:.2f} on average"
        return f"{where} {subject} gives {name} the largest share of the options, {share}."
    both = f"{name} {first['share']:.2f} and {_name(second)} {second['share']:.2f}"
    if told is None:
        few = untold(*min(clusters_of(first), clusters_of(second)))
        return f"{where} {subject} gives {both} on average; {few}."
    return f"{where} no option of {subject} is clearly the most probable: {both} on average."


def _name(row: Row) -> str:
    return f"“{shortened(str(row['option']).strip())}”"


def _number(row: Row) -> KeyNumber:
    text = interval_text(row, _share)
    return KeyNumber(_share(row["share"]), f"share of {_name(row)}", f"{text}{_over(row)}")


def _of_probability(shares: pl.DataFrame) -> Message | None:
    """Of prompts with one option each, which have no shares."""
    known = shares.drop_nulls("probability")
    if known.is_empty():
        return None
    row = known.group_by(SERIES, maintain_order=True).last().row(0, named=True)
    where, subject = step_name(row["step"]), subject_of(row, known)
    mean = number(row["probability"])
    return Message(
        sentence=f"At {where} {subject} gives {_name(row)} a mean probability of {mean}.",
        figure="shares",
        numbers=[
            KeyNumber(number(row["probability"]), f"probability of {_name(row)}", _over(row)),
            checkpoint_number(known),
        ],
        series=(row["model"], row["run"]),
    )
