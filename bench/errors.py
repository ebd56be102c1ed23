"""How often findings are wrong: changes where there is none, and intervals without the truth.

`python -m bench errors` takes about ten minutes on two cores and prints the tables from which
`docs/validation.md` is made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.stats import norm

from logitbank.analysis.families.fairness import DELTA as GAP
from logitbank.analysis.families.lambada import FAMILY as LAMBADA
from logitbank.analysis.families.stereoset import FAMILY as STEREOSET
from logitbank.analysis.families.tradeoff import PERFORMANCE
from logitbank.analysis.families.tradeoff.tables import (
    PAIR,
    Quantity,
    common_rows,
    curve_table,
    pair_table,
)
from logitbank.analysis.frames.items import Items, array_items
from logitbank.analysis.results.templates import Template, templates_mean
from logitbank.analysis.stats.bootstrap import Interval
from logitbank.analysis.stats.change_points import Changes, change_points
from logitbank.analysis.stats.correlation import correlation_interval
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.runs_mean import runs_mean
from logitbank.analysis.stats.shares import wilson
from logitbank.analysis.stats.summary import Branch, Design, summarise

SERIES = 400
"""Curves of each case; a rate of 0.05 then has a standard error of 0.011."""
DATA_SETS = 2_000
"""Data sets of each interval; a rate of 0.95 then has a standard error of 0.005."""
CLUSTERS = 20
PYTHIA = [0, *(2**k for k in range(10)), *(1000 * 2**k for k in range(8)), 143_000]
SCHEDULES = {
    "10": 1000 * np.arange(10),
    "20 (`--steps log`)": np.array(PYTHIA),
    **{str(n): 1000 * np.arange(n) for n in (24, 62, 154)},
}
SIZE, POWER, COVERAGE = 0.06, 0.9, 0.9
RUNS, EXAMPLES = (25, 5, 3), 60
TEMPLATES = (4, 8, 20)
MODELS = {
    "runs differ, examples do not": (1.0, 0.0),
    "runs explain most of the variance": (0.5, 0.3),
    "runs and examples explain equal parts": (0.2, 1.0),
    "examples explain most of the variance": (0.05, 1.0),
    "neither differs": (0.0, 0.0),
}
"""Standard deviations of run effects and of example effects; that of the rest is 1."""


class Rate(NamedTuple):
    """How often something was found, in so many data sets."""

    what: str
    among: str
    share: float
    sets: int
    bound: str
    """`≤ 0.06`, or empty where there is no target."""

    @property
    def error(self) -> float:
        return float(np.sqrt(self.share * (1 - self.share) / self.sets))

    @property
    def reached(self) -> str:
        """Whether the target is reached, up to two standard errors."""
        if not self.bound:
            return ""
        sign, bound = self.bound.split()
        above = self.share - float(bound)
        return "yes" if (above if sign == "≤" else -above) <= 0 else (
            "within its error" if abs(above) <= 2 * self.error else "**no**"
        )  # fmt: skip

    def row(self) -> str:
        return (
            f"| {self.what} | {self.among} | {self.share:.3f} | {self.error:.3f} | {self.sets:,} | "
            f"{self.bound} | {self.reached} |"
        )


def errors_page() -> str:
    """Tables in Markdown, measured now."""
    with ProcessPoolExecutor(2) as pool:
        # The longest curves first, so that both processes end together.
        found = pool.map(change_rates, reversed(SCHEDULES))
        changes = [rate for rates in reversed(list(found)) for rate in rates]
    tables = {
        "null": [rate for rate in changes if rate.bound.startswith("≤")],
        "shift": [rate for rate in changes if not rate.bound.startswith("≤")],
        "cover": [
            *coverage_rates(),
            *(
                rate
                for n in (20, 50)
                for each in (summary_coverage, icat_coverage, tradeoff_coverage)
                for rate in each(n)
            ),
        ],
        "runs": list(runs_coverage(RUNS)),
        "templates": list(templates_coverage(TEMPLATES)),
    }
    return TEXT.format(**{name: _table(rates) for name, rates in tables.items()})


def _table(rates: list[Rate]) -> str:
    head = ["| | n | rate | standard error | data sets | target | reached |", "|" + 7 * "---|"]
    return "\n".join([*head, *(rate.row() for rate in sorted(rates, key=lambda rate: rate.what))])


def change_rates(schedule: str) -> list[Rate]:
    """Findings in curves over the checkpoints of a schedule."""
    steps = SCHEDULES[schedule]
    rng = np.random.default_rng(len(steps))
    rates = []
    for name, curves in _without_change(steps, rng):
        found = np.mean([one.kind != "none" for one in _changes(curves, steps)])
        rates.append(Rate(name, schedule, float(found), SERIES, f"≤ {SIZE}"))
    for tau in (0.01, 0.1) if len(steps) != len(PYTHIA) else (0.0001, 0.01, 0.1):
        smooth = 1 - np.exp(-steps / (tau * steps[-1]))
        curves = smooth + rng.normal(0, 0.1, (SERIES, len(steps)))
        kinds = [one.kind for one in _changes(curves, steps)]
        name = f"smooth: 1 − exp(−t/τ), τ = {tau:g} of the run, noise 1/10, called a change point"
        rates.append(
            Rate(name, schedule, kinds.count("change point") / SERIES, SERIES, f"≤ {SIZE}")
        )
    place = np.arange(len(steps)) / len(steps)
    for name, shift, target in (
        ("one shift of 6 SD at the middle", 6 * (place >= 0.5), f"≥ {POWER}"),
        ("one shift of 6 SD at three quarters", 6 * (place >= 0.75), ""),
        ("two shifts of 6 SD, both up", 6 * (place >= 1 / 3) + 6 * (place >= 2 / 3), ""),
        ("two shifts of 6 SD, up and down", 6 * (place >= 1 / 3) - 6 * (place >= 2 / 3), ""),
    ):
        curves = shift + rng.normal(size=(SERIES, len(steps)))
        changes = _changes(curves, steps)
        found = np.mean([one.kind != "none" for one in changes])
        rates.append(Rate(name, schedule, float(found), SERIES, target))
        places = [one.places[0] for one in changes if one.kind == "change point"]
        if target and places:
            at = np.flatnonzero(shift)[0]
            inside = [place.first <= at <= place.last for place in places]
            name = "the 95 % set of steps contains that of the shift at the middle"
            rates.append(Rate(name, schedule, float(np.mean(inside)), len(places), f"≥ {COVERAGE}"))
    for rate in rates:
        print(rate.row(), flush=True)
    return rates


def _changes(curves: np.ndarray, steps: np.ndarray) -> list[Changes]:
    """The changes of each curve. Drawn curves have no untrained phase: all points are searched."""
    found = [change_points(curve, steps) for curve in curves]
    return [changes for changes in found if changes is not None]


def _without_change(
    steps: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    z = rng.normal(size=(SERIES, len(steps) - 1))
    cosine = 0.5 * (1 + np.cos(np.pi * steps[1:] / steps[-1]))
    for name, increments in (
        ("random walk over checkpoints", z),
        ("Brownian motion in step", z * np.sqrt(np.diff(steps))),
        ("Brownian motion in log(1 + step)", z * np.sqrt(np.diff(np.log1p(steps)))),
        ("random walk, steps of t with 3 degrees of freedom", rng.standard_t(3, z.shape)),
        ("random walk, steps that shrink as a cosine", z * cosine),
    ):
        yield name, np.pad(increments.cumsum(axis=1), ((0, 0), (1, 0)))
    for sd in (2, 4):
        walks = rng.normal(size=(SERIES, len(steps))).cumsum(axis=1)
        yield (
            f"random walk, noise of {sd} SD of a step at each checkpoint",
            walks + rng.normal(0, sd, walks.shape),
        )
    yield "independent checkpoints", rng.normal(size=(SERIES, len(steps)))
    memory = np.zeros((SERIES, len(steps)))
    noise = rng.normal(size=memory.shape)
    for at in range(1, len(steps)):
        memory[:, at] = 0.9 * memory[:, at - 1] + noise[:, at]
    yield "memory of 0.9 (autoregressive)", memory


def coverage_rates() -> Iterator[Rate]:
    """How often 95 % intervals of 20 independent pieces of data contain the truth."""
    rng = np.random.default_rng(0)
    shape = (DATA_SETS, CLUSTERS)
    ranks = np.maximum(np.exp(rng.normal(3, 2, shape)), 1)
    truth = _big(rng, lambda z: np.maximum(np.exp(3 + 2 * z), 1))
    yield _covered("Average Rank, skewed ranks (t)", _mean_interval(ranks), truth)
    truth = _big(rng, lambda z: np.log(np.maximum(np.exp(3 + 2 * z), 1)))
    yield _covered("geometric mean rank, the same ranks (t)", _mean_interval(np.log(ranks)), truth)
    x = rng.normal(size=(DATA_SETS, CLUSTERS))
    y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=x.shape)
    x, y = (side - side.mean(axis=1, keepdims=True) for side in (x, y))
    r = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    yield _covered("correlation of 0.5 (Fisher)", correlation_interval(r, CLUSTERS), 0.5)
    for share in (0.5, 0.9):
        found = rng.binomial(CLUSTERS, share, DATA_SETS) / CLUSTERS
        yield _covered(
            f"proportion of {share} (Wilson)", wilson(found, np.full(DATA_SETS, CLUSTERS)), share
        )


def summary_coverage(clusters: int, *, data_sets: int = DATA_SETS) -> Iterator[Rate]:
    """How often intervals of `summarise` contain the truth: of values, and of changes.

    A data set is a run with two steps; the second moves each item by 0.3, or its share by 0.2.
    """
    rng = np.random.default_rng(clusters)
    own = np.arange(clusters)
    uneven = np.repeat(own, 1 + own % 4)  # one to four items of each cluster
    large = np.repeat(own, np.where(own < 3, 20, 1))  # three clusters have most items
    sides = np.tile(["a", "b"], clusters)
    one, difference = Measure(name="x"), Measure(name="x", plus=("a",), minus=("b",))
    hit = Measure(name="x", share=True)
    apart = Measure(name="x", plus=("a",), minus=("b",), share=True)

    def drawn(names: np.ndarray, skewed: bool = False) -> np.ndarray:
        """(2, data sets, items): effects of clusters, and of items at each step."""
        shape = (data_sets, len(np.unique(names)))
        effects = rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)
        noise = rng.normal(0, 0.5, (2, data_sets, len(names)))
        return np.asarray(effects[:, names] + noise)

    def shares(names: np.ndarray, share: float) -> np.ndarray:
        cut = norm.ppf([share, share - 0.2])[:, None, None]
        return (drawn(names) / np.sqrt(1.25) < cut).astype(float)

    moved = np.array([0.0, 0.3])[:, None, None]
    both = np.repeat(own, 2)
    cases: Iterable[tuple[str, Measure, np.ndarray, np.ndarray, np.ndarray, float, float]] = (
        ("mean, normal", one, own, sides[:0], drawn(own) + moved, 0, 0.3),
        ("mean, exponential", one, own, sides[:0], drawn(own, skewed=True) + moved, 0, 0.3),
        ("mean, 1 to 4 items a cluster", one, uneven, sides[:0], drawn(uneven) + moved, 0, 0.3),
        ("mean, 20 items of 3 clusters, 1 of others", one, large, sides[:0],
         drawn(large) + moved, 0, 0.3),
        ("difference of sides of a cluster", difference, both, sides, drawn(both) + moved, 0, 0),
        ("difference of other clusters", difference, np.arange(2 * clusters), sides,
         drawn(np.arange(2 * clusters)) + moved, 0, 0),
        ("difference of shares of 0.9 of a cluster", apart, both, sides, shares(both, 0.9), 0, 0),
        ("difference of shares of 0.9 of other clusters", apart, np.arange(2 * clusters), sides,
         shares(np.arange(2 * clusters), 0.9), 0, 0),
        ("share of 0.5", hit, own, sides[:0], shares(own, 0.5), 0.5, -0.2),
        ("share of 0.9", hit, own, sides[:0], shares(own, 0.9), 0.9, -0.2),
        ("share of 0.7, 20 items of 3 clusters, 1 of others", hit, large, sides[:0],
         shares(large, 0.7), 0.7, -0.2),
        ("share of 0.7, 1 to 4 items a cluster", hit, uneven, sides[:0], shares(uneven, 0.7), 0.7,
         -0.2),
    )  # fmt: skip
    for what, measure, names, parts, values, truth, change in cases:
        axes = pl.DataFrame(
            {"part": parts if len(parts) else [""] * len(names), "order": "",
             "cluster": [f"{name:04}" for name in names],
             "item": [f"{at:04}" for at in range(len(names))]}
        )  # fmt: skip
        order = axes.select(pl.arg_sort_by("part", "cluster", "item")).to_series()
        runs = [f"{run:05}" for run in range(data_sets)]
        steps = {"run": np.repeat(runs, 2), "step": [0, 8] * data_sets}
        checkpoints = pl.DataFrame({"model": "m", **steps})
        stacked = values.transpose(1, 0, 2).reshape(2 * data_sets, -1)[:, order]
        known = {"m": np.ones(len(axes), bool)}
        table = summarise(Items(checkpoints, axes[order], stacked, known), [measure])
        first, second = table.filter(step=0), table.filter(step=8)
        yield _covered(what, _ends(first, ""), truth, clusters=clusters)
        ends = _ends(second, "from_baseline_")
        yield _covered(f"{what}, change", ends, change, clusters=clusters)


def _ends(table: pl.DataFrame, prefix: str) -> Interval:
    return Interval(*(table[f"{prefix}{end}"].to_numpy() for end in ("low", "high")))


def _mean_interval(values: np.ndarray) -> Interval:
    """The interval of the mean of each row."""
    axes = pl.DataFrame({"item": [f"{at:03}" for at in range(values.shape[1])]})
    runs = pl.DataFrame({"model": "m", "run": [f"{at:05}" for at in range(len(values))], "step": 0})
    return _ends(summarise(array_items(runs, axes, values), [Measure(name="x")]), "")


def _big(rng: np.random.Generator, function: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(function(rng.normal(size=5_000_000)).mean())


def icat_coverage(terms: int) -> Iterator[Rate]:
    """iCAT, and its change: terms of 30 examples, whose own ss and lms vary by 5 points."""
    rng, examples = np.random.default_rng(terms), 30
    shape = (DATA_SETS, terms)
    axes = pl.DataFrame({"item": [f"{term:03}" for term in range(terms)]})
    both = pl.concat([axes.with_columns(part=pl.lit(part)) for part in ("ss", "lms")])
    runs = [f"{run:05}" for run in range(DATA_SETS)]
    for before, after in ((50, 50), (50, 54), (52, 48), (60, 55)):
        effects = rng.normal(0, 5, (2, *shape))
        steps = []
        for ss in (before, after):
            p_ss, p_lms = np.clip(np.array([ss, 85])[:, None, None] + effects, 0, 100) / 100
            pro, related = rng.binomial(examples, p_ss), rng.binomial(2 * examples, p_lms)
            steps.append(np.hstack([100 * pro / examples, 50 * related / examples]))
        checkpoints = pl.DataFrame(
            {"model": "m", "run": np.repeat(runs, 2), "step": [0, 8] * DATA_SETS}
        )
        values = np.stack(steps, axis=1).reshape(2 * DATA_SETS, -1)
        table = summarise(array_items(checkpoints, both, values), [STEREOSET.measures[2]])
        truth = [85 * min(ss, 100 - ss) / 50 for ss in (before, after)]
        first, second = table.filter(step=0), table.filter(step=8)
        yield _covered(f"iCAT, ss = {before}", _ends(first, ""), truth[0], clusters=terms)
        yield _covered(
            f"iCAT, ss = {before}, change to {after}", _ends(second, "from_baseline_"),
            truth[1] - truth[0], clusters=terms,
        )  # fmt: skip


def tradeoff_coverage(sentences: int) -> Iterator[Rate]:
    """The changes of a pair of steps: a gap of 0.4 falls by 70%, an accuracy by 6.5 points.

    Sentences have gaps of their own, of which a part remains.
    """
    rng = np.random.default_rng(sentences)
    shape = (DATA_SETS, sentences)
    axes = pl.DataFrame({"item": [f"{at:03}" for at in range(sentences)], "cluster": ""})
    axes = axes.with_columns(cluster="item", part=pl.lit(GAP.plus[0]))
    both = pl.concat([axes, axes.with_columns(part=pl.lit(GAP.minus[0]))])
    words = axes.with_columns(part=pl.lit("acc"))
    female, male = (level + rng.normal(0, 0.3, shape) for level in (0.6, 0.2))
    early = (0.3 * side + rng.normal(0, 0.1, shape) for side in (female, male))
    right, draws = rng.random(shape) < 0.45, rng.random(shape)
    kept = np.where(right, draws < 0.9, draws < 0.2)  # 51.5% are right later
    runs = [f"{run:05}" for run in range(DATA_SETS)]
    steps = pl.DataFrame({"model": "m", "run": np.repeat(runs, 2), "step": [8, 16] * DATA_SETS})
    gap, able = (
        Quantity.of_items(
            array_items(steps, each, np.stack(ends, 1).reshape(2 * DATA_SETS, -1) * 1.0), measure
        )
        for each, ends, measure in (
            (both, [np.hstack([*early]), np.hstack([female, male])], GAP),
            (words, [right, kept], replace(LAMBADA.measures[0], name=PERFORMANCE.name)),
        )
    )
    curves = curve_table(common_rows(able, gap))
    pairs = pair_table(curves, able, gap, (16, 8), 2.0).filter(choice=PAIR)
    for name, truth in {"fairness": 70.0, "performance": -6.5}.items():
        ends = Interval(*(pairs[f"{name}_{end}"].to_numpy() for end in ("low", "high")))
        yield _covered(f"trade-off, change of {name}", ends, truth, clusters=sentences)


def runs_coverage(
    numbers: Sequence[int],
    models: Mapping[str, tuple[float, float]] = MODELS,
    *,
    data_sets: int = 1000,
) -> Iterator[Rate]:
    """How often intervals over runs and examples contain the truth, 0.

    There is a target if runs or examples differ.
    """
    axes = pl.DataFrame({"item": [f"{at:03}" for at in range(EXAMPLES)]})
    axes = axes.with_columns(cluster="item", part=pl.lit(""), order=pl.lit(""))
    design = Design(axes, Measure(name="x"))
    for runs, (model, deviations) in product(numbers, models.items()):
        for sides in ("one mean", "paired", "unpaired"):
            rng = np.random.default_rng(runs)
            inside = 0
            for _ in range(data_sets):
                a, b = (design.influences(_runs(rng, runs, *deviations)) for _ in range(2))
                found = runs_mean(a, None if sides == "one mean" else b, paired=sides == "paired")
                inside += found.low <= 0 <= found.high
            target = "≥ 0.93" if any(deviations) else ""
            yield Rate(f"{sides}, {model}", f"{runs} runs", inside / data_sets, data_sets, target)


def _runs(rng: np.random.Generator, runs: int, run_sd: float, example_sd: float) -> np.ndarray:
    effects = rng.normal(0, run_sd, (runs, 1)) + rng.normal(0, example_sd, EXAMPLES)
    return effects + rng.normal(size=(runs, EXAMPLES))


def templates_coverage(numbers: Sequence[int], *, data_sets: int = 1000) -> Iterator[Rate]:
    """How often intervals over templates and sentences contain the truth.

    Sentences are the same in each template, or of their own; values are normal, or right answers,
    of which about 60 or 94 in a hundred are right.
    """
    axes = pl.DataFrame({"item": [f"{at:03}" for at in range(EXAMPLES)]})
    axes = axes.with_columns(cluster="item", part=pl.lit(""), order=pl.lit(""))
    names = axes["item"].to_list()
    for templates, skill, shared in product(numbers, (None, 0.4, 2.5), (True, False)):
        rng = np.random.default_rng(templates)
        measure = Measure(name="x", share=skill is not None)
        design = Design(axes, measure)
        clusters = [
            names if shared else [f"{at} {each}" for each in names] for at in range(templates)
        ]
        # Standard deviations of templates and of sentences, beside a rest of 1.
        truth = 0.0 if skill is None else float(norm.cdf(skill / np.sqrt(1 + 0.5**2 + 1)))
        inside = 0
        for _ in range(data_sets):
            effects = rng.normal(0, 1, (1 if shared else templates, EXAMPLES))
            values = rng.normal(0, 0.5, (templates, 1)) + effects
            values = values + rng.normal(size=(templates, EXAMPLES))
            if skill is not None:
                values = (values + skill > 0).astype(float)
            scores = design.influences(values)
            parts = [
                Template(Branch(scores.value[[at]], scores.influence[[at]]), own, design.degrees)
                for at, own in enumerate(clusters)
            ]
            found = templates_mean(parts, measure)
            inside += found["low"] <= truth <= found["high"]
        what = "normal values" if skill is None else f"shares, {truth:.0%}"
        sentences = "the same sentences" if shared else "sentences of their own"
        yield Rate(
            f"{what}, {sentences}", f"{templates} templates", inside / data_sets, data_sets,
            "≥ 0.93",
        )  # fmt: skip


def _covered(what: str, interval: Interval, truth: float, *, clusters: int = CLUSTERS) -> Rate:
    inside = (interval.low <= truth) & (truth <= interval.high)
    return Rate(what, str(clusters), float(inside.mean()), len(inside), f"≥ {COVERAGE}")


TEXT = """## Change points where there is none

{null}

## Change points that exist

{shift}

## Intervals

{cover}

## Runs and examples

{runs}

## Templates and sentences

{templates}
"""
