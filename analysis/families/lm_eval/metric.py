"""Tasks of lm-evaluation-harness: its own results at every checkpoint, and changes over documents.

The harness evaluates each checkpoint with a model that answers from the bank.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from logitbank.analysis.families.lm_eval import FAMILY
from logitbank.analysis.families.lm_eval.tables import (
    MAIN,
    item_rows,
    result_rows,
    results_table,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    concat_sorted,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError
from logitbank.store.steps import Step

if TYPE_CHECKING:
    from logitbank.harness import Tasks

SETTINGS = ("lm_eval", "task", "task_version", "task_config", "num_fewshot", "fewshot_seed")
"""Columns that describe the requests of a prompt set, each with one value."""
NAMED = 4
"""Tasks in a note."""
Place = tuple[str, str, Step]
"""Model, run and step."""


@dataclass(frozen=True, slots=True)
class LmEval(Result):
    """Results of `lm_eval_metric`; step is null for a release."""

    lm_eval: pl.DataFrame
    """One row per checkpoint × task × filter × metric: `value` and `stderr` of the harness (null
    without one), `documents`, `chance` (null if unknown), `is_main` (the first metric of a task or
    group). For means, also the 95 % interval over documents, and the change from the first
    checkpoint, in pairs over the `common` documents. A group has its name as task."""
    checkpoints: pl.DataFrame
    """Answered requests and missing ones, by task. A task with a missing request is excluded at
    that checkpoint."""
    settings: Mapping[str, str | int | float | bool | None]
    changed: tuple[str, ...] = ()
    """Notes about tasks whose configuration differs from that at extraction."""


class Evaluated(NamedTuple):
    """All results, from one evaluation of each checkpoint."""

    rows: pl.DataFrame
    """As `result_rows`."""
    items: Items
    coverage: pl.DataFrame
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The prompt set of one task: answers to its requests at every checkpoint."""

    name: str
    """Without `lm-eval:`."""
    settings: Mapping[str, Any]
    coverage: pl.DataFrame
    """As `PromptSums.coverage`."""
    sums: Mapping[Place, pl.DataFrame] = field(repr=False)
    """Columns text, target, logprob and correct, at the checkpoints that answer all requests."""

    @property
    def task(self) -> str:
        return str(self.settings["task"])


def lm_eval_metric(
    scores: Scores,
    *,
    include: str | None = None,
    bootstrap: int = 1000,
    save_results: str | None = None,
) -> LmEval:
    """Tasks of lm-evaluation-harness at every checkpoint, processed by the harness itself.

    Parameters
    ----------
    scores
        `read_scores(bank, ["lm-eval:arc_easy"])`.
    include, bootstrap, save_results
        As for `logitbank.lm_eval`.

    Raises
    ------
    MissingExtraError, UsageError, BankError
        As `logitbank.lm_eval`.

    References
    ----------
    lm-evaluation-harness 0.4: values, standard errors, groups. Not in the harness: intervals, and
    changes over documents.
    """
    found = read_results(scores, include=include, bootstrap=bootstrap, save_results=save_results)
    return LmEval(
        lm_eval=results_table(found.rows, found.items, FAMILY.measures),
        checkpoints=found.coverage,
        settings={
            "intervals": "Wilson for metrics of 0 and 1, otherwise t; over documents, 95 %",
            "bootstrap": bootstrap,
        },
        changed=found.changed,
    )


def read_items(scores: Scores, *, include: str | None = None) -> Items:
    """The value of each document for each metric that is a mean; none for other prompts."""
    if not {*SETTINGS} <= scores.columns:
        return gather_items([])
    return read_results(scores, include=include, bootstrap=0).items


ANY = Measure(name="value", plus=(MAIN,))
"""The mean of `task_items`."""


def task_items(scores: Scores) -> Items:
    """The value of each document for the first metric of a task that is a mean over documents.

    Raises
    ------
    UsageError
        The task has no such metric.
    """
    items = read_items(scores).only(part=MAIN)
    if items.axes.is_empty():
        raise UsageError(
            f"{scores.prompts} has no metric that is a mean over documents. Name another task."
        )
    return items.pooled("task")


