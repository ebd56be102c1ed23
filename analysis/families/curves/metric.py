"""Curves over training: what any prompt set says of each checkpoint, without a family's question.

Entropy is read from full vocabulary rows, everything else from scores.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import polars as pl

from logitbank.analysis.families.curves.entropy import entropies_of
from logitbank.analysis.families.curves.means import means_of, refuse_undefined, with_intervals
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.pieces import together
from logitbank.analysis.results.tables import Result
from logitbank.store import Bank, Deposit
from logitbank.store.deposits.sealed_scores import check_scores
from logitbank.store.filter.top import first_entries

CHECKPOINTS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "prompts": pl.Int64(), "missing": pl.Int64(), "answered": pl.Int64(),
        "full_rows": pl.Boolean(),
    }
)  # fmt: skip
Row = dict[str, object]
_PLACE = ["prompt_id", "order_seed", "option", "piece"]
_POSITION = ["prompt", "order_seed", "at"]
_ROWS = 2**32
"""Rows of one query set, so that a query set and a row are one number: `at`."""


@dataclass(frozen=True, slots=True)
class Curves(Result):
    """What `curves_metric` found, over the prompts that a checkpoint has whole."""

    curves: pl.DataFrame
    """One row per checkpoint, prompt set and measure: value, the mean over prompts, null where
    there is none; low and high, its 95 % interval (t, prompts of one `sentence_id` together), NaN
    for fewer than ten of them, where all are alike, and of ranks;
    prompts, over how many it is. Measures are `entropy` (nats), `probability` and `rank` of the
    right answer, and `agreement`."""
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts that have every score, those missing,
    answered (that name a right answer, of all that were asked), and whether the checkpoint keeps
    full rows."""
    entropy: bool
    """Whether full rows were read."""


def curves_metric(
    bank: Bank,
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
        A prompt set is not there, or options of it were named after full rows were kept.
        An answer has no probability, as its logit is not finite.
    DamagedError
        Stored bytes are not what was committed.
    """
    means, coverage = list[Row](), list[Row]()
    for name in prompts:
        table = bank.prompts(name).collect()
        chosen = [
            deposit
            for deposit in bank.deposits_of(name)
            if models is None or deposit.checkpoint.model in models
        ]
        bank.require_scored(name, chosen)
        asked = expected_query_sets(bank, name)  # now: others may have begun a model before
        series: dict[tuple[str, str], list[Deposit]] = {}
        for deposit in chosen:
            series.setdefault((deposit.checkpoint.model, deposit.checkpoint.run), []).append(
                deposit
            )
        for (model, run), deposits in series.items():
            named = table.filter(pl.col("query_set").is_in(list(asked[model])))
            sets = {*named["query_set"], *(deposit.query_set for deposit in deposits)}
            numbers = {query_set: at for at, query_set in enumerate(sorted(sets))}
            places = _places(named, numbers)
            head: Row = {"model": model, "run": run, "prompt_set": name}
            for of_measures, about in _checkpoints(deposits, places, numbers, head, entropy):
                means += of_measures
                coverage.append(about)
    curves, checkpoints = with_intervals(means), pl.DataFrame(coverage, CHECKPOINTS)
    return Curves(together([curves]), together([checkpoints]), entropy)


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
        at=of_set * _ROWS + pl.col("row"),
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
    checked = check_scores(deposits)
    last = _scored(places, _scores(end, numbers, checked=checked))
    work = partial(
        _checkpoint,
        asked=_Asked.of(places),
        numbers=numbers,
        last=last.select("place", last_top="top"),
        entropy=entropy,
        checked=checked,
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
    checked: bool,
) -> tuple[list[Row], Row]:
    """The means of one checkpoint, which is all that has to be read of it."""
    scored = _scored(asked.places, _scores(deposits, numbers, checked=checked))
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


def _scores(
    deposits: Sequence[Deposit], numbers: Mapping[str, int], *, checked: bool
) -> pl.DataFrame:
    """Scores of options and of the highest entry of each row."""
    frames = [
        deposit.scores(checked=checked)
        .filter((pl.col("kind") == "option") | first_entries(1))
        .select(
            "kind",
            "token",
            "rank",
            at=numbers[deposit.query_set] * _ROWS + pl.col("query").cast(pl.Int64),
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
        first = numbers[deposit.query_set] * _ROWS
        rows = asked.filter(asked.is_between(first, first + _ROWS, closed="left"))
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
