"""From the long rows of a scan to dense arrays: checkpoint × seed × prompt × option.

A million rows become three arrays of 3 to 9 MB, and everything after that is array arithmetic. A
cell that is not in the bank is NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.fairness.axes import (
    Axes,
    checkpoint_codes,
    prompt_codes,
    seed_codes,
    two_answers,
)
from logitbank.analysis.families.fairness.checks import (
    FairnessLabels,
    check_cells,
    check_columns,
    check_options,
    check_prompts,
)
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
from logitbank.analysis.frames.shared import beside, handed_on, wanted_of
from logitbank.errors import UsageError

COLUMNS = (
    *("model", "run", "step", "prompt_id", "order_seed", "option", "answer", "is_answer"),
    *("logit", "rank", "ties", "exact", "sentence_id", "paired"),
)
CODED = ("model", "run", "prompt_id", "sentence_id", "option")
"""Columns of text; given as codes they take a third of the time to read."""
PADDING_COLUMNS = ("padding_above", "padding_ties")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cube:
    """Every score that the fairness metrics need."""

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
    def prompts(self) -> pl.DataFrame:
        """As in `axes`."""
        return self.axes.prompts

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

    `axes` are those of other checkpoints, to be laid out alike. Where the frame has prompts or
    seeds besides, the cube has wider axes; where it lacks some, they are NaN. `columns` are more of
    the prompts', of text, that the axes are to have.

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
    check_columns(frame, (*COLUMNS, *padding, *columns))
    rows = frame.select(
        pl.col("model", "run", "prompt_id", *columns).cast(pl.Categorical),
        *("step", "order_seed", "sentence_id", "paired", "logit", "rank", "ties", "exact"),
        *padding,
        option=pl.col("option").cast(pl.Enum(labels), strict=False).to_physical(),
        is_answer=pl.col("is_answer").fill_null(False),
    ).collect(engine="streaming")
    if rows.is_empty():
        raise NoRowsError("the scan has no committed row; extract first, or widen the filters")
    check_prompts(rows)
    check_options(rows, frame, labels)
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
    labels: FairnessLabels,
    ties: Ties,
    vocab_limit: bool = False,
    columns: Sequence[str] = (),
) -> list[T]:
    """What is made of the cube of one frame after another, all on the same axes.

    `prepare` is called with the axes and gives the function of a cube; `columns` are as for `cube`.
    Frames are read once, and where a later one widens the axes, which is rare, all of them again.

    Raises
    ------
    UsageError, BankError
        As `cube`; or two frames have the same checkpoint.
    """
    wanted = wanted_of(scan) if labels == FairnessLabels() else []
    more = dict.fromkeys((*columns, *(name for each in wanted for name in each.columns)))

    def all_of_them(axes: Axes) -> Callable[[Cube], tuple[T, list[Any]]]:
        return beside(prepare(axes), wanted, axes)

    parts = _in_turn(frames_of(scan), all_of_them, labels, ties, vocab_limit, tuple(more))
    return handed_on(wanted, parts)


def _in_turn(
    frames: Sequence[pl.LazyFrame],
    prepare: Callable[[Axes], Callable[[Cube], T]],
    labels: FairnessLabels,
    ties: Ties,
    vocab_limit: bool,
    columns: Sequence[str],
) -> list[T]:
    def read(frame: pl.LazyFrame, axes: Axes | None) -> Cube:
        return cube(
            *(frame,), labels=labels, ties=ties, vocab_limit=vocab_limit, axes=axes, columns=columns
        )

    known: list[Axes] = []
    """The last are the widest."""

    def read_on(frame: pl.LazyFrame) -> Cube:
        return read(frame, known[-1] if known else None)

    work: Callable[[Cube], T] | None = None
    checkpoints, results, wider = [], [], False
    for data in each_with_rows(frames, read_on):
        checkpoints.append(data.checkpoints)
        wider = bool(known) and data.axes is not known[-1]
        known.append(data.axes)
        if wider:
            break
        work = work or prepare(data.axes)
        results.append(work(data))
        del data  # before the next one is read
    check_apart(checkpoints)
    if not wider:
        return results
    for axes in each_with_rows(frames, lambda frame: read_on(frame).axes):
        known.append(axes)  # noqa: PERF402 (the next one is read by it)
    again = prepare(known[-1])
    return [*each_with_rows(frames, lambda frame: again(read_on(frame)))]


def _dense(
    rows: pl.DataFrame,
    answers: pl.DataFrame,
    labels: FairnessLabels,
    known: Axes | None,
    columns: Sequence[str],
) -> Cube:
    """`answers` has the ranks of the rows that are answers, in their order."""
    checkpoints, c = checkpoint_codes(rows)
    seeds, s = seed_codes(rows["order_seed"])
    prompts, p = prompt_codes(rows, columns)
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
    check_cells(logits, rows, checkpoints=checkpoints, prompts=axes.prompts, labels=labels)
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
        raise two_answers(prompts["prompt_id"][int(at[0])])
    return gold