def read_results(
    scores: Scores,
    *,
    include: str | None = None,
    bootstrap: int,
    save_results: str | None = None,
) -> Evaluated:
    """The results of prompt sets, computed once in a report."""

    def evaluate() -> Evaluated:
        sets = [_task_scores(scores.of(name)) for name in scores.sets]
        rows, items, changed = list[pl.DataFrame](), list[pl.DataFrame](), list[str]()
        for own in _by_name(sets):
            tasks = _loaded(own, include)
            changed += [
                each.name for each in own if tasks.digest(each.task) != each.settings["task_config"]
            ]
            names = {each.task: each.name for each in own}
            means = {each.task: tasks.means(each.task) for each in own}
            chance = {each.task: tasks.chance(each.task) for each in own}
            group = own[0].settings["lm_eval"]
            for place, results in _results(tasks, own, bootstrap, scores.banks[0].address):
                rows.append(result_rows(place, results, names, group, means, chance))
                items += item_rows(place, results, names, means)
                if save_results is not None:
                    _save(results, save_results, place, own[0].settings, bootstrap)
        coverage = concat_sorted(
            [each.coverage.with_columns(task=pl.lit(each.name)) for each in sets], "task"
        )
        return Evaluated(pl.concat(rows), gather_items(items), coverage, _changed(changed))

    if save_results is not None:
        return evaluate()
    return scores.cached(("lm_eval", include, bootstrap), evaluate)


def _task_scores(scores: Scores) -> TaskScores:
    from logitbank.harness import request_sums

    name = scores.prompts
    scores.require(*SETTINGS, "target", family=FAMILY.title)
    own = [*SETTINGS, *(each for each in ("limit",) if each in scores.columns)]
    settings = scores.expected_rows(own).drop("model").unique().rows(named=True)
    if len(settings) != 1:
        raise UsageError(f"Prompt set {name} has several values of {', '.join(own)}.")
    sums: dict[Place, pl.DataFrame] = {}

    def reduce(requests: PromptSums) -> pl.DataFrame:
        whole = requests.coverage.filter(pl.col("missing") == 0)
        rows = requests.rows.join(whole, on=CHECKPOINT, how="semi", nulls_equal=True)
        rows = rows.select(*CHECKPOINT, "text", "target", "logprob", "correct")
        sums.update(rows.partition_by(CHECKPOINT, as_dict=True, include_key=False))
        return requests.coverage

    coverage = request_sums(scores, reduce)
    return TaskScores(name.partition(":")[2], settings[0], concat_sorted(coverage), sums)


def _by_name(sets: Sequence[TaskScores]) -> list[list[TaskScores]]:
    """The sets that one name of the harness has made, with the same options."""
    found: dict[str, list[TaskScores]] = {}
    for each in sets:
        found.setdefault(each.settings["lm_eval"], []).append(each)
    return [*found.values()]


def _loaded(sets: Sequence[TaskScores], include: str | None) -> "Tasks":
    from logitbank.harness import task_folder

    first, folder = sets[0].settings, task_folder(include)
    files = () if folder is None else (each for each in Path(folder).rglob("*") if each.is_file())
    changed = max((file.stat().st_mtime_ns for file in files), default=0)
    tasks = _tasks(first["lm_eval"], folder, first["fewshot_seed"], first.get("limit"), changed)
    for each in sets:
        if each.task not in tasks.tasks:
            raise UsageError(
                f"Task {each.task!r} is not in {tasks.name} of this version of the harness."
            )
        tasks.tasks[each.task].set_config("num_fewshot", each.settings["num_fewshot"])
    return tasks


@lru_cache(maxsize=4)
def _tasks(spec: str, folder: str | None, seed: int, limit: int | None, _: int) -> "Tasks":
    """The tasks of a name and its options, loaded once for all prompt sets and checkpoints.

    The last argument is the time of the latest change in the folder.
    """
    from logitbank.harness import load_tasks

    name = re.sub(r":\w+=.*", "", spec)
    return load_tasks(name, include=folder, fewshot_seed=seed, limit=limit)


def _changed(names: Sequence[str]) -> tuple[str, ...]:
    """A note about tasks whose configuration differs from that at extraction."""
    if not names:
        return ()
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return (
        f"Task configurations that differ from those at extraction: {', '.join(names[:NAMED])}"
        f"{more}. The bank has all their requests.",
    )


def _results(
    tasks: "Tasks", sets: Sequence[TaskScores], bootstrap: int, bank: str
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The harness's results at each checkpoint, of the tasks that it answers completely."""
    from logitbank.harness import answers

    for place in dict.fromkeys(place for each in sets for place in each.sums):
        complete = [each for each in sets if place in each.sums]
        known: dict[Any, Any] = {}
        for each in complete:
            known |= answers(each.sums[place])
        names = [each.task for each in complete]
        yield place, tasks.evaluate(known, names, bank=bank, bootstrap=bootstrap)


def _save(
    results: Mapping[str, Any],
    folder: str,
    place: Place,
    settings: Mapping[str, Any],
    bootstrap: int,
) -> None:
    from logitbank.harness import save_results

    model, run, step = place
    own = {
        "limit": settings.get("limit"),
        "bootstrap_iters": bootstrap,
        "fewshot_seed": settings["fewshot_seed"],
    }
    save_results(results, folder, model=model, run=run, step=step, settings=own)
