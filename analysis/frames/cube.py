"""Scores of prompts with three options as dense arrays: checkpoint × order × prompt × option.

A million rows become arrays of 3 to 9 MB, and everything after that is array arithmetic. A cell
without a score is NaN. Fairness and stereotype accuracy read WinoBias like this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.batches import (
    NoRowsError,
    Scan,
    check_apart,
    each_with_rows,
    frames_of,
)
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import (
    Floats,
    Ties,
    tied_others,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.analysis.frames.pieces import AGAIN, CHECKPOINT
from logitbank.analysis.stats.bootstrap import cluster_counts
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

COLUMNS = (
    *("model", "run", "step", "prompt_id", "order_seed", "option", "is_answer"),
    *("logit", "rank", "ties", "exact", "sentence_id", "paired"),
)
CODED = ("model", "run", "prompt_id", "sentence_id", "option")
"""Columns of text; given as codes they take a third of the time to read."""
PADDING_COLUMNS = ("padding_above", "padding_ties")
OPTIONS = 3
GoldCounts = Sequence[Floats]
"""For each gold option (b, p): how often each of its prompts counts in each resample."""
T = TypeVar("T")


class FairnessLabels(NamedTuple):
    """Labels of the three options, in the order of the option axis."""

    male: str = "male"
    female: str = "female"
    neutral: str = "not specified"


LABELS = FairnessLabels()


@dataclass(frozen=True)  # without slots, as it keeps clusters and pairs, which every batch needs
class Axes:
    """The orders and prompts of all checkpoints, with or without scores."""

    seeds: tuple[int | None, ...]
    """Option-order seeds, sorted."""
    prompts: pl.DataFrame
    """p rows by prompt_id: prompt_id, sentence_id, paired, and further requested columns."""
    gold: Codes
    """(p,) index of the right option."""

    @cached_property
    def clusters(self) -> Codes:
        """(p,) index of the sentence; a prompt without one is a cluster of its own."""
        names = self.prompts.select(pl.coalesce("sentence_id", "prompt_id")).to_series()
        return (names.rank("dense").to_numpy() - 1).astype(np.int64)

    @cached_property
    def pairs(self) -> tuple[Codes, Codes]:
        """Prompts of the same sentence with gold male and with gold female, pair by pair.

        A sentence counts where its versions are marked as paired and it has exactly one of each.
        """
        prompts = self.prompts.select("sentence_id", "paired", gold=self.gold).with_row_index("at")
        paired = prompts.filter(pl.col("paired") & pl.col("sentence_id").is_not_null())
        male, female = (
            paired.filter(pl.col("gold") == gold).unique("sentence_id", keep="none")
            for gold in (0, 1)
        )
        pairs = male.join(female, on="sentence_id", maintain_order="left")
        return (
            pairs["at"].to_numpy().astype(np.int64),
            pairs["at_right"].to_numpy().astype(np.int64),
        )

    def resampled(self, *, resamples: int, seed: int) -> GoldCounts:
        """Resamples of the sentences, the same for the prompts of every gold option."""
        counts = cluster_counts(self.clusters, resamples=resamples, seed=seed)
        return [counts[:, self.gold == gold] for gold in range(OPTIONS)]

    def with_those_of(self, other: "Axes") -> "Axes":
        """These axes themselves, if they have all of the other's; otherwise both together."""
        table = pl.concat([axes.prompts.with_columns(gold=axes.gold) for axes in (self, other)])
        together = table.unique("prompt_id", keep="first").sort("prompt_id")
        answers = table.select("prompt_id", "gold").unique()
        if len(answers) > len(together):
            twice = answers.filter(pl.col("prompt_id").is_duplicated())["prompt_id"].min()
            raise _two_answers(twice)
        seeds = {*self.seeds, *other.seeds}
        if len(together) == len(self.prompts) and len(seeds) == len(self.seeds):
            return self
        ordered = sorted(seeds, key=lambda seed: (seed is None, seed or 0))
        return Axes(tuple(ordered), together.drop("gold"), together["gold"].to_numpy())


