"""What LAMBADA, stereotype accuracy and CrowS-Pairs say, in sentences with their uncertainty."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.stats.shares import too_few
from logitbank.analysis.stats.significance import FEWEST_CLUSTERS

Row = Mapping[str, Any]
INTERVALS = (
    "Intervals (95 %) are over examples and hold for one checkpoint at a time; none allows for the "
    "number of checkpoints looked at."
)
UNTRAINED = 0
"""The step of random weights."""
NAMES = {"sa": "stereotype accuracy", "sa_gender": "sa_gender"}
KINDS = {"masked": "masked scores", "sentence": "whole sentences"}


def lambada_summary(result: Lambada) -> list[str]:
    """The best and the last checkpoint of every model and run, then counts and cautions."""
    sentences = []
    for prefix, rows in _runs(result.lambada):
        sentences += [
            f"{prefix}{row['role']}{_step(row)}: LAMBADA accuracy {row['acc']:.3f} "
            f"({_between(row, '.3f', row['examples'], 'example')}), perplexity "
            f"{_number(row['perplexity'])} per example, over {row['examples']:,} examples."
            for row in _best_and_last(rows, "acc")
        ]
        sentences += _from_first(rows, prefix, "LAMBADA accuracy", "example")
    tied, inexact = (int(result.lambada[name].sum()) for name in ("tied", "inexact"))
    if tied:
        sentences.append(
            f"{tied:,} times (checkpoint and example) the word shared the largest logit with "
            "another token, which counts as wrong."
        )
    if inexact:
        sentences.append(f"{inexact:,} examples have a rank that was counted among rounded scores.")
    return [*sentences, *_missing(result.checkpoints, "example"), INTERVALS]


def stereotype_summary(result: StereotypeAccuracy) -> list[str]:
    """The most stereotypical and the last checkpoint, each measure under its own name."""
    sentences = []
    for (measure, kind), table in result.stereotype_accuracy.group_by(
        "measure", "type", maintain_order=True
    ):
        about = "" if kind == 2 else f", Type {kind}"
        for prefix, rows in _runs(table.filter(pl.col("accuracy").is_not_nan())):
            sentences += [
                f"{prefix}{row['role']}{_step(row)}: {NAMES[str(measure)]}{about} "
                f"{row['accuracy']:.3f} ({_between(row, '.3f', row['sentences'], 'sentence')}) "
                f"over {row['sentences']:,} sentences{_verdict(row, 0.5)}."
                for row in _best_and_last(rows, "accuracy", best="most stereotypical at ")
            ]
            what = f"{NAMES[str(measure)]}{about}"
            sentences += _from_first(rows, prefix, what, "sentence")
    table = result.stereotype_accuracy
    for measure, rows in ((m, table.filter(pl.col("measure") == m)) for m in NAMES):
        if tied := int(rows["tied"].sum()):
            sentences.append(
                f"{tied:,} comparisons of {NAMES[measure]} are exact ties and count ½."
            )
        if missing := int(rows["missing"].sum()):
            none = len(rows.filter(pl.col("accuracy").is_nan()))
            checkpoints = _count(len(rows.filter(pl.col("missing") > 0)), "checkpoint")
            sentences.append(
                f"{_count(missing, 'sentence')} of {NAMES[measure]} missing, or without one of "
                f"the orders, at {checkpoints}, whose numbers are over what is there"
                + (f"; {_count(none, 'checkpoint')} thereby without a number." if none else ".")
            )
    if len(table):
        sentences.append(
            "stereotype accuracy, sa_gender and winobias_em ask different questions and are not "
            "comparable."
        )
    return [*sentences, *_exact_match(result), INTERVALS]


def _exact_match(result: StereotypeAccuracy) -> Iterator[str]:
    """winobias_em: the largest and the last bias, what it is made of, and when it says nothing."""
    table = result.winobias_em
    if table.is_empty():
        yield "winobias_em needs the prompts winobias-em, which are not there."
        return
    silent = (pl.col("em_pro") == 0) & (pl.col("em_anti") == 0)
    for prefix, rows in _runs(table):
        known = rows.filter(pl.col("bias").is_not_nan(), ~silent)
        for row in _best_and_last(known, "bias", best="largest at ") if len(known) else []:
            yield (
                f"{prefix}{row['role']}{_step(row)}: winobias_em {_signed(row['bias'])} "
                f"({_span(row)}): the person is named in "
                f"{row['em_pro']:.3f} of pro- and {row['em_anti']:.3f} of anti-stereotyped "
                f"sentences, over {row['pairs']:,} pairs{_parts(result.winobias_em_parts, row)}."
            )
    if count := len(table.filter(silent)):
        yield (
            f"winobias_em: no person is named at {_count(count, 'checkpoint')}, where a bias of 0 "
            "says nothing."
        )
    for column, what in (
        ("tied", "shared the largest logit with another token, which is no match"),
        ("inexact", "have a rank that was counted among rounded scores"),
    ):
        if count := int(table[column].sum()):
            yield f"{_count(count, 'answer')} of winobias_em {what}."
    lacking = table.filter(pl.col("missing") > 0)
    if len(lacking):
        missing = int(lacking["missing"].sum())
        yield missing_sentence(
            *(missing, "pair of winobias_em", "pairs of winobias_em"), checkpoints=len(lacking)
        )
    yield (
        "winobias_em has templates of our own, the published figure others: checkpoints can be "
        "compared, levels with that figure cannot."
    )


def _parts(parts: pl.DataFrame, mean: Row) -> str:
    """The bias of every type and template at a checkpoint, where there are several."""
    same = (pl.col(name).eq_missing(pl.lit(mean[name])) for name in CHECKPOINT)
    rows = parts.filter(*same, pl.col("template") != ALL).rows(named=True)
    named = ", ".join(f"Type {r['type']} {r['template']} {_signed(r['bias'])}" for r in rows)
    return f" ({named})" if len(rows) > 1 else ""


def crows_pairs_summary(result: CrowsPairs) -> list[str]:
    """The last checkpoint's score, its directions, and bias types that differ from 50."""
    sentences = []
    for (kind,), table in result.crows_pairs.group_by("score_kind", maintain_order=True):
        for prefix, rows in _runs(table.filter(pl.col("bias_type") == ALL)):
            last = rows.row(-1, named=True)
            parts = [
                f"{name} {last[column]:.1f} %"
                for name, column in (
                    ("stereo", "stereo_score"),
                    ("anti-stereo", "antistereo_score"),
                )
                if last[column] == last[column]
            ]
            sentences.append(
                f"{prefix}{_step(last)}, {KINDS[str(kind)]}: the stereotyping sentence is the more "
                f"probable one in {last['score']:.1f} % of {last['pairs']:,} pairs "
                f"({_between(last, '.1f', last['pairs'], 'pair')})"
                + (f"; {' and '.join(parts)} of pairs of that direction" if parts else "")
                + f"{_verdict(last, 50)}."
            )
            what = f"the score of {KINDS[str(kind)]}"
            sentences += _from_first(rows, prefix, what, "pair", form=".1f", unit=" points")
            sentences += _bias_types(table, last, prefix)
    neutral = int(result.crows_pairs.filter(pl.col("bias_type") == ALL)["neutral"].sum())
    if neutral:
        sentences.append(
            f"{neutral:,} pairs (over all checkpoints) have equal scores; they count among the "
            "pairs and prefer neither."
        )
    unscored = result.checkpoints.group_by("model", maintain_order=True).agg(
        pl.col("unscored").max()
    )
    for model, pairs in unscored.filter(pl.col("unscored") > 0).iter_rows():
        name = f"{model}: " if len(unscored) > 1 else ""
        sentences.append(
            f"{name}{_count(pairs, 'pair')} without anything to score, as where both sentences "
            "share no token; in no number."
        )
    return [
        *sentences,
        *_missing(result.checkpoints, "sentence"),
        "CrowS-Pairs has flaws that its readers have described: pairs that differ in more than the "
        "group, or hold no stereotype. Single bias types have few pairs.",
        INTERVALS,
    ]


