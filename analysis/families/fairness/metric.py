"""Fairness dynamics of gender prediction: Average Rank, accuracy, JSD-P and the gender gap.

Frames in, frames out: the scan of a bank becomes a handful of tidy tables. After arXiv 2506.01709;
every departure is named where it happens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, get_args

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.tables import (
    RESULT,
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
from logitbank.analysis.frames.batches import ROWS, Scan, as_frames, frame_columns
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.expressions import (
    Floats,
    Ties,
    check_choice,
    jsd_parts,
    scaled,
    three_way_correct,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, concat_sorted
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.frames.score_arrays import (
    CODED,
    LABELS,
    PromptAxes,
    ScoreArrays,
    map_score_arrays,
)
from logitbank.analysis.results.curve import curve
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.differences import DRAWS, stacked_draws
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.significance import prepare_tests
from logitbank.analysis.stats.summary import summarise
from logitbank.errors import UsageError

GENDER_COLUMNS = ("stereotype", "asked")
"""Columns of the prompts from which `gender_hits` are chosen."""
SEED = 0
SPECIFIED = {
    **dict.fromkeys(("model", "run"), pl.String), "step": pl.Int64, "gold": pl.String,
    **dict.fromkeys(("probability", "low", "high"), pl.Float64),
    **dict.fromkeys(("prompts", "sentences", "missing"), pl.Int64),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices that make the numbers of fairness; see `fairness_metric`."""

    vocab_limit: bool = False
    ties: Ties = "competition"
    unit: Unit = "prompt"
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, get_args(Unit))
        if self.bootstrap < 0:
            raise UsageError(f"bootstrap {self.bootstrap} is negative: use 0 or more resamples.")


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
    settings: Mapping[str, str | int | bool | None]
    """The choices that made these numbers."""
    specified: pl.DataFrame | None = None
    """Mean probability of " specified" after " not", per gold option and for `all`; t intervals
    clustered by sentence. None without the prompts that ask it."""


def fairness_metric(
    frame: Scan,
    *,
    vocab_limit: bool = False,
    ties: Ties = "competition",
    unit: Unit = "prompt",
    bootstrap: int = 1000,
    expected: pl.DataFrame | None = None,
) -> Fairness:
    """Every fairness table of the checkpoints in a scan.

    A checkpoint's numbers are over the prompts that the bank has for it; `checkpoints` counts
    the missing ones, under each order. All arithmetic is float64.

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
        Unit of analysis of the tests: `prompt`, the mean over option orders; `prompt_order`, whose
        p values are invalid, since the orders of a prompt are not independent; `seed`, one mean
        per order.
    bootstrap
        Number of resamples of the sentences; 0 for no intervals.
    expected
        The expected prompts of each model: columns model, prompt_id, order_seed, as
        `expected_rows` gives them. Without it, a prompt or an order without a score of any
        checkpoint in the frame is not counted as missing.

    Raises
    ------
    UsageError
        Invalid columns, labels or arguments.
    BankError
        No rows, or a prompt without one of its options.

    References
    ----------
    arXiv 2506.01709, §2, App. B–D. Not in the paper: the competition rank, the scaled unit, the
    unit `prompt`, ddof 1, and everything whose `origin` is `ours`.
    """
    settings = Settings(vocab_limit, ties, unit, bootstrap)
    return fairness_result(read(frame, settings, expected, with_hits=False), settings)


class GenderHits(NamedTuple):
    """Whether the stereotypical gender is preferred, at the checkpoints of one frame."""

    checkpoints: pl.DataFrame
    orders: Sequence[int | None]
    prompts: pl.Series
    """Names of the pro-stereotyped prompts about the referred occupation."""
    values: Floats
    """(checkpoints, orders, prompts): 1, 0, ½ for a tie, or NaN for a missing score."""


class Reading(NamedTuple):
    """One read of WinoBias, for `fairness_result` and for other analyses."""

    tables: Mapping[str, pl.DataFrame]
    """Those of all frames; `gap` has bootstrap draws."""
    comparisons: Sequence[pl.DataFrame | None]
    """The tests of two models in each frame."""
    hits: Sequence[GenderHits] | None
    """None if they were not read, or an answer is not a gender; see `gender_hits`."""


def read_winobias(source: Scores, settings: Settings, *, share: bool = True) -> Reading:
    """Read WinoBias in banks, and store the reading for other analyses of a report."""
    reading = read(
        source.frames(rows=ROWS, coded=(*CODED, *GENDER_COLUMNS)),
        settings,
        expected_rows(source.banks, source.prompts, ("prompt_id", "order_seed")),
        with_hits=share,
    )
    for names in (("winobias",), ("winobias", settings.bootstrap)):
        source.cache.put(source.key(*names), reading)
    return reading


