"""The tables of any prompt set: option probabilities, accuracy, and means of measures.

Options are compared by sums, means, or first tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.options import Score
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.results.curve import Course, change_table
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.neighbours import js_divergences, misplaced
from logitbank.analysis.stats.shares import (
    clustered_error,
    with_t_interval,
)
from logitbank.analysis.stats.summary import summarise

Row = dict[str, object]
_KEYS = {"model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String()}
SHARES = pl.Schema(
    {
        **_KEYS, "option": pl.String(), "prompts": pl.Int64(), "sentences": pl.Int64(),
        "option_probability": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "probability": pl.Float64(), "rank": pl.Float64(), "scored": pl.Int64(),
        "missing": pl.Int64(),
    }
)  # fmt: skip
ANSWERS = pl.Schema(
    {
        **_KEYS, "prompts": pl.Int64(), "sentences": pl.Int64(), "accuracy": pl.Float64(),
        "low": pl.Float64(), "high": pl.Float64(), "tied": pl.Int64(), "missing": pl.Int64(),
    }
)  # fmt: skip
CURVES = pl.Schema(
    {
        **_KEYS, "measure": pl.String(), "value": pl.Float64(), "low": pl.Float64(),
        "high": pl.Float64(), "prompts": pl.Int64(),
    }
)  # fmt: skip
CHECKPOINTS = pl.Schema(
    {
        **_KEYS, "prompts": pl.Int64(), "missing": pl.Int64(), "answered": pl.Int64(),
        "full_rows": pl.Boolean(),
    }
)  # fmt: skip
NEIGHBOURS = pl.Schema(
    {
        **_KEYS, "basis": pl.String(), "compared": pl.Int64(), "previous": pl.Float64(),
        "next": pl.Float64(), "nearest_step": pl.Int64(), "nearest": pl.Float64(),
        "misplaced": pl.Boolean(),
    }
)  # fmt: skip
BOUNDS: dict[str, tuple[float, float | None]] = {
    "entropy": (0, None),
    "probability": (0, 1),
    "rank": (1, None),
    "top1_agreement": (0, 1),
}
"""The measures, and between which values each lies."""
ROWS = 100_000
"""Tidy rows at once: they are wide, and 400,000 took 100 MB more, and as long."""
COMPARED_PROMPTS = 1_000
"""Most prompts whose option probabilities are compared between checkpoints: with all 15,840 of
WinoBias, the pairs of 154 checkpoints take sixteen times as long."""
OPTIONS = 12
"""Different options beyond which only the answer and the others are distinguished."""


def measure_means(prompts: pl.DataFrame, head: Mapping[str, object]) -> list[dict[str, object]]:
    """One row per measure: value, how many prompts have one, and its error between sentences."""
    rows = []
    for measure in BOUNDS:
        values = prompts.select(
            pl.lit(measure).alias("measure"), "sentence", value=pl.col(measure).cast(pl.Float64)
        ).drop_nulls("value")
        # In the order of their size, so that sums do not depend on that of a group-by.
        values = values.sort("value", "sentence")
        errors = clustered_error(values, ["measure"], "value", cluster="sentence")
        error = errors.row(0, named=True) if len(errors) else {}
        mean = values["value"].mean()
        rows.append({**head, "measure": measure, **error, "value": mean, "prompts": len(values)})
    return rows


def with_intervals(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of `measure_means` as `CURVES`: each with a 95 % interval within its bounds.

    Ranks have none: that of a mean of such skewed numbers is too short.
    """
    table = pl.DataFrame(rows, {**CURVES, "clusters": pl.Int64(), "stderr": pl.Float64()})
    least, most = (
        pl.col("measure").replace_strict(
            {measure: bounds[side] for measure, bounds in BOUNDS.items()}, return_dtype=pl.Float64
        )
        for side in (0, 1)
    )
    known = with_t_interval(table, "value", bounds=(None, None))
    end = pl.col("low", "high").clip(least, most).fill_null(float("nan"))
    return known.with_columns(
        pl.when(pl.col("measure") == "rank").then(float("nan")).otherwise(end).name.keep()
    ).select(CURVES.names())


def accuracy_changes(answers: pl.DataFrame) -> pl.DataFrame:
    """The change points of accuracy, for each prompt set, model and run."""
    keys = ["model", "run", "prompt_set"]
    steps = answers.drop_nulls(["step", "accuracy"])
    courses = (
        Course(
            dict(zip(keys, map(str, key), strict=True)),
            rows["step"].to_list(),
            rows["accuracy"].to_numpy(),
            np.empty((0, len(rows))),
        )
        for key, rows in steps.group_by(keys, maintain_order=True)
    )
    return change_table(courses, keys)


