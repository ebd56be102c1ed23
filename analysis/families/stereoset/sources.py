"""Where StereoSet's candidates come from: banks, and prediction files with a gold file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.families.stereoset.files import (
    concat_candidates,
    model_of,
    read_predictions,
)
from logitbank.analysis.families.stereoset.gold import read_gold
from logitbank.analysis.families.stereoset.scores import CANDIDATES, KEYS, Rule, as_candidates
from logitbank.analysis.family import beginning
from logitbank.analysis.frames.apart import own_names
from logitbank.analysis.frames.sources import no_prompts
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank
from logitbank.store.tables.prompt_tables import query_sets_of

PROMPTS = beginning("stereoset")
AT_ONCE = 8
"""Checkpoints read together: half a million pieces of the inter-sentence set."""


def bank_candidates(
    bank: Bank,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    steps: Sequence[int | None] | None = None,
    rules: Sequence[Rule] = ("reference",),
) -> pl.DataFrame:
    """Candidates of the StereoSet prompt sets of a bank, in one table; see `candidate_batches`."""
    batches = candidate_batches(bank, prompts=prompts, models=models, steps=steps, rules=rules)
    return concat_candidates(list(batches))


def candidate_batches(
    bank: Bank,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    steps: Sequence[int | None] | None = None,
    rules: Sequence[Rule] = ("reference",),
) -> Iterator[pl.DataFrame]:
    """Candidates of a few checkpoints at a time, of all their StereoSet prompt sets.

    What a prompt set has and a checkpoint that began it lacks is there with null as its value.

    Parameters
    ----------
    bank
        Opened.
    prompts
        Names of prompt sets; all whose names begin with `stereoset` if None.
    models, steps
        Only these; there may be none.
    rules
        As for `as_candidates`.

    Raises
    ------
    BankError
        The bank has no such prompt set, or none has been scored.
    UsageError
        A prompt set that is not one of StereoSet's.
    """
    names, info = _prompt_sets(bank, prompts), bank.info()
    checkpoints = {}
    for name in names:
        sets = query_sets_of(bank.prompts(name))
        checkpoints[name] = info.filter(pl.col("query_set").is_in(list(sets)))
    together = pl.concat(checkpoints.values())
    if together.is_empty():
        raise BankError(
            f"{bank.address} has no deposit of {', '.join(names)} yet; run `logitbank extract`"
        )
    for model, run, chunk in _batches(together, models, steps):
        parts = []
        for name, of_set in checkpoints.items():
            scored = of_set.filter((pl.col("model") == model) & (pl.col("run") == run))["step"]
            if some := [step for step in chunk if step in scored.to_list()]:
                table = bank.prompts(name)
                scan = bank.scan(name, models=model, runs=run, steps=some)
                candidates = as_candidates(scan, rules, prompts=table)
                parts.append(_with_missing(candidates, table, rules))
        yield concat_candidates(parts)


def _prompt_sets(bank: Bank, prompts: Sequence[str] | None) -> list[str]:
    available = bank.prompt_sets
    names = own_names(PROMPTS, [bank]) if prompts is None else list(prompts)
    absent = [name for name in names if name not in available]
    if absent or not names:
        what = repr(absent[0]) if absent else "of StereoSet"
        raise AbsentError(no_prompts([bank], what, make="stereoset-intra"))
    return names


def _batches(
    checkpoints: pl.DataFrame, models: Sequence[str] | None, steps: Sequence[int | None] | None
) -> Iterator[tuple[str, str, list[int | None]]]:
    for (model, run), rows in checkpoints.group_by("model", "run", maintain_order=True):
        if models is None or model in models:
            of_run = rows["step"].unique(maintain_order=True).to_list()
            chosen = [step for step in of_run if steps is None or step in steps]
            for at in range(0, len(chosen), AT_ONCE):
                yield str(model), str(run), chosen[at : at + AT_ONCE]


def _with_missing(
    candidates: pl.DataFrame, table: pl.LazyFrame, rules: Sequence[Rule]
) -> pl.DataFrame:
    """With a row for every candidate of a language and condition that a checkpoint began."""
    made = {"model": "", "run": "", "run_seed": None, "step": None, "logprob": 0.0}
    ids = ("prompt_id", "piece", "language", "condition", "score_kind")
    known = set(table.collect_schema().names())
    prompts = table.unique([name for name in ids if name in known])
    blank = prompts.drop(made.keys(), strict=False).with_columns(
        pl.lit(value).alias(name) for name, value in made.items()
    )
    everything = as_candidates(blank, rules[:1], prompts=table)
    group = ["language", "condition", "score_kind"]
    begun = candidates.group_by(*KEYS, "score_kind").len()
    whole = everything.group_by(group).len(name="whole")
    short = begun.join(whole, on=group).filter(pl.col("len") < pl.col("whole"))
    if short.is_empty():
        return candidates
    on = [*KEYS, "score_kind", "candidate"]
    wanted = short.select(*KEYS, "score_kind").join(
        everything.drop("model", "run", "run_seed", "step", "score", "value"), on=group
    )
    absent = wanted.join(candidates.select(on), on=on, how="anti", nulls_equal=True)
    filled = absent.with_columns(value=pl.lit(None, pl.Float64))
    return pl.concat([candidates, filled.select(CANDIDATES.names())])


def file_candidates(predictions: Sequence[str], gold: Path | None) -> list[pl.DataFrame]:
    """Candidates of prediction files, each given as a path or NAME=PATH.

    Raises
    ------
    UsageError
        No gold file, or one without predictions; two files of one name; what `read_gold` and
        `read_predictions` refuse.
    """
    if gold is None:
        if predictions:
            raise UsageError(
                "predictions are scored against a gold file; give it with --gold, such as "
                "StereoSet's dev.json"
            )
        return []
    if not predictions:
        raise UsageError(f"the gold file {gold} is for prediction files; give --predictions")
    named = [_named(text) for text in predictions]
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two prediction files are called {twice[0]!r}; name them NAME=PATH")
    wanted = read_gold(gold)
    return [read_predictions(path, wanted, model=name) for name, path in named]


def _named(text: str) -> tuple[str, Path]:
    """
    >>> _named("bert=out/p.json")[0], _named("out/p.json")[0]
    ('bert', 'p')
    """
    name, equals, rest = text.partition("=")
    if equals and name and rest and not Path(text).exists():
        return name, Path(rest)
    return model_of(Path(text)), Path(text)