@dataclass(frozen=True, slots=True)
class Cube:
    """The scores of some checkpoints."""

    checkpoints: pl.DataFrame
    """c rows: model, run, step; sorted, a release (null step) after the steps."""
    axes: Axes
    """s seeds and p prompts."""
    logits: Floats
    """(c, s, p, o), NaN where the bank has no score."""
    ranks: Floats
    """(c, s, p) vocabulary rank of the gold token, NaN where missing."""
    top: NDArray[np.bool_]
    """(c, s, p) gold token is the only maximum of the vocabulary."""
    tied: NDArray[np.bool_]
    """(c, s, p) another token has the gold token's logit."""
    inexact: NDArray[np.bool_]
    """(c, s, p) the rank is a lower bound."""

    @property
    def gold(self) -> Codes:
        """(p,) index of the right option."""
        return self.axes.gold


def cube(
    frame: pl.LazyFrame,
    *,
    labels: FairnessLabels,
    ties: Ties,
    vocab_limit: bool = False,
    axes: Axes | None = None,
    columns: Sequence[str] = (),
) -> Cube:
    """Collect a scan once and lay its scores out densely.

    `axes` are those of other checkpoints. If the frame has further prompts or seeds, the cube has
    wider axes; what it lacks is NaN. `columns` are further text columns of the prompts.

    Raises
    ------
    UsageError
        The frame lacks columns, its options or answers are not the labels, a prompt has two
        answers, or a checkpoint scores the same prompt, order and option twice.
    BankError
        No rows, a prompt without one of its options, or a logit that is not finite.
    """
    rank = vocabulary_rank(ties=ties, vocab_limit=vocab_limit)
    padding = PADDING_COLUMNS if vocab_limit else ()
    names = frame.collect_schema().names()
    if missing := [name for name in (*COLUMNS, *padding, *columns) if name not in names]:
        raise UsageError(
            f"the prompts lack {', '.join(missing)}: this analysis needs the columns of WinoBias "
            "(extract --prompts winobias); `analyze options` takes other prompts"
        )
    rows = frame.select(
        pl.col("model", "run", "prompt_id", *columns).cast(pl.Categorical),
        *("step", "order_seed", "sentence_id", "paired", "logit", "rank", "ties", "exact"),
        *padding,
        option=pl.col("option").cast(pl.Enum(labels), strict=False).to_physical(),
        is_answer=pl.col("is_answer").fill_null(False),
    ).collect(engine="streaming")
    if rows.is_empty():
        raise NoRowsError("the scan has no committed row; extract first, or widen the filters")
    if count := rows["prompt_id"].null_count():
        raise UsageError(f"{count:,} rows have no prompt_id; every score needs one")
    _check_options(rows["option"], frame, labels)
    answers = rows.filter("is_answer").select(
        rank=rank,
        top=unique_maximum(vocab_limit=vocab_limit),
        tied=tied_others(vocab_limit=vocab_limit) > 0,
        inexact=~pl.col("exact"),
    )
    return _dense(rows, answers, labels, axes, columns)


def each_cube(
    scan: Scan,
    prepare: Callable[[Axes], Callable[[Cube], T]],
    *,
    labels: FairnessLabels = LABELS,
    ties: Ties = "competition",
    vocab_limit: bool = False,
    columns: Sequence[str] = (),
) -> list[T]:
    """Results from the cube of one frame after another, all on the same axes.

    `prepare` is called with the axes and gives the function of a cube; `columns` are as for `cube`.
    Frames are read once. If a later one widens the axes, which is rare, all are read again.

    Raises
    ------
    UsageError, BankError
        As `cube`; or two frames have the same checkpoint.
    """
    frames = frames_of(scan)
    axes: Axes | None = None

    def read(frame: pl.LazyFrame) -> Cube:
        return cube(
            frame, labels=labels, ties=ties, vocab_limit=vocab_limit, axes=axes, columns=columns
        )

    while True:
        work: Callable[[Cube], T] | None = None
        checkpoints, results, wider = [], [], False
        for data in each_with_rows(frames, read):
            checkpoints.append(data.checkpoints)
            wider |= axes is not None and data.axes is not axes
            axes = data.axes
            if not wider:
                work = work or prepare(axes)
                results.append(work(data))
            del data  # before the next one is read
        check_apart(checkpoints)
        if not wider:
            return results