def evenly_spaced(total: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of `total` items, the first and the last among them.

    >>> evenly_spaced(9, 3).tolist(), evenly_spaced(2, 3).tolist()
    ([0, 4, 8], [0, 1])
    """
    return np.unique(np.linspace(0, total - 1, min(most, total)).astype(np.int64))


class Compared(NamedTuple):
    """Option probabilities of a few checkpoints that are compared with others."""

    steps: Sequence[int | None]
    shares: Floats
    """(c, o), of prompts with several options."""
    prompts: int


def compared_shares(scores: PromptScores) -> Compared:
    """Option probabilities of evenly spaced prompts, each option order counted."""
    prompt = scores.options["prompt"].to_numpy()
    several = np.flatnonzero(np.bincount(prompt) > 1)
    chosen = several[evenly_spaced(len(several), COMPARED_PROMPTS)]
    return Compared(scores.steps, scores.share()[:, np.isin(prompt, chosen)], len(chosen))


def neighbours_by_options(
    model: str, run: str, prompt_set: str, parts: Sequence[Compared]
) -> pl.DataFrame:
    """Rows of `NEIGHBOURS` of a run, from the option probabilities of all its checkpoints.

    A checkpoint that lacks one of the compared prompts has none, and neither has a run without
    prompts of several options.
    """
    prompts = parts[0].prompts
    shares = np.concatenate([part.shares for part in parts])
    complete = ~np.isnan(shares).any(axis=1) & (prompts > 0)
    steps = [step for part in parts for step in part.steps]
    head = {"model": model, "run": run, "prompt_set": prompt_set, "basis": "options"}
    return neighbour_rows(
        head | {"compared": prompts},
        [step for step, whole in zip(steps, complete, strict=True) if whole],
        js_divergences(shares[complete]) / max(prompts, 1),
    )


def neighbour_rows(
    head: Mapping[str, object], steps: Sequence[int | None], divergences: Floats
) -> pl.DataFrame:
    """Rows of `NEIGHBOURS` for the checkpoints of a run, from their divergences (c, c).

    `head` has the other columns. A single checkpoint has no rows.
    """
    if len(steps) < 2:
        return pl.DataFrame(schema=NEIGHBOURS)
    others = divergences + np.diag(np.full(len(steps), np.inf))
    successive = np.diagonal(divergences, offset=1).tolist()
    number = pl.Series(steps, dtype=pl.Int64)
    wrong = misplaced(divergences)
    return pl.DataFrame(
        {
            "step": number,
            "previous": [None, *successive],
            "next": [*successive, None],
            "nearest_step": number.gather(others.argmin(axis=1)),
            "nearest": others.min(axis=1),
            "misplaced": np.isin(np.arange(len(steps)), wrong),
        }
    ).select(
        pl.col(name) if name not in head else pl.lit(head[name]).cast(dtype).alias(name)
        for name, dtype in NEIGHBOURS.items()
    )


class Shares(NamedTuple):
    """Rows of the tables `shares` and `answers` of `OptionScores`."""

    shares: pl.DataFrame
    answers: pl.DataFrame


def option_shares(each: Iterable[PromptScores], prompt_set: str) -> Iterator[Shares]:
    """Shares and answers of a few checkpoints at a time."""
    for scores in each:
        labelled = scores.options["option"].n_unique() <= OPTIONS
        for part in _parts(scores):
            rows = _rows(part)
            yield Shares(
                _with_prompt_set(_shares(rows, labelled=labelled), prompt_set, SHARES),
                _with_prompt_set(_answers(rows), prompt_set, ANSWERS),
            )


def _with_prompt_set(table: pl.DataFrame, prompt_set: str, schema: pl.Schema) -> pl.DataFrame:
    return table.with_columns(prompt_set=pl.lit(prompt_set)).select(schema.names()).cast(schema)


def _parts(scores: PromptScores) -> Iterator[PromptScores]:
    """A few checkpoints at a time, as their tidy rows are wide."""
    at_once = max(1, ROWS // max(1, scores.logprob.shape[1]))
    for first in range(0, len(scores.steps), at_once):
        part = slice(first, first + at_once)
        yield replace(
            scores, steps=scores.steps[part], logprob=scores.logprob[part], rank=scores.rank[part],
            ties=None if scores.ties is None else scores.ties[part],
        )  # fmt: skip


def _rows(scores: PromptScores) -> pl.DataFrame:
    """Tidy rows, each with its `sentence`; the only option of a prompt has no share of several.

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
        rank=pl.when(pl.col("rank").is_not_null()).then(pl.Series(scores.middle_rank.ravel())),
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
        pl.col("share", "probability", "rank").mean(),
        prompts=pl.col("share").count(),
        scored=pl.len(),
    )
    errors = clustered_error(prompts, key, "share", cluster="sentence")
    shares = shares.join(errors, on=key, how="left", nulls_equal=True, maintain_order="left")
    table = with_t_interval(_joined(missing, shares, key), "share", bounds=(0, 1))
    return table.rename({"clusters": "sentences", "share": "option_probability"})


