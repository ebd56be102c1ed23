"""GEST: with which sentences does a model quote a man, and with which a woman.

Frames in, frames out. Scores are in nats; those that the authors released are in log10.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.families.gest import ALL, FAMILY, MEASURES, NAMES
from logitbank.analysis.families.gest.tables import (
    LN10,
    items,
    last_sentences,
    rates,
    stereotypes,
)
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers, read_table
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    concat_sorted,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import measures_table
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

COLUMNS = ("sentence_id", "stereotype_id", "template", "version", "score_kind")
VERSIONS = ("male", "female")
SCORES = {
    "model": pl.String, "run": pl.String, "step": pl.Int64, "template": pl.Int8,
    "language": pl.String, "sentence_id": pl.Int32, "stereotype_id": pl.Int8, "score": pl.Float64,
}  # fmt: skip
"""One row per checkpoint, template, language and sentence; the score in nats. The language is null
if there is one."""


@dataclass(frozen=True, slots=True)
class Gest(Result):
    """Results of `gest_metric`. A score is ln P(male version) − ln P(female version), in nats.

    `published` is the quantity of the paper's tables: the exponential, with base e, of the same
    mean of log10 scores. `template` is numbered as there, or `all`: the mean over templates.
    """

    measures: pl.DataFrame
    """Every measure of the family, as `summarise` returns them."""
    rates: pl.DataFrame
    """Per checkpoint, template and part: of `female` and `male` stereotypes the mean of their
    scores; `rate` is male minus female, and its `published` value is the stereotype rate g_s. With
    intervals (95 %) over sentences. `from_baseline` is the difference from the first checkpoint of
    the run, `baseline_step`, paired over the `common` sentences. With several languages, also per
    `language`, and for `all` of them."""
    stereotypes: pl.DataFrame
    """The same for each stereotype, its number and name."""
    sentences: pl.DataFrame
    """Every sentence at the last checkpoint of each run: its score in nats, and in log10."""
    checkpoints: pl.DataFrame
    """Versions of sentences (`prompts`) that are there with all their pieces, and how many are
    missing."""
    settings: Mapping[str, str | int | float | bool | None]


def gest_metric(scores: Scores | None = None, *, files: pl.DataFrame | None = None) -> Gest:
    """Scores of sentences, their means by stereotype, and the stereotype rate.

    A version's log-probability is the sum over the tokens of its last word (causal models), or the
    mean over its masked tokens. A sentence without one of its versions is in no number.

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
        As `Scores.map_prompts`; an unknown version or stereotype; a sentence with two scores; no
        sentence with both versions.

    References
    ----------
    Pikuliak et al. 2024, arXiv 2311.18711, and its published code, which computes log10 and
    exponentiates means with base e. Not in the paper: nats, `all`, intervals of rates, paired
    differences; its intervals of stereotypes are bootstraps. Several languages: the mean over all
    sentences, with those of one English sentence as a cluster.
    """
    parts, coverage = [], []
    if files is not None:
        counts = {"prompts": (2 * pl.len()).cast(pl.Int64), "missing": pl.lit(0, pl.Int64)}
        parts.append(files)
        coverage.append(files.group_by(CHECKPOINT).agg(**counts))
    if scores is not None:
        if files is not None and "language" in _columns(scores):
            raise UsageError(
                "Score files are of English sentences, and the prompts are of several languages. "
                "Analyse them one after the other."
            )
        found = scores.map_prompts(
            lambda sums: (_scores(sums), sums.coverage), *_columns(scores), family=FAMILY.name
        )
        parts += [of_frame for of_frame, _ in found]
        coverage += [of_frame for _, of_frame in found]
    sentences = gather_items(map(items, parts))
    if np.isnan(sentences.values).all():
        raise BankError("No sentence has scores of both versions. Extract the rest first.")
    summary = measures_table(sentences, MEASURES, within=["template"])
    return Gest(
        measures=summary,
        rates=rates(summary),
        stereotypes=stereotypes(summary),
        sentences=last_sentences(sentences),
        checkpoints=concat_sorted(coverage),
        settings={"intervals": "t, sentences stratified by stereotype, 95 %"},
    )


def read_items(source: Scores) -> Items:
    """The mean over templates of each sentence."""
    found = source.map_prompts(
        lambda sums: items(_scores(sums)).filter(template=ALL),
        *_columns(source), family=FAMILY.name,
    )  # fmt: skip
    return gather_items(part.drop("template") for part in found)


def _columns(source: Scores) -> tuple[str, ...]:
    """The columns that are read; with that of the language if there are several."""
    several = "language" in source.columns and len(source.expected_rows(["language"]).unique(
        "language")) > 1  # fmt: skip
    return (*COLUMNS, *["language"] * several)


def _scores(prompts: PromptSums) -> pl.DataFrame:
    """The scores of sentences as `SCORES`; null without one of both versions."""
    rows = prompts.all_rows
    for name, valid in (("version", VERSIONS), ("stereotype_id", range(1, len(NAMES) + 1))):
        invalid = rows.filter(~pl.col(name).is_in(list(valid)).fill_null(False))
        _refuse(invalid, f"{{{name}}} is an invalid {name}")
    mean = pl.when(pl.col("score_kind") == "masked").then(pl.col("pieces")).otherwise(1)
    key = [name for name in SCORES if name != "score"]
    if "language" not in rows.columns:
        rows = rows.with_columns(language=pl.lit(None, pl.String))
    logprobs = rows.with_columns(pl.col("logprob") / mean)
    male, female = (logprobs.filter(version=v).select(*key, "logprob") for v in VERSIONS)
    both = male.join(
        female, on=key, how="full", coalesce=True, nulls_equal=True, suffix="_female",
        maintain_order="left_right",
    )  # fmt: skip
    scores = both.with_columns(score=pl.col("logprob") - pl.col("logprob_female"))
    return scores.select(pl.col(name).cast(dtype) for name, dtype in SCORES.items())


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
    return pl.DataFrame(columns, schema=SCORES)