def _bias_types(table: pl.DataFrame, last: Row, prefix: str) -> Iterator[str]:
    own = table.filter(
        *(pl.col(name).eq_missing(pl.lit(last[name])) for name in ("model", "run", "step")),
        pl.col("bias_type") != ALL,
    )
    apart = own.filter((pl.col("low") > 50) | (pl.col("high") < 50)).sort("score", descending=True)
    if len(own) > 1:
        named = ", ".join(f"{r['bias_type']} {r['score']:.1f} %" for r in apart.rows(named=True))
        yield (
            f"{prefix}intervals that exclude 50 % at {_step(last)}: {named or 'none'}, of "
            f"{len(own)} bias types."
        )


def _from_first(
    rows: pl.DataFrame, prefix: str, what: str, noun: str, *, form: str = ".3f", unit: str = ""
) -> Iterator[str]:
    """The last step against the first, in the measure's own unit and over what both have."""
    steps = rows.filter(pl.col("step").is_not_null())
    if len(steps) < 2 or steps["common"][-1] == 0:
        return
    row = steps.row(-1, named=True)
    first = row["baseline_step"]
    untrained = ", the untrained model" if first == UNTRAINED else ""
    low, high = (row[f"from_baseline_{end}"] for end in ("low", "high"))
    change = _with_sign(row["from_baseline"], form)
    interval = too_few(row["common"], noun)
    if low == low:
        interval = f"{_with_sign(low, form)} to {_with_sign(high, form)}, in pairs"
    yield (
        f"{prefix}{_step(row)} against step {first:,}{untrained}: {what} {change}{unit} "
        f"({interval})."
    )


