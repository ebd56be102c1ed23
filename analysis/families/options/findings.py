"""What any prompt set says: in all sentences, and in the one that a page begins with."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from logitbank.analysis.drawing.names import name_among
from logitbank.analysis.drawing.paper import shortened
from logitbank.analysis.families.options.curves import Measure
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.families.options.score import MEANINGS, SHARE_OF_SCORES
from logitbank.analysis.frames.pieces import CHECKPOINT
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
from logitbank.analysis.results.words import Row, Summary, by_run, missing_sentences
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.shares import too_few
from logitbank.wording import counted, number, step_name

CAUTIONS = (
    "A low entropy says that the model is sure, and not that it is right.",
    "Entropy and ranks are over all outputs of a model: those of models with other vocabularies "
    "are no basis for comparing them.",
)
"""What the numbers do not say."""
INTERVALS = (
    "Intervals (95 %) are over prompts, those of one sentence_id together, and hold for one "
    "checkpoint at a time; none allows for the number of checkpoints looked at."
)
AGREEMENT = (
    "Agreement is the share of positions whose most probable token is that of the run's last "
    "checkpoint, the release where there is one, at which it is 1."
)
UNREAD = (
    "Entropy takes full rows, which are not read here: `logitbank analyze options BANK` reads them."
)
NAMES: dict[Measure, str] = {
    "entropy": "entropy",
    "probability": "probability of the right answer",
    "rank": "rank of the right answer",
    "agreement": "agreement with the last checkpoint",
}


def option_summary(result: OptionScores) -> Summary:
    """What the first and the last checkpoint of every model and run say, then how to read it."""
    left_out = tuple(_missing_said(result))
    if result.unconditional:
        left_out += (
            f"{counted(result.unconditional, 'prompt')} without a condition, among the missing.",
        )
    meaning = (MEANINGS[result.score], *[SHARE_OF_SCORES] * (result.score != "sum"))
    findings = (*_shares_said(result), *_answers_said(result), *_curves_said(result))
    notes = (*meaning, *_notes(result), INTERVALS)
    return Summary(findings, notes, CAUTIONS, left_out)


def _by_series(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each prompt set, model and run, and how sentences about them begin."""
    sets = table.partition_by("prompt_set", maintain_order=True)
    for of_set in sets:
        name = f"{of_set['prompt_set'][0]}, " if len(sets) > 1 else ""
        for prefix, rows in by_run(of_set):
            yield f"{prefix}{name}", rows


def _shares_said(result: OptionScores) -> Iterator[str]:
    known = result.shares.with_columns(
        shared=pl.col("share").is_not_null().any().over("prompt_set")
    ).filter(pl.col("probability").is_not_null(), pl.col("share").is_not_null() | ~pl.col("shared"))
    for prefix, rows in _by_series(known):
        shared = rows["shared"][0]
        what, name = ("share", "share") if shared else ("probability", result.exp_name)
        last = rows.filter(pl.col("step").eq_missing(pl.lit(rows["step"][-1], pl.Int64)))
        values = [
            (f"{row['option']} {row[what]:.3{'f' if shared else 'g'}}", _interval(row))
            for row in last.iter_rows(named=True)
        ]
        once = ""  # of options that all rest on as many prompts, too few, it is said at the end
        if last["low"].null_count() == len(last) and len({end for _, end in values}) == 1:
            once, values = values[0][1], [(value, "") for value, _ in values]
        said = ", ".join(value + end for value, end in values)
        yield f"{prefix}at {_step(rows['step'][-1])}, mean {name} of {said}{once}."


def _interval(row: dict[str, Any], form: str = ".3f") -> str:
    """Nothing for probabilities alone, which have none; why, where there are too few prompts."""
    if row["low"] is not None:
        return f" ({row['low']:{form}} to {row['high']:{form}})"
    few = row["sentences"] < FEWEST_CLUSTERS and row.get("share", 0.0) is not None
    return f" ({too_few(*clusters_of(row))})" if few else ""


def clusters_of(row: Mapping[str, Any]) -> tuple[int, str]:
    """How many independent pieces an interval rests on, and what one is called."""
    noun = "prompt" if row["sentences"] == row["prompts"] else "sentence"
    return row["sentences"], noun


def _answers_said(result: OptionScores) -> Iterator[str]:
    for prefix, rows in _by_series(result.answers.drop_nulls("accuracy")):
        first, last = rows.row(0, named=True), rows.row(-1, named=True)
        earlier = f", and in {first['accuracy']:.1%}{_of(first, last)} at {_step(first['step'])}"
        yield (
            f"{prefix}the answer has the largest share in {last['accuracy']:.1%} of "
            f"{_prompts(last)} at {_step(last['step'])}"
            f"{_interval(last, '.1%')}{earlier if len(rows) > 1 else ''}."
        )


