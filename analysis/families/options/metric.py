"""Any prompt set: how much of the probability each option has, and how often the answer wins.

For prompts of one's own, which no family of metrics knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.families.options.conditions import without_condition
from logitbank.analysis.families.options.score import (
    MEANINGS,
    SHARE_OF_SCORES,
    Score,
    compared,
)
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.words import Summary, by_run
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.shares import (
    clustered_error,
    effective_count,
    too_few,
    with_t_interval,
    with_wilson,
)
from logitbank.wording import counted

SHARES = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "option": pl.String(),
        "prompts": pl.Int64(), "sentences": pl.Int64(),
        "share": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "probability": pl.Float64(), "rank": pl.Float64(), "missing": pl.Int64(),
    }
)  # fmt: skip
ANSWERS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompts": pl.Int64(),
        "sentences": pl.Int64(), "accuracy": pl.Float64(), "low": pl.Float64(),
        "high": pl.Float64(), "tied": pl.Int64(), "missing": pl.Int64(),
    }
)  # fmt: skip
ROWS = 100_000
"""Tidy rows at once: they are wide, and 400,000 took 100 MB more, and as long."""
OPTIONS = 12
"""Different options beyond which they are told apart only as answer and other, all together."""
INTERVALS = (
    "Intervals (95 %) are over prompts, those of one sentence_id together, and hold for one "
    "checkpoint at a time; none allows for the number of checkpoints looked at."
)


@dataclass(frozen=True, slots=True)
class OptionScores(Result):
    """What `option_scores` found: tidy tables. `low` and `high` are 95 % intervals over
    `sentences`: prompts of one `sentence_id` are one, and others are their own."""

    shares: pl.DataFrame
    """model, run, step, option, prompts, sentences, share, low, high, probability (mean), rank
    (mean; null where an option has several tokens); missing, the prompts of the set, each option
    order counted, whose option is not scored, by this checkpoint or by any."""
    answers: pl.DataFrame
    """model, run, step, prompts, sentences, accuracy (the answer has a larger share than every
    other option), low, high, tied (prompts in which it shares the largest); missing, as above,
    those without one of their options; no rows without answers."""
    score: Score = "sum"
    """What options are compared by."""
    unconditional: int = 0
    """Prompts, each option order counted, that have no condition where one is needed; they are
    among the missing."""

    @property
    def exp_name(self) -> str:
        """What exp of a score is: a probability, of sums and first tokens."""
        return "probability" if self.score in ("sum", "first") else "exp of the score"


def option_scores(each: Iterable[PromptScores], *, score: Score = "sum") -> OptionScores:
    """Mean share of every option, and accuracy, at each checkpoint.

    A prompt counts once: its option orders are put together first. Prompts of a single option have
    no shares, and are counted by probability alone. Prompts that only others need, as their
    condition, are left out.

    Parameters
    ----------
    each
        As `prompt_scores` gives them, with `first_piece` where the score is of the first.
    score
        What options are compared by, as `Score` says.

    Raises
    ------
    UsageError
        The score is `pmi`, and no prompt has a condition.

    References
    ----------
    The scores of lm-evaluation-harness: `acc` compares sums, `acc_norm` divides by characters, and
    `acc_bytes` by bytes; `acc_mutual_info` is PMI whose condition is an empty text. Conditions of
    one's own, as "Answer:": Holtzman et al. 2021 (EMNLP, "Surface Form Competition"). Ours: ties
    for the largest count as wrong, and are told.
    """
    shares, answers = [pl.DataFrame(schema=SHARES)], [pl.DataFrame(schema=ANSWERS)]
    unconditional = 0
    for whole in each:
        scores = compared(whole, score)
        if score == "pmi":
            unconditional = max(unconditional, without_condition(scores))
        labelled = scores.options["option"].n_unique() <= OPTIONS
        for part in _parts(scores):
            rows = _rows(part)
            shares.append(_shares(rows, labelled=labelled))
            answers.append(_answers(rows))
    return OptionScores(pl.concat(shares), pl.concat(answers), score, unconditional)


def option_summary(result: OptionScores) -> Summary:
    """What the first and the last checkpoint of every model and run say, then how to read it."""
    left_out = tuple(_missing_said(result))
    if result.unconditional:
        left_out += (
            f"{counted(result.unconditional, 'prompt')} without a condition, among the missing.",
        )
    meaning = (MEANINGS[result.score], *[SHARE_OF_SCORES] * (result.score != "sum"))
    findings = (*_shares_said(result), *_answers_said(result))
    return Summary(findings, (*meaning, INTERVALS), left_out=left_out)


def _parts(scores: PromptScores) -> Iterator[PromptScores]:
    """A few checkpoints at a time, as their tidy rows are wide."""
    at_once = max(1, ROWS // max(1, scores.logprob.shape[1]))
    for first in range(0, len(scores.steps), at_once):
        part = slice(first, first + at_once)
        yield replace(
            scores, steps=scores.steps[part], logprob=scores.logprob[part], rank=scores.rank[part]
        )


def _rows(scores: PromptScores) -> pl.DataFrame:
    """Tidy rows, each with its `sentence`; the one option of a prompt has no share.

    Prompts of one `sentence_id` are one draw, not several: the sentence is what is resampled. A
    prompt without one is its own.
    """
    prompt = scores.options["prompt"].to_numpy()
    several = (np.bincount(prompt)[prompt] > 1) if len(prompt) else np.zeros(0, dtype=bool)
    names = [name for name in ("sentence_id", "prompt_id") if name in scores.prompts.columns]
    sentence = scores.prompts.select(pl.coalesce(pl.col(names).cast(pl.String))).to_series()
    tile = np.tile(np.arange(len(prompt)), len(scores.steps))
    return prompt_rows(scores).with_columns(
        share=pl.when(pl.Series(several, dtype=pl.Boolean)[tile]).then(pl.col("share")),
        sentence=sentence[prompt][tile],
    )


def _shares(rows: pl.DataFrame, *, labelled: bool) -> pl.DataFrame:
    answer = pl.when("is_answer").then(pl.lit("answer")).otherwise(pl.lit("other"))
    option = pl.col("option").cast(pl.String) if labelled else answer
    rows = rows.with_columns(option=option)
    prompt, unscored = pl.struct("prompt_id", "order_seed"), pl.col("probability").is_null()
    missing = rows.group_by(*CHECKPOINT, "option", maintain_order=True).agg(
        missing=prompt.filter(unscored).n_unique()
    )
    each = rows.drop_nulls("probability")
    if not labelled:  # the others of a prompt together, so that both shares add up to 1
        rank = pl.when(pl.len() == 1).then(pl.col("rank").first())
        if_any = pl.when(pl.col("share").count() > 0).then(pl.col("share").sum())
        each = each.group_by(
            *CHECKPOINT, "option", "prompt_id", "order_seed", "sentence", maintain_order=True
        ).agg(share=if_any, probability=pl.col("probability").sum(), rank=rank)
    key = [*CHECKPOINT, "option"]
    prompts = each.group_by(*key, "prompt_id", "sentence", maintain_order=True).agg(
        pl.col("share", "probability", "rank").mean()
    )
    shares = prompts.group_by(key, maintain_order=True).agg(
        pl.len().alias("prompts"), pl.col("share", "probability", "rank").mean()
    )
    errors = clustered_error(prompts, key, "share", cluster="sentence")
    shares = shares.join(errors, on=key, how="left", nulls_equal=True, maintain_order="left")
    table = with_t_interval(_joined(missing, shares, key), "share", bounds=(0, 1))
    table = table.rename({"clusters": "sentences"})
    return table.select(SHARES.names()).cast(SHARES)


def _joined(missing: pl.DataFrame, values: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """With a row where nothing was found: of no prompts, and null."""
    every = missing.join(values, on=key, how="left", nulls_equal=True, maintain_order="left")
    return every.with_columns(pl.col("prompts", "clusters").fill_null(0))


def _answers(rows: pl.DataFrame) -> pl.DataFrame:
    share, answer = pl.col("share"), pl.col("is_answer").fill_null(False)
    answered = rows.drop_nulls("share").group_by(
        *CHECKPOINT, "prompt_id", "order_seed", "sentence", maintain_order=True
    ).agg(own=share.filter(answer).max(), other=share.filter(~answer).max())  # fmt: skip
    answered = answered.drop_nulls(["own", "other"])
    missing = _without_an_option(rows, answer)
    p_answer, other = pl.col("own"), pl.col("other")
    prompts = answered.group_by(*CHECKPOINT, "prompt_id", "sentence", maintain_order=True).agg(
        right=(p_answer > other).mean(), tied=(p_answer == other).any()
    )
    accuracy = prompts.group_by(CHECKPOINT, maintain_order=True).agg(
        prompts=pl.len(), accuracy=pl.col("right").mean(), tied=pl.col("tied").sum()
    )
    errors = clustered_error(prompts, CHECKPOINT, "right", cluster="sentence")
    accuracy = accuracy.join(errors, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
    accuracy = accuracy.with_columns(worth=effective_count("accuracy", "prompts"))
    table = with_wilson(_joined(missing, accuracy, [*CHECKPOINT]), "accuracy", "worth")
    bounds = pl.col("low", "high").fill_nan(None)
    counted = table.with_columns(bounds, pl.col("tied").fill_null(0), sentences="clusters")
    return counted.select(ANSWERS.names()).cast(ANSWERS)


def _without_an_option(rows: pl.DataFrame, answer: pl.Expr) -> pl.DataFrame:
    """By checkpoint that was asked for answers: `missing`, the prompts without a score of each."""
    prompts = rows.group_by(*CHECKPOINT, "prompt_id", "order_seed", maintain_order=True).agg(
        asked=answer.any() & (~answer).any(), unscored=pl.col("probability").is_null().any()
    )
    return (
        prompts.filter("asked")
        .group_by(CHECKPOINT, maintain_order=True)
        .agg(missing=pl.col("unscored").sum())
    )


def _shares_said(result: OptionScores) -> Iterator[str]:
    shared = result.shares["share"].is_not_null().any()
    what = "share" if shared else "probability"
    name = what if shared else result.exp_name
    for prefix, rows in by_run(result.shares.drop_nulls(what)):
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
    for prefix, rows in by_run(result.answers.drop_nulls("accuracy")):
        first, last = rows.row(0, named=True), rows.row(-1, named=True)
        earlier = f", and in {first['accuracy']:.1%}{_of(first, last)} at {_step(first['step'])}"
        yield (
            f"{prefix}the answer has the largest share in {last['accuracy']:.1%} of "
            f"{_prompts(last)} at {_step(last['step'])}"
            f"{_interval(last, '.1%')}{earlier if len(rows) > 1 else ''}."
        )


def _missing_said(result: OptionScores) -> Iterator[str]:
    most = result.shares.group_by(CHECKPOINT, maintain_order=True).agg(pl.col("missing").max())
    incomplete = most.filter(pl.col("missing") > 0)
    if len(incomplete):
        yield missing_sentence(
            int(incomplete["missing"].sum()), "prompt", checkpoints=len(incomplete)
        )


def _of(first: dict[str, Any], last: dict[str, Any]) -> str:
    return "" if first["prompts"] == last["prompts"] else f" of {_prompts(first)}"


def _prompts(row: dict[str, Any]) -> str:
    return f"{row['prompts']:,} prompt{'' if row['prompts'] == 1 else 's'}"


def _step(step: int | None) -> str:
    return "the release" if step is None else f"step {step:,}"
