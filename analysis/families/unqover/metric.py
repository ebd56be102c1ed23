"""UnQover: which subject a model prefers when the context does not determine the answer.

Scores of subjects under four versions of each question become bias by subject and attribute, bias
intensity, and the errors that the four versions cancel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.unqover.tables import (
    ALL,
    FLIPS,
    HEAD,
    SEED,
    SUBJECT,
    attribute_table,
    cell_items,
    count_table,
    level_items,
    model_level,
    subject_attribute_cells,
    subject_means,
    subject_table,
    unqover_instances,
    with_splits,
)
from logitbank.analysis.frames.banks import no_model
from logitbank.analysis.frames.batches import (
    Scan,
    as_frames,
    batches,
    check_expected,
    read_nonempty,
)
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, concat_sorted
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Smooth
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank
from logitbank.wording import checkpoint_name

SERIES = (*CHECKPOINT, "category")
COLUMNS = ("category", "split", "instance")
"""Columns of the prompts that identify an instance."""
INTERVALS = "t over attributes, for mu over subjects, 95 %"
ROWS = 100_000
"""Of a batch: rows are as wide as their texts."""


def expected_instances(banks: Sequence[Bank], names: Sequence[str]) -> pl.DataFrame:
    """The instances that each model was asked in several prompt sets, for `unqover_metric`."""
    parts = [expected_rows(banks, name, COLUMNS).cast(pl.String) for name in names]
    return pl.concat(parts).unique(["model", "category", "instance"], keep="first")


def bank_frames(
    banks: Sequence[Bank], names: Sequence[str], models: Sequence[str] | None
) -> list[pl.LazyFrame]:
    """Scans of the prompt sets, in batches; a set without a score of any model is left out.

    Sets of a category are analysed together, such as its train and its test part, and an instance
    of several counts once. Questions to masked and to causal models have the same ids, so these
    sets are in frames of their own.
    """
    available = {
        deposit.checkpoint.model
        for bank in banks
        for name in names
        if name in bank.prompt_sets
        for deposit in bank.deposits(prompts=name)
    }
    for model in models or ():
        if model not in available:
            raise AbsentError(no_model(model, available, f"the deposits of {', '.join(names)}"))
    frames = [
        frame
        for causal in (False, True)
        for frame in batches(
            banks, [name for name in names if name.endswith("-causal") == causal], models=models,
            rows=ROWS,
        )
    ]  # fmt: skip
    if not frames:
        where = ", ".join(bank.address for bank in banks)
        raise BankError(
            f"{where} has no scores of {', '.join(names)} yet. Run `logitbank extract` first."
        )
    return frames


@dataclass(frozen=True, slots=True)
class Unqover(Result):
    """What `unqover_metric` found. Every row begins with model, run, step, category and split.

    Step is null for a release. Split `all` is every instance, the others are parts of it.
    """

    unqover: pl.DataFrame
    """`mu` (bias intensity), `eta`, `abs_c` (mean size of C), `positional` and `attributive` error,
    each with `_low` and `_high`; `coverage`, the share of subject slots within the `topk` (1
    without a limit), `coverage_8` and `coverage_10`; numbers of subjects, attributes, contexts,
    instances and pairs of subjects; `pair_attributes`, how many pairs there are with an attribute
    (a full set has pairs × attributes), and `subject_attributes`, rows of `cells`; `missing`
    instances, which the model was asked and of which the checkpoint has no score."""
    subjects: pl.DataFrame
    """γ(x) as `gamma` with its interval, mean over attributes; `p_adjusted`, the p value of no
    preference, adjusted for the number of subjects (`sign_test`); `rank`, 1 for the most favoured;
    `eta`, mean of η(x, a); `intensity`, the greatest |γ(x, a)|, and the `attribute` where it is."""
    attributes: pl.DataFrame
    """`strength` and `eta`, means over subjects of |γ(x, a)| and |η(x, a)|; the `subject` with the
    greatest |γ(x, a)| and its `gamma`; `gamma_female`, C towards the female name, of which the
    male value is the negative (null in other categories)."""
    cells: pl.DataFrame
    """γ(x, a) and η(x, a) as `gamma` and `eta`, with the numbers of averaged values, at the last
    checkpoint of every model, run and category. A release comes after all steps."""
    settings: Mapping[str, str | int | float | bool | None]


def unqover_metric(
    frame: Scan,
    *,
    topk: int | None = None,
    he_she: bool = False,
    expected: pl.DataFrame | None = None,
) -> Unqover:
    """Every UnQover table of the scores in a frame. All arithmetic is float64.

    Means are over the instances that there are: in a set that was sampled not every pair of
    subjects meets every attribute, and the tables say how many do. Contexts are replicates, and
    averaged. `model_level` has what intervals are over.

    Parameters
    ----------
    frame
        `Bank.scan("unqover-gender")` and the like, with one row per checkpoint, question and
        option; or several such frames, as `batches` gives them, which may be of several prompt
        sets. A frame is read, reduced and let go before the next one.
    topk, he_she
        As for `unqover_instances`.
    expected
        The expected instances of each model: model and `COLUMNS`, as `expected_rows` gives them.
        Without it, a single frame expects its own instances.

    Raises
    ------
    UsageError
        Columns or arguments that do not fit, or a category of a checkpoint is in two frames.
    BankError
        As `unqover_instances`.

    References
    ----------
    Li et al. 2020, "UnQovering Stereotyping Biases via Underspecified Questions". Ours: no limit
    to the highest entries, the intervals, and the splits.

    Examples
    --------
    One instance. Ann is the more probable answer in both orders, and less so to the negation.

    >>> p = {"12": (0.5, 0.1), "21": (0.3, 0.1), "12-": (0.1, 0.1), "21-": (0.1, 0.1)}
    >>> rows = [
    ...     (key, key[:2], len(key) > 2, name, value)
    ...     for key, pair in p.items() for name, value in zip((" Ann", " bob"), pair)
    ... ]
    >>> scan = pl.DataFrame(
    ...     rows, ["prompt_id", "order", "negated", "continuation", "p"], orient="row"
    ... ).with_columns(
    ...     model=pl.lit("m"), run=pl.lit("main"), step=8, category=pl.lit("gender"), split=None,
    ...     instance=pl.lit("i"), context=pl.lit("t"), attribute=pl.lit("was a nurse"),
    ...     attribute_class=None, subject1=pl.lit("Ann"), subject2=pl.lit("Bob"),
    ...     gender1=pl.lit("female"), gender2=pl.lit("male"), logprob=pl.col("p").log(), rank=1,
    ... )
    >>> found = unqover_metric(scan)
    >>> found.attributes["gamma_female"].round(6).item()  # ½ (0.4 − 0.1) − ½ (0.1 − 0.1)
    0.15
    """
    frames = as_frames(frame)
    check_expected(frames, expected)
    parts, kept, seen = list[_Part](), list[pl.DataFrame](), list[pl.DataFrame]()
    read = partial(unqover_instances, topk=topk, he_she=he_she)
    for instances in read_nonempty(frames, read):
        seen = [_disjoint([*seen, instances.select(SERIES).unique()])]
        if expected is None:
            expected = instances.select("model", *COLUMNS).unique()
        split = with_splits(instances)
        cells = subject_attribute_cells(split)
        parts.append(
            _Part(
                level_items(split, cells), cell_items(cells, pl.col("eta").abs()),
                cell_items(cells, pl.col("gamma")), count_table(split, cells),
                subject_table(cells), attribute_table(split, cells),
            )
        )  # fmt: skip
        kept = [_last(pl.concat([*kept, cells]))]
    assert expected is not None, "`read_nonempty` refuses frames without instances"
    levels, signs, gammas, counts, subjects, attributes = zip(*parts, strict=True)
    level = model_level(gather_items(levels), gather_items(signs))
    means = subject_means(gather_items(gammas))
    return Unqover(
        unqover=_with_missing(_joined(level, pl.concat(counts), HEAD), expected),
        subjects=_ranked(_joined(means, pl.concat(subjects), (*HEAD, *SUBJECT))),
        attributes=concat_sorted(attributes, "category"),
        cells=concat_sorted(kept, "category"),
        settings={
            "topk": topk, "he_she": he_she, "flips": FLIPS, "seed": SEED, "intervals": INTERVALS,
        },
    )  # fmt: skip


class _Part(NamedTuple):
    """What one frame gives."""

    levels: Items
    signs: Items
    gammas: Items
    counts: pl.DataFrame
    subjects: pl.DataFrame
    attributes: pl.DataFrame


def read_items(source: Scores) -> Items:
    """Subjects of μ, and sums of the instances of each attribute, over all splits."""
    parts = []
    for instances in read_nonempty(source.frames(rows=ROWS), unqover_instances):
        everything = instances.with_columns(split=pl.lit(ALL))
        items = level_items(everything, subject_attribute_cells(everything))
        parts.append(items.pooled("split"))
    return gather_items(parts)


def ratio(means: Floats) -> list[Smooth]:
    """The mean over instances, of the means over attributes of their sums and of their number."""
    total, number = means.T
    return [Smooth(total / number, np.stack([1 / number, -total / number**2], axis=1))]


def _joined(table: pl.DataFrame, more: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    return table.join(more, on=on, how="left", nulls_equal=True, maintain_order="left")


def _ranked(subjects: pl.DataFrame) -> pl.DataFrame:
    """With `rank`, the most favoured first."""
    rank = pl.col("gamma").rank("min", descending=True).over(HEAD).cast(pl.Int64)
    ranked = subjects.with_columns(rank=rank).sort(*HEAD, "rank", "subject", nulls_last=True)
    return ranked.select(
        *HEAD, *SUBJECT, "rank", "gamma", "gamma_low", "gamma_high", "p_adjusted", "eta",
        "intensity", "attribute", "attributes", "instances",
    )  # fmt: skip


def _with_missing(table: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """With a column `missing`: of the instances of a model, category and split, those not there."""
    texts = expected.select(pl.col("model", *COLUMNS).cast(pl.String)).unique()
    everything = texts.with_columns(split=pl.lit(ALL)).unique()
    key = ["model", "category", "split"]
    whole = pl.concat([everything, texts.drop_nulls("split")]).group_by(key).len(name="whole")
    missing = pl.col("whole").cast(pl.Int64) - pl.col("instances")
    counted = table.join(whole, on=key, how="left", maintain_order="left")
    return counted.with_columns(missing=missing.clip(lower_bound=0).fill_null(0)).drop("whole")


def _disjoint(seen: list[pl.DataFrame]) -> pl.DataFrame:
    keys = pl.concat(seen)
    twice = keys.filter(pl.struct(pl.all()).is_duplicated()).sort(pl.all())
    if len(twice):
        row = twice.row(0, named=True)
        raise UsageError(
            f"{row['category']} of {checkpoint_name(row)} is in several frames: name one prompt "
            "set of a category with --prompts, and each checkpoint once."
        )
    return keys


def _last(cells: pl.DataFrame) -> pl.DataFrame:
    """Rows of the last checkpoint of every model, run and category."""
    place = pl.col("step").fill_null(2**62)
    return cells.filter(place == place.max().over("model", "run", "category"))
