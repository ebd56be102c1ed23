"""The tables of GEST: items, measures, and names of its stereotypes."""

import numpy as np
import polars as pl

from logitbank.analysis.families.gest import ABOUT_WOMEN, ALL, NAMES
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.summary import BASELINE, last_of_runs

KEYS = [*CHECKPOINT, "template"]
LANGUAGE = "^language$"
"""A column of tables about several languages, in which `all` is all of them together."""
FEMALE, MALE, RATE = "female", "male", "rate"
"""Stereotypes about women, stereotypes about men, and the mean of `male` minus that of `female`."""
LN10 = float(np.log(10))


def items(scores: pl.DataFrame) -> pl.DataFrame:
    """Sentences by template, and the mean over templates of sentences that have every one.

    `scores` has model, run, step, template, language, sentence_id, stereotype_id and score, which
    is null for a sentence without one. In a file of languages, a sentence with grammatical gender
    has template 1 alone, and any other one the others.
    """
    of_language = pl.col("language").is_not_null() & (pl.col("template") == 1)
    templates = pl.col("template").n_unique().over("model", "language", of_language)
    score = pl.col("score")
    sentence = ["language", "sentence_id", "stereotype_id"]
    means = (
        scores.with_columns(templates=templates)
        .group_by(*CHECKPOINT, *sentence, maintain_order=True)
        .agg(score.mean(), whole=(score.count() == pl.col("templates").first()))
    )
    means = means.select(
        *CHECKPOINT, *sentence, score=pl.when("whole").then("score"), template=pl.lit(ALL)
    )
    both = pl.concat(
        [scores.select(pl.col(name).cast(dtype) for name, dtype in means.schema.items()), means]
    )
    several = ["language"] if both["language"].count() else []
    return both.select(
        *KEYS, *several, part=pl.col("stereotype_id").cast(pl.String), item="sentence_id",
        value="score",
    )  # fmt: skip


def of_all(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of all languages together."""
    return table.filter(language=ALL) if "language" in table.columns else table


def of_each(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of single languages; none if there is one."""
    several = "language" in table.columns
    return table.filter(pl.col("language") != ALL) if several else table.clear()


def tidy(summary: pl.DataFrame) -> pl.DataFrame:
    """Rows of `summarise` with the columns of the tables, with the published quantity."""
    published = {
        f"published{end}": (pl.col(name) / LN10).exp()
        for end, name in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    template = pl.col("template").cast(pl.Int64, strict=False)
    return (
        summary.filter(pl.col("value").is_not_nan())
        .sort(*CHECKPOINT, template, nulls_last=[*[True] * 3, False], maintain_order=True)
        .select(
            *KEYS, LANGUAGE, "measure", "low", "high", *BASELINE, score="value",
            sentences="items", **published,
        )
    )  # fmt: skip


COLUMNS = (
    "score", "low", "high", "published", "published_low", "published_high", "sentences", *BASELINE,
)  # fmt: skip


def rates(summary: pl.DataFrame) -> pl.DataFrame:
    """The measures `FEMALE`, `MALE` and `RATE`."""
    of_sides = summary.filter(pl.col("measure").is_in([FEMALE, MALE, RATE]))
    ordered = tidy(of_sides.sort("measure", maintain_order=True))
    return ordered.select(*KEYS, LANGUAGE, pl.col("measure").alias("part"), *COLUMNS)


def stereotypes(summary: pl.DataFrame) -> pl.DataFrame:
    """The measures of single stereotypes."""
    number = pl.col("measure").cast(pl.Int64, strict=False)
    single = tidy(summary.filter(number.is_not_null())).with_columns(stereotype_id=number)
    return named(single).select(*KEYS, LANGUAGE, "stereotype_id", "stereotype", side(), *COLUMNS)


def side() -> pl.Expr:
    """Whether a stereotype is about women or about men."""
    women = pl.col("stereotype_id") <= ABOUT_WOMEN
    return pl.when(women).then(pl.lit(FEMALE)).otherwise(pl.lit(MALE)).alias("part")


def last_sentences(items: Items) -> pl.DataFrame:
    """Every sentence at the last checkpoint of each run."""
    rows = named(
        items.rows(last_of_runs(items)).with_columns(
            sentence_id=pl.col("item").cast(pl.Int64), stereotype_id=pl.col("part").cast(pl.Int64)
        )
    )
    template = pl.col("template").cast(pl.Int64, strict=False)
    ordered = rows.sort(*CHECKPOINT, template, "sentence_id", nulls_last=[*[True] * 3, False, True])
    return ordered.select(
        *KEYS, LANGUAGE, "sentence_id", "stereotype_id", "stereotype", score="value",
        log10=pl.col("value") / LN10,
    )  # fmt: skip


def named(table: pl.DataFrame) -> pl.DataFrame:
    """A table with the names of its stereotypes."""
    names = pl.col("stereotype_id").replace_strict(
        range(1, len(NAMES) + 1), NAMES, return_dtype=pl.String
    )
    return table.with_columns(stereotype=names)
