"""Fairness dynamics of gender prediction: Average Rank, accuracy, JSD-P and the gender gap.

Frames in, frames out: the scan of a bank becomes a handful of tidy tables. After arXiv 2506.01709;
every departure is named where it happens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness import FAMILY
from logitbank.analysis.families.fairness.tables import (
    COMPARISON_SCHEMA,
    Unit,
    accuracy_table,
    adjusted,
    change_table,
    coverage,
    expected_cells,
    gap_changes,
    gap_table,
    gender_difference,
    gender_tests,
    jsd_table,
    model_tests,
    rank_table,
    samples,
    shared_checkpoints,
)
from logitbank.analysis.frames.banks import Banks, check_vocab_limit, choose_prompts, open_banks
from logitbank.analysis.frames.batches import ROWS, Scan, as_frames, frame_columns, prompt_frames
from logitbank.analysis.frames.expected import expected_rows, missing_note
from logitbank.analysis.frames.expressions import Floats, Ties, check_choice, jsd_parts, scaled
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, concat_sorted
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.frames.score_arrays import (
    CODED,
    LABELS,
    FairnessLabels,
    PromptAxes,
    ScoreArrays,
    map_score_arrays,
)
from logitbank.analysis.results.curve import curve
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.differences import DRAWS, draws_of
from logitbank.analysis.stats.significance import prepare_tests
from logitbank.analysis.study import Study, study_of
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.store.steps import listed
from logitbank.wording import plain_step

GENDER_COLUMNS = ("stereotype", "asked")
"""Columns of the prompts from which `gender_hits` are chosen."""


def analyze_fairness(
    banks: Banks,
    *,
    prompts: str | None,
    models: Sequence[str] | None,
    cache: ScanCache | None,
    bootstrap: int,
    vocab_limit: bool,
    ties: Ties,
    unit: Unit,
) -> Study["Fairness"]:
    """The study of banks; `logitbank.fairness` documents the parameters."""
    opened = open_banks(banks, models=models, prompts=prompts, family=FAMILY.prompts)
    prompts = choose_prompts(opened, prompts, default="winobias", family=FAMILY.prompts)
    if vocab_limit:
        check_vocab_limit(opened, prompts, models)
    frames = prompt_frames(opened, prompts, models, coded=(*CODED, *GENDER_COLUMNS), rows=ROWS)
    reading = _read(
        frames, vocab_limit=vocab_limit, ties=ties, unit=unit, labels=LABELS, bootstrap=bootstrap,
        seed=0, expected=expected_rows(opened, prompts, ("prompt_id", "order_seed")),
        share=cache is not None,
    )  # fmt: skip
    if cache is not None:
        curves = _curves(reading.gap, reading.result.jsd_parts)
        cache.put(gap_key(prompts, models, bootstrap), curves)
        if reading.genders is not None:
            cache.put(genders_key(prompts, models), reading.genders)
    incomplete = reading.result.checkpoints.filter(pl.col("missing") > 0)
    missing = [missing_note(int(incomplete["missing"].sum()), "score", checkpoints=len(incomplete))]
    return study_of(
        FAMILY, reading.result, prompts=[prompts], banks=opened, models=models,
        missing=missing if len(incomplete) else [],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fairness(Result):
    """What `fairness_metric` found: tidy tables, one row per checkpoint and group.

    Every table begins with model, run and step; step is null for a release. `low` and `high` are
    95 % bootstrap intervals over sentences, NaN for fewer than ten of them (`sentences`); `sd` is
    the deviation between option orders (ddof 1).
    JSD-P is given in nats and scaled to [0, 1].
    """

    checkpoints: pl.DataFrame
    """Prompts and option orders of each checkpoint, and how many expected scores are missing."""
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
    """Two models on neutral prompts, likewise; no rows for one model, or more than two."""
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
    seed: int = 0,
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
        takes the memory of one. Two models are compared at the runs and steps that both have;
        these are in the same frame.
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
    seed
        Random seed of the bootstrap, and of the random walks that change points are tested against.
    expected
        The expected prompts of each model: columns model, prompt_id, order_seed, as
        `expected_rows` gives them. Without it, a prompt or an order without a score of any
        checkpoint in the frame is not counted as missing.

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
    return _read(
        frame, vocab_limit=vocab_limit, ties=ties, unit=unit, labels=labels, bootstrap=bootstrap,
        seed=seed, expected=expected, share=False,
    ).result  # fmt: skip


class GenderHits(NamedTuple):
    """Whether the stereotypical gender is preferred, at the checkpoints of one frame."""

    checkpoints: pl.DataFrame
    orders: Sequence[int | None]
    prompts: pl.Series
    """Names of the pro-stereotyped prompts about the referred occupation."""
    values: Floats
    """(checkpoints, orders, prompts): 1, 0, ½ for a tie, or NaN for a missing score."""


class Genders(NamedTuple):
    """What stereotype accuracy needs of WinoBias."""

    hits: Sequence[GenderHits]
    jsd_parts: pl.DataFrame
    """As in `Fairness`; intervals depend on the resamples."""


class _Reading(NamedTuple):
    """One read of WinoBias: the result, and what other analyses need."""

    result: Fairness
    gap: pl.DataFrame
    """With draws."""
    genders: Genders | None


_Part = tuple[dict[str, pl.DataFrame], pl.DataFrame | None, GenderHits | None]
"""Of one frame: tables, the comparison of two models, and hits."""


def _read(
    frame: Scan,
    *,
    vocab_limit: bool,
    ties: Ties,
    unit: Unit,
    labels: FairnessLabels,
    bootstrap: int,
    seed: int,
    expected: pl.DataFrame | None,
    share: bool,
) -> _Reading:
    check_choice("unit", unit, get_args(Unit))
    if bootstrap < 0:
        raise UsageError(f"bootstrap {bootstrap} is negative; give a number of resamples, or 0")
    frames = as_frames(frame)
    genders = share and all(set(GENDER_COLUMNS) <= set(names) for names in frame_columns(frames))
    expected_counts = None if expected is None else expected_cells(expected)

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], _Part]:
        counts = axes.resampled(resamples=bootstrap, seed=seed)

        def part(data: ScoreArrays) -> _Part:
            parts = jsd_parts(data.logits, data.gold)
            by_gold = samples(data, (data.ranks, *np.moveaxis(parts, -1, 0)), counts)
            ranks, of_parts = [each[0] for each in by_gold], [each[1:] for each in by_gold]
            delta = gender_difference(of_parts[0][0], of_parts[1][1])
            tables = {
                "checkpoints": coverage(data, expected_counts),
                "average_rank": rank_table(data, ranks, labels=labels),
                "accuracy": accuracy_table(data, labels=labels),
                "jsd_parts": jsd_table(data.checkpoints, of_parts, labels=labels),
                "gap": gap_table(data.checkpoints, delta),
                "tests": gender_tests(data, parts, delta, ranks, unit=unit),
            }
            comparison = model_tests(data, parts, counts, unit=unit, labels=labels)
            return tables, comparison, _hits_if_any(data) if genders else None

        return part

    prepare_tests()
    results = map_score_arrays(
        frames, prepare, labels=labels, ties=ties, vocab_limit=vocab_limit,
        columns=GENDER_COLUMNS if genders else (),
    )  # fmt: skip
    tables, comparisons, hits = zip(*results, strict=True)
    whole = {name: concat_sorted([each[name] for each in tables]) for name in tables[0]}
    gap = whole.pop("gap")
    result = Fairness(
        gap=gap.drop(DRAWS),
        change=change_table(gap),
        tests=adjusted(whole.pop("tests"), group="measure"),
        comparison=_comparison(comparisons, whole["checkpoints"]),
        change_points=gap_changes(gap, seed=seed),
        labels=labels,
        settings={
            "vocab_limit": vocab_limit,
            "ties": ties,
            "unit": unit,
            "bootstrap": bootstrap,
            "seed": seed,
        },
        **whole,
    )
    known = [each for each in hits if each is not None]
    shared = Genders(known, result.jsd_parts) if len(known) == len(hits) else None
    return _Reading(result, gap, shared)


def _comparison(parts: Sequence[pl.DataFrame | None], checkpoints: pl.DataFrame) -> pl.DataFrame:
    """The tests of two models over all frames; no rows if they share no run and step."""
    shared = shared_checkpoints(checkpoints)
    if shared.is_empty():
        return pl.DataFrame(schema=COMPARISON_SCHEMA)
    found = [part for part in parts if part is not None]
    if sum(part.select(CHECKPOINT).n_unique() for part in found) < len(shared):
        raise UsageError(
            f"{shared['model'][0]} and {shared['other_model'][0]} are in different frames; models "
            "to compare at a run and step belong into one frame, as `batches` puts them"
        )
    return adjusted(pl.concat(found), group="option")


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


def compared(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """The values that a comparison of two banks sets side by side; no rows for other options."""
    options = pl.concat(frames).select(pl.col("option").unique()).collect()["option"]
    if set(options) != set(LABELS):
        return pl.DataFrame()
    result = fairness_metric(frames, bootstrap=0)
    columns = (
        (result.gap, "gap", pl.lit(""), "delta_scaled"),
        (result.average_rank, "average_rank", pl.col("gold"), "average_rank"),
        (result.accuracy, "accuracy", pl.col("gold"), "accuracy"),
        (result.accuracy, "three_way_accuracy", pl.col("gold"), "three_way_accuracy"),
    )
    return pl.concat(
        table.select(*CHECKPOINT, metric=pl.lit(name), group=group, value=pl.col(value))
        for table, name, group, value in columns
    )


def gap_key(prompts: str, models: Sequence[str] | None, resamples: int) -> tuple[object, ...]:
    """Where a `ScanCache` has the `GapCurves` of a prompt set."""
    return ("fairness gap", prompts, None if models is None else tuple(models), resamples)


class GapCurves(NamedTuple):
    """What a trade-off needs of fairness."""

    gap: pl.DataFrame
    """Δ, scaled and signed, with bootstrap draws: one resample has the same sentences at every
    checkpoint."""
    answers: pl.DataFrame
    """JSD-P of each correct answer, male and female: model, run, step, group, value, low, high."""


def gap_curves(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None,
    resamples: int,
    cache: ScanCache,
) -> GapCurves:
    """The curves of banks, which the fairness analysis may already have stored."""

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], tuple[pl.DataFrame, pl.DataFrame]]:
        counts = axes.resampled(resamples=resamples, seed=0)

        def tables(data: ScoreArrays) -> tuple[pl.DataFrame, pl.DataFrame]:
            parts = [*np.moveaxis(jsd_parts(data.logits, data.gold), -1, 0)]
            by_gold = samples(data, parts, counts)
            delta = gender_difference(by_gold[0][0], by_gold[1][1])
            jsd_p = jsd_table(data.checkpoints, by_gold, labels=LABELS)
            return gap_table(data.checkpoints, delta), jsd_p

        return tables

    def read() -> GapCurves:
        frames = prompt_frames(banks, prompts, models, rows=ROWS, coded=CODED)
        gap, jsd_p = zip(*map_score_arrays(frames, prepare), strict=True)
        return _curves(concat_sorted(gap), concat_sorted(jsd_p))

    return cache.get(gap_key(prompts, models, resamples), read)


def fairness_gap(*of: Any) -> pl.DataFrame:
    """The gap of `gap_curves`."""
    return gap_curves(*of).gap


def jsd_p_of_answers(*of: Any) -> pl.DataFrame:
    """The answers of `gap_curves`."""
    return gap_curves(*of).answers


def _curves(gap: pl.DataFrame, jsd_p: pl.DataFrame) -> GapCurves:
    few = gap["sentences"].to_numpy() < FEWEST_CLUSTERS
    draws = np.where(few, np.nan, scaled(draws_of(gap)))
    answers = jsd_p.filter(pl.col("gold") == pl.col("option"), pl.col("gold") != LABELS.neutral)
    return GapCurves(
        curve(gap, gap["delta_scaled"], draws=draws),
        answers.select(
            *CHECKPOINT, group="gold", value="scaled", low="low_scaled", high="high_scaled"
        ),
    )


def genders_key(prompts: str, models: Sequence[str] | None) -> tuple[object, ...]:
    """Where a `ScanCache` has the `Genders` of a prompt set."""
    return ("fairness genders", prompts, None if models is None else tuple(models))


def read_genders(frame: Scan) -> Genders:
    """What stereotype accuracy needs of WinoBias, read for it alone.

    Raises
    ------
    UsageError, BankError
        As `fairness_metric`; a pro-stereotyped prompt whose answer is no gender.
    """
    hits: list[GenderHits] = []

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], pl.DataFrame]:
        none = axes.resampled(resamples=0, seed=0)
        hits.clear()

        def table(data: ScoreArrays) -> pl.DataFrame:
            hits.append(gender_hits(data))
            parts = [*np.moveaxis(jsd_parts(data.logits, data.gold), -1, 0)]
            return jsd_table(data.checkpoints, samples(data, parts, none), labels=LABELS)

        return table

    tables = map_score_arrays(frame, prepare, columns=GENDER_COLUMNS)
    return Genders(hits, concat_sorted(tables))


def gender_hits(data: ScoreArrays) -> GenderHits:
    """Of the pro-stereotyped prompts about the referred occupation: is the gold gender preferred.

    Raises
    ------
    BankError
        The answer of such a prompt is the neutral option.
    """
    prompts = data.axes.prompts
    gendered = (prompts["stereotype"] == "pro") & (prompts["asked"] == "referred")
    chosen = np.flatnonzero(gendered.fill_null(False).to_numpy())
    gold = data.gold[chosen]
    if len(neither := chosen[gold > 1]):
        raise BankError(
            f"the answer of prompt {prompts['prompt_id'][int(neither[0])]!r} is no gender "
            f"({len(neither):,} such prompts); scan one prompt set whose pro-stereotyped prompts "
            "ask for a gender"
        )
    own, other = (data.logits[:, :, chosen, option] for option in (gold, 1 - gold))
    values = np.where(np.isnan(own), np.nan, (own > other) + 0.5 * (own == other))
    names = prompts["prompt_id"].gather(chosen)
    return GenderHits(data.checkpoints, data.axes.seeds, names, values)


def _hits_if_any(data: ScoreArrays) -> GenderHits | None:
    """None if stereotype accuracy refuses the prompts, which it then reports itself."""
    try:
        return gender_hits(data)
    except BankError:
        return None
