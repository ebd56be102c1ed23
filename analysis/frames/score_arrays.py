"""Scores of prompts with three options as dense arrays: checkpoint × order × prompt × option.

A million rows become arrays of 3 to 9 MB, and everything after that is array arithmetic. A cell
without a score is NaN. Fairness and stereotype accuracy read WinoBias like this.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.batches import (
    Batch,
    Batches,
    NoRowsError,
    read_nonempty,
)
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import (
    Floats,
    everything_ties,
    tied_others,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, FIX_NOT_FINITE
from logitbank.errors import BankError, UsageError
from logitbank.store.read.scan import PromptRows
from logitbank.wording import checkpoint_name

COLUMNS = (
    *("model", "run", "step", "prompt_id", "order_seed", "option", "is_answer"),
    *("logit", "rank", "ties", "exact", "sentence_id", "paired"),
)
CODED = ("model", "run", "prompt_id", "sentence_id", "option", "stereotype", "asked")
"""Text columns; as codes they take a third of the time to read."""
_OF_PROMPTS = ("prompt_id", "order_seed", "option", "is_answer", "sentence_id", "paired")
_OF_ANSWERS = ("rank", "ties", "exact", "logsumexp")
T = TypeVar("T")


class FairnessLabels(NamedTuple):
    """Labels of the three options, in the order of the option axis."""

    male: str = "male"
    female: str = "female"
    neutral: str = "not specified"


LABELS = FairnessLabels()
_CODES = {
    "option": pl.col("option").cast(pl.Enum(LABELS), strict=False).to_physical(),
    "is_answer": pl.col("is_answer").fill_null(False),
}


@dataclass(frozen=True)  # without slots, because it caches clusters and pairs for every batch
class PromptAxes:
    """The orders and prompts of all checkpoints, with or without scores."""

    seeds: tuple[int | None, ...]
    """Option-order seeds, sorted."""
    prompts: pl.DataFrame
    """p rows by prompt_id: prompt_id, sentence_id, paired, and further requested columns."""
    gold: Codes
    """(p,) index of the correct option."""

    @cached_property
    def clusters(self) -> Codes:
        """(p,) index of the sentence; a prompt without one is a cluster of its own."""
        names = self.prompts.select(pl.coalesce("sentence_id", "prompt_id")).to_series()
        return (names.rank("dense").to_numpy() - 1).astype(np.int64)

    @cached_property
    def pairs(self) -> tuple[Codes, Codes]:
        """Prompts of the same sentence with gold male and with gold female, pair by pair.

        A sentence counts if its versions are marked as paired and it has exactly one of each.
        """
        prompts = self.prompts.select("sentence_id", "paired", gold=self.gold).with_row_index("p")
        paired = prompts.filter(pl.col("paired") & pl.col("sentence_id").is_not_null())
        male, female = (
            paired.filter(pl.col("gold") == gold).unique("sentence_id", keep="none")
            for gold in (0, 1)
        )
        pairs = male.join(female, on="sentence_id", maintain_order="left")
        return (
            pairs["p"].to_numpy().astype(np.int64),
            pairs["p_right"].to_numpy().astype(np.int64),
        )

    def merged(self, other: "PromptAxes") -> "PromptAxes":
        """These axes themselves if they contain the other's; otherwise the union."""
        table = pl.concat([axes.prompts.with_columns(gold=axes.gold) for axes in (self, other)])
        union = table.unique("prompt_id", keep="first").sort("prompt_id")
        answers = table.select("prompt_id", "gold").unique()
        if len(answers) > len(union):
            raise _two_answers(
                answers.filter(pl.col("prompt_id").is_duplicated())["prompt_id"].min()
            )
        seeds = {*self.seeds, *other.seeds}
        if len(union) == len(self.prompts) and len(seeds) == len(self.seeds):
            return self
        ordered = sorted(seeds, key=lambda seed: (seed is None, seed or 0))
        return PromptAxes(tuple(ordered), union.drop("gold"), union["gold"].to_numpy())


@dataclass(frozen=True, slots=True)
class ScoreArrays:
    """The scores of some checkpoints."""

    checkpoints: pl.DataFrame
    """c rows: model, run, step; sorted, a release (null step) after the steps."""
    axes: PromptAxes
    """s seeds and p prompts."""
    logits: Floats
    """(c, s, p, o), NaN where the bank has no score."""
    ranks: Floats
    """(c, s, p) vocabulary rank of the gold token, NaN where missing; the middle rank if all
    outputs have the same logit."""
    top: NDArray[np.bool_]
    """(c, s, p) gold token is the only maximum of the vocabulary."""
    tied: NDArray[np.bool_]
    """(c, s, p) another token has the gold token's logit."""
    inexact: NDArray[np.bool_]
    """(c, s, p) the rank is a lower bound."""

    @property
    def gold(self) -> Codes:
        """(p,) index of the correct option."""
        return self.axes.gold


