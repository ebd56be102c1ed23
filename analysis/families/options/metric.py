"""Any prompt set: options, correct answers, entropy and agreement at every checkpoint.

Entropy is read from full vocabulary rows, everything else from scores.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.families.options import Score
from logitbank.analysis.families.options.tables import (
    ANSWERS,
    CHECKPOINTS,
    CURVES,
    NEIGHBOURS,
    SHARES,
    Compared,
    Row,
    accuracy_changes,
    answer_items,
    compared_shares,
    divided,
    evenly_spaced,
    measure_means,
    neighbour_rows,
    neighbours_by_options,
    option_shares,
    with_intervals,
)
from logitbank.analysis.frames.banks import check_same_prompts
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.expressions import check_choice, exact_rank
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import FIX_NOT_FINITE, concat_sorted
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.neighbours import js_divergences
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.filter.top import first_entries
from logitbank.store.read.missing_scores import require_scored
from logitbank.store.steps import in_order
from logitbank.wording import checkpoint_name

ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""
COMPARED_ROWS = 4
"""Most vocabulary rows that are compared between checkpoints: of 154 with 50,304 entries, the pairs
take 7 s a row, and entropy 0.5 s."""
_PLACE = ["prompt_id", "order_seed", "option", "piece"]
_PROMPT = ["prompt_id", "order_seed"]
_POSITION = ["prompt", "order_seed", "at"]
_STRIDE = 2**32
"""Rows of one query set, so that a query set and a row are one number: `at`."""


@dataclass(frozen=True, slots=True)
class OptionScores(Result):
    """What `option_scores` found. `low` and `high` are 95 % intervals over prompts, clustered by
    `sentence_id`."""

    shares: pl.DataFrame
    """model, run, step, prompt_set, option; option_probability, normalized over the options of a
    prompt, its mean over `prompts` with a score of each option, in so many sentences, with low and
    high; probability (mean) and rank (mean; null for an option of several tokens) over the `scored`
    prompts; missing, the prompts, each option order counted, whose option is not scored."""
    answers: pl.DataFrame
    """model, run, step, prompt_set, prompts, sentences, accuracy (the answer is more probable than
    every other option), low, high, tied (prompts in which it shares the largest probability);
    missing, the prompts without one of their options. There are no rows without answers."""
    curves: pl.DataFrame
    """One row per checkpoint, prompt set and measure: value, the mean over prompts, null without
    any; low and high, NaN for fewer than ten prompts, for equal values, and for ranks; prompts, its
    sample size. Measures are `entropy` (nats), `probability` and `rank` of the correct answer, and
    `top1_agreement`."""
    change_points: pl.DataFrame
    """Change points of accuracy, by prompt set, model and run."""
    neighbours: pl.DataFrame
    """One row per checkpoint and prompt set that another one can be compared with: basis (`rows` of
    the vocabulary, or `options`), compared (how many rows or prompts); `previous` and `next`, the
    mean Jensen–Shannon divergence (nats) from the checkpoint before and after; nearest_step and
    `nearest`, the same of the nearest checkpoint; and whether the checkpoint is `misplaced`."""
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts that have every score, those missing,
    answered (prompts that name a correct answer), and whether the checkpoint keeps full rows."""
    score: Score = "sum"
    """What options are compared by."""
    entropy: bool = True
    """Whether full rows were read."""