def cached_winobias(source: Scores, bootstrap: int | None = None) -> Reading:
    """The reading of another analysis, with so many resamples if that matters; else a new one."""
    key = source.key(*(["winobias"] if bootstrap is None else ["winobias", bootstrap]))
    settings = Settings(bootstrap=bootstrap or 0)
    return source.cache.get(key, lambda: read_winobias(source, settings))


_Part = tuple[dict[str, pl.DataFrame], pl.DataFrame | None, GenderHits | None]
"""The tables of one frame, the comparison of two models, and hits."""


def read(
    frame: Scan, settings: Settings, expected: pl.DataFrame | None, *, with_hits: bool
) -> Reading:
    """The tables of a scan, and with `with_hits` what stereotype accuracy needs of it."""
    frames = as_frames(frame)
    with_hits = with_hits and all(
        set(GENDER_COLUMNS) <= {*names} for names in frame_columns(frames)
    )
    expected_counts = None if expected is None else expected_cells(expected)
    unit = settings.unit

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], _Part]:
        counts = axes.resampled(resamples=settings.bootstrap, seed=SEED)

        def part(data: ScoreArrays) -> _Part:
            parts = jsd_parts(data.logits, data.gold)
            by_gold = samples(data, (data.ranks, *np.moveaxis(parts, -1, 0)), counts)
            ranks, of_parts = [each[0] for each in by_gold], [each[1:] for each in by_gold]
            delta = gender_difference(of_parts[0][0], of_parts[1][1])
            tables = {
                "checkpoints": coverage(data, expected_counts),
                "average_rank": rank_table(data, ranks),
                "accuracy": accuracy_table(data),
                "jsd_parts": jsd_table(data.checkpoints, of_parts),
                "gap": gap_table(data.checkpoints, delta),
                "tests": gender_tests(data, parts, delta, ranks, unit=unit),
            }
            comparison = model_tests(data, parts, counts, unit=unit)
            return tables, comparison, gender_hits(data) if with_hits else None

        return part

    prepare_tests()
    results = map_score_arrays(
        frames, prepare, ties=settings.ties, vocab_limit=settings.vocab_limit,
        columns=GENDER_COLUMNS if with_hits else (),
    )  # fmt: skip
    tables, comparisons, hits = zip(*results, strict=True)
    whole = {name: concat_sorted([each[name] for each in tables]) for name in tables[0]}
    return Reading(whole, comparisons, None if None in hits else hits)


def fairness_result(reading: Reading, settings: Settings) -> Fairness:
    """The result, with all checkpoints in tests, their adjustment and change points."""
    tables = dict(reading.tables)
    gap, tests = tables.pop("gap"), adjusted(tables.pop("tests"), group="measure")
    return Fairness(
        gap=gap.drop(DRAWS),
        change=change_table(gap),
        tests=tests,
        comparison=_comparison(reading.comparisons, tables["checkpoints"], tests),
        change_points=gap_changes(gap, seed=SEED),
        settings={**asdict(settings), "seed": SEED},
        **tables,
    )


def _comparison(
    parts: Sequence[pl.DataFrame | None], checkpoints: pl.DataFrame, tests: pl.DataFrame
) -> pl.DataFrame:
    """The tests of two models over all frames; no rows if they share no run and step.

    `tests` has the same columns, but `measure` in place of `other_model` and `option`.
    """
    shared = shared_checkpoints(checkpoints)
    if shared.is_empty():
        names = tests.clear().with_columns(other_model="model", option="measure")
        return names.select("model", "other_model", "run", "step", "option", *RESULT)
    found = [part for part in parts if part is not None]
    if sum(part.select(CHECKPOINT).n_unique() for part in found) < len(shared):
        raise UsageError(
            f"{shared['model'][0]} and {shared['other_model'][0]} are in different frames: put "
            "models to compare at a run and step into one frame, as `batches` does."
        )
    return adjusted(pl.concat(found), group="option")


def gender_hits(data: ScoreArrays) -> GenderHits | None:
    """Whether the gold gender is preferred in the pro-stereotyped prompts about the referent.

    None if the answer of one of them is the neutral option, so that there is no preference.
    """
    prompts = data.axes.prompts
    gendered = (prompts["stereotype"] == "pro") & (prompts["asked"] == "referred")
    chosen = np.flatnonzero(gendered.fill_null(False).to_numpy())
    gold = data.gold[chosen]
    if (gold > 1).any():
        return None
    correct, other = (data.logits[:, :, chosen, option] for option in (gold, 1 - gold))
    values = np.where(np.isnan(correct), np.nan, (correct > other) + 0.5 * (correct == other))
    names = prompts["prompt_id"].gather(chosen)
    return GenderHits(data.checkpoints, data.axes.seeds, names, values)