def _joined(missing: pl.DataFrame, values: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """With a row where nothing was found: of no prompts, and null."""
    every = missing.join(values, on=key, how="left", nulls_equal=True, maintain_order="left")
    return every.with_columns(pl.col("^prompts|clusters|scored$").fill_null(0))


def answer_items(each: Iterable[PromptScores]) -> Iterator[pl.DataFrame]:
    """The prompts with an answer, of a few checkpoints at a time, as items."""
    for scores in each:
        for part in _parts(scores):
            rows = _rows(part)
            asked = _asked(rows).filter("asked")
            about = asked.select(*CHECKPOINT, "prompt_id", "sentence").unique()
            on = [*CHECKPOINT, "prompt_id", "sentence"]
            found = about.join(_answered(rows), on=on, how="left", nulls_equal=True)
            yield found.select(*CHECKPOINT, item="prompt_id", cluster="sentence", value="right")


def _answered(rows: pl.DataFrame) -> pl.DataFrame:
    """By checkpoint and prompt: `right`, the mean over orders that are scored, and `tied`."""
    share, answer = pl.col("share"), pl.col("is_answer").fill_null(False)
    answered = rows.drop_nulls("share").group_by(
        *CHECKPOINT, "prompt_id", "order_seed", "sentence", maintain_order=True
    ).agg(own=share.filter(answer).max(), other=share.filter(~answer).max())  # fmt: skip
    answered = answered.drop_nulls(["own", "other"])
    p_answer, other = pl.col("own"), pl.col("other")
    return answered.group_by(*CHECKPOINT, "prompt_id", "sentence", maintain_order=True).agg(
        right=(p_answer > other).mean(), tied=(p_answer == other).any()
    )


def _answers(rows: pl.DataFrame) -> pl.DataFrame:
    missing, prompts = _without_an_option(rows), _answered(rows)
    items = prompts.select(*CHECKPOINT, item="prompt_id", cluster="sentence", value="right")
    summary = summarise(gather_items([items]), [Measure(name="accuracy", share=True)]).select(
        *CHECKPOINT, pl.col("low", "high").fill_nan(None), accuracy="value", prompts="items",
        clusters="clusters",
    )  # fmt: skip
    tied = prompts.group_by(CHECKPOINT, maintain_order=True).agg(pl.col("tied").sum())
    accuracy = tied.join(summary, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
    table = _joined(missing, accuracy, [*CHECKPOINT])
    return table.with_columns(pl.col("tied").fill_null(0), sentences="clusters")


def _asked(rows: pl.DataFrame) -> pl.DataFrame:
    """By prompt and order: whether it was `asked` for an answer among others, and `unscored`."""
    answer = pl.col("is_answer").fill_null(False)
    return rows.group_by(
        *CHECKPOINT, "prompt_id", "order_seed", "sentence", maintain_order=True
    ).agg(asked=answer.any() & (~answer).any(), unscored=pl.col("probability").is_null().any())


def _without_an_option(rows: pl.DataFrame) -> pl.DataFrame:
    """By checkpoint that was asked for answers: `missing`, the prompts without a score of each."""
    return (
        _asked(rows)
        .filter("asked")
        .group_by(CHECKPOINT, maintain_order=True)
        .agg(missing=pl.col("unscored").sum())
    )


def divided(scores: PromptScores, score: Score) -> PromptScores:
    """Log-probabilities per token, byte or character, for the scores that divide by these."""
    text = pl.col("continuation").str.strip_chars_start()
    units = {
        "token": pl.col("pieces"), "byte": text.str.len_bytes(), "character": text.str.len_chars()
    }  # fmt: skip
    if score not in units:
        return scores
    sizes = scores.options.select(units[score].cast(pl.Int64).clip(lower_bound=1)).to_series()
    return replace(scores, logprob=scores.logprob / sizes.to_numpy())
