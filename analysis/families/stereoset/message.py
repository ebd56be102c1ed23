"""What StereoSet says first: how often the last checkpoint prefers the stereotype."""

from dataclasses import replace

import polars as pl

from logitbank.analysis.drawing.names import name_among
from logitbank.analysis.families.stereoset.blocks import OVERALL
from logitbank.analysis.families.stereoset.figure_data import trained
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.scores import BOTH, KEYS, PLAIN
from logitbank.analysis.results.level_message import level_message
from logitbank.analysis.results.message import (
    KeyNumber,
    Message,
    interval_text,
    missing_text,
    side,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, step_name


def stereoset_message(result: StereoSet) -> Message | None:
    """Of all domains, both tasks where both were scored, and of models without a prefix."""
    table = result.scores.filter(pl.col("domain") == OVERALL, pl.col("examples") > 0)
    chosen = {
        name: value
        for name, usual in (("language", ""), ("condition", PLAIN), ("score", ""), ("task", BOTH))
        if (value := _usual(table[name], usual)) is not None
    }
    rows = table.filter(**chosen).rename({"ss_low": "low", "ss_high": "high"})
    message = level_message(
        rows.join(_missing(result, chosen), on=KEYS, how="left", nulls_equal=True,
                  maintain_order="left"),
        value="ss", middle=50, figure="", what="ss", form="{:.1f}".format, over=_over,
        sentence=_sentence,
    )  # fmt: skip
    if message is None:
        return None
    model, run = message.series
    own = rows.filter(model=model, run=run)
    last = own.filter(pl.col("ss").is_not_nan()).row(-1, named=True)
    several = own["step"].n_unique() > 1
    tasks = trained(result, several=several)["task"]
    first, *others = message.numbers
    return replace(
        message,
        figure=name_among("domains" if several else "bars", chosen["task"], tasks),
        numbers=[first, *others[:-1], _icat(last), others[-1]],
        series=(model, run, *(str(last[name]) for name in ("language", "condition", "score"))),
    )


def _usual(values: pl.Series, usual: str) -> str | None:
    """The usual value where it is among them, else the first."""
    if values.is_empty():
        return None
    return usual if usual in values else str(values[0])


def _missing(result: StereoSet, chosen: dict[str, str]) -> pl.DataFrame:
    """Of every checkpoint, the examples without all three scores."""
    return result.tasks.filter(task=chosen.get("task")).select(*KEYS, "missing")


def _over(row: Row) -> str:
    prefix = "" if row["condition"] == PLAIN else f", {row['condition']}"
    examples, terms = counted(row["examples"], "example"), counted(row["terms"], "term")
    return f"mean over {terms}, {examples}{missing_text(row)}{prefix}"


def _sentence(subject: str, row: Row) -> str:
    where = f"At {step_name(row['step'])} {subject}"
    share = f"the stereotype to its opposite in {row['ss']:.0f} % of examples"
    match side(row["low"], row["high"], 50):
        case "above":
            return f"{where} prefers {share}; 50 % is neither."
        case "below":
            return f"{where} prefers {share}, less than half; 50 % is neither."
        case "within":
            return f"{where} has no preference for stereotypes that is more than chance."
        case "unknown":
            return f"{where} prefers {share}; {untold(row['terms'], 'term')}."


def _icat(row: Row) -> KeyNumber:
    text = interval_text(row, "{:.1f}".format, "icat_")
    rests = f"{text}lms {row['lms']:.1f}, how often what is related is preferred"
    return KeyNumber(f"{row['icat']:.1f}", f"iCAT at {step_name(row['step'])}", rests)
