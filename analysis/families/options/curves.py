"""Training curves of any prompts: the right answer, entropy, and agreement with the end.

Entropy is read from full vocabulary rows, everything else from scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.pieces import AGAIN
from logitbank.analysis.stats.shares import clustered_error, with_t_interval
from logitbank.errors import BankError
from logitbank.store import Bank, Deposit
from logitbank.store.filter.top import first_entries
from logitbank.wording import checkpoint_name

Measure = Literal["entropy", "probability", "rank", "agreement"]
BOUNDS: dict[Measure, tuple[float, float | None]] = {
    "entropy": (0, None),
    "probability": (0, 1),
    "rank": (1, None),
    "agreement": (0, 1),
}
"""The measures, and between which values each lies."""
CURVES = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "measure": pl.String(), "value": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "prompts": pl.Int64(),
    }
)  # fmt: skip
CHECKPOINTS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "prompts": pl.Int64(), "missing": pl.Int64(), "answered": pl.Int64(),
        "full_rows": pl.Boolean(),
    }
)  # fmt: skip
ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""
Row = dict[str, object]
_PLACE = ["prompt_id", "order_seed", "option", "piece"]
_POSITION = ["prompt", "order_seed", "at"]
_STRIDE = 2**32
"""Rows of one query set, so that a query set and a row are one number: `at`."""


def curves_of(
    bank: Bank, prompts: str, deposits: Sequence[Deposit], *, entropy: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `curves` and `checkpoints` of `OptionScores`, of some deposits of a prompt set."""
    table = bank.prompts(prompts).collect()
    bank.require_scored(prompts, deposits)
    asked = expected_query_sets(bank, prompts)  # now: others may have begun a model before
    series: dict[tuple[str, str], list[Deposit]] = {}
    for deposit in deposits:
        series.setdefault((deposit.checkpoint.model, deposit.checkpoint.run), []).append(deposit)
    means, coverage = list[Row](), list[Row]()
    for (model, run), of_series in series.items():
        named = table.filter(pl.col("query_set").is_in(list(asked[model])))
        sets = {*named["query_set"], *(deposit.query_set for deposit in of_series)}
        numbers = {query_set: at for at, query_set in enumerate(sorted(sets))}
        places = _places(named, numbers)
        head: Row = {"model": model, "run": run, "prompt_set": prompts}
        for of_measures, about in _checkpoints(of_series, places, numbers, head, entropy):
            means += of_measures
            coverage.append(about)
    return with_intervals(means), pl.DataFrame(coverage, CHECKPOINTS)


def _places(table: pl.DataFrame, numbers: Mapping[str, int]) -> pl.DataFrame:
    """What a model was asked: prompt, sentence, order_seed, place, at, token, is_right.

    A place is a piece of an option, wherever it is scored. Prompts are numbers, and so are query
    sets and rows: tables of every checkpoint are grouped and joined by them.
    """
    right = pl.col("is_answer").fill_null(False)
    if "score_kind" in table.columns:  # a passage's own last word is no option among others
        right |= pl.col("answer").is_null() & (pl.col("score_kind") == "target")
    index = table.select(_PLACE).unique(maintain_order=True).with_row_index("place")
    places = table.join(index, on=_PLACE, nulls_equal=True, maintain_order="left")
    sentence = [name for name in ("sentence_id",) if name in table.columns]
    of_set = pl.col("query_set").replace_strict(numbers, return_dtype=pl.Int64)
    return places.select(
        "order_seed",
        "place",
        "token",
        prompt=pl.col("prompt_id").rank("dense"),
        sentence=pl.coalesce(*sentence, "prompt_id").rank("dense"),
        at=of_set * _STRIDE + pl.col("row"),
        is_right=right.fill_null(False),
    )


class _Asked(NamedTuple):
    """What a model was asked, which is the same at every checkpoint."""

    places: pl.DataFrame
    prompts: pl.DataFrame
    """prompt, its sentence, and how many places it has: `asked`."""
    answered: int
    """Prompts that name a right answer."""

    @classmethod
    def of(cls, places: pl.DataFrame) -> Self:
        prompts = places.group_by("prompt").agg(
            pl.col("sentence").first(), asked=pl.col("place").n_unique()
        )
        return cls(places, prompts, places.filter("is_right")["prompt"].n_unique())


