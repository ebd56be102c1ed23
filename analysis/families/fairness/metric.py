"""Fairness dynamics of gender prediction: Average Rank, accuracy, JSD-P and the gender gap.

Frames in, frames out: the scan of a bank becomes a handful of tidy tables. After arXiv 2506.01709;
every departure is said where it happens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT, Axes
from logitbank.analysis.families.fairness.baseline import DRAWS, gender_difference, with_draws
from logitbank.analysis.families.fairness.change_points import change_point_table
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import Cube, each_cube
from logitbank.analysis.families.fairness.samples import samples
from logitbank.analysis.families.fairness.significance import (
    Unit,
    adjusted,
    comparison_table,
    gender_tests,
    shared_checkpoints,
)
from logitbank.analysis.families.fairness.tables import (
    accuracy_table,
    asked_cells,
    change_table,
    coverage,
    gap_table,
    jsd_table,
    rank_table,
)
from logitbank.analysis.frames.batches import Scan
from logitbank.analysis.frames.expressions import Ties, check_choice, jsd_parts
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.significance import prepare_tests
from logitbank.errors import UsageError
from logitbank.store.steps import listed
from logitbank.wording import plain_step

LABELS = FairnessLabels()


@dataclass(frozen=True, slots=True)
class Fairness(Result):
    """What `fairness_metric` found: tidy tables, one row per checkpoint and group.

    Every table begins with model, run and step; step is null for a release. `low` and `high` are
    95 % bootstrap intervals over sentences, NaN for fewer than ten of them (`sentences`); `sd` is
    the deviation between option orders (ddof 1).
    JSD-P is given in nats and scaled to [0, 1].
    """

    checkpoints: pl.DataFrame
    """What was there: prompts, seeds, and how many scores are missing of those asked for."""
    average_rank: pl.DataFrame
    """Average Rank per gold option, with the number of tied and of inexact gold ranks; and the
    geometric mean rank, exp of the mean of ln rank, each prompt averaged over its orders first,
    with a t interval clustered by sentence."""
    accuracy: pl.DataFrame
    """Gold token the only maximum over the vocabulary; `three_way_accuracy` over the options."""
    jsd_parts: pl.DataFrame
    """Mean JSD-P for every gold × option."""
    gap: pl.DataFrame
    """delta = JSD-P(female | gold female) − JSD-P(male | gold male), and its absolute value."""
    change: pl.DataFrame
    """Fairness increase in percent against the first and the previous step."""
    tests: pl.DataFrame
    """Male against female: the published Mann–Whitney test and our paired one, each beside its
    effect size and the difference from the first checkpoint."""
    comparison: pl.DataFrame
    """Two models on neutral prompts, likewise; no rows without a second model."""
    change_points: pl.DataFrame
    """Change points of delta: their steps, levels and p values against random walks."""
    labels: FairnessLabels
    settings: Mapping[str, str | int | bool | None]
    """The choices that made these numbers."""


def fairness_metric(
    frame: Scan,
    *,
    vocab_limit: bool = False,
    ties: Ties = "competition",
    unit: Unit = "prompt",
    labels: FairnessLabels = LABELS,
    bootstrap: int = 1000,
    resample_occupations: bool = False,
    seed: int = 0,
    from_step: int | None = None,
    compare: tuple[str, str] | None = None,
    expected: pl.DataFrame | None = None,
) -> Fairness:
    """Every fairness table of the checkpoints in a scan.

    A checkpoint's numbers are over the prompts that the bank has for it; `checkpoints` counts
    those that it lacks, under each order. All arithmetic is float64.

    Parameters
    ----------
    frame
        `Bank.scan("winobias")`, or any frame with its columns: one row per checkpoint, prompt,
        option order and option. Or a sequence of such frames, as `batches` gives them, which
        takes the memory of one; models to compare are in the same frame.
    vocab_limit
        Rank among the tokenizer's entries only, without the padding outputs.
    ties
        `competition` counts strictly greater logits; `midrank` adds half the equal ones.
    unit
        Observation of the tests: `prompt` averages over option orders first; `prompt_order`
        pools them, which makes p values invalid, since orders of one prompt are not independent;
        `seed` takes one mean per order.
    labels
        Labels of the male, female and neutral option.
    bootstrap
        Resamples of the sentences; 0 gives no intervals.
    resample_occupations
        Resample occupations too, independently of sentences. Without it, intervals hold for the
        occupations that are asked, and not for others.
    seed
        Of the bootstrap, and of the random walks that change points are tested against.
    from_step
        First step of the search for change points; by default the first one after the untrained
        phase, whose gap differs from that of step 0 by more than its own noise.
    compare
        Two models to compare on neutral prompts. By default the two in the frame, if there are
        two with a run and step in common.
    expected
        What each model was asked: columns model, prompt_id, order_seed, as `expected_rows` gives
        them. Without it, all that is known is the frame, and a prompt or an order without a score
        of any checkpoint in it is not counted as missing.

    Raises
    ------
    UsageError
        Columns, labels or arguments that do not fit; the message names what would.
    BankError
        No rows, or a prompt without one of its options.

    References
    ----------
    arXiv 2506.01709, §2, App. B–D. Ours: the competition rank, the scaled unit, the unit
    `prompt`, ddof 1, and everything whose `origin` is `ours`.
    """
    check_choice("unit", unit, get_args(Unit))
    if bootstrap < 0:
        raise UsageError(f"bootstrap {bootstrap} is negative; give a number of resamples, or 0")

    expected_counts = None if expected is None else asked_cells(expected)

    def prepare(axes: Axes) -> Callable[[Cube], dict[str, pl.DataFrame]]:
        counts = axes.resampled(resamples=bootstrap, seed=seed, occupations=resample_occupations)

        def tables(data: Cube) -> dict[str, pl.DataFrame]:
            parts = jsd_parts(data.logits, data.gold)
            by_gold = samples(data, (data.ranks, *np.moveaxis(parts, -1, 0)), counts)
            ranks, of_parts = [each[0] for each in by_gold], [each[1:] for each in by_gold]
            delta = gender_difference(of_parts[0][0], of_parts[1][1])
            models = _models_there(data.checkpoints, compare)
            return {
                "checkpoints": coverage(data, expected_counts),
                "average_rank": rank_table(data, ranks, labels=labels),
                "accuracy": accuracy_table(data, labels=labels),
                "jsd_parts": jsd_table(data.checkpoints, of_parts, labels=labels),
                "gap": with_draws(gap_table(data, delta), delta),
                "tests": gender_tests(data, parts, delta, ranks, unit=unit),
                "comparison": comparison_table(
                    data, parts, counts, unit=unit, models=models, labels=labels
                ),
            }

        return tables

    prepare_tests()
    results = each_cube(
        frame,
        prepare,
        labels=labels,
        ties=ties,
        vocab_limit=vocab_limit,
        columns=("occupation",) if resample_occupations else (),
    )
    whole = {
        name: pl.concat([part[name] for part in results]).sort(
            CHECKPOINT, nulls_last=True, maintain_order=True
        )
        for name in results[0]
    }
    compare = _models_to_compare(whole["checkpoints"], compare)
    compared = whole.pop("comparison")
    if compare is None:
        compared = compared.clear()
    else:
        _check_compared(compared, whole["checkpoints"], compare)
    whole["tests"] = adjusted(whole["tests"], group="measure")
    changes = change_point_table(whole["gap"], from_step=from_step, seed=seed)
    whole["gap"] = whole["gap"].drop(DRAWS)
    return Fairness(
        **whole,
        change=change_table(whole["gap"]),
        comparison=adjusted(compared, group="option"),
        change_points=changes,
        labels=labels,
        settings={
            "vocab_limit": vocab_limit,
            "ties": ties,
            "unit": unit,
            "bootstrap": bootstrap,
            "resampled": "sentences and occupations" if resample_occupations else "sentences",
            "seed": seed,
            "from_step": from_step,
            "compare": " and ".join(compare) if compare else None,
        },
    )


def fairness_change(
    gap: pl.DataFrame,
    before_step: int | None,
    after_step: int | None,
    *,
    model: str | None = None,
    run: str | None = None,
) -> float:
    r"""Fairness increase in percent, :math:`100(|\Delta_b|-|\Delta_a|)/|\Delta_b|`.

    `gap` is the table of that name; a step of None is the release. Positive means a smaller gap.
    NaN where the gap before is zero. The unit of JSD-P does not matter.

    Raises
    ------
    UsageError
        A step that is not in the table, or several models or runs and none named.

    Examples
    --------
    >>> gaps = {"model": "m", "run": "main", "step": [1, 2], "gap_nats": [0.73, 0.05]}
    >>> round(fairness_change(pl.DataFrame(gaps), 1, 2), 1)
    93.2
    """
    series = gap
    for column, value in (("model", model), ("run", run)):
        names = sorted(series[column].unique().to_list())
        if value is None and len(names) == 1:
            value = names[0]
        if value not in names:
            given = f"several {column}s" if value is None else f"no {column} {value!r}"
            raise UsageError(f"the gap table has {given}: {', '.join(names)}; name one of them")
        series = series.filter(pl.col(column) == value)
    gaps = dict(series.select("step", "gap_nats").iter_rows())
    for step in (before_step, after_step):
        if step not in gaps:
            steps = listed(list(gaps)[:12])
            raise UsageError(f"{plain_step(step)} is not in the gap table; it has {steps}")
    before, after = gaps[before_step], gaps[after_step]
    return float("nan") if before == 0 else 100 * (before - after) / before


def _models_there(
    checkpoints: pl.DataFrame, compare: tuple[str, str] | None
) -> tuple[str, str] | None:
    """The models to compare among some of the checkpoints; where there is no doubt, all two."""
    models = checkpoints["model"].unique().sort().to_list()
    if compare is not None:
        return compare if set(compare) <= set(models) else None
    return (models[0], models[1]) if len(models) == 2 else None


def _check_compared(
    compared: pl.DataFrame, checkpoints: pl.DataFrame, models: tuple[str, str]
) -> None:
    shared = shared_checkpoints(checkpoints, models)
    if shared.is_empty():
        raise UsageError(
            f"{models[0]} and {models[1]} have no run and step in common; scan runs and steps "
            "that both have"
        )
    if compared.select(CHECKPOINT).n_unique() < len(shared):
        raise UsageError(
            f"{models[0]} and {models[1]} are in different frames; models to compare at a run and "
            "step belong into one frame, as `batches` puts them"
        )


def _models_to_compare(
    checkpoints: pl.DataFrame, compare: tuple[str, str] | None
) -> tuple[str, str] | None:
    models = checkpoints["model"].unique().sort().to_list()
    if compare is None:
        if len(models) != 2:
            return None
        shared = checkpoints.select("run", "step").n_unique() < len(checkpoints)
        return (models[0], models[1]) if shared else None
    if absent := [name for name in compare if name not in models]:
        raise UsageError(
            f"cannot compare {', '.join(map(repr, absent))}; the frame has {', '.join(models)}"
        )
    if len(compare) != 2 or compare[0] == compare[1]:
        raise UsageError(f"compare {compare!r} must name two different models")
    return compare