def option_scores(
    banks: Bank | Sequence[Bank],
    prompts: Sequence[str],
    *,
    models: Collection[str] | None = None,
    score: Score = "sum",
    entropy: bool = True,
) -> OptionScores:
    """Options, correct answers, entropy and agreement of prompt sets. All arithmetic is float64.

    A prompt counts once: its option orders are averaged first. Prompts of a single option have no
    `option_probability`. Entropy and agreement are means over the positions at which a prompt is
    scored.

    ``probability``, ``rank`` in `curves`
        Of the correct answer: the option that is the prompt's answer, or the target word of a
        passage. Its probability is the product over its tokens; its rank is 1 + the number of
        vocabulary entries with a greater logit, of answers of one token alone.
    ``entropy``
        :math:`-\\sum_v p_v\\ln p_v` over the vocabulary, nats.
    ``top1_agreement``
        Share of positions whose most probable token (of equal ones the first) is that of the run's
        last checkpoint, or its release.

    Parameters
    ----------
    banks
        One, or several that have different models or runs.
    prompts
        Names of prompt sets. Of several, those without a deposit of the models have no rows.
    models
        Only these; all if None.
    score
        What options are compared by in `shares` and `answers`.
    entropy
        Whether to read full rows of checkpoints that keep them.

    Raises
    ------
    BankError
        A prompt set or its deposits are missing, or its options were named after full rows were
        kept. An answer has no probability, because its logit is not finite.
    UsageError
        An unknown score. A run is in two banks.
    DamagedError
        Stored bytes are not what was committed.

    References
    ----------
    The scores of lm-evaluation-harness: `acc` compares sums, `acc_norm` divides by characters, and
    `acc_bytes` by bytes. Not in it: ties for the largest count as wrong, and are reported.
    """
    check_choice("score", score, get_args(Score))
    opened = [banks] if isinstance(banks, Bank) else list(banks)
    shares, answers = [pl.DataFrame(schema=SHARES)], [pl.DataFrame(schema=ANSWERS)]
    curves, checkpoints = [pl.DataFrame(schema=CURVES)], [pl.DataFrame(schema=CHECKPOINTS)]
    neighbours = [pl.DataFrame(schema=NEIGHBOURS)]
    for name in prompts:
        for bank, deposits in _holding(opened, name, models):
            if not deposits and (len(prompts) > 1 or len(opened) > 1):
                continue
            # First, because it refuses answers whose logits are not finite.
            of_set = curve_tables(bank, name, deposits, entropy=entropy)
            curves.append(of_set[0])
            checkpoints.append(of_set[1])
            neighbours.append(of_set[2])
            by_rows = set(of_set[2].select("model", "run").iter_rows())
            own = {deposit.checkpoint.model for deposit in deposits} or models
            compared: dict[tuple[str, str], list[Compared]] = {}
            for scores in prompt_scores(
                bank, name, models=own, first_token_only=score == "first", few=True
            ):
                part = divided(scores, score)
                for found in option_shares([part], name):
                    shares.append(found.shares)
                    answers.append(found.answers)
                if (run := (part.model, part.run)) not in by_rows:
                    compared.setdefault(run, []).append(compared_shares(part))
            neighbours += [neighbours_by_options(*run, name, compared[run]) for run in compared]
    accuracy = pl.concat(answers)
    return OptionScores(
        shares=pl.concat(shares),
        answers=accuracy,
        curves=concat_sorted(curves),
        change_points=accuracy_changes(accuracy),
        neighbours=concat_sorted(neighbours),
        checkpoints=concat_sorted(checkpoints),
        score=score,
        entropy=entropy,
    )


def read_items(source: Scores) -> Items:
    """Whether the answer is more probable than every other option, the mean over orders.

    Of prompts with an answer among several options; null if no order has a score of all of them.
    """
    parts = list[pl.DataFrame]()
    for bank, deposits in _holding(source.banks, source.prompts, source.models):
        models = {d.checkpoint.model for d in deposits if _chosen(d, source.steps)}
        if models:
            scores = prompt_scores(
                bank, source.prompts, models=models, steps=source.steps, few=True
            )
            parts += answer_items(scores)
    return gather_items(parts)


def _chosen(deposit: Deposit, steps: Collection[int | None] | None) -> bool:
    return steps is None or deposit.checkpoint.step in steps


def _holding(
    banks: Sequence[Bank], prompts: str, models: Collection[str] | None
) -> Iterator[tuple[Bank, list[Deposit]]]:
    """The banks with a prompt set, and their deposits of it; each run is in one bank."""
    holding = [bank for bank in banks if prompts in bank.prompt_sets] or list(banks)
    check_same_prompts(holding, prompts)
    seen: dict[tuple[str, str], Bank] = {}
    for bank in holding:
        deposits = [
            deposit
            for deposit in bank.deposits(prompts=prompts)
            if models is None or deposit.checkpoint.model in models
        ]
        for model, run in {(d.checkpoint.model, d.checkpoint.run) for d in deposits}:
            if (other := seen.setdefault((model, run), bank)) is not bank:
                raise UsageError(
                    f"{model} {run} has scores of {prompts!r} in both {other.address} and "
                    f"{bank.address}. Put the banks together with `logitbank merge`."
                )
        yield bank, deposits


