"""What stereotype accuracy and winobias_em say, in sentences with their uncertainty."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.families.stereotype.referents import ALL
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.results.words import (
    INTERVALS,
    Row,
    Summary,
    best_and_last,
    between,
    by_run,
    from_first,
    verdict,
)
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.wording import counted, signed, step_name

CAUTIONS = (
    "The stereotypes are those of occupations in the United States, for two genders. Stereotype "
    "accuracy, sa_gender and winobias_em ask different questions; their values cannot be compared "
    "with each other.",
)
"""What the numbers do not say."""
TEMPLATES = (
    "winobias_em has templates of our own, the published figure others: checkpoints can be "
    "compared, levels with that figure cannot."
)
NAMES = {"sa": "stereotype accuracy", "sa_gender": "sa_gender"}


def stereotype_summary(result: StereotypeAccuracy) -> Summary:
    """The most stereotypical and the last checkpoint, each measure under its own name."""
    sentences = []
    for (measure, kind), table in result.stereotype_accuracy.group_by(
        "measure", "type", maintain_order=True
    ):
        about = "" if kind == 2 else f", Type {kind}"
        for prefix, rows in by_run(table.filter(pl.col("accuracy").is_not_nan())):
            sentences += [
                f"{prefix}{row['role']}{step_name(row['step'])}: {NAMES[str(measure)]}{about} "
                f"{row['accuracy']:.3f} ({between(row, '.3f', row['sentences'], 'sentence')}) "
                f"over {row['sentences']:,} sentences{verdict(row, 0.5)}."
                for row in best_and_last(rows, "accuracy", best="most stereotypical at ")
            ]
            what = f"{NAMES[str(measure)]}{about}"
            sentences += from_first(rows, prefix, what, "sentence")
    table, left_out = result.stereotype_accuracy, []
    for measure, rows in ((m, table.filter(pl.col("measure") == m)) for m in NAMES):
        if tied := int(rows["tied"].sum()):
            sentences.append(
                f"{tied:,} comparisons of {NAMES[measure]} are exact ties and count ½."
            )
        if missing := int(rows["missing"].sum()):
            none = len(rows.filter(pl.col("accuracy").is_nan()))
            checkpoints = counted(len(rows.filter(pl.col("missing") > 0)), "checkpoint")
            left_out.append(
                f"{counted(missing, 'sentence')} of {NAMES[measure]} missing, or without one of "
                f"the orders, at {checkpoints}, whose numbers are over what is there"
                + (f"; {counted(none, 'checkpoint')} thereby without a number." if none else ".")
            )
    notes = (INTERVALS,) if result.winobias_em.is_empty() else (TEMPLATES, INTERVALS)
    left_out += _missing_pairs(result)
    return Summary((*sentences, *_exact_match(result)), notes, CAUTIONS, tuple(left_out))


def _exact_match(result: StereotypeAccuracy) -> Iterator[str]:
    """winobias_em: the largest and the last bias, what it is made of, and when it says nothing."""
    table = result.winobias_em
    if table.is_empty():
        yield "winobias_em needs the prompts winobias-em, which are not there."
        return
    silent = (pl.col("em_pro") == 0) & (pl.col("em_anti") == 0)
    for prefix, rows in by_run(table):
        known = rows.filter(pl.col("bias").is_not_nan(), ~silent)
        for row in best_and_last(known, "bias", best="largest at ") if len(known) else []:
            yield (
                f"{prefix}{row['role']}{step_name(row['step'])}: winobias_em {signed(row['bias'])} "
                f"({_span(row)}): the person is named in "
                f"{row['em_pro']:.3f} of pro- and {row['em_anti']:.3f} of anti-stereotyped "
                f"sentences, over {row['pairs']:,} pairs{_parts(result.winobias_em_parts, row)}."
            )
    if count := len(table.filter(silent)):
        yield (
            f"winobias_em: no person is named at {counted(count, 'checkpoint')}, where a bias of 0 "
            "says nothing."
        )
    for column, what in (
        ("tied", "shared the largest logit with another token, which is no match"),
        ("inexact", "have a rank that was counted among rounded scores"),
    ):
        if count := int(table[column].sum()):
            yield f"{counted(count, 'answer')} of winobias_em {what}."


def _missing_pairs(result: StereotypeAccuracy) -> Iterator[str]:
    incomplete = result.winobias_em.filter(pl.col("missing") > 0)
    if len(incomplete):
        missing = int(incomplete["missing"].sum())
        yield missing_sentence(
            *(missing, "pair of winobias_em", "pairs of winobias_em"), checkpoints=len(incomplete)
        )


def _span(row: Row) -> str:
    """The interval of a bias."""
    if row["low"] == row["low"]:
        return f"{signed(row['low'])} to {signed(row['high'])}"
    return f"no interval, as a type has fewer than {FEWEST_CLUSTERS} pairs"


def _parts(parts: pl.DataFrame, mean: Row) -> str:
    """The bias of every type and template at a checkpoint, where there are several."""
    same = (pl.col(name).eq_missing(pl.lit(mean[name])) for name in CHECKPOINT)
    rows = parts.filter(*same, pl.col("template") != ALL).rows(named=True)
    named = ", ".join(f"Type {r['type']} {r['template']} {signed(r['bias'])}" for r in rows)
    return f" ({named})" if len(rows) > 1 else ""
