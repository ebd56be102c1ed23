"""GEST: with which sentences does a model quote a man, and with which a woman.

Frames in, frames out. Scores are in nats; those that the authors released are in log10.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.families.gest import (
    ALL,
    FAMILY,
    LN10,
    NAMES,
    PUBLISHED_SCORES,
    PUBLISHED_SIDES,
    SCORES,
)
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers, read_table
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA, PromptSums
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, of_items
from logitbank.analysis.stats.summary import last_of_runs
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name

COLUMNS = ("sentence_id", "stereotype_id", "template", "version", "score_kind")
VERSIONS = ("male", "female")
SENTENCES = {
    **CHECKPOINT_SCHEMA, "template": pl.Int8, "language": pl.String,
    "sentence_id": pl.Int32, "stereotype_id": pl.Int8, "score": pl.Float64,
}  # fmt: skip
"""One row per checkpoint, template, language and sentence; the score in nats. The language is null
if there is one."""


def measure(scores: Scores | None = None, files: pl.DataFrame | None = None) -> Measured:
    """The measures of each template and of their mean, and the table `sentences`.

    Raises
    ------
    UsageError, BankError
        What `template_items` refuses.
    """
    items = template_items(scores, files)
    further = (*PUBLISHED_SIDES, *SCORES, *PUBLISHED_SCORES)
    tables = {"sentences": last_sentences(items)}
    return of_items(FAMILY, items, tables, further=further, within=["template"])


def template_items(scores: Scores | None = None, files: pl.DataFrame | None = None) -> Items:
    """The score of each sentence in each template, and the mean over templates (`all`), in nats.

    A score is ln P(male version) − ln P(female version). A version's log-probability is the sum
    over the tokens of its last word (causal models), or the mean over its masked tokens. A sentence
    without one of its versions has no value. Parts are the numbers of stereotypes; groups are the
    template, and the language if there are several.

    Parameters
    ----------
    scores
        Of a prompt set such as `gest`, with the columns sentence_id, stereotype_id, template,
        version and score_kind.
    files
        Scores of `read_score_files`.

    Raises
    ------
    UsageError, BankError
        As `Scores.map_prompts`; an unknown version or stereotype; a sentence with two scores.

    References
    ----------
    Pikuliak et al. 2024, arXiv 2311.18711, and its published code, which computes log10 and
    exponentiates means with base e. Not in the paper: nats, `all`, intervals of rates, paired
    differences; its intervals of stereotypes are bootstraps. Several languages: the mean over all
    sentences, with those of one English sentence as a cluster.
    """
    parts = [] if files is None else [files]
    if scores is not None:
        if files is not None and "language" in _columns(scores):
            raise UsageError(
                "Score files are of English sentences, and the prompts are of several languages. "
                "Analyse them one after the other."
            )
        parts += scores.map_prompts(_scores, *_columns(scores), family=FAMILY.name)
    return gather_items(map(_items, parts))


def read_items(source: Scores) -> Items:
    """The mean over templates of each sentence."""
    items = template_items(source).only(template=ALL)
    return items.pooled("template")


def _items(scores: pl.DataFrame) -> pl.DataFrame:
    """Sentences by template, and the mean over templates of sentences that have every one.

    `scores` are `SENTENCES`. In a file of languages, a sentence with grammatical gender has
    template 1 alone, and any other one the others.
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
        *CHECKPOINT, "template", *several, part=pl.col("stereotype_id").cast(pl.String),
        item="sentence_id", value="score",
    )  # fmt: skip


def last_sentences(items: Items) -> pl.DataFrame:
    """Every sentence at the last checkpoint of each run: its score in nats, and in log10."""
    numbers = {"sentence_id": "item", "stereotype_id": "part"}
    rows = items.rows(last_of_runs(items)).with_columns(
        pl.col(column).cast(pl.Int64).alias(name) for name, column in numbers.items()
    )
    order = [*CHECKPOINT, pl.col("template").cast(pl.Int64, strict=False), "sentence_id"]
    return rows.sort(order, nulls_last=[*[True] * 3, False, True]).select(
        *CHECKPOINT, *items.groups, "sentence_id", "stereotype_id",
        stereotype=pl.col("stereotype_id").replace_strict(
            range(1, len(NAMES) + 1), NAMES, return_dtype=pl.String
        ),
        score="value", log10=pl.col("value") / LN10,
    )  # fmt: skip