def _missing_said(result: OptionScores) -> Iterator[str]:
    """Of the options of a prompt set; of one that has none, of its prompts."""
    of_options = result.shares.group_by(*CHECKPOINT, "prompt_set").agg(pl.col("missing").max())
    others = result.checkpoints.join(of_options, on="prompt_set", how="anti")
    every = pl.concat([of_options, others.select(of_options.columns)])
    yield from missing_sentences(every.group_by(CHECKPOINT).agg(pl.col("missing").sum()), "prompt")


def _curves_said(result: OptionScores) -> Iterator[str]:
    """Every measure at the first and the last checkpoint; one without any row is no end."""
    there = pl.col("value").is_not_null().any().over("model", "run", "prompt_set", "step")
    for prefix, rows in _by_series(result.curves.filter(there)):
        steps = list(dict.fromkeys((rows["step"][0], rows["step"][-1])))
        ends = rows.filter(pl.col("step").is_in(steps, nulls_equal=True))
        said, end = [], ""
        for measure, name in NAMES.items():
            values = ends.filter(measure=measure)["value"]
            if measure == "agreement":  # the last one's with itself is 1
                if len(values) > 1 and (share := values[0]) is not None:
                    end = (
                        f"; at {step_name(steps[0])}, {number(100 * share)} % of the most probable "
                        f"tokens are those of {_step(steps[-1])}"
                    )
            elif values.count():
                texts = ("none" if value is None else number(value) for value in values)
                said.append(f"{name} {' → '.join(texts)}")
        if said or end:
            about = f": {', '.join(said)}" if said else ""
            yield f"{prefix}{' → '.join(map(step_name, steps))}{about}{end}."


def _notes(result: OptionScores) -> Iterator[str]:
    yield AGREEMENT
    if not result.entropy:
        yield UNREAD
    elif len(without := result.checkpoints.filter(~pl.col("full_rows")).unique(CHECKPOINT)):
        yield f"Entropy needs full rows; not kept by {counted(len(without), 'checkpoint')}."
    unanswered = result.checkpoints.filter(answered=0)["prompt_set"].unique().sort().to_list()
    if unanswered:
        yield f"No right answer is named by {', '.join(unanswered)}."


def _of(first: dict[str, Any], last: dict[str, Any]) -> str:
    return "" if first["prompts"] == last["prompts"] else f" of {_prompts(first)}"


def _prompts(row: dict[str, Any]) -> str:
    return f"{row['prompts']:,} prompt{'' if row['prompts'] == 1 else 's'}"


def _step(step: int | None) -> str:
    return "the release" if step is None else f"step {step:,}"


_share = "{:.3f}".format


def option_message(result: OptionScores) -> Message | None:
    """Accuracy where prompts have answers, else shares; of single options their probability.

    Of several prompt sets, it is of the first that has any.
    """
    sets = result.checkpoints["prompt_set"]
    answers = result.answers.drop_nulls("accuracy")
    shares = result.shares.with_columns(pl.col("share", "probability").fill_nan(None))
    shared = shares.drop_nulls("share")
    if len(answers):
        own = answers.filter(prompt_set=answers["prompt_set"][0])
        message = level_message(
            own, value="accuracy", middle=0, figure="accuracy", what="accuracy",
            form=lambda share: f"{100 * share:.1f} %", over=_over, sentence=_accuracy,
        )  # fmt: skip
    elif len(shared):
        own = shared.filter(prompt_set=shared["prompt_set"][0])
        message = _of_shares(own)
    elif result.exp_name == "probability":
        own = shares.drop_nulls("probability")
        own = own.filter(pl.col("prompt_set").rle_id() == 0)
        message = _of_probability(own)
    else:
        return None
    if message is None or sets.n_unique() == 1:
        return message
    name = own["prompt_set"][0]
    kinds = result.answers if message.figure == "accuracy" else result.shares
    return replace(
        message,
        sentence=f"In {name}, a{message.sentence.removeprefix('A')}",
        figure=name_among(message.figure, name, kinds["prompt_set"]),
    )


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
        sentence=_share_sentence(subject_of(first, shares), first, second),
        figure="shares",
        numbers=[*numbers, checkpoint_number(shares)],
        series=(first["model"], first["run"]),
    )


def _share_sentence(subject: str, first: Row, second: Row | None) -> str:
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


def _of_probability(known: pl.DataFrame) -> Message | None:
    """Of prompts with one option each, which have no shares."""
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