def _checkpoints(
    deposits: Sequence[Deposit],
    places: pl.DataFrame,
    numbers: Mapping[str, int],
    head: Row,
    entropy: bool,
) -> Iterator[tuple[list[Row], Row]]:
    """By step, the release last: a row of each measure, and what the checkpoint has."""
    by_step: dict[int | None, list[Deposit]] = {}
    for deposit in sorted(deposits, key=lambda d: (d.checkpoint.step is None, d.checkpoint.step)):
        by_step.setdefault(deposit.checkpoint.step, []).append(deposit)
    end = [*by_step.values()][-1]
    last = _scored(places, _scores(end, numbers))
    work = partial(
        _checkpoint,
        asked=_Asked.of(places),
        numbers=numbers,
        last=last.select("place", last_top="top"),
        entropy=entropy,
    )
    return (work(own, head | {"step": step}) for step, own in by_step.items())


def _checkpoint(
    deposits: Sequence[Deposit],
    head: Row,
    *,
    asked: "_Asked",
    numbers: Mapping[str, int],
    last: pl.DataFrame,
    entropy: bool,
) -> tuple[list[Row], Row]:
    """The means of one checkpoint, which is all that has to be read of it."""
    scored = _scored(asked.places, _scores(deposits, numbers))
    full = all(deposit.layout.keep.whole_rows for deposit in deposits)
    rows = _entropy_of_rows(deposits if entropy and full else [], scored, numbers)
    # The order of positions decides the last bit of their mean.
    positions = (
        scored.unique(_POSITION, maintain_order=True)
        .join(last, on="place", how="left", maintain_order="left")
        .join(rows, on="at", how="left", maintain_order="left")
    )
    answers = _answers(scored)
    refuse_undefined(answers["probability"], head)
    prompts = _prompts(asked.prompts, scored, positions, answers)
    coverage = {
        "prompts": len(prompts),
        "missing": len(asked.prompts) - len(prompts),
        "answered": asked.answered,
        "full_rows": full,
    }
    return means_of(prompts, head), head | coverage


def _scores(deposits: Sequence[Deposit], numbers: Mapping[str, int]) -> pl.DataFrame:
    """Scores of options and of the highest entry of each row."""
    frames = [
        deposit.scores()
        .filter((pl.col("kind") == "option") | first_entries(1))
        .select(
            "kind",
            "token",
            "rank",
            at=numbers[deposit.query_set] * _STRIDE + pl.col("query").cast(pl.Int64),
            logprob=pl.col("logit").cast(pl.Float64) - pl.col("logsumexp"),
        )
        for deposit in deposits
    ]
    return pl.concat(frames).collect()


