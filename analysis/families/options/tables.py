"""The tables of any prompt set: option probabilities, accuracy, and means of measures.

A prompt is an item, and its value the mean over its option orders. Axis letters: `c` checkpoints,
`o` options of prompts in one order, `p` prompts, `q` positions.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.options import FAMILY, Score
from logitbank.analysis.frames.codes import Codes, Groups, distinct, numbers_among
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.results.curve import change_table, courses_of
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.summary import BASELINE, summarise
from logitbank.errors import UsageError

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
        "high": pl.Float64(), "skewed": pl.Boolean(), "prompts": pl.Int64(),
    }
)  # fmt: skip
CHECKPOINTS = pl.Schema(
    {
        **_KEYS, "prompts": pl.Int64(), "missing": pl.Int64(), "answered": pl.Int64(),
        "full_rows": pl.Boolean(),
    }
)  # fmt: skip
GROUPS = pl.Schema(
    {
        **_KEYS, "score": pl.String(), "option": pl.String(), "group": pl.String(),
        "minus": pl.String(), "value": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "skewed": pl.Boolean(), "prompts": pl.Int64(), "sentences": pl.Int64(),
        "missing": pl.Int64(), **{name: kind() for name, kind in BASELINE.items()},
    }
)  # fmt: skip
OTHERS = "others"
"""The mean of all other groups, from which a group is subtracted if there are more than two."""
MOST_GROUPS = 12
ACCURACY = FAMILY.measures[0]
OPTIONS = 12
"""Different options beyond which only the answer and the others are distinguished."""


class RowValues(NamedTuple):
    """Values of whole rows at the positions of prompts, each (c, q); NaN where nothing is known."""

    prompt_ids: pl.Series
    """(q,)"""
    top: Floats
    """The most probable token."""
    agrees: Floats
    """Whether it is that of the last checkpoint."""
    entropy: Floats
    """Nats."""


class CurveTables(NamedTuple):
    """Rows of `CURVES`, and of `CHECKPOINTS` but `full_rows`."""

    curves: pl.DataFrame
    counts: pl.DataFrame


def curve_tables(scores: PromptScores, rows: RowValues, prompt_set: str) -> CurveTables:
    """Means over prompts that have every score; of a prompt over its positions, or orders.

    Ranks have no interval: that of a mean of such skewed numbers is too short.
    """
    about = prompt_items(scores).unique("item", keep="first", maintain_order=True)
    ids, p = about["item"].to_list(), len(about)
    prompt = scores.options["prompt"]
    of_option = numbers_among(scores.prompts["prompt_id"], ids)[prompt]
    options, positions = Groups(of_option, p), Groups(numbers_among(rows.prompt_ids, ids), p)
    asked = scores.options.hstack(scores.prompts.select("answer", "^score_kind$")[prompt])
    correct = asked.select(pl.arg_where(is_correct(asked.columns))).to_series().to_numpy()
    answers = Groups(of_option[correct], p)
    absent = options.total(np.isnan(scores.logprob)) + positions.total(np.isnan(rows.top))
    totals = {
        "entropy": (positions, rows.entropy),
        "probability": (answers, np.exp(scores.logprob[:, correct])),
        "rank": (answers, token_ranks(scores)[:, correct]),
        "top1_agreement": (positions, rows.agrees),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {name: groups.total(each) / groups.sizes for name, (groups, each) in totals.items()}
    values = {name: np.where(absent > 0, np.nan, each) for name, each in means.items()}
    known = _summary(scores, about, values).select(
        *CHECKPOINT,
        "measure",
        pl.col("value").fill_nan(None),
        "low",
        "high",
        "skewed",
        prompts="items",
    )
    measure = pl.col("measure")
    bounded = known.with_columns(
        low=pl.when(measure != "rank").then(pl.col("low").clip(0)).otherwise(float("nan")),
        high=pl.when(measure == "entropy").then("high")
        .when(measure != "rank").then(pl.col("high").clip(upper_bound=1)).otherwise(float("nan")),
    )  # fmt: skip
    complete = np.count_nonzero(absent == 0, axis=1)
    counts = scores.checkpoints.with_columns(
        prompts=pl.Series(complete), missing=pl.Series(p - complete),
        answered=pl.lit(np.count_nonzero(answers.sizes)),
    )  # fmt: skip
    return CurveTables(as_table(bounded, prompt_set, CURVES), counts)


def is_correct(columns: Collection[str]) -> pl.Expr:
    """Whether an option is the answer, or the target word of a passage, which has no options."""
    correct = pl.col("is_answer").fill_null(False)
    if "score_kind" not in columns:
        return correct
    target = pl.col("answer").is_null() & (pl.col("score_kind") == "target")
    return correct | target.fill_null(False)


def token_ranks(scores: PromptScores) -> Floats:
    """(c, o) ranks of options of one token, NaN for others and without a score."""
    return np.where(scores.rank > 0, scores.middle_rank, np.nan)


def prompt_items(scores: PromptScores) -> pl.DataFrame:
    """The `item` and `cluster` of each prompt and order: prompt_id and sentence_id.

    Prompts of one sentence are one draw, not several. A prompt without a sentence is its own.
    """
    names = [name for name in ("sentence_id", "prompt_id") if name in scores.prompts.columns]
    sentence = pl.coalesce(pl.col(names).cast(pl.String))
    return scores.prompts.select(item="prompt_id", cluster=sentence)


def _summary(
    scores: PromptScores, axes: pl.DataFrame, values: Mapping[str, Floats]
) -> pl.DataFrame:
    """`summarise` of several values (c, p) of the same items, each a measure; without changes."""
    parts = [axes.with_columns(part=pl.lit(name)) for name in values]
    items = array_items(scores.checkpoints, pl.concat(parts), np.hstack([*values.values()]))
    measures = [Measure(name=name, plus=(name,)) for name in values]
    return summarise(items, measures, changes=False)


def as_table(table: pl.DataFrame, prompt_set: str, schema: pl.Schema) -> pl.DataFrame:
    """The columns of a schema."""
    return table.with_columns(prompt_set=pl.lit(prompt_set)).select(schema.names()).cast(schema)


def accuracy_changes(answers: pl.DataFrame) -> pl.DataFrame:
    """The change points of accuracy, for each prompt set, model and run."""
    keys = ["model", "run", "prompt_set"]
    return change_table(courses_of(answers, keys, "accuracy"), keys)


class _Labelled(NamedTuple):
    """Options by what tables call them."""

    options: pl.DataFrame
    """One row per option of `PromptScores`: prompt, option, item, cluster."""
    named: pl.DataFrame
    """The same, options of one name in a prompt and order together."""
    together: Groups
    """Options to rows of `named`."""
    axes: pl.DataFrame
    """Rows of `named`, the orders of a prompt together: option, item, cluster."""
    orders: Groups
    """Rows of `named` to those of `axes`."""


def _labelled(scores: PromptScores) -> _Labelled:
    """Labels of options. Beyond `OPTIONS` of them, all but the answer are one label, so that both
    shares add up to 1."""
    label, prompt = pl.col("option").cast(pl.String), scores.options["prompt"]
    if scores.options["option"].n_unique() > OPTIONS:
        answer = pl.col("is_answer").fill_null(False)
        label = pl.when(answer).then(pl.lit("answer")).otherwise(pl.lit("other"))
    options = scores.options.select("prompt", option=label).hstack(prompt_items(scores)[prompt])
    alike = distinct(options.select("prompt", "option"))
    named = options[alike.rows]
    of_prompts = distinct(named.select("item", "option"))
    axes = named[of_prompts.rows].select("option", "item", "cluster")
    orders = Groups(of_prompts.codes, len(of_prompts.rows))
    return _Labelled(options, named, Groups(alike.codes, len(named)), axes, orders)


def option_items(scores: PromptScores) -> Items:
    """The option probabilities of a few checkpoints, in the part `probability`, by option."""
    _, _, together, axes, orders = _labelled(scores)
    values = orders.mean(together.sum(_shares_of_several(scores)))
    return array_items(scores.checkpoints, axes.with_columns(part=pl.lit("probability")), values)


def share_table(scores: PromptScores, prompt_set: str) -> pl.DataFrame:
    """Rows of `SHARES`: means over prompts, each the mean of its option orders."""
    options, named, together, axes, orders = _labelled(scores)
    unscored = np.isnan(scores.logprob)
    values = {
        "share": together.sum(_shares_of_several(scores)),
        "probability": together.sum(np.exp(scores.logprob)),
        "rank": np.where(
            together.total(~unscored) == 1, together.sum(token_ranks(scores)), np.nan
        ),
    }  # fmt: skip
    summary = _summary(scores, axes, {name: orders.mean(each) for name, each in values.items()})
    share, probability, rank = (summary.filter(measure=name) for name in values)  # of equal rows
    found = share.select(
        *CHECKPOINT, "option", pl.col("low", "high").clip(0, 1), "skewed",
        option_probability="value",
        prompts="items", sentences="clusters", probability=probability["value"],
        rank=rank["value"], scored=probability["items"],
    )  # fmt: skip
    labels = options["option"].unique(maintain_order=True)
    of_label = Groups(numbers_among(named["option"], labels.to_list()), len(labels))
    missing = of_label.total(together.total(unscored) > 0)
    every = scores.checkpoints.join(labels.to_frame(), how="cross", maintain_order="left")
    every = every.with_columns(missing=pl.Series(missing.ravel()))
    on = [*CHECKPOINT, "option"]
    table = every.join(found, on=on, how="left", nulls_equal=True, maintain_order="left")
    return as_table(table.with_columns(pl.col(pl.Float64).fill_nan(None)), prompt_set, SHARES)


def _shares_of_several(scores: PromptScores) -> Floats:
    """(c, o) option probabilities, NaN for the only option of a prompt."""
    several = scores.options["prompt"].is_duplicated().to_numpy()
    return np.where(several, scores.share(), np.nan)


class Answers(NamedTuple):
    """Whether the answer is more probable than every other option, of prompts that have one."""

    items: Items
    """The mean over orders that have a score of each option."""
    tied: Codes
    """(c,) prompts in which the answer shares the largest probability."""
    missing: Codes
    """(c,) prompts, each order counted, without one of their options."""


def read_answers(scores: PromptScores) -> Answers:
    """The answers of a few checkpoints."""
    answer = scores.options["is_answer"].fill_null(False).to_numpy()
    about, share = prompt_items(scores), scores.share()
    options = Groups(scores.options["prompt"].to_numpy(), len(about))
    named, others = (options.total(which[None])[0] > 0 for which in (answer, ~answer))
    asked = np.flatnonzero(named & others)
    best, second = (
        options.greatest(np.where(which, share, -np.inf))[:, asked] for which in (answer, ~answer)
    )
    right = np.where(np.isnan(best), np.nan, best > second)
    ids = distinct(about[asked].select("item"))
    orders = Groups(ids.codes, len(ids.rows))
    items = array_items(scores.checkpoints, about[asked][ids.rows], orders.mean(right))
    unscored = options.total(np.isnan(scores.logprob))[:, asked] > 0
    tied = orders.total(best == second) > 0
    return Answers(items, np.count_nonzero(tied, axis=1), np.count_nonzero(unscored, axis=1))


def answer_measures(answers: Sequence[Answers], prompt_set: str) -> pl.DataFrame:
    """The accuracy of a model and run, from the answers of its checkpoints."""
    table = summarise(gather_items(part.items for part in answers), [ACCURACY])
    return table.insert_column(3, pl.lit(prompt_set).alias("prompt_set"))


def answer_table(
    measures: pl.DataFrame, answers: Sequence[Answers], prompt_set: str
) -> pl.DataFrame:
    """Rows of `ANSWERS`, from the rows of `answer_measures`, which are those of the answers."""
    if measures.is_empty():
        return pl.DataFrame(schema=ANSWERS)
    table = measures.select(
        *CHECKPOINT, "low", "high", accuracy="value", prompts="items", sentences="clusters",
        tied=np.concatenate([part.tied for part in answers]),
        missing=np.concatenate([part.missing for part in answers]),
    )  # fmt: skip
    return as_table(table.with_columns(pl.col(pl.Float64).fill_nan(None)), prompt_set, ANSWERS)


def group_items(scores: PromptScores, answers: Items, column: str) -> Items:
    """Accuracy and option probabilities of a few checkpoints; parts are the values of a column.

    The score and the option are groups. Prompts without a value of the column have no item.
    """
    values = scores.prompts.select(item=pl.col("prompt_id"), part=pl.col(column).cast(pl.String))
    values = values.unique("item", keep="first", maintain_order=True)
    parts = []
    for name, items in (
        ("accuracy", answers), ("option_probability", option_items(scores)),
    ):  # fmt: skip
        axes = items.axes.drop("part").join(values, on="item", how="left", maintain_order="left")
        option = pl.col("option") if "option" in axes.columns else pl.lit("")
        axes = axes.with_columns(score=pl.lit(name), option=option)
        known = axes["part"].is_not_null().arg_true().to_numpy()
        parts.append((axes[known], items.values[:, known], items.checkpoints))
    axes = pl.concat([part.select(sorted(part.columns)) for part, _, _ in parts])
    return array_items(parts[0][2], axes, np.hstack([values for _, values, _ in parts]))


def group_table(items: Items, prompt_set: str, column: str) -> pl.DataFrame:
    """Rows of `GROUPS`: the value of each group, and its difference from the other or the others.

    Raises
    ------
    UsageError
        The column has one value, or more than `MOST_GROUPS`.
    """
    names = sorted(items.axes["part"].unique())
    if not 1 < len(names) <= MOST_GROUPS:
        raise UsageError(
            f"--group-by: {column!r} of {prompt_set} has {len(names):,} values. Groups are 2 to "
            f"{MOST_GROUPS}."
        )
    pairs: list[tuple[str, str, tuple[str, ...]]] = [(name, "", ()) for name in names]
    if len(names) == 2:
        pairs.append((names[0], names[1], (names[1],)))
    else:
        pairs += [(name, OTHERS, tuple({*names} - {name})) for name in names]
    about = pl.DataFrame(
        [(str(at), group, minus) for at, (group, minus, _) in enumerate(pairs)],
        schema=["measure", "group", "minus"], orient="row",
    )  # fmt: skip
    tables = []
    for score in items.axes["score"].unique().sort():
        measures = [
            Measure(name=str(at), plus=(group,), minus=others, share=score == "accuracy")
            for at, (group, _, others) in enumerate(pairs)
        ]
        table = summarise(items.only(score=score), measures)
        tables.append(table.join(about, on="measure", maintain_order="left"))
    whole = pl.concat(tables).rename({"items": "prompts", "clusters": "sentences"})
    return as_table(whole, prompt_set, GROUPS)


def divided(scores: PromptScores, score: Score) -> PromptScores:
    """Log-probabilities per token or character, for the scores that divide by these."""
    text = pl.col("continuation").str.strip_chars_start()
    units = {
        "token": pl.col("pieces"), "character": text.str.len_chars()
    }  # fmt: skip
    if score not in units:
        return scores
    sizes = scores.options.select(units[score].cast(pl.Int64).clip(lower_bound=1)).to_series()
    return replace(scores, logprob=scores.logprob / sizes.to_numpy())
