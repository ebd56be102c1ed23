"""Any prompt set: options, correct answers, entropy and agreement at every checkpoint.

Entropy is read from full vocabulary rows, everything else from scores.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.families.options import Score
from logitbank.analysis.families.options.tables import (
    ANSWERS,
    CHECKPOINTS,
    CURVES,
    GROUPS,
    SHARES,
    Answers,
    RowValues,
    accuracy_changes,
    answer_measures,
    answer_table,
    as_table,
    curve_tables,
    divided,
    group_items,
    group_table,
    is_correct,
    option_items,
    read_answers,
    share_table,
)
from logitbank.analysis.frames.banks import select_models
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.expressions import Floats, check_choice
from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, FIX_NOT_FINITE, concat_sorted
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import PromptScores, read_options
from logitbank.analysis.results.tables import Result
from logitbank.errors import AbsentError, BankError
from logitbank.store import Deposit
from logitbank.store.steps import Step, in_order
from logitbank.wording import checkpoint_name

ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""
_PLACE = ["prompt_id", "order_seed", "option", "piece"]
_PROMPT = ["prompt_id", "order_seed"]
SCHEMAS = {
    "measures": {}, "shares": SHARES, "answers": ANSWERS, "curves": CURVES,
    "checkpoints": CHECKPOINTS, "groups": GROUPS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OptionScores(Result):
    """Results of `option_scores`. `low` and `high` are 95 % intervals over prompts, clustered by
    `sentence_id`."""

    measures: pl.DataFrame
    """The accuracy of each prompt set, as `summarise` returns it."""
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
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts that have every score, those missing,
    answered (prompts that name a correct answer), and whether the checkpoint keeps full rows."""
    groups: pl.DataFrame
    """With a column of groups: one row per checkpoint, prompt set, score (accuracy, or the
    probability of an `option`) and group: value, low, high, prompts, and the change from the first
    checkpoint; and one per difference of a group from another (`minus`), or from the mean of all
    others."""
    score: Score = "sum"
    """The score by which options are compared."""
    entropy: bool = True
    """Whether full rows were read."""
    clustered: Collection[str] = ()
    """Prompt sets whose prompts have a `sentence_id`."""


