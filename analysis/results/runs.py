"""Several runs of a model: the mean of a measure over runs, and how far its runs agree.

Only runs that are seeds of the same training are averaged: their names contain a seed, and are
equal without it, or their results have a `run_seed`. Stages of a training are not seeds of each
other. A model is measured at the last step that `FEWEST_RUNS` of its seeds have.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.family import REGISTERED, Family
from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.frames.expressions import Floats, same_as
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import item_of, words_for
from logitbank.analysis.results.series import size
from logitbank.analysis.stats.correlation import pearson_matrix
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.runs_mean import FEWEST_RUNS, measure_mean
from logitbank.analysis.stats.shares import Z95
from logitbank.analysis.stats.summary import Branch, Design
from logitbank.store import Bank
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import Step, in_order, without_seed
from logitbank.wording import counted, step_name

_PLACE = {
    "model": pl.String, "variant": pl.String, "step": pl.Int64,
    **dict.fromkeys(("prompts", "family", "score"), pl.String),
}  # fmt: skip
RUNS = {
    **_PLACE, "value": pl.Float64, **dict.fromkeys(("sd", "low", "high"), pl.Float64),
    **dict.fromkeys(("runs", "items", "examples", "missing"), pl.Int64),
}  # fmt: skip
AGREEMENT = {
    **_PLACE, "run": pl.String, "other_run": pl.String, "r": pl.Float64, "examples": pl.Int64
}  # fmt: skip
DIFFERENCES = {
    **_PLACE, **dict.fromkeys(("a", "b", "difference", "low", "high"), pl.Float64),
    **dict.fromkeys(("runs_a", "runs_b"), pl.Int64), "paired": pl.Boolean, "examples": pl.Int64,
}  # fmt: skip
FENCE = 3.0
"""A run is outlying if its mean correlation with the others is so many interquartile ranges below
the lower quartile (Tukey), and further below that of the others than chance explains."""


class RunScores(NamedTuple):
    """The items of a measure in several runs of a model at one step."""

    place: Mapping[str, Any]
    """Model, variant, step, prompts, family and score, as in the tables."""
    measure: Measure
    runs: list[str]
    axes: pl.DataFrame
    """(p) items with a value in every run, as in `Items`."""
    values: Floats
    """(r, p)"""
    missing: int
    """Expected items without a value in one of the runs."""

    @property
    def scores(self) -> Branch:
        """The score of each run, and what clusters of items add to its error."""
        return Design(self.axes, self.measure).influences(self.values)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance of examples."""
        return Design(self.axes, self.measure).degrees

    @property
    def items(self) -> int:
        """The number of items, those of a function or of several option orders once."""
        return int(Design(self.axes, self.measure).estimates(self.values)[0].items[0])

    @property
    def clusters(self) -> int:
        return self.axes["cluster"].n_unique()


class Seeds(NamedTuple):
    """The seeds of one training of a model."""

    model: str
    variant: str
    """The name of the runs without their seed, such as `stage2`; empty if they have no other."""


def seeds_by_step(banks: Sequence[Bank], prompts: str) -> dict[tuple[Seeds, Step], list[str]]:
    """The runs that are averaged at each step, in order of the steps.

    Runs of one training have different seeds: if some have the same, they are no seeds of it.
    """
    found: dict[Seeds, dict[Step, dict[str, int | None]]] = {}
    for checkpoint in _checkpoints(banks, prompts):
        variant = without_seed(checkpoint.run)
        if variant is None and checkpoint.run_seed is not None:
            variant = ""
        if variant is not None:
            steps = found.setdefault(Seeds(checkpoint.model, variant), {})
            steps.setdefault(checkpoint.step, {})[checkpoint.run] = checkpoint.run_seed
    places = {}
    for seeds, steps in found.items():
        for step in in_order(steps):
            known = [seed for seed in steps[step].values() if seed is not None]
            if len(steps[step]) >= FEWEST_RUNS and len({*known}) == len(known):
                places[seeds, step] = [*steps[step]]
    return places


def not_averaged(banks: Sequence[Bank], prompts: str, models: Collection[str]) -> Iterator[str]:
    """A sentence about each of the models with enough runs at a step, none of them averaged."""
    runs: dict[str, dict[Step, set[str]]] = {}
    for checkpoint in _checkpoints(banks, prompts):
        runs.setdefault(checkpoint.model, {}).setdefault(checkpoint.step, set()).add(checkpoint.run)
    most = {model: max(map(len, steps.values())) for model, steps in runs.items()}
    several = {model for model in models if most.get(model, 0) >= FEWEST_RUNS}
    if several:  # else no deposit is opened again
        several -= {seeds.model for seeds, _ in seeds_by_step(banks, prompts)}
    for model in sorted(several):
        yield (
            f"The {most[model]} runs of {model} are not averaged. Only seeds of one training are: "
            "runs that are named seed1, seed2, …, or have different values of run_seed."
        )


def last_steps(places: Iterable[tuple[Seeds, Step]]) -> list[tuple[Seeds, Step]]:
    """The last step of each of the seeds; places are in order."""
    return [*dict(places).items()]