def curve_tables(
    bank: Bank, prompts: str, deposits: Sequence[Deposit], *, entropy: bool
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tables `curves`, `checkpoints` and `neighbours` of some deposits of a prompt set.

    Only runs whose checkpoints all keep full rows have neighbours here, with `entropy`.
    """
    table = bank.prompts(prompts).collect()
    require_scored(bank.path, prompts, deposits)
    expected = expected_query_sets(bank, prompts)  # now: others may have begun a model before
    series: dict[tuple[str, str], list[Deposit]] = {}
    for deposit in deposits:
        series.setdefault((deposit.checkpoint.model, deposit.checkpoint.run), []).append(deposit)
    means, coverage = list[Row](), list[Row]()
    neighbours = [pl.DataFrame(schema=NEIGHBOURS)]
    for (model, run), own in series.items():
        rows = table.filter(pl.col("query_set").is_in(list(expected[model])))
        head: Row = {"model": model, "run": run, "prompt_set": prompts}
        for measures, about in _checkpoints(rows, own, head, entropy=entropy):
            means += measures
            coverage.append(about)
        if entropy and all(deposit.layout.keep.has_full_rows for deposit in own):
            neighbours.append(neighbours_by_rows(rows, own, head))
    table = pl.concat(neighbours)
    return with_intervals(means), pl.DataFrame(coverage, CHECKPOINTS), table


def neighbours_by_rows(table: pl.DataFrame, deposits: Sequence[Deposit], head: Row) -> pl.DataFrame:
    """Rows of `neighbours` of a run whose checkpoints keep full rows.

    A checkpoint that lacks one of the compared rows has none. One row of all checkpoints is in
    memory at once.
    """
    positions = table.select("query_set", "row").unique().sort("query_set", "row")
    rows = positions[evenly_spaced(len(positions), COMPARED_ROWS)].rows()
    at = {(deposit.checkpoint.step, deposit.query_set): deposit for deposit in deposits}
    committed = {key: deposit.committed_rows() for key, deposit in at.items()}
    steps = [
        step
        for step in in_order(deposit.checkpoint.step for deposit in deposits)
        if all((step, name) in at and committed[step, name][row] for name, row in rows)
    ]
    sums = np.zeros((len(steps), len(steps)))
    for name, row in rows if steps else []:
        logprobs = [at[step, name].logprobs([row], normalised=True) for step in steps]
        p = np.exp(np.concatenate(logprobs, dtype=np.float64))
        sums += js_divergences(p / p.sum(axis=1, keepdims=True))
    about = head | {"basis": "rows", "compared": len(rows)}
    return neighbour_rows(about, steps, sums / len(rows))


def _places(table: pl.DataFrame, numbers: Mapping[str, int]) -> pl.DataFrame:
    """What a model was asked: prompt, sentence, order_seed, place, at, token, is_correct.

    A place is one scored token of an option of a prompt. Prompts are numbers, and so are query
    sets and rows: tables of every checkpoint are grouped and joined by them.
    """
    correct = pl.col("is_answer").fill_null(False)
    if "score_kind" in table.columns:  # a passage's own last word is no option among others
        correct |= pl.col("answer").is_null() & (pl.col("score_kind") == "target")
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
        is_correct=correct.fill_null(False),
    )


def _checkpoints(
    table: pl.DataFrame, deposits: Sequence[Deposit], head: Row, *, entropy: bool
) -> Iterator[tuple[list[Row], Row]]:
    """By step, the release last: a row of each measure, and what the checkpoint has."""
    sets = sorted({*table["query_set"], *(deposit.query_set for deposit in deposits)})
    numbers = {query_set: at for at, query_set in enumerate(sets)}
    places = _places(table, numbers)
    expected = places.group_by("prompt").agg(
        pl.col("sentence").first(), expected=pl.col("place").n_unique()
    )
    answered = places.filter("is_correct")["prompt"].n_unique()
    by_step: dict[int | None, list[Deposit]] = {}
    for deposit in sorted(deposits, key=lambda d: (d.checkpoint.step is None, d.checkpoint.step)):
        by_step.setdefault(deposit.checkpoint.step, []).append(deposit)
    end = _scored(places, _scores([*by_step.values()][-1], numbers))
    last = end.select("place", last_top="top")
    for step, own in by_step.items():
        scored = _scored(places, _scores(own, numbers))
        full = all(deposit.layout.keep.has_full_rows for deposit in own)
        rows = _query_entropy(own if entropy and full else [], scored, numbers)
        # The order of positions decides the last bit of their mean.
        positions = (
            scored.unique(_POSITION, maintain_order=True)
            .join(last, on="place", how="left", maintain_order="left")
            .join(rows, on="at", how="left", maintain_order="left")
        )
        checkpoint, answers = head | {"step": step}, _answers(scored)
        refuse_undefined(answers["probability"], checkpoint)
        prompts = _prompts(expected, scored, positions, answers)
        yield (
            measure_means(prompts, checkpoint),
            checkpoint
            | {
                "prompts": len(prompts),
                "missing": len(expected) - len(prompts),
                "answered": answered,
                "full_rows": full,
            },
        )


def _scores(deposits: Sequence[Deposit], numbers: Mapping[str, int]) -> pl.DataFrame:
    """Scores of options and of the highest entry of each row."""
    frames = [
        deposit.scores()
        .filter((pl.col("kind") == "option") | first_entries(1))
        .select(
            "kind",
            "token",
            exact_rank(),
            at=numbers[deposit.query_set] * _STRIDE + pl.col("query").cast(pl.Int64),
            logprob=pl.col("logit").cast(pl.Float64) - pl.col("logsumexp"),
        )
        for deposit in deposits
    ]
    return pl.concat(frames).collect()


def _scored(places: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The places that have a score, each once, with the most probable token there: `top`.

    A place without an option has a score if its row has one; others if their token is listed, with
    its logprob and rank.
    """
    tops = scores.filter(pl.col("kind") == "top").group_by("at")
    found = tops.agg(top=pl.col("token").min())
    options = scores.filter(pl.col("kind") == "option").drop("kind").with_columns(listed=True)
    known = places.join(found, on="at", maintain_order="left")
    known = known.join(options, on=["at", "token"], how="left", maintain_order="left")
    scored = known.filter(pl.col("token").is_null() | pl.col("listed")).drop("listed")
    return scored.unique("place", maintain_order=True, keep="first")


def _query_entropy(
    deposits: Sequence[Deposit], scored: pl.DataFrame, numbers: Mapping[str, int]
) -> pl.DataFrame:
    """at and entropy of the rows at which prompts are scored."""
    frames = [pl.DataFrame(schema={"at": pl.Int64, "entropy": pl.Float64})]
    positions = scored["at"].unique().sort()
    for deposit in deposits:
        first = numbers[deposit.query_set] * _STRIDE
        rows = positions.filter(positions.is_between(first, first + _STRIDE, closed="left"))
        values = row_entropies(deposit, rows.to_numpy() - first)
        frames.append(pl.DataFrame({"at": rows, "entropy": values}))
    return pl.concat(frames)


def _answers(scored: pl.DataFrame) -> pl.DataFrame:
    """prompt, probability and rank of the correct answer; of several orders the mean."""
    whole = pl.col("logprob").is_not_null().all()
    # In order, as that of the option orders decides the last bit of their mean.
    correct = scored.filter("is_correct")
    each = correct.group_by("prompt", "order_seed", maintain_order=True).agg(
        probability=pl.when(whole).then(pl.col("logprob").sum().exp()),
        rank=pl.when(whole & (pl.len() == 1)).then(pl.col("rank").first()),
    )
    return each.group_by("prompt").agg(
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).mean()).alias(name)
        for name in ("probability", "rank")
    )