def _dense(
    rows: pl.DataFrame,
    answers: pl.DataFrame,
    labels: FairnessLabels,
    known: Axes | None,
    columns: Sequence[str],
) -> Cube:
    """`answers` has the ranks of the rows that are answers, in their order."""
    checkpoints, c = _checkpoint_codes(rows)
    seeds, s = _seed_codes(rows["order_seed"])
    prompts, p = _prompt_codes(rows, columns)
    option = rows["option"].to_numpy()
    right = np.flatnonzero(rows["is_answer"].to_numpy())
    axes = Axes(seeds, prompts, _gold(option[right], p[right], prompts=prompts, labels=labels))
    if known is not None:
        axes = known.with_those_of(axes)
        s = np.array([axes.seeds.index(seed) for seed in seeds])[s]
        p = axes.prompts["prompt_id"].search_sorted(prompts["prompt_id"]).to_numpy()[p]
    shape = (len(checkpoints), len(axes.seeds), len(axes.prompts))
    # In place: arrays of one number per row are 60 MB each, and fresh pages cost more than sums.
    cell = c
    for size, codes in ((shape[1], s), (shape[2], p)):
        cell *= size
        cell += codes
    place = cell * len(labels)
    place += option
    logits = np.full((*shape, len(labels)), np.nan)
    logits.reshape(-1)[place] = rows["logit"].to_numpy()
    del place
    _check_cells(logits, rows, checkpoints=checkpoints, prompts=axes.prompts, labels=labels)
    target = cell[right]
    ranks = np.full(shape, np.nan)
    ranks.reshape(-1)[target] = answers["rank"].to_numpy()
    flags = []
    for name in ("top", "tied", "inexact"):
        flag = np.zeros(shape, bool)
        flag.reshape(-1)[target] = answers[name].to_numpy()
        flags.append(flag)
    return Cube(checkpoints, axes, logits, ranks, *flags)


def _gold(
    option: NDArray[np.integer],
    prompt: NDArray[np.integer],
    *,
    prompts: pl.DataFrame,
    labels: FairnessLabels,
) -> Codes:
    """The right option of each prompt, from the rows that are answers."""
    gold = np.full(len(prompts), -1, np.int64)
    gold[prompt] = option
    if (gold < 0).any():
        at = np.flatnonzero(gold < 0)
        raise UsageError(
            f"prompt {prompts['prompt_id'][int(at[0])]!r} has no answer among "
            f"{', '.join(map(repr, labels))} ({len(at)} such prompts); fairness needs an answer "
            "for each prompt, as the winobias prompts have"
        )
    if (gold[prompt] != option).any():
        at = prompt[gold[prompt] != option]
        raise _two_answers(prompts["prompt_id"][int(at[0])])
    return gold