def _checkpoints(banks: Sequence[Bank], prompts: str) -> Iterator[CheckpointId]:
    """The checkpoints with results of a prompt set."""
    for bank in banks:
        for deposit in bank.deposits(prompts=prompts) if prompts in bank.prompt_sets else ():
            if deposit.committed():
                yield deposit.checkpoint


class SeedRuns(NamedTuple):
    """The runs of the seeds of a training that are averaged at a step."""

    seeds: Seeds
    step: Step
    runs: list[str]

    def scores(self, family: Family, items: Items, prompts: str) -> RunScores | None:
        """Their scores among the items of a prompt set; None as for `run_scores`."""
        place = {
            **self.seeds._asdict(), "step": self.step, "prompts": prompts, "family": family.name,
            "score": family.measures[0].name,
        }  # fmt: skip
        own = {"model": self.seeds.model, "step": self.step}
        is_own = same_as(own, own) & pl.col("run").is_in(self.runs)
        rows = items.checkpoints.select(is_own.arg_true()).to_series()
        return run_scores(items.at(rows.to_numpy().astype(np.int64)), family.measures[0], place)


def run_scores(items: Items, measure: Measure, place: Mapping[str, Any]) -> RunScores | None:
    """The scores of items at one model and step.

    None for too few runs with a score, or if they have no item of a side of the measure in common.
    """
    items = items.pooled(*items.groups)
    own = items.chosen(Design(items.axes, measure).which)
    scored = own.at(np.flatnonzero(~np.isnan(own.values).all(axis=1)))
    if len(scored.checkpoints) < FEWEST_RUNS:
        return None
    complete = np.flatnonzero(~np.isnan(scored.values).any(axis=0))
    if not Design(scored.axes[complete], measure).complete:
        return None
    in_all = np.where(np.isnan(scored.values).any(axis=0), np.nan, scored.values[:1])
    first = scored.at(np.zeros(1, np.int64))._replace(values=in_all)
    missing = int(Design(scored.axes, measure).missing(first)[0])
    runs = scored.checkpoints["run"].to_list()
    values = measure.scale * scored.values[:, complete]
    return RunScores(place, measure, runs, scored.axes[complete], values, missing)


def averaged(scores: Scores, tables: Sequence[pl.DataFrame]) -> dict[str, list[SeedRuns]]:
    """The runs that are averaged of each prompt set, at the last step that enough of them have.

    Only at checkpoints of `tables`.
    """
    places = [table.select(CHECKPOINT) for table in tables if {*CHECKPOINT} <= {*table.columns}]
    runs = pl.concat(places, how="vertical_relaxed").unique().group_by("model", "step").len()
    enough = runs.filter(pl.col("len") >= FEWEST_RUNS)
    checkpoints = {*enough.select("model", "step").iter_rows()}
    found = dict[str, list[SeedRuns]]()
    for name in scores.sets if checkpoints else ():
        by_step = seeds_by_step(scores.banks, name)
        measured = [place for place in by_step if (place[0].model, place[1]) in checkpoints]
        found[name] = [SeedRuns(*place, by_step[place]) for place in last_steps(measured)]
    return found


def run_tables(
    family: Family, items: Mapping[str, Items], places: Mapping[str, Sequence[SeedRuns]]
) -> dict[str, pl.DataFrame]:
    """`runs`: the mean of the family's first measure over runs. `agreement`: the correlation of the
    scores of every two runs. None for too few runs.
    """
    scores = (
        place.scores(family, items[name], name)
        for name, own in places.items() if name in items
        for place in own
    )  # fmt: skip
    found = [each for each in scores if each is not None]
    return agreement_tables(found) if found else {}


def agreement_tables(found: Sequence[RunScores]) -> dict[str, pl.DataFrame]:
    """The tables `runs` and `agreement` of scores at several models, steps or prompt sets."""
    pairs = [row for scores in found for row in _pair_rows(scores)]
    return {
        "runs": pl.DataFrame([_mean_row(scores) for scores in found], RUNS),
        "agreement": pl.DataFrame(pairs, AGREEMENT),
    }


def _mean_row(scores: RunScores) -> dict[str, Any]:
    own = scores.scores
    found = measure_mean(scores.measure, own, degrees_of_examples=scores.degrees)
    return {
        **scores.place, "value": found.value, "sd": float(own.value.std(ddof=1)),
        "low": found.low, "high": found.high, "runs": len(own.value), "items": scores.items,
        "examples": scores.clusters, "missing": scores.missing,
    }  # fmt: skip


def _pair_rows(scores: RunScores) -> Iterator[dict[str, Any]]:
    r = pearson_matrix(scores.values)
    for (i, run), (j, other) in combinations(enumerate(scores.runs), 2):
        yield {
            **scores.place, "run": run, "other_run": other, "r": r[i, j],
            "examples": len(scores.axes),
        }  # fmt: skip