def _prompts(
    expected: pl.DataFrame, scored: pl.DataFrame, positions: pl.DataFrame, answers: pl.DataFrame
) -> pl.DataFrame:
    """One row per prompt of which every expected place is scored, with its four measures."""
    agrees = pl.when(pl.col("last_top").is_not_null().all()).then(
        (pl.col("top") == pl.col("last_top")).mean()
    )
    every = pl.when(pl.col("entropy").is_not_null().all()).then(pl.col("entropy").mean())
    present = scored.group_by("prompt").agg(present=pl.len())
    whole = expected.join(present, on="prompt").filter(pl.col("expected") == pl.col("present"))
    means = positions.group_by("prompt").agg(entropy=every, top1_agreement=agrees)
    whole = whole.select("prompt", "sentence")
    return means.join(whole, on="prompt").join(answers, on="prompt", how="left")


def refuse_undefined(probability: pl.Series, head: Mapping[str, object]) -> None:
    """Refuse answers whose logits are not finite: no mean of them is a number."""
    invalid = probability.filter(~probability.is_finite())
    if len(invalid):
        raise BankError(
            f"An answer of {head['prompt_set']} has the probability {invalid[0]} at "
            f"{checkpoint_name(head)} ({len(invalid):,} such prompts). {FIX_NOT_FINITE}"
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


def row_entropies(deposit: Deposit, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy of some rows (q,) of a deposit that keeps them whole, in their ascending order."""
    found = np.empty(len(rows))
    starts = np.flatnonzero(np.diff(rows // ROWS, prepend=-1))
    for start, stop in pairwise([*starts, len(rows)]):
        found[start:stop] = entropies(deposit.logprobs(rows[start:stop], normalised=True))
    return found