def _checkpoint_codes(rows: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """Checkpoints in order, and the index of each row's one.

    A scan comes checkpoint by checkpoint, so the keys of runs of equal rows are compared instead
    of the keys of rows: 0.04 s against 2 s for a join of 7.3 million rows.
    """
    keys = rows.select(CHECKPOINT)
    is_first = np.ones(len(keys), bool)
    is_first[1:] = False
    for column in keys.select(pl.all().to_physical()):
        for values in (column.fill_null(0).to_numpy(), column.is_null().to_numpy()):
            is_first[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(is_first)
    heads = keys[starts].with_columns(pl.col("model", "run").cast(pl.String))
    order = heads.unique().sort(CHECKPOINT, nulls_last=True)
    codes = heads.join(
        order.with_row_index("code"),
        on=CHECKPOINT,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["code"]
    return order, np.repeat(codes.to_numpy().astype(np.int64), np.diff(starts, append=len(keys)))


def _seed_codes(values: pl.Series) -> tuple[tuple[int | None, ...], NDArray[np.integer]]:
    distinct = values.unique().sort(nulls_last=True)
    known = distinct.drop_nulls().to_numpy()
    given = values.fill_null(0).to_numpy()
    codes: NDArray[np.integer]
    if len(known) <= 8:  # three times faster than a search
        codes = np.zeros(len(given), np.int8)
        for seed in known[1:]:
            codes += (given >= seed).view(np.int8)
    else:
        codes = np.searchsorted(known, given)
    if values.null_count():
        codes[values.is_null().to_numpy()] = len(known)
    return tuple(distinct.to_list()), codes


def _prompt_codes(
    rows: pl.DataFrame, columns: Sequence[str] = ()
) -> tuple[pl.DataFrame, NDArray[np.integer]]:
    """Prompts by name, with more of their columns of text; and the index of each row's one."""
    physical = rows["prompt_id"].to_physical().to_numpy()
    size = int(physical.max()) + 1
    first = np.zeros(size, np.int64)
    first[physical] = np.arange(len(physical))  # any row of the prompt will do
    seen = np.zeros(size, bool)
    seen[physical] = True
    prompts = (
        rows.select("prompt_id", "sentence_id", *columns, "paired")[first[seen]]
        .select(
            pl.col("prompt_id", "sentence_id", *columns).cast(pl.String),
            pl.col("paired").fill_null(False),
            code=pl.lit(np.flatnonzero(seen)),
        )
        .sort("prompt_id")
    )
    position = np.zeros(size, np.int32)
    position[prompts["code"].to_numpy()] = np.arange(len(prompts))
    return prompts.drop("code"), position[physical]


def _two_answers(prompt_id: object) -> UsageError:
    return UsageError(f"prompt {prompt_id!r} has two answers; one prompt_id needs one answer")


def _check_options(codes: pl.Series, frame: pl.LazyFrame, labels: FairnessLabels) -> None:
    if codes.null_count() or codes.n_unique() < len(labels):
        options = frame.select(pl.col("option").cast(pl.String).unique().sort()).collect()
        values = ", ".join(repr(value) for value in options.to_series().to_list())
        raise UsageError(
            f"the options are {values} but fairness needs {', '.join(map(repr, labels))}; "
            'scan the "winobias" prompts, or pass labels=FairnessLabels(male, female, neutral)'
        )


def _check_cells(
    logits: Floats,
    rows: pl.DataFrame,
    *,
    checkpoints: pl.DataFrame,
    prompts: pl.DataFrame,
    labels: FairnessLabels,
) -> None:
    if rows["logit"].null_count() or not rows["logit"].is_finite().all():
        row = rows.filter(~pl.col("logit").is_finite().fill_null(False))
        raise BankError(
            f"prompt {row['prompt_id'][0]!r} of {checkpoint_name(row.row(0, named=True))} has "
            f"the logit {row['logit'][0]} ({len(row)} such rows); {AGAIN}"
        )
    present = ~np.isnan(logits)
    if (surplus := len(rows) - int(np.count_nonzero(present))) > 0:
        raise UsageError(
            f"{surplus} rows score a checkpoint, prompt, order and option that another row scores; "
            "scan one prompt set, and one piece of each prompt"
        )
    options = reduce(np.add, np.moveaxis(present.view(np.int8), -1, 0))
    partial = np.argwhere((options > 0) & (options < len(labels)))
    if len(partial):
        c, s, p = (int(i) for i in partial[0])
        missing = ", ".join(repr(labels[o]) for o in np.flatnonzero(~present[c, s, p]))
        checkpoint = checkpoint_name(checkpoints.row(c, named=True))
        raise BankError(
            f"prompt {prompts['prompt_id'][p]!r} of {checkpoint} has no score for "
            f"option {missing} ({len(partial)} such prompts); extract its options again"
        )