def score_arrays(
    frame: pl.LazyFrame,
    *,
    axes: PromptAxes | None = None,
    columns: Sequence[str] = (),
) -> ScoreArrays:
    """Collect a scan once and lay its scores out densely.

    `axes` are those of other checkpoints. If the frame has further prompts or seeds, the result has
    wider axes. Missing scores are NaN. `columns` are further text columns of the prompts.

    Raises
    ------
    UsageError
        The frame lacks columns, its options or answers are not `LABELS`, a prompt has two
        answers, or a checkpoint scores the same prompt, order and option twice.
    BankError
        No rows, a prompt without one of its options, or a logit that is not finite.
    """
    names = frame.collect_schema().names()
    if missing := [name for name in (*COLUMNS, *columns) if name not in names]:
        raise UsageError(
            f"The prompts have no column {', '.join(missing)}. This analysis needs the columns of "
            "WinoBias (extract --prompts winobias). Use `analyze options` for other prompts."
        )
    rows = frame.select(
        pl.col("model", "run", "prompt_id", *columns).cast(pl.Categorical),
        *("step", "order_seed", "sentence_id", "paired", "logit", "rank", "ties", "exact"),
        logprob="logprob" if "logprob" in names else pl.lit(float("nan")),
        **_CODES,
    ).collect(engine="streaming")
    if rows.is_empty():
        raise NoRowsError("The scan has no scores. Run `logitbank extract` first.")
    if count := rows["prompt_id"].null_count():
        raise UsageError(f"{count:,} rows have no prompt_id. Every score needs one.")
    _check_options(rows["option"], frame)
    answers = _answers(rows.filter("is_answer"))
    return _dense(rows, answers, axes, columns)