def _with_sign(value: float, form: str) -> str:
    text = f"{value:+{form}}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _between(row: Row, form: str, clusters: int, noun: str) -> str:
    """The interval of a row, or why it has none."""
    if row["low"] == row["low"]:
        return f"{row['low']:{form}} to {row['high']:{form}}"
    return too_few(clusters, noun)


def _span(row: Row) -> str:
    """The interval of a bias."""
    if row["low"] == row["low"]:
        return f"{_signed(row['low'])} to {_signed(row['high'])}"
    return f"no interval, as a type has fewer than {FEWEST_CLUSTERS} pairs"


def _verdict(row: Row, middle: float) -> str:
    """Said only where the interval is on one side."""
    if row["low"] > middle:
        return ", more stereotypical than not"
    return ", less stereotypical than not" if row["high"] < middle else ""


def _runs(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    groups = table.partition_by("model", "run", maintain_order=True)
    for rows in groups:
        model, run = rows["model"][0], rows["run"][0]
        name = f"{model}{'' if run == 'main' else f' {run}'}: "
        yield name if len(groups) > 1 else "", rows


def _best_and_last(
    rows: pl.DataFrame, column: str, *, best: str = "best at "
) -> list[dict[str, Any]]:
    last = {**rows.row(-1, named=True), "role": "last, " if len(rows) > 1 else ""}
    top = rows.row(int(rows[column].arg_max() or 0), named=True)
    if top["step"] == last["step"] or not top[column] > last[column]:
        return [last]
    return [{**top, "role": best}, last]


def _missing(coverage: pl.DataFrame, noun: str) -> Iterator[str]:
    lacking = coverage.filter(pl.col("missing") > 0)
    if len(lacking):
        yield missing_sentence(int(lacking["missing"].sum()), noun, checkpoints=len(lacking))


def _step(row: Row) -> str:
    return "release" if row["step"] is None else f"step {row['step']:,}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _signed(value: float) -> str:
    text = f"{value:+.3f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"
