"""What an UnQover result says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.analysis.results.words import Summary, missing_sentences
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.shares import too_few
from logitbank.wording import counted

CAUTIONS = (
    "Names stand for genders, countries for people, and one noun for a religion or ethnicity. A "
    "name is a rough sign of who somebody is, and gender is binary in the data.",
    "Questions are underspecified on purpose, so that any preference is an error. They do not say "
    "how often such questions occur.",
)
"""What the numbers do not say."""
MEANING = (
    "C is a difference of probabilities, from −1 to 1: a subject is favoured for an attribute over "
    "its partner, whatever the order of mention, and more so than for the attribute's negation. 0 "
    "is no preference, or no probability for either."
)
MAXIMUM = (
    "μ takes each subject's greatest |γ(x, a)|, and η the size of each mean sign, so that noise "
    "alone makes them greater than 0, the more the fewer instances there are of a subject and an "
    "attribute; compare them only between the same prompts."
)
INTERVALS = (
    "Brackets hold 95 % intervals. They resample attributes, of μ subjects, and hold for one "
    "checkpoint at a time."
)
SHOWN = 3
LEVEL = 0.05
"""Largest adjusted p value of a preference that is counted."""
FEW = 10
"""Instances of a subject and an attribute, below which their number is told."""
Row = dict[str, Any]


def unqover_summary(result: Unqover) -> Summary:
    """Plain sentences about every model, run and category at its last checkpoint, then cautions."""
    sentences, left_out = [], []
    for (model, run, category), rows in result.unqover.filter(pl.col("split") == ALL).group_by(
        "model", "run", "category", maintain_order=True
    ):
        name = f"{model}{'' if run == 'main' else f' {run}'}, {category}: "
        last = rows.row(-1, named=True)
        of_set = pl.all_horizontal(
            pl.col("model") == model, pl.col("run") == run, pl.col("category") == category,
            pl.col("step").eq_missing(pl.lit(last["step"])),
        )  # fmt: skip
        tables = {key: table.filter(of_set) for key, table in result.tables().items()}
        sentences += [name + text for text in _about(rows, tables, result.settings["topk"])]
        if result.settings["bootstrap"]:
            sentences += [name + text for text in _few(last)]
        left_out += [name + text for text in missing_sentences(rows, "instance")]
    notes = (MEANING, MAXIMUM, *([INTERVALS] if result.settings["bootstrap"] else []))
    return Summary(tuple(sentences), notes, CAUTIONS, tuple(left_out))


def _about(rows: pl.DataFrame, tables: dict[str, pl.DataFrame], topk: Any) -> Iterator[str]:
    last = rows.row(-1, named=True)
    when = _at(rows, last["step"])
    yield (
        f"{when}bias intensity μ {_value(last, 'mu')}, bias by count η {_value(last, 'eta')}, mean "
        f"|C| {_value(last, 'abs_c')}, over {counted(last['instances'], 'instance')} of "
        f"{counted(last['subjects'], 'subject')}, {counted(last['attributes'], 'attribute')} and "
        f"{counted(last['contexts'], 'context')}."
    )
    yield (
        f"{when}positional error {_value(last, 'positional')}, how much an answer changes with the "
        f"order of mention; attributive error {_value(last, 'attributive')}, how far negating the "
        "attribute is from exchanging the subjects."
    )
    yield from _course(rows)
    yield from _subjects(tables["subjects"], when)
    yield from _attributes(tables["attributes"], when)
    yield from _splits(tables["unqover"], when)
    yield _coverage(last, when, topk)
    yield from _sampled(last)


def _few(last: Row) -> Iterator[str]:
    for what, column in (("μ", "subjects"), ("the other measures", "attributes")):
        if last[column] < FEWEST_CLUSTERS:
            yield f"{what}: {too_few(last[column], column[:-1])}."


def _course(rows: pl.DataFrame) -> Iterator[str]:
    known = rows.filter(pl.col("step").is_not_null())
    if len(known) > 1:
        first, last = known.row(0, named=True), known.row(-1, named=True)
        most = known.row(int(known["mu"].arg_max() or 0), named=True)
        yield (
            f"from step {first['step']:,} to step {last['step']:,}, {len(known)} checkpoints: μ "
            f"{_text(first['mu'])} → {_text(last['mu'])}, η {_text(first['eta'])} → "
            f"{_text(last['eta'])}; μ is greatest at step {most['step']:,}, {_text(most['mu'])}."
        )


def _subjects(table: pl.DataFrame, when: str) -> Iterator[str]:
    """The ends of the ranking, and how many are there by more than chance."""
    ranked = table.filter(pl.col("split") == ALL).sort("rank", "subject")
    if len(ranked) < 2:
        return
    shown = min(SHOWN, len(ranked) // 2)
    ends = [
        ", ".join(f"{row['subject']} {_value(row, 'gamma', sign=True)}" for row in part)
        for part in (ranked.head(shown).to_dicts(), ranked.tail(shown).reverse().to_dicts())
    ]
    text = f"{when}most favoured, by γ(x): {ends[0]}; least: {ends[1]}."
    if ranked["p_adjusted"].is_not_nan().any():
        clear = ranked.filter(pl.col("p_adjusted") <= LEVEL)
        text = (
            f"{text[:-1]}; {len(clear):,} of {len(ranked):,} are favoured or disfavoured at p ≤ "
            f"{LEVEL}, adjusted for their number (signs of attributes flipped)."
        )
    yield text


def _attributes(table: pl.DataFrame, when: str) -> Iterator[str]:
    rows_of_all = table.filter(pl.col("split") == ALL)
    if rows_of_all["gamma_female"].null_count() == 0:
        for side, descending in (("female", True), ("male", False)):
            ordered = rows_of_all.sort("gamma_female", "attribute", descending=[descending, False])
            towards = pl.col("gamma_female") * (1 if descending else -1)
            named = ", ".join(
                f"{row['attribute']!r} {_signed(row['towards'])}"
                for row in ordered.with_columns(towards=towards)
                .filter(pl.col("towards") > 0)
                .head(SHOWN)
                .iter_rows(named=True)
            )
            if named:
                yield f"{when}most towards {side} names: {named}."
        return
    ordered = rows_of_all.sort("strength", "attribute", descending=[True, False]).head(SHOWN)
    named = ", ".join(
        f"{row['attribute']!r} {_text(row['strength'])} (most: {row['subject']} "
        f"{_signed(row['gamma'])})"
        for row in ordered.iter_rows(named=True)
    )
    yield f"{when}attributes of greatest strength, mean |γ(x, a)|: {named}."


def _splits(table: pl.DataFrame, when: str) -> Iterator[str]:
    parts = table.filter(pl.col("split") != ALL)
    if len(parts) > 1:
        described = ", ".join(
            f"{row['split']} μ {_value(row, 'mu')} and mean |C| {_value(row, 'abs_c')} "
            f"({counted(row['instances'], 'instance')})"
            for row in parts.iter_rows(named=True)
        )
        yield f"{when}by split: {described}."


def _coverage(row: Row, when: str, topk: Any) -> str:
    text = (
        f"{when}{row['coverage_8']:.1%} of subject slots are among the 8 most probable entries of "
        f"the vocabulary, {row['coverage_10']:.1%} among 10"
    )
    if topk is None:
        return text + "."
    return text + f"; P counts as 0 outside of {topk:,}, where {1 - row['coverage']:.1%} are."


def _sampled(row: Row) -> Iterator[str]:
    full = row["pairs"] * row["attributes"]
    each = 2 * row["instances"] / row["subject_attributes"]
    if row["pair_attributes"] < full or each < FEW:
        pairs = f"{row['pair_attributes']:,} of the" if row["pair_attributes"] < full else "all"
        yield (
            f"{pairs} {full:,} combinations of a pair of subjects and an attribute are there, with "
            f"{each:.1f} instances for each subject and attribute; means are over these."
        )


def _value(row: Row, name: str, *, sign: bool = False) -> str:
    form = _signed if sign else _text
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    value = form(row[name])
    return f"{value} [{form(low)} to {form(high)}]" if low == low else value


def _text(number: float) -> str:
    """Three significant digits, as probabilities may be small."""
    return f"{number:.3f}" if number == 0 or abs(number) >= 0.1 else f"{number:.3g}"


def _signed(number: float) -> str:
    text = _text(abs(number))
    return text if number == 0 else f"{'−' if number < 0 else '+'}{text}"


def _at(rows: pl.DataFrame, step: int | None) -> str:
    if step is None:
        return "of the release, " if len(rows) > 1 else ""
    return f"at step {step:,}, "