def _answers(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranks of the rows that are answers."""
    rank, middle = vocabulary_rank(), vocabulary_rank(ties="midrank")
    return rows.select(
        rank=pl.when(everything_ties()).then(middle).otherwise(rank),
        top=unique_maximum(),
        tied=tied_others() > 0,
        inexact=~pl.col("exact"),
    )


def map_score_arrays(
    frames: Batches | Iterable[pl.LazyFrame],
    prepare: Callable[[PromptAxes], Callable[[ScoreArrays], T]],
    *,
    columns: Sequence[str] = (),
) -> list[T]:
    """Results from the arrays of one frame after another, all on the same axes.

    `prepare` is called with the axes and returns the function of the arrays; `columns` are as for
    `score_arrays`. Frames are read once. If a later one widens the axes, which is rare, all are
    read again.

    Raises
    ------
    UsageError, BankError
        As `score_arrays`.
    """
    axes: PromptAxes | None = None
    complete = _CompleteArrays(columns)
    parts: Iterable[Batch | pl.LazyFrame] = frames.parts if isinstance(frames, Batches) else frames

    def read(part: Batch | pl.LazyFrame) -> ScoreArrays:
        if isinstance(part, Batch):
            if (arrays := complete.read(part, axes)) is not None:
                return arrays
            part = part.frame()
        return score_arrays(part, axes=axes, columns=columns)

    while True:
        function: Callable[[ScoreArrays], T] | None = None
        results, wider = [], False
        for arrays in read_nonempty(parts, read):
            wider |= axes is not None and arrays.axes is not axes
            axes = arrays.axes
            if not wider:
                function = function or prepare(axes)
                results.append(function(arrays))
            del arrays  # before the next one is read
        if not wider:
            return results


class _Cells(NamedTuple):
    """Where the scores of each checkpoint are in dense arrays."""

    axes: PromptAxes
    place: Codes
    """(n,) in (s, p, o)."""
    correct: Codes
    """(k,) which of the n are answers."""
    target: Codes
    """(k,) in (s, p)."""


class _CompleteArrays:
    """Reads checkpoints that have every score, whose places are searched once per query set."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._known: dict[str, tuple[PromptAxes | None, _Cells]] = {}

    def read(self, batch: Batch, axes: PromptAxes | None) -> ScoreArrays | None:
        """The arrays of a batch; None if `score_arrays` must read and check its rows."""
        parts = batch.regular()
        if parts is None or len(parts) != 1:
            return None
        ((prompts, deposits),) = parts
        cells = self._cells(prompts, deposits[0].query_set, axes)
        if cells is None:
            return None
        of_answers = dict.fromkeys(_OF_ANSWERS, cells.correct)
        values = prompts.matrices(deposits, {"logit": None, **of_answers})
        if values is None or not np.isfinite(values["logit"]).all():
            return None
        checkpoints = pl.DataFrame(
            batch.places,
            schema={"model": pl.String, "run": pl.String, "step": pl.Int64},
            orient="row",
        )
        number, axes = len(deposits), cells.axes
        shape = (number, len(axes.seeds), len(axes.prompts))
        logits = np.full((*shape, len(LABELS)), np.nan)
        logits.reshape(number, -1)[:, cells.place] = values["logit"]
        logprob = values["logit"][:, cells.correct].astype(np.float64) - values["logsumexp"]
        flat = {name: values[name].ravel() for name in _OF_ANSWERS}
        answers = _answers(pl.DataFrame({**flat, "logprob": logprob.ravel()}))
        ranks, flags = np.full(shape, np.nan), np.zeros((3, *shape), bool)
        for name, to in zip(("rank", "top", "tied", "inexact"), (ranks, *flags), strict=True):
            own = answers[name].to_numpy().reshape(logprob.shape)
            to.reshape(number, -1)[:, cells.target] = own
        return ScoreArrays(checkpoints, axes, logits, ranks, *flags)

    def _cells(self, prompts: PromptRows, query_set: str, axes: PromptAxes | None) -> _Cells | None:
        known = self._known.get(query_set)
        if known is not None and (known[0] is axes or known[1].axes is axes):
            return known[1]
        names = [*(each for each in COLUMNS if each in _OF_PROMPTS), *self._columns]
        if not {*names} <= {*prompts.schema}:
            return None
        rows = prompts.table(query_set, names).with_columns(
            pl.col("prompt_id", *self._columns).cast(pl.Categorical), **_CODES
        )
        options = rows["option"]
        if rows["prompt_id"].null_count() or options.n_unique() != len(LABELS):
            return None
        if options.null_count():
            return None
        found = _places(rows, axes, self._columns)
        size = len(found.axes.seeds) * len(found.axes.prompts)
        number = np.bincount(found.place, minlength=size * len(LABELS)).reshape(size, -1)
        per_prompt = number.sum(axis=1)
        if number.max() > 1 or not np.isin(per_prompt, (0, len(LABELS))).all():
            return None
        self._known[query_set] = axes, found
        return found


def _places(rows: pl.DataFrame, known: PromptAxes | None, columns: Sequence[str]) -> _Cells:
    """Axes of rows of one checkpoint, merged with the known ones, and the place of each row."""
    seeds, s = _seed_codes(rows["order_seed"])
    prompts, p = _prompt_codes(rows, columns)
    option = rows["option"].to_numpy()
    correct = np.flatnonzero(rows["is_answer"].to_numpy())
    axes = PromptAxes(seeds, prompts, _gold(option[correct], p[correct], prompts=prompts))
    if known is not None:
        axes = known.merged(axes)
        s = np.array([axes.seeds.index(seed) for seed in seeds])[s]
        p = axes.prompts["prompt_id"].search_sorted(prompts["prompt_id"]).to_numpy()[p]
    cell = s.astype(np.int64) * len(axes.prompts) + p
    return _Cells(axes, cell * len(LABELS) + option, correct, cell[correct])


def _dense(
    rows: pl.DataFrame,
    answers: pl.DataFrame,
    known: PromptAxes | None,
    columns: Sequence[str],
) -> ScoreArrays:
    """`answers` contains the ranks of the rows that are answers, in their order."""
    checkpoints, c = _checkpoint_codes(rows)
    axes, index, correct, target = _places(rows, known, columns)
    shape = (len(checkpoints), len(axes.seeds), len(axes.prompts))
    target += c[correct] * (shape[1] * shape[2])
    index += c * (shape[1] * shape[2] * len(LABELS))
    logits = np.full((*shape, len(LABELS)), np.nan)
    logits.reshape(-1)[index] = rows["logit"].to_numpy()
    _check_cells(logits, rows, checkpoints=checkpoints, prompts=axes.prompts)
    ranks = np.full(shape, np.nan)
    ranks.reshape(-1)[target] = answers["rank"].to_numpy()
    flags = []
    for name in ("top", "tied", "inexact"):
        flag = np.zeros(shape, bool)
        flag.reshape(-1)[target] = answers[name].fill_null(False).to_numpy()
        flags.append(flag)
    return ScoreArrays(checkpoints, axes, logits, ranks, *flags)


def _gold(
    option: NDArray[np.integer],
    prompt: NDArray[np.integer],
    *,
    prompts: pl.DataFrame,
) -> Codes:
    """The correct option of each prompt, from the rows that are answers."""
    gold = np.full(len(prompts), -1, np.int64)
    gold[prompt] = option
    if len(missing := np.flatnonzero(gold < 0)):
        raise UsageError(
            f"Prompt {prompts['prompt_id'][int(missing[0])]!r} has no answer among "
            f"{', '.join(map(repr, LABELS))} ({len(missing)} such prompts). Every prompt needs one."
        )
    if len(other := prompt[gold[prompt] != option]):
        raise _two_answers(prompts["prompt_id"][int(other[0])])
    return gold


def _checkpoint_codes(rows: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """Checkpoints in order, and the index of each row's checkpoint.

    A scan comes checkpoint by checkpoint, so the keys of runs of equal rows are compared instead
    of the keys of rows: 0.04 s against 2 s for a join of 7.3 million rows.
    """
    keys = rows.select(CHECKPOINT)
    codes = pl.all().to_physical()
    starts = keys.select(pl.any_horizontal(codes.ne_missing(codes.shift()))).to_series().arg_true()
    heads = keys[starts].with_columns(pl.col("model", "run").cast(pl.String))
    order = heads.unique().sort(CHECKPOINT, nulls_last=True)
    found = heads.join(
        order.with_row_index("code"),
        on=CHECKPOINT,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["code"]
    lengths = np.diff(starts, append=len(keys))
    return order, np.repeat(found.to_numpy().astype(np.int64), lengths)


def _seed_codes(values: pl.Series) -> tuple[tuple[int | None, ...], NDArray[np.integer]]:
    """Order seeds, and the index of each row's seed."""
    seeds = values.unique().sort(nulls_last=True)
    known = seeds.drop_nulls().to_numpy()
    filled = values.fill_null(0).to_numpy()
    codes = np.zeros(len(filled), np.int16)
    for seed in known[1:]:  # of five seeds, three times faster than a search
        codes += filled >= seed
    if values.null_count():
        codes[values.is_null().to_numpy()] = len(known)
    return tuple(seeds.to_list()), codes


def _prompt_codes(
    rows: pl.DataFrame, columns: Sequence[str]
) -> tuple[pl.DataFrame, NDArray[np.integer]]:
    """Prompts by name, with these text columns; and the index of each row's prompt."""
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
    return UsageError(f"Prompt {prompt_id!r} has two answers. Every prompt_id needs one answer.")


def _check_options(codes: pl.Series, frame: pl.LazyFrame) -> None:
    if codes.null_count() or not all((codes == at).any() for at in range(len(LABELS))):
        options = frame.select(pl.col("option").cast(pl.String).unique().sort()).collect()
        values = ", ".join(repr(value) for value in options.to_series().to_list())
        raise UsageError(
            f"The options are {values}. Fairness needs {', '.join(map(repr, LABELS))}: use the "
            "winobias prompts."
        )


def _check_cells(
    logits: Floats,
    rows: pl.DataFrame,
    *,
    checkpoints: pl.DataFrame,
    prompts: pl.DataFrame,
) -> None:
    if rows["logit"].null_count() or not rows["logit"].is_finite().all():
        row = rows.filter(~pl.col("logit").is_finite().fill_null(False))
        raise BankError(
            f"Prompt {row['prompt_id'][0]!r} has the logit {row['logit'][0]} at "
            f"{checkpoint_name(row.row(0, named=True))} ({len(row)} such rows). {FIX_NOT_FINITE}"
        )
    present = ~np.isnan(logits)
    if (surplus := len(rows) - int(np.count_nonzero(present))) > 0:
        raise UsageError(
            f"{surplus} rows score a checkpoint, prompt, order and option that another row scores. "
            "Scan one prompt set with options of a single token."
        )
    options = reduce(np.add, np.moveaxis(present.view(np.int8), -1, 0))
    partial = np.argwhere((options > 0) & (options < len(LABELS)))
    if len(partial):
        c, s, p = (int(i) for i in partial[0])
        missing = ", ".join(repr(LABELS[o]) for o in np.flatnonzero(~present[c, s, p]))
        checkpoint = checkpoint_name(checkpoints.row(c, named=True))
        raise BankError(
            f"Prompt {prompts['prompt_id'][p]!r} has no score for option {missing} at {checkpoint} "
            f"({len(partial)} such prompts). Extract its options again."
        )