def run_difference(a: RunScores, b: RunScores) -> dict[str, Any] | None:
    """The mean over runs of B minus that of A, as `DIFFERENCES`, over the items of both.

    None if a side of the measure has no such item. Paired over the runs that both have, if there
    are enough; otherwise over all, unpaired.
    """
    common = [run for run in a.runs if run in b.runs]
    paired = len(common) >= FEWEST_RUNS
    keys = a.axes.columns
    both = a.axes.with_row_index("a").join(b.axes.with_row_index("b"), on=keys, nulls_equal=True)
    both = both.sort(keys, nulls_last=True)
    if not Design(both.select(keys), a.measure).complete:
        return None
    sides = []
    for side, name in ((a, "a"), (b, "b")):
        runs = [side.runs.index(run) for run in (common if paired else side.runs)]
        values = side.values[runs][:, both[name].to_numpy()]
        sides.append(side._replace(axes=both.select(keys), values=values))
    scores = [side.scores for side in sides]
    found = measure_mean(a.measure, *scores, paired=paired, degrees_of_examples=sides[0].degrees)
    return {
        **a.place, "a": float(scores[0].value.mean()), "b": float(scores[1].value.mean()),
        "difference": found.value, "low": found.low, "high": found.high,
        "runs_a": len(scores[0].value), "runs_b": len(scores[1].value), "paired": paired,
        "examples": sides[0].clusters,
    }  # fmt: skip


def difference_findings(table: pl.DataFrame) -> Iterator[Finding]:
    """The difference of means over runs, of each row of `DIFFERENCES`."""
    for row in table.iter_rows(named=True):
        measure = _measure(row)
        runs = (
            f"{row['runs_a']} paired" if row["paired"] else f"{row['runs_a']} and {row['runs_b']}"
        )
        yield Finding(
            text=(
                f"{words_for(measure)} of {row['prompts']}, mean over runs of {_trained(row)} at "
                f"{step_name(row['step'])}, B minus A"
            ),
            value=row["difference"], low=row["low"], high=row["high"],
            form=signed(measure.form),
            baseline=f"{formatted(row['a'], measure.form)} in A",
            n=f"{runs} runs × {counted(row['examples'], 'example')}",
        )  # fmt: skip


def run_findings(family: Family, tables: Mapping[str, pl.DataFrame]) -> Iterator[Finding]:
    """The mean over runs, the agreement of runs, and outlying runs; none without tables."""
    if "runs" not in tables:
        return
    measure = family.measures[0]
    item = item_of(family, measure.key)
    sample = size("items", "clusters", items=item, clusters=family.cluster)
    for row in tables["runs"].iter_rows(named=True):
        where = f"{_trained(row)} at {step_name(row['step'])}"
        if len(tables["runs"]["prompts"].unique()) > 1:
            where += f", {row['prompts']}"
        yield Finding(
            text=f"{words_for(measure)}, mean over runs of {where}", value=row["value"],
            low=row["low"], high=row["high"], form=measure.form,
            n=f"{row['runs']} runs × {sample({**row, 'clusters': row['examples']})}",
        )  # fmt: skip
        yield from _agreement(tables["agreement"].filter(same_as(row, _PLACE)), where)


def _trained(row: Mapping[str, Any]) -> str:
    """The model, and which of its trainings the seeds are of."""
    return f"{row['model']} {row['variant']}".rstrip()


def _measure(row: Mapping[str, Any]) -> Measure:
    return REGISTERED[row["family"]].measures[0]


def _agreement(pairs: pl.DataFrame, where: str) -> Iterator[Finding]:
    known = pairs.filter(pl.col("r").is_finite())
    if known.is_empty():
        return
    yield Finding(
        text=f"Agreement of runs of {where}, mean correlation of their scores",
        value=known["r"].mean(), form=".2f", n=counted(len(known), "pair"),  # type: ignore[arg-type]
    )  # fmt: skip
    for run, r, others in outlying_runs(known):
        yield Finding(
            text=f"Outlying run of {where}: {run}, mean correlation with the other runs",
            value=r, form=".2f", baseline=f"{others:.2f} between the others",
        )  # fmt: skip


def outlying_runs(pairs: pl.DataFrame) -> Iterator[tuple[str, float, float]]:
    """Each outlying run, its mean correlation with the others, and the mean between the others."""
    runs = sorted({*pairs["run"], *pairs["other_run"]})
    own = [(pl.col("run") == run) | (pl.col("other_run") == run) for run in runs]
    means = np.array([pairs.filter(each)["r"].mean() for each in own], np.float64)
    others = np.array([pairs.filter(~each)["r"].mean() for each in own], np.float64)
    first, last = np.quantile(means, [0.25, 0.75])
    # Fisher's z of two correlations of n items differs by chance.
    chance = Z95 * np.sqrt(2 / max(int(pairs["examples"].min()) - 3, 1))  # type: ignore[arg-type]
    with np.errstate(divide="ignore", invalid="ignore"):  # of equal runs
        below = np.arctanh(others) - np.arctanh(means) > chance
    for i in np.flatnonzero((means < first - FENCE * (last - first)) & below):
        yield runs[i], float(means[i]), float(others[i])