def read_items(source: Scores) -> Items:
    """Prompts in each option order: JSD-P of the correct answer (scaled), rank, and whether it is
    the first of the vocabulary and of the options. None for other options.

    Parts are these quantities by correct answer, as `rank male`.
    """
    frames = source.frames(rows=ROWS, coded=CODED)
    if not _has_genders(frames):
        return gather_items([])

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], pl.DataFrame]:
        gold = axes.gold
        prompts = axes.prompts.select(
            item="prompt_id",
            cluster=pl.coalesce("sentence_id", "prompt_id"),
            gold=pl.Series(np.array(LABELS)[gold]),
        )
        orders = pl.DataFrame({"order": pl.Series(axes.seeds, dtype=pl.Int64)})
        cells = orders.join(prompts, how="cross", maintain_order="left")

        def items(data: ScoreArrays) -> pl.DataFrame:
            parts = jsd_parts(data.logits, data.gold)
            missing = np.isnan(data.ranks)
            quantities = {
                "jsd_p": scaled(parts[:, :, np.arange(len(gold)), gold]),
                "rank": data.ranks,
                "top": np.where(missing, np.nan, data.top),
                "first": np.where(missing, np.nan, three_way_correct(data.logits, data.gold)),
            }
            rows = data.checkpoints.join(cells, how="cross", maintain_order="left")
            return rows.with_columns(
                pl.Series(name, values.ravel()) for name, values in quantities.items()
            )

        return items

    scored = map_score_arrays(frames, prepare)
    expected = expected_rows(source.banks, source.prompts, ("prompt_id", "order_seed"))
    about = pl.concat(scored).select("item", "cluster", "gold").unique()
    return gather_items(_expected_items(part, expected, about) for part in scored)


def _expected_items(
    rows: pl.DataFrame, expected: pl.DataFrame, about: pl.DataFrame
) -> pl.DataFrame:
    """The items of some checkpoints: every prompt and order that the set has for the model."""
    known = expected.select("model", item="prompt_id", order="order_seed").join(about, on="item")
    wanted = rows.select(CHECKPOINT).unique().join(known, on="model")
    on = [*CHECKPOINT, "item", "order"]
    values = rows.drop("cluster", "gold")
    whole = wanted.join(values, on=on, how="left", nulls_equal=True)
    long = whole.unpivot(index=[*on, "cluster", "gold"], variable_name="quantity")
    return long.with_columns(part=pl.format("{} {}", "quantity", "gold")).drop("quantity", "gold")


def _has_genders(frames: Sequence[pl.LazyFrame]) -> bool:
    options = pl.concat(frames).select(pl.col("option").unique()).collect()["option"]
    return set(options) == set(LABELS)


def fairness_gap(source: Scores, resamples: int) -> pl.DataFrame:
    """The curve of Δ, scaled and signed, with bootstrap draws, for a trade-off.

    One resample has the same sentences at every checkpoint.
    """
    gap = cached_winobias(source, resamples).tables["gap"]
    few = gap["sentences"].to_numpy() < FEWEST_CLUSTERS
    draws = np.where(few, np.nan, scaled(stacked_draws(gap)))
    return curve(gap, gap["delta_scaled"], draws=draws)


def gendered_answers(jsd_parts: pl.DataFrame) -> pl.DataFrame:
    """The rows of JSD-P of the correct answer, for the answers male and female."""
    return jsd_parts.filter(pl.col("gold") == pl.col("option"), pl.col("gold") != LABELS.neutral)


def answer_jsd_p(source: Scores, resamples: int) -> pl.DataFrame:
    """JSD-P of the answers male and female: model, run, step, group, value, low and high."""
    return gendered_answers(cached_winobias(source, resamples).tables["jsd_parts"]).select(
        *CHECKPOINT, group="gold", value="scaled", low="low_scaled", high="high_scaled"
    )


def specified_table(source: Scores) -> pl.DataFrame:
    """How probable " specified" is after " not", from prompts that end in it: rows of `SPECIFIED`.

    The answer to the question of each prompt is its column `gold`.
    """
    parts = source.map_prompts(
        lambda sums: sums.all_rows.select(
            *CHECKPOINT, "gold", item="prompt_id", cluster="sentence_id",
            value=pl.col("logprob").exp(),
        ),
        "gold", "sentence_id",
    )  # fmt: skip
    items, measures = gather_items(parts), [Measure(name="specified")]
    overall = summarise(items.pooled("gold"), measures).with_columns(gold=pl.lit("all"))
    table = pl.concat([summarise(items, measures), overall], how="diagonal").sort(
        *CHECKPOINT, pl.col("gold").cast(pl.Enum([*LABELS, "all"])), nulls_last=True
    )
    renamed = table.with_columns(probability="value", prompts="items", sentences="clusters")
    return renamed.select(pl.col(name).cast(dtype) for name, dtype in SPECIFIED.items())
