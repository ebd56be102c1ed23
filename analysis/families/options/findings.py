"""The findings of any prompt set: those of its measures, agreement, ties, and what is missing."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.families.options import ACCURACY, AGREEMENT, ENTROPY, PROBABILITY
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import OPTION, SETS, Measured
from logitbank.analysis.results.series import Curve, by_series, figure_name
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import counted

SHOWN = 3
"""Options of a model, run and prompt set that have findings."""


def findings(family: Family, result: Measured) -> list[Finding]:
    """The common findings about options and answers, then entropy and agreement, then limits."""
    table = measured.overall(result.measures)
    lead = next(
        (each.name for each in (ACCURACY, PROBABILITY) if each.name in table["measure"]), ""
    )
    shown = tuple(
        each
        for each in family.measures
        if each not in (ENTROPY, AGREEMENT) and (not each.group or each.name == lead)
    )
    rows = _most_probable(result.measures)
    if "group" in rows.columns:  # of the first measure alone
        rows = rows.filter((pl.col("group") == ALL) | (pl.col("measure") == lead))
    found = measured.findings(replace(family, measures=shown), replace(result, measures=rows))
    of_rows = table.filter(pl.col("value").is_not_nan())
    several = table[SETS].n_unique() > 1
    for prefix, of_run in by_series(of_rows):
        for own in of_run.partition_by(SETS, maintain_order=True):
            name = own[SETS][0]
            where, figure = f", {name}" * several, figure_name("measures", name, several)
            entropy, agreement = (
                Curve(
                    own.filter(measure=each.name), "value", f"{prefix}{each.text}{where}",
                    measured.sample_of(family), each.form, figure,
                )
                for each in (ENTROPY, AGREEMENT)
            )  # fmt: skip
            if len(entropy.rows):
                found.append(entropy.from_first())
            if len(agreement.rows) > 1:  # that of the last one with itself is 1
                found.append(agreement.at(agreement.rows.row(0, named=True)))
    return [*found, *_limits(table)]


def _most_probable(table: pl.DataFrame) -> pl.DataFrame:
    """A table of measures without the options that are less probable than `SHOWN` others."""
    keys = ["model", "run", SETS]
    known = measured.overall(table).filter(pl.col("value").is_not_nan(), measure=PROBABILITY.name)
    last = known.group_by(*keys, OPTION, maintain_order=True).last()
    place = pl.col("value").rank("ordinal", descending=True).over(keys)
    less = last.filter(place > SHOWN)
    return table.join(less, on=[*keys, OPTION], how="anti", maintain_order="left")


def _limits(table: pl.DataFrame) -> Iterator[Finding]:
    """Ties, and what could not be measured."""
    tied = table.filter(measure="tied").select(
        (pl.col("value").fill_nan(0) * pl.col("items")).sum()
    )
    if count := round(tied.item()):
        yield Finding(text=f"Ties for the largest option probability: {count:,} (count as wrong).")
    unread = table.filter(measure="entropy", items=0).select(CHECKPOINT).unique()
    scored = table.filter(pl.col("items") > 0, measure="top1_probability")
    lacking = unread.join(scored, on=CHECKPOINT, how="semi", nulls_equal=True)
    if number := len(lacking):
        without = f"{counted(number, 'checkpoint')} lack{'s' * (number == 1)}"
        yield Finding(text=f"Entropy needs full rows, which {without}.")
    answered = table.filter(measure="answer_probability")[SETS]
    if unanswered := sorted({*table[SETS]} - {*answered}):
        yield Finding(text=f"No correct answer is named in {', '.join(unanswered)}.")