def _columns(source: Scores) -> tuple[str, ...]:
    """The columns that are read; with that of the language if there are several."""
    several = "language" in source.columns and len(source.expected_rows(["language"]).unique(
        "language")) > 1  # fmt: skip
    return (*COLUMNS, *["language"] * several)


def _scores(prompts: PromptSums) -> pl.DataFrame:
    """The scores of sentences as `SENTENCES`; null without one of both versions."""
    rows = prompts.all_rows
    for name, valid in (("version", VERSIONS), ("stereotype_id", range(1, len(NAMES) + 1))):
        invalid = rows.filter(~pl.col(name).is_in(list(valid)).fill_null(False))
        _refuse(invalid, f"{{{name}}} is an invalid {name}")
    mean = pl.when(pl.col("score_kind") == "masked").then(pl.col("pieces")).otherwise(1)
    key = [name for name in SENTENCES if name != "score"]
    if "language" not in rows.columns:
        rows = rows.with_columns(language=pl.lit(None, pl.String))
    logprobs = rows.with_columns(pl.col("logprob") / mean)
    male, female = (logprobs.filter(version=v).select(*key, "logprob") for v in VERSIONS)
    both = male.join(
        female, on=key, how="full", coalesce=True, nulls_equal=True, suffix="_female",
        maintain_order="left_right",
    )  # fmt: skip
    scores = both.with_columns(score=pl.col("logprob") - pl.col("logprob_female"))
    return scores.select(pl.col(name).cast(dtype) for name, dtype in SENTENCES.items())


def _refuse(invalid: pl.DataFrame, problem: str) -> None:
    if len(invalid):
        row = invalid.row(0, named=True)
        raise UsageError(
            f"{checkpoint_name(row)}: {problem.format(**row)} ({len(invalid):,} such rows)."
        )


def read_score_files(predictions: Sequence[str], gold: str | None) -> pl.DataFrame | None:
    """Scores of released files, one line a sentence, in nats; None without files.

    The template is the number at the end of the file's name, which is counted from 0 there.

    Raises
    ------
    UsageError
        Files without `gold` or the reverse; a file that does not exist, has a name without a
        template, other than one finite number a line, or another number of lines than `gold`.
    """
    if (gold is None) != (not predictions):
        raise UsageError("--predictions and --gold go together. Use GEST's gest.csv as gold.")
    if gold is None:
        return None
    table = read_table(Path(gold))
    if "stereotype" not in table.columns:
        raise UsageError(f"{gold} has no column stereotype. Use GEST's gest.csv.")
    stereotypes = parse_integers(table["stereotype"])
    if not stereotypes.is_between(1, len(NAMES)).fill_null(False).all():
        raise UsageError(f"{gold} has a stereotype that is not 1 to {len(NAMES)}.")
    return pl.concat(_read_score_file(text, stereotypes) for text in predictions)


def _read_score_file(text: str, stereotypes: pl.Series) -> pl.DataFrame:
    name, equals, rest = text.partition("=")
    is_named = bool(equals) and not Path(text).exists()
    path = Path(rest if is_named else text)
    match = re.fullmatch(r"(.+)_template-(\d)", path.stem)
    if match is None:
        raise UsageError(f"{path} names no template. Name it MODEL_template-0.txt, and so on.")
    try:
        lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read score file {path}: {error}.") from error
    log10 = parse_numbers(pl.Series("score", lines))
    if len(log10) != len(stereotypes) or not log10.is_finite().fill_null(False).all():
        raise UsageError(
            f"{path} needs one finite number for each of the {len(stereotypes):,} sentences, and "
            f"has {log10.is_finite().sum():,} in {len(log10):,} lines."
        )
    columns = {
        "model": name if is_named else match[1], "run": "main", "step": None,
        "template": int(match[2]) + 1, "language": None, "sentence_id": range(len(log10)),
        "stereotype_id": stereotypes, "score": log10 * LN10,
    }  # fmt: skip
    return pl.DataFrame(columns, schema=SENTENCES)
