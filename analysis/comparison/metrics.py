"""Differences of metrics and prompts between two sides, over the scores in both."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.families import families
from logitbank.analysis.family import Family
from logitbank.analysis.frames.banks import PromptColumns
from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.items import Items, common_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.results.last_items import read_items
from logitbank.analysis.results.runs import (
    RunScores,
    SeedRuns,
    last_steps,
    run_difference,
    seeds_by_step,
)
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import ALL, difference_table
from logitbank.store import Bank
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import Step

METRICS = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("prompts", "family", "metric", "group"), pl.String),
    **dict.fromkeys(("a", "b", "difference", "low", "high"), pl.Float64),
    "items": pl.Int64,
}
PROMPTS = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("prompts", "prompt_id"), pl.String),
    "order_seed": pl.Int64,
    **dict.fromkeys(("text", "option", "measure"), pl.String),
    **dict.fromkeys(("a", "b", "difference"), pl.Float64),
}


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """Tables of `compare`, documented in docs/metrics.md; models have their names in A."""

    logits: pl.DataFrame
    """One row for each checkpoint and query set with rows in both."""
    metrics: pl.DataFrame
    """Metrics of A and B over the scores in both, and their difference."""
    prompts: pl.DataFrame
    """The prompts whose options differ most at the last compared checkpoint of each run."""
    only: pl.DataFrame
    """Checkpoints and query sets with rows that only one side has."""
    unmeasured: tuple[str, ...] = ()
    """Prompt sets of both sides without a row in `metrics`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of models and runs in A, and those in B where they differ."""


class Side(NamedTuple):
    """A bank, and the models and runs that are compared, with their names in A."""

    bank: Bank
    models: Mapping[str, str]
    runs: Mapping[str, str] = {}
    """Empty if all runs are compared, under their own names."""

    def place(self, checkpoint: CheckpointId) -> tuple[str, str, Step] | None:
        """Model and run of a checkpoint in A, and its step; None if it is not compared."""
        model, run = checkpoint.model, checkpoint.run
        if model not in self.models or (self.runs and run not in self.runs):
            return None
        return self.models[model], self.runs.get(run, run), checkpoint.step

    def has_results(self, prompts: str) -> bool:
        """Whether what is compared has results of a prompt set."""
        return any(self.place(d.checkpoint) for d in self.bank.deposits(prompts=prompts))

    def own_run(self, name: str) -> str:
        """The name in this bank of a run of A."""
        return next((own for own, other in self.runs.items() if other == name), name)

    def own_name(self, name: str) -> str:
        """The name in this bank of a model of A."""
        return next(own for own, other in self.models.items() if other == name)


def metric_differences(
    sides: Sequence[Side], prompts: str, checkpoints: pl.DataFrame
) -> pl.DataFrame:
    """Measures of the families for a prompt set, over the items of both; no rows without any.

    `checkpoints` has model, run and step of those to compare.
    """
    parts = [pl.DataFrame(schema=METRICS)]
    for family in measuring_families(sides, prompts) if len(checkpoints) else ():
        try:
            a, b = (_items(family, side, prompts, checkpoints) for side in sides)
        except NoRowsError:  # no such checkpoint has a score of these prompts
            continue
        parts.append(_measured(family, *common_items(a, b), prompts))
    return pl.concat(parts)


def measuring_families(sides: Sequence[Side], prompts: str) -> list[Family]:
    """The families with measures of a prompt set in both banks; else `options`."""
    chosen = [
        family
        for family in families().values()
        if family.items
        and all(family.prompts(PromptColumns([side.bank], [prompts])) for side in sides)
    ]
    return chosen or [families()["options"]]


def _items(family: Family, side: Side, prompts: str, checkpoints: pl.DataFrame) -> Items:
    """The items of a family at the checkpoints to compare, under the names of models in A."""
    assert family.items is not None
    steps = checkpoints["step"].unique().to_list()
    models = [own for own, name in side.models.items() if name in checkpoints["model"]]
    items = family.items(Scores([side.bank], (prompts,), models, steps=steps))
    if side.runs:
        items = items.at(items.checkpoints["run"].is_in(list(side.runs)).arg_true().to_numpy())
    return items.renamed(side.models, side.runs).among(checkpoints)


def _measured(family: Family, a: Items, b: Items, prompts: str) -> pl.DataFrame:
    """Rows of `METRICS` from the same items at the same checkpoints.

    The common analysis, which a family without settings has, also measures all groups together.
    """
    tables = [difference_table(a, b, family.measures)]
    if a.groups and not family.settings() and ALL not in a.axes[a.groups[0]]:
        one, other = (side.pooled(*side.groups) for side in (a, b))
        tables.insert(0, difference_table(one, other, family.measures))
    rows = pl.concat(tables, how="diagonal").filter(pl.col("a").is_not_nan())
    rows = rows.sort(CHECKPOINT, nulls_last=True, maintain_order=True)
    names = {measure.key: measure.name for measure in family.measures}
    groups = {measure.key: measure.group for measure in family.measures}
    parts = [pl.col("measure").replace_strict(groups, return_dtype=pl.String), *a.groups]
    group = pl.concat_str(parts, separator=", ", ignore_nulls=True)
    table = rows.with_columns(
        prompts=pl.lit(prompts), family=pl.lit(family.name),
        metric=pl.col("measure").replace(names),
        group=group.str.strip_chars(", "),
    )  # fmt: skip
    return table.select(pl.col(name).cast(dtype) for name, dtype in METRICS.items())


def run_differences(
    sides: Sequence[Side], prompts: str, steps: Collection[int | None] | None
) -> list[dict[str, Any]]:
    """The headlines of a prompt set at the last step for which both sides have several runs.

    Those of the families of the prompts, or of `options`; `steps` are those to compare.
    """
    one, other = (
        {
            (seeds._replace(model=side.models[seeds.model]), step): runs
            for (seeds, step), runs in seeds_by_step([side.bank], prompts).items()
            if seeds.model in side.models and (steps is None or step in steps)
        }
        for side in sides
    )
    last = last_steps(place for place in one if place in other)
    rows = []
    for family in measuring_families(sides, prompts):
        for seeds, step in last:
            a, b = (
                _run_scores(family, side, prompts, SeedRuns(seeds, step, runs[seeds, step]))
                for side, runs in zip(sides, (one, other), strict=True)
            )
            row = run_difference(a, b) if a and b else None
            rows += [row] if row else []
    return rows


def _run_scores(family: Family, side: Side, prompts: str, averaged: SeedRuns) -> RunScores | None:
    """The scores of runs of a side, under the name of their model in A."""
    model = side.own_name(averaged.seeds.model)
    scores = Scores([side.bank], (prompts,), [model], runs=averaged.runs)
    items = read_items(family, scores, {prompts: [averaged.step]})
    own = [each.renamed(side.models, {}) for each in items.values()]
    return averaged.scores(family, own[0], prompts) if own else None


def prompt_differences(
    sides: Sequence[Side], prompts: str, checkpoints: pl.DataFrame, top: int
) -> pl.DataFrame:
    """The `top` prompts with the largest difference, at the last common checkpoint of each run.

    Each with the option whose probability differs most: normalized over the options, unless no
    prompt has two.
    """
    parts = [pl.DataFrame(schema=PROMPTS)]
    scored = [
        {side.place(d.checkpoint) for d in side.bank.deposits(prompts=prompts)} for side in sides
    ]
    last = {
        checkpoint[:2]: checkpoint
        for checkpoint in checkpoints.iter_rows()
        if all(checkpoint in side for side in scored)
    }
    for checkpoint in last.values():
        one, other = (_probabilities(side, prompts, *checkpoint) for side in sides)
        key = ["prompt_id", "order_seed", "option"]
        both = one.join(other.select(*key, b="a"), on=key, nulls_equal=True, maintain_order="left")
        both = both.with_columns(difference=pl.col("b") - pl.col("a")).drop_nulls("difference")
        size = pl.col("difference").abs()
        largest = (
            both.filter(size > 0)
            .sort(size, descending=True, maintain_order=True)
            .unique(key[:2], keep="first", maintain_order=True)
            .head(top)
        )
        named = largest.with_columns(pl.lit(prompts).alias("prompts"))
        parts.append(named.select(pl.col(name).cast(dtype) for name, dtype in PROMPTS.items()))
    return pl.concat(parts)


def _probabilities(
    side: Side, prompts: str, model: str, run: str, step: int | None
) -> pl.DataFrame:
    """The options of one checkpoint, under its name in A, with their probability as `a`."""
    name = side.own_name(model)
    own_run = side.own_run(run)
    (scores,) = prompt_scores(side.bank, prompts, models=name, runs=own_run, steps=[step])
    texts = scores.prompts.select("prompt_id", "order_seed", "text")
    rows = prompt_rows(scores).join(
        texts, on=["prompt_id", "order_seed"], nulls_equal=True, maintain_order="left"
    )
    measure = "option_probability" if scores.measure == "share" else "probability"
    names = {"model": pl.lit(model), "run": pl.lit(run)}
    return rows.with_columns(**names, measure=pl.lit(measure), a=pl.col(scores.measure))
