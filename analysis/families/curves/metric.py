"""Curves over training: what any prompt set says of each checkpoint, without a family's question.

Entropy is read from full vocabulary rows, everything else from scores.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.pieces import together
from logitbank.analysis.results.tables import tables_of
from logitbank.analysis.stats.shares import Z95, if_enough
from logitbank.store import Deposit, Readable
from logitbank.store.deposits.sealed_scores import check_scores
from logitbank.store.filter.top import first_entries

Measure = Literal["entropy", "probability", "rank", "agreement"]
BOUNDS: dict[Measure, tuple[float, float | None]] = {
    "entropy": (0, None),
    "probability": (0, 1),
    "rank": (1, None),
    "agreement": (0, 1),
}
"""The measures, and between which values each lies."""
ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""
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
_PLACE = ["prompt_id", "order_seed", "option", "piece"]
_POSITION = ["prompt_id", "order_seed", "query_set", "row"]


@dataclass(frozen=True, slots=True)
class Curves:
    """What `curves_metric` found, over the prompts that a checkpoint has whole."""

    curves: pl.DataFrame
    """One row per checkpoint, prompt set and measure: value, the mean over prompts, null where
    there is none; low and high, its 95 % interval (normal), NaN for fewer than ten prompts;
    prompts, over how many it is. Measures are `entropy` (nats), `probability` and `rank` of the
    right answer, and `agreement`."""
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts that have every score, those missing,
    answered (that name a right answer, of all that were asked), and whether the checkpoint keeps
    full rows."""
    entropy: bool
    """Whether full rows were read."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""
        return tables_of(self)


def curves_metric(
    bank: Readable,
    prompts: Sequence[str],
    *,
    models: Collection[str] | None = None,
    entropy: bool = True,
) -> Curves:
    """Means over the prompts of each set, at every checkpoint. All arithmetic is float64.

    A prompt counts once, its option orders put together; entropy and agreement are means over the
    positions at which it is scored.

    ``entropy``
        :math:`-\\sum_v p_v\\ln p_v` of the distribution over all outputs of the head, nats.
    ``probability``, ``rank``
        Of the right answer: the option that is the prompt's answer, or the target word of a
        passage. Its probability is the product over its tokens; its rank is 1 + the number of
        outputs with a greater logit, of answers of one token alone.
    ``agreement``
        Share of positions whose most probable token (of equal ones the first) is that of the
        run's last checkpoint, the release where there is one.

    Parameters
    ----------
    prompts
        Names of prompt sets. Those that no chosen model was asked have no rows.
    models
        Only these; all if None.
    entropy
        Whether to read full rows, where a checkpoint keeps them: every row of every checkpoint.
        Everything else is exact at every keep level.

    Raises
    ------
    BankError
        A prompt set is not there.
    DamagedError
        Stored bytes are not what was committed.
    """
    tables, coverage = [pl.DataFrame(schema=CURVES)], [pl.DataFrame(schema=CHECKPOINTS)]
    for name in prompts:
        table = bank.prompts(name).collect()
        asked = expected_query_sets(bank, name)
        series: dict[tuple[str, str], list[Deposit]] = {}
        for deposit in bank.deposits_of(name):
            checkpoint = deposit.checkpoint
            if models is None or checkpoint.model in models:
                series.setdefault((checkpoint.model, checkpoint.run), []).append(deposit)
        for (model, run), deposits in series.items():
            places = _places(table.filter(pl.col("query_set").is_in(list(asked[model]))))
            for step, each, full in _checkpoints(deposits, places, entropy=entropy):
                head = {"model": model, "run": run, "step": step, "prompt_set": name}
                tables += [_mean(each, measure, head) for measure in BOUNDS]
                about = _coverage(places, each, full_rows=full)
                coverage.append(pl.DataFrame([head | about], schema=CHECKPOINTS))
    return Curves(together(tables), together(coverage), entropy)


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


def _places(table: pl.DataFrame) -> pl.DataFrame:
    """What a model was asked: prompt_id, order_seed, place, query_set, row, token, is_right.

    A place is a piece of an option, wherever it is scored.
    """
    right = pl.col("is_answer").fill_null(False)
    if "score_kind" in table.columns:  # a passage's own last word is no option among others
        right |= pl.col("answer").is_null() & (pl.col("score_kind") == "target")
    index = table.select(_PLACE).unique(maintain_order=True).with_row_index("place")
    places = table.join(index, on=_PLACE, nulls_equal=True, maintain_order="left")
    return places.select(*_POSITION, "place", "token", is_right=right.fill_null(False))


def _checkpoints(
    deposits: Sequence[Deposit], places: pl.DataFrame, *, entropy: bool
) -> Iterator[tuple[int | None, pl.DataFrame, bool]]:
    """By step, the release last: the whole prompts of each, and whether it keeps full rows."""
    by_step: dict[int | None, list[Deposit]] = {}
    for deposit in sorted(deposits, key=lambda d: (d.checkpoint.step is None, d.checkpoint.step)):
        by_step.setdefault(deposit.checkpoint.step, []).append(deposit)
    checked = check_scores(deposits)
    last = _scored(places, _scores([*by_step.values()][-1], checked=checked))
    last = last.select("place", last_top="top")
    for step, own in by_step.items():
        scores = _scores(own, checked=checked)
        scored = _scored(places, scores)
        full = all(deposit.layout.keep.whole_rows for deposit in own)
        read = own if entropy and full else []
        rows = _entropy_of_rows(read, scored)
        # The order of positions decides the last bit of their mean.
        positions = (
            scored.unique(_POSITION, maintain_order=True)
            .join(last, on="place", how="left", maintain_order="left")
            .join(rows, on=["query_set", "row"], how="left", maintain_order="left")
        )
        yield step, _prompts(places, scored, positions, _answers(scored, scores)), full


def _scores(deposits: Sequence[Deposit], *, checked: bool) -> pl.DataFrame:
    """Scores of options and of the highest entry of each row."""
    frames = [
        deposit.scores(checked=checked)
        .filter((pl.col("kind") == "option") | first_entries(1))
        .select(
            pl.lit(deposit.query_set).alias("query_set"),
            pl.col("query").alias("row"),
            "kind",
            "token",
            "rank",
            logprob=pl.col("logit").cast(pl.Float64) - pl.col("logsumexp"),
        )
        for deposit in deposits
    ]
    return pl.concat(frames).collect()


def _scored(places: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The places that have a score, each once, with the most probable token there: `top`."""
    tops = scores.filter(pl.col("kind") == "top").group_by("query_set", "row")
    found = tops.agg(top=pl.col("token").min())
    there = places.join(found, on=["query_set", "row"], maintain_order="left")
    return there.unique("place", maintain_order=True, keep="first")