def option_scores(
    scores: Scores, *, score: Score = "sum", entropy: bool = True, group_by: str | None = None
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
    scores
        Of prompt sets. Those without a deposit of the models have no rows.
    score
        What options are compared by in `shares` and `answers`.
    entropy
        Whether to read full rows of checkpoints that keep them.
    group_by
        Column of the prompts whose values are compared; prompt sets without it are left out.

    Raises
    ------
    BankError
        A prompt set or its deposits are missing, or its options were named after full rows were
        kept. An answer has no probability, because its logit is not finite.
    UsageError
        An unknown score. A run is in two banks. A column that cannot group prompts.
    DamagedError
        Stored bytes are not what was committed.

    References
    ----------
    The scores of lm-evaluation-harness: `acc` compares sums, and `acc_norm` divides by
    characters. Not in it: ties for the largest count as wrong, and are reported.
    """
    check_choice("score", score, get_args(Score))
    if group_by is not None:
        grouped = [n for n in scores.sets if group_by in scores.of(n).group_columns("prompt_id")]
        if not grouped:
            scores.require_groups(group_by, "prompt_id")
        scores = scores.of(*grouped)
    where = ", ".join(bank.address for bank in scores.banks)
    select_models([bank.models for bank in scores.banks], scores.models, where)  # raises
    tables = {name: [pl.DataFrame(schema=schema)] for name, schema in SCHEMAS.items()}
    clustered = set[str]()
    for name in scores.sets:
        for bank, deposits in scores.of(name).holding():
            scored = read_options(replace(scores.of(name), banks=[bank]))
            rows, expected = bank.prompts(name).collect(), expected_query_sets(bank, name)
            clustered.update([name] if "sentence_id" in rows.columns else [])
            for (model, run), parts in groupby(scored, lambda part: (part.model, part.run)):
                of_run = read_positions(
                    name,
                    rows.filter(pl.col("query_set").is_in(list(expected[model]))),
                    [d for d in deposits if (d.checkpoint.model, d.checkpoint.run) == (model, run)],
                )
                for kind, table in _run_tables(
                    of_run, parts, score, entropy=entropy, group_by=group_by
                ):
                    tables[kind].append(table)
    if not tables["checkpoints"][1:]:
        if len(scores.sets) == 1:
            scores.frames()  # raises
        raise AbsentError(
            f"{where} has no checkpoint of {', '.join(scores.sets) or 'any prompts'}. Run "
            "`logitbank extract` first."
        )
    answers = pl.concat(tables["answers"])
    measures = pl.concat(tables["measures"][1:], how="diagonal")
    return OptionScores(
        measures=measures.sort(CHECKPOINT, nulls_last=True, maintain_order=True),
        shares=pl.concat(tables["shares"]),
        answers=answers,
        curves=concat_sorted(tables["curves"]),
        change_points=accuracy_changes(answers),
        checkpoints=concat_sorted(tables["checkpoints"]),
        groups=pl.concat(tables["groups"]),
        score=score,
        entropy=entropy,
        clustered=clustered,
    )


def _run_tables(
    run: "Positions",
    parts: Iterable[PromptScores],
    score: Score,
    *,
    entropy: bool,
    group_by: str | None,
) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables of a model and run by name, from scores of a few checkpoints at a time."""
    full, prompts = run.full, run.prompt_set
    last, _ = run.read([*full][-1])
    answers, grouped = list[Answers](), list[Items]()
    for scores in parts:
        read = [run.read(step, entropy=entropy and full[step]) for step in scores.steps]
        top, entropies = np.array(read).transpose(1, 0, 2)
        agrees = np.where(np.isnan(top) | np.isnan(last), np.nan, top == last)
        found = curve_tables(scores, RowValues(run.prompt_ids, top, agrees, entropies), prompts)
        yield "curves", found.curves
        is_full = pl.Series([full[step] for step in scores.steps])
        yield (
            "checkpoints",
            as_table(found.counts.with_columns(full_rows=is_full), prompts, CHECKPOINTS),
        )
        in_units = divided(scores, score)
        yield "shares", share_table(in_units, prompts)
        answers.append(read_answers(in_units))
        if group_by is not None:
            grouped.append(group_items(in_units, answers[-1].items, group_by))
    measures = answer_measures(answers, prompts)
    yield "measures", measures
    yield "answers", answer_table(measures, answers, prompts)
    if group_by is not None:
        yield "groups", group_table(gather_items(grouped), prompts, group_by)


def read_items(source: Scores) -> Items:
    """Whether the answer is more probable than every other option, and the probability of each
    option (part `probability`), the mean over orders.

    Of prompts with an answer among several options; null if no order has a score of all of them.
    """
    parts = list[Items]()
    for each in read_options(source):
        answers, shares = read_answers(each).items, option_items(each)
        named = pl.concat(
            [answers.axes.with_columns(option=pl.lit("")), shares.axes], how="diagonal"
        )
        values = np.hstack([answers.values, shares.values])
        parts.append(array_items(answers.checkpoints, named, values))
    return gather_items(parts)


class Positions(NamedTuple):
    """The rows at which the prompts of a model and run are scored, and its deposits."""

    prompt_set: str
    prompt_ids: pl.Series
    """(q,) the prompt of each position; a row of several options is one position."""
    rows: pl.DataFrame
    """query_set, row, position (index): in several query sets if these share tokens."""
    answers: pl.DataFrame
    """prompt_id, query_set, row and token of correct answers."""
    deposits: Mapping[Step, Sequence[Deposit]]
    """The deposits of each step, the release last."""

    @property
    def full(self) -> Mapping[Step, bool]:
        """Whether every row of a step is whole."""
        return {
            step: all(deposit.layout.keep.has_full_rows for deposit in own)
            for step, own in self.deposits.items()
        }

    def read(self, step: Step, *, entropy: bool = False) -> Floats:
        """(2, q): the most probable token at a step, of equal ones the first, and the entropy.

        NaN where there is no row. `entropy` needs full rows; without it all are NaN.
        """
        top, entropies = np.full((2, len(self.prompt_ids)), np.nan)
        for deposit in self.deposits[step]:
            logprob = pl.col("logit").cast(pl.Float64) - pl.col("logsumexp")
            undefined = (pl.col("kind") == "option") & ~(logprob < float("inf"))  # or NaN
            best = (pl.col("kind") == "top") & (pl.col("rank") == 1)
            scores = deposit.scores().filter(best | undefined)
            named = scores.select("kind", "token", row="query", logprob=logprob).collect()
            self._refuse(named.filter(kind="option"), deposit)
            highest = pl.col("token").sort_by("logprob", "token", descending=[True, False]).first()
            first = named.filter(kind="top").group_by("row").agg(highest)
            own = self.rows.filter(query_set=deposit.query_set)
            found = own.join(first, on="row", maintain_order="left")
            at = found["position"].to_numpy()
            top[at] = found["token"].to_numpy()
            if entropy:
                rows, place = np.unique(found["row"].to_numpy(), return_inverse=True)
                entropies[at] = row_entropies(deposit, rows)[place]
        return np.stack([top, entropies])

    def _refuse(self, undefined: pl.DataFrame, deposit: Deposit) -> None:
        """Refuse answers whose logits are not finite: no mean of them is a number."""
        own = self.answers.filter(query_set=deposit.query_set)
        invalid = own.join(undefined, on=["row", "token"], maintain_order="left")
        if len(invalid):
            value, prompts = np.exp(invalid["logprob"][0]), invalid["prompt_id"].n_unique()
            raise BankError(
                f"An answer of {self.prompt_set} has the probability {value} at "
                f"{checkpoint_name(asdict(deposit.checkpoint))} ({prompts:,} such prompts). "
                f"{FIX_NOT_FINITE}"
            )


def read_positions(prompt_set: str, table: pl.DataFrame, deposits: Sequence[Deposit]) -> Positions:
    """The positions of rows of a prompt set, at the deposits of a model and run."""
    places = table.group_by(_PLACE, maintain_order=True).agg("query_set", "row")
    unique = places.unique([*_PROMPT, "query_set", "row"], keep="first", maintain_order=True)
    rows = unique.select("query_set", "row").with_row_index("position")
    by_step: dict[Step, list[Deposit]] = {
        step: [] for step in in_order(deposit.checkpoint.step for deposit in deposits)
    }
    for deposit in deposits:
        by_step[deposit.checkpoint.step].append(deposit)
    return Positions(
        prompt_set, unique["prompt_id"], rows.explode("query_set", "row"),
        table.filter(is_correct(table.columns)).select("prompt_id", "query_set", "row", "token"),
        by_step,
    )  # fmt: skip


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