def _scored(places: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The places that have a score, each once, with the most probable token there: `top`.

    A place of no option has one where its row has; others where their token is listed, with its
    logprob and rank.
    """
    tops = scores.filter(pl.col("kind") == "top").group_by("at")
    found = tops.agg(top=pl.col("token").min())
    options = scores.filter(pl.col("kind") == "option").drop("kind").with_columns(listed=True)
    there = places.join(found, on="at", maintain_order="left")
    there = there.join(options, on=["at", "token"], how="left", maintain_order="left")
    scored = there.filter(pl.col("token").is_null() | pl.col("listed")).drop("listed")
    return scored.unique("place", maintain_order=True, keep="first")


def _entropy_of_rows(
    deposits: Sequence[Deposit], scored: pl.DataFrame, numbers: Mapping[str, int]
) -> pl.DataFrame:
    """at and entropy of the rows at which prompts are scored."""
    frames = [pl.DataFrame(schema={"at": pl.Int64, "entropy": pl.Float64})]
    asked = scored["at"].unique().sort()
    for deposit in deposits:
        first = numbers[deposit.query_set] * _STRIDE
        rows = asked.filter(asked.is_between(first, first + _STRIDE, closed="left"))
        values = entropies_of(deposit, rows.to_numpy() - first)
        frames.append(pl.DataFrame({"at": rows, "entropy": values}))
    return pl.concat(frames)


def _answers(scored: pl.DataFrame) -> pl.DataFrame:
    """prompt, probability and rank of the right answer; of several orders the mean."""
    whole = pl.col("logprob").is_not_null().all()
    # In order, as that of the option orders decides the last bit of their mean.
    right = scored.filter("is_right")
    each = right.group_by("prompt", "order_seed", maintain_order=True).agg(
        probability=pl.when(whole).then(pl.col("logprob").sum().exp()),
        rank=pl.when(whole & (pl.len() == 1)).then(pl.col("rank").first()),
    )
    return each.group_by("prompt").agg(
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean()).alias(name)
        for name in ("probability", "rank")
    )


def _prompts(
    asked: pl.DataFrame, scored: pl.DataFrame, positions: pl.DataFrame, answers: pl.DataFrame
) -> pl.DataFrame:
    """One row per prompt of which every place `asked` is scored, with its four measures."""
    agrees = pl.when(pl.col("last_top").is_not_null().all()).then(
        (pl.col("top") == pl.col("last_top")).mean()
    )
    every = pl.when(pl.col("entropy").is_not_null().all()).then(pl.col("entropy").mean())
    there = scored.group_by("prompt").agg(there=pl.len())
    whole = asked.join(there, on="prompt").filter(pl.col("asked") == pl.col("there"))
    means = positions.group_by("prompt").agg(entropy=every, agreement=agrees)
    whole = whole.select("prompt", "sentence")
    return means.join(whole, on="prompt").join(answers, on="prompt", how="left")


def means_of(prompts: pl.DataFrame, head: Mapping[str, object]) -> list[dict[str, object]]:
    """One row per measure: value, how many prompts have one, and its error between sentences."""
    rows = []
    for measure in BOUNDS:
        values = prompts.select(
            pl.lit(measure).alias("measure"), "sentence", value=pl.col(measure).cast(pl.Float64)
        ).drop_nulls("value")
        # In the order of their size, so that sums do not depend on that of a group-by.
        values = values.sort("value", "sentence")
        errors = clustered_error(values, ["measure"], "value", cluster="sentence")
        error = errors.row(0, named=True) if len(errors) else {}
        mean = values["value"].mean()
        rows.append({**head, "measure": measure, **error, "value": mean, "prompts": len(values)})
    return rows


def with_intervals(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of `means_of` as `CURVES`: each with its 95 % interval, within its measure's bounds.

    Ranks have none: that of a mean of such skewed numbers is too short.
    """
    table = pl.DataFrame(rows, {**CURVES, "clusters": pl.Int64(), "stderr": pl.Float64()})
    least, most = (
        pl.col("measure").replace_strict(
            {measure: bounds[side] for measure, bounds in BOUNDS.items()}, return_dtype=pl.Float64
        )
        for side in (0, 1)
    )
    known = with_t_interval(table, "value", bounds=(None, None))
    end = pl.col("low", "high").clip(least, most).fill_null(float("nan"))
    return known.with_columns(
        pl.when(pl.col("measure") == "rank").then(float("nan")).otherwise(end).name.keep()
    ).select(CURVES.names())


def refuse_undefined(probability: pl.Series, head: Mapping[str, object]) -> None:
    """Refuse answers whose logits are not finite: no mean of them is a number."""
    invalid = probability.filter(~probability.is_finite())
    if len(invalid):
        raise BankError(
            f"an answer of {head['prompt_set']} has the probability {invalid[0]} at "
            f"{checkpoint_name(head)} ({len(invalid):,} such prompts); {AGAIN}"
        )


def entropies(logprobs: ArrayLike) -> NDArray[np.float64]:
    r"""Entropy of each row, :math:`-\sum_v p_v\ln p_v`, in nats and float64.

    `logprobs` (q, v) are of rows that sum to 1; −inf adds nothing.

    >>> entropies(np.log([[0.5, 0.25, 0.25]])).round(4).tolist()
    [1.0397]
    """
    values = np.asarray(logprobs, dtype=np.float64)
    p = np.exp(values)
    terms: NDArray[np.float64] = np.multiply(p, values, where=p > 0, out=np.zeros_like(p))
    return -np.asarray(terms.sum(axis=1), dtype=np.float64)


def entropies_of(deposit: Deposit, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy of some rows (q,) of a deposit that keeps them whole, in their ascending order."""
    found = np.empty(len(rows))
    starts = np.flatnonzero(np.diff(rows // ROWS, prepend=-1))
    for start, stop in pairwise([*starts, len(rows)]):
        found[start:stop] = entropies(deposit.logprobs(rows[start:stop], normalised=True))
    return found
