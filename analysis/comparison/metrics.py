"""Differences of metrics and prompts between two sides, over the scores in both."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.family import families
from logitbank.analysis.frames.banks import PromptColumns
from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.expected import expected_token_counts
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.results.runs import read_runs, run_difference, shared_steps
from logitbank.store import Bank
from logitbank.store.steps import in_order

CELLS = ("model", "run", "step", "prompt_id", "order_seed", "piece", "option")
CHECKPOINT_SCHEMA = {"model": pl.String, "run": pl.String, "step": pl.Int64}
METRICS = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("prompts", "metric", "group"), pl.String),
    **dict.fromkeys(("a", "b", "difference"), pl.Float64),
}
PROMPTS = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("prompts", "prompt_id"), pl.String),
    "order_seed": pl.Int64,
    **dict.fromkeys(("text", "option", "measure"), pl.String),
    **dict.fromkeys(("a", "b", "difference"), pl.Float64),
}


class Side(NamedTuple):
    """A bank and the models that are compared, with their names in A."""

    bank: Bank
    models: Mapping[str, str]

    def own_name(self, name: str) -> str:
        """The name in this bank of a model of A."""
        return next(own for own, other in self.models.items() if other == name)

    def renamed(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows of these models, under their names in A."""
        model = pl.col("model").cast(pl.String)
        return frame.filter(model.is_in(list(self.models))).with_columns(
            model=model.replace(self.models)
        )


def metric_differences(
    sides: Sequence[Side], prompts: str, checkpoints: pl.DataFrame
) -> pl.DataFrame:
    """Metrics of the families for a prompt set; no rows without any.

    `checkpoints` has model, run and step of those to compare.
    """
    measures = [
        family.compared
        for family in families().values()
        if family.compared
        and all(family.prompts(PromptColumns([side.bank], [prompts])) for side in sides)
    ]
    if not measures:
        return pl.DataFrame(schema=METRICS)
    scans: list[tuple[pl.LazyFrame, ...]] = []
    for pair in _scans(sides, prompts, checkpoints["step"].unique().to_list()):
        present = [
            frame.join(checkpoints.lazy(), on=[*CHECKPOINT_SCHEMA], how="semi", nulls_equal=True)
            for frame in pair
        ]
        common = tuple(
            frame.join(other.select(CELLS), on=list(CELLS), how="semi", nulls_equal=True)
            for frame, other in zip(present, reversed(present), strict=True)
        )
        if common[0].select(pl.len()).collect().item():
            scans.append(common)
    if not scans:
        return pl.DataFrame(schema=METRICS)
    one, other = ([pair[side] for pair in scans] for side in (0, 1))
    # A prompt is excluded if one of the banks has it in part.
    expected = [
        side.renamed(expected_token_counts([side.bank], prompts).lazy()).collect() for side in sides
    ]
    return pl.concat(
        _joined(measure(one, expected[0]), measure(other, expected[1]), prompts)
        for measure in measures
    )


def run_differences(
    sides: Sequence[Side], prompts: str, steps: Collection[int | None] | None
) -> list[dict[str, Any]]:
    """The headlines of a prompt set at the last step for which both sides have several runs.

    Those of the families of the prompts, or of `options`; `steps` are those to compare.
    """
    chosen = [
        family
        for family in families().values()
        if family.headline
        and all(family.prompts(PromptColumns([side.bank], [prompts])) for side in sides)
    ]
    one, other = (
        [
            (side.models[model], step)
            for model, step in shared_steps([side.bank], prompts)
            if model in side.models and (steps is None or step in steps)
        ]
        for side in sides
    )
    last = dict(place for place in one if place in other)
    rows = []
    for family in chosen or [families()["options"]]:
        for model, step in last.items():
            a, b = (
                read_runs(family, [side.bank], prompts, side.own_name(model), step)
                for side in sides
            )
            row = run_difference(a, b) if a and b else None
            rows += [row | {"model": model}] if row else []
    return rows


def _joined(one: pl.DataFrame, other: pl.DataFrame, prompts: str) -> pl.DataFrame:
    if one.is_empty() or other.is_empty():
        return pl.DataFrame(schema=METRICS)
    keys = [*CHECKPOINT_SCHEMA, "metric", "group"]
    joined = one.join(other, on=keys, suffix="_b", nulls_equal=True, maintain_order="left")
    table = joined.with_columns(
        prompts=pl.lit(prompts),
        a="value",
        b="value_b",
        difference=pl.col("value_b") - pl.col("value"),
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in METRICS.items())


def _scans(
    sides: Sequence[Side], prompts: str, steps: Collection[int | None]
) -> Iterator[tuple[pl.LazyFrame, ...]]:
    """Scans of both sides at the same steps, a few steps at a time."""
    common = set(steps)
    size = 1
    for side in sides:
        counts = dict(side.bank.prompts(prompts).group_by("query_set").len().collect().iter_rows())
        size = max(size, *counts.values())
        common &= {d.checkpoint.step for d in side.bank.deposits() if d.query_set in counts}
    ordered = in_order(common)
    at_once = max(ROWS // size, 1)
    for start in range(0, len(ordered), at_once):
        chunk = ordered[start : start + at_once]
        yield tuple(side.renamed(side.bank.scan(prompts, steps=chunk)) for side in sides)


def prompt_differences(
    sides: Sequence[Side], prompts: str, checkpoints: pl.DataFrame, top: int
) -> pl.DataFrame:
    """The `top` prompts with the largest difference, at the last common checkpoint of each run.

    Each with the option whose probability differs most: normalized over the options, unless no
    prompt has two.
    """
    parts = [pl.DataFrame(schema=PROMPTS)]
    scored = [
        {
            (side.models.get(d.checkpoint.model), d.checkpoint.run, d.checkpoint.step)
            for d in side.bank.deposits(prompts=prompts)
        }
        for side in sides
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
    (scores,) = prompt_scores(side.bank, prompts, models=name, runs=run, steps=[step])
    texts = scores.prompts.select("prompt_id", "order_seed", "text")
    rows = prompt_rows(scores).join(
        texts, on=["prompt_id", "order_seed"], nulls_equal=True, maintain_order="left"
    )
    measure = "option_probability" if scores.measure == "share" else "probability"
    return rows.with_columns(model=pl.lit(model), measure=pl.lit(measure), a=pl.col(scores.measure))