def _entropy_of_rows(deposits: Sequence[Deposit], scored: pl.DataFrame) -> pl.DataFrame:
    """query_set, row and entropy of the rows at which prompts are scored."""
    frames = [pl.DataFrame(schema={"query_set": pl.String, "row": pl.Int32, "entropy": pl.Float64})]
    for deposit in deposits:
        own = scored.filter(pl.col("query_set") == deposit.query_set)["row"].unique().sort()
        rows = own.to_numpy()
        for part in np.split(rows, np.flatnonzero(np.diff(rows // ROWS)) + 1) if len(rows) else ():
            values = entropies(deposit.logprobs(part, normalised=True))
            frames.append(
                pl.DataFrame({"row": part, "entropy": values}).select(
                    pl.lit(deposit.query_set).alias("query_set"), "row", "entropy"
                )
            )
    return pl.concat(frames)


def _answers(scored: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """prompt_id, probability and rank of the right answer; of several orders the mean."""
    options = scores.filter(pl.col("kind") == "option").drop("kind")
    pieces = scored.filter("is_right").join(
        options, on=["query_set", "row", "token"], how="left", maintain_order="left"
    )
    whole = pl.col("logprob").is_not_null().all()
    each = pieces.group_by("prompt_id", "order_seed").agg(
        probability=pl.when(whole).then(pl.col("logprob").sum().exp()),
        rank=pl.when(whole & (pl.len() == 1)).then(pl.col("rank").first()),
    )
    return each.group_by("prompt_id").agg(
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean()).alias(name)
        for name in ("probability", "rank")
    )


def _prompts(
    places: pl.DataFrame, scored: pl.DataFrame, positions: pl.DataFrame, answers: pl.DataFrame
) -> pl.DataFrame:
    """One row per prompt of which every place is scored, with its four measures."""
    agrees = pl.when(pl.col("last_top").is_not_null().all()).then(
        (pl.col("top") == pl.col("last_top")).mean()
    )
    every = pl.when(pl.col("entropy").is_not_null().all()).then(pl.col("entropy").mean())
    asked = places.group_by("prompt_id").agg(asked=pl.col("place").n_unique())
    there = scored.group_by("prompt_id").agg(there=pl.len())
    whole = asked.join(there, on="prompt_id").filter(pl.col("asked") == pl.col("there"))
    means = positions.group_by("prompt_id").agg(entropy=every, agreement=agrees)
    return means.join(whole, on="prompt_id", how="semi").join(answers, on="prompt_id", how="left")


def _mean(prompts: pl.DataFrame, measure: Measure, head: Mapping[str, object]) -> pl.DataFrame:
    # In the order of their size, so that the mean does not depend on that of a group-by.
    values = prompts.select(value=pl.col(measure).cast(pl.Float64)).drop_nulls().sort("value")
    mean, count = pl.col("value").mean(), pl.len()
    half = Z95 * pl.col("value").std() / count.sqrt()
    least, most = BOUNDS[measure]
    return values.select(
        **{name: pl.lit(value, CURVES[name]) for name, value in head.items()},
        measure=pl.lit(measure),
        value=mean,
        low=if_enough((mean - half).clip(least, most), count),
        high=if_enough((mean + half).clip(least, most), count),
        prompts=count,
    ).cast(CURVES)


def _coverage(places: pl.DataFrame, whole: pl.DataFrame, *, full_rows: bool) -> dict[str, object]:
    return {
        "prompts": len(whole),
        "missing": places["prompt_id"].n_unique() - len(whole),
        "answered": places.filter("is_right")["prompt_id"].n_unique(),
        "full_rows": full_rows,
    }
