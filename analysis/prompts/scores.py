"""Scores of a prompt set through training, dense: checkpoint × option, one model and run at a time.

A score that the bank does not contain is NaN.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.batches import evenly
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen, require_scored_models
from logitbank.store.read.missing_scores import require_scored
from logitbank.store.read.scan_files import option_scores
from logitbank.store.steps import Step, in_order

Measure = Literal["share", "probability"]
READ = 300_000
"""Scores that are read at once, or those of one checkpoint. With 1,200,000 the options of 154
checkpoints of WinoBias took 380 MB instead of 245, and as long."""
_PROMPT = ["prompt_id", "order_seed"]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Scores of a prompt set by one model and run; c checkpoints, p prompts, o options.

    The prompts are those that the prompt set has for the model, whether or not they are scored.
    """

    model: str
    run: str
    steps: tuple[int | None, ...]
    """(c) ascending; None is the release, and last."""
    prompts: pl.DataFrame
    """(p) one row per prompt × order: prompt_id, order_seed, text, answer, the set's own
    columns."""
    options: pl.DataFrame
    """(o) one row per prompt × order × option, in prompt order: prompt (index into `prompts`),
    option, continuation (of all tokens), is_answer, pieces (number of tokens)."""
    logprob: NDArray[np.float64]
    """(c, o) nats, the sum over the option's tokens; NaN if one is not scored."""
    rank: NDArray[np.int64]
    """(c, o) rank of the option's token in the vocabulary; 0 for an option of several tokens, or
    one that is not scored."""
    ties: NDArray[np.int64] | None = None
    """(c, o) number of other tokens with the logit of the option's token; of scores that are not
    exact 0, because their ties come from rounding. None for no ties."""

    @property
    def checkpoints(self) -> pl.DataFrame:
        """(c) model, run and step."""
        step = pl.Series("step", self.steps, pl.Int64)
        return pl.select(model=pl.lit(self.model), run=pl.lit(self.run), step=step)

    @property
    def middle_rank(self) -> NDArray[np.float64]:
        """(c, o) rank of the option's token: the middle of the ranks of equal logits."""
        ranks = self.rank.astype(np.float64)
        return ranks if self.ties is None else ranks + self.ties / 2

    @property
    def measure(self) -> Measure:
        """Normalized option probabilities; probabilities if no prompt has two options.

        The share of a single option, as in LAMBADA and for sentences, is always 1.
        """
        several = self.options["prompt"].is_duplicated().any()
        return "share" if several else "probability"

    def share(self) -> NDArray[np.float64]:
        r"""Option probabilities, normalized per prompt, :math:`e^{\ell_i} / \sum_j e^{\ell_j}`.

        (c, o), between 0 and 1, computed stably; NaN for all options of a prompt if one is not
        scored, or if all have probability 0.

        >>> nurse = pl.DataFrame({"prompt": [0, 0], "option": [" he", " she"]})
        >>> scores = PromptScores("m", "main", (0,), pl.DataFrame(), nurse,
        ...     np.log([[0.02, 0.06]]), np.array([[3, 1]]))
        >>> scores.share().round(3).tolist()
        [[0.25, 0.75]]
        """
        prompt = self.options["prompt"].to_numpy()
        starts = np.flatnonzero(np.diff(prompt, prepend=-1))
        sizes = np.diff(starts, append=len(prompt))
        shares = np.empty_like(self.logprob)
        if not len(prompt):
            return shares
        for row, logprob in zip(shares, self.logprob, strict=True):  # by rows, for the cache
            highest = np.maximum.reduceat(logprob, starts)
            highest[np.isneginf(highest)] = np.nan
            np.exp(logprob - np.repeat(highest, sizes), out=row)
            row /= np.repeat(np.add.reduceat(row, starts), sizes)
        return shares

    def values(self) -> NDArray[np.float64]:
        """(c, o) shares or probabilities, by `measure`."""
        return self.share() if self.measure == "share" else np.exp(self.logprob)

    def with_order(self, order: int | None) -> "PromptScores":
        """The scores of the prompts with this order seed."""
        seeds = self.prompts["order_seed"].to_list()
        kept = np.array([seed == order for seed in seeds], bool)
        options = np.flatnonzero(kept[self.options["prompt"].to_numpy()])
        number = pl.Series(np.cumsum(kept) - 1)
        return PromptScores(
            *(self.model, self.run, self.steps, self.prompts.filter(pl.Series(kept))),
            self.options[options].with_columns(
                prompt=number.gather(self.options["prompt"][options])
            ),
            *(self.logprob[:, options], self.rank[:, options]),
            None if self.ties is None else self.ties[:, options],
        )


def prompt_scores(
    bank: Bank,
    prompts: str,
    *,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
    ids: Collection[str] | str | None = None,
    few: bool = False,
) -> Iterator[PromptScores]:
    """Scores of a prompt set, one model and run after the other, each read when it is needed.

    154 checkpoints of 15,840 prompts with three options take 2 s and 0.3 GB on two busy
    cores.

    Parameters
    ----------
    bank
        A bank.
    prompts
        Name of the prompt set.
    models, runs, steps
        Keep these checkpoints, as `Bank.scan` does; all if None.
    ids
        Only prompts with these ids; only their rows of the scores are read. Models without any of
        them are excluded.
    few
        Return a few checkpoints of a model and run at a time, so that memory is bounded.

    Raises
    ------
    UsageError
        The prompt set has none of these ids.
    BankError
        The bank has no such prompts, no deposit of them by such checkpoints, or options of them
        were named after full rows were stored.
    """
    table = bank.prompts(prompts)
    deposits = bank.deposits(prompts=prompts)
    if not deposits:
        bank.scan(prompts)  # raises
    require_scored_models(prompts, models, deposits, bank.models)
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    if ids is not None:
        chosen = [ids] if isinstance(ids, str) else list(ids)
        table = table.filter(pl.col("prompt_id").is_in(chosen))
    rows = table.collect()
    if rows.is_empty():
        raise UsageError(
            f"Prompt set {prompts!r} has no prompt {', '.join(map(repr, chosen))}. "
            f'bank.prompts("{prompts}") lists them.'
        )
    query_sets = {d.query_set for d in deposits} & set(rows["query_set"].unique())
    if not query_sets:
        raise BankError(
            f"Prompt {rows['prompt_id'][0]!r} has no scores at these checkpoints."
            " Run `logitbank extract` to add them."
        )
    scored = [d for d in deposits if d.query_set in query_sets]
    require_scored(bank.path, prompts, scored, rows.lazy())
    expected = expected_query_sets(bank, prompts)
    return _each(rows, scored, expected, few=few)


def _each(
    rows: pl.DataFrame,
    deposits: Sequence[Deposit],
    expected: Mapping[str, frozenset[str]],
    *,
    few: bool,
) -> Iterator[PromptScores]:
    series: dict[tuple[str, str], list[Deposit]] = {}
    for deposit in deposits:
        checkpoint = deposit.checkpoint
        series.setdefault((checkpoint.model, checkpoint.run), []).append(deposit)
    layouts: dict[frozenset[str], _Layout] = {}
    for (model, run), run_deposits in series.items():
        sets = expected[model]
        if sets not in layouts:
            layouts = {sets: _layout(rows.filter(pl.col("query_set").is_in(list(sets))))}
        layout = layouts[sets]
        steps = in_order(d.checkpoint.step for d in run_deposits)
        size = len(layout.options) * len(steps)
        for part in evenly(steps, rows=size, most=READ) if few else [steps]:
            scores = _read(run_deposits, tuple(part), layout)
            yield PromptScores(model, run, tuple(part), layout.prompts, layout.options, *scores)


class _Layout(NamedTuple):
    """The prompts of one model, their options, and where the score of each token is."""

    prompts: pl.DataFrame
    options: pl.DataFrame
    first: NDArray[np.int64]
    """(o,) index of each option's first token among the tokens of all options."""
    tokens: dict[str, pl.DataFrame]
    """Columns row, token and `index`, the index of the token; keys are query sets."""


def _layout(table: pl.DataFrame) -> _Layout:
    """Prompts and options in the order of their first appearance in a table of prompts.

    A token that several query sets have is one token. A prompt may have no option.
    """
    own = [name for name in table.columns if name not in PROMPTS_SCHEMA]
    prompts = table.unique(_PROMPT, keep="first", maintain_order=True)
    numbers = prompts.select(_PROMPT).with_row_index("prompt").cast({"prompt": pl.Int64})
    named = table.filter(pl.col("token").is_not_null()).join(
        numbers, on=_PROMPT, nulls_equal=True, maintain_order="left"
    )
    option = ["prompt", "option"]
    options = (
        named.unique([*option, "piece"], keep="first", maintain_order=True)
        .group_by(option, maintain_order=True)
        .agg(
            pl.col("continuation").sort_by("piece").str.join(""),
            pl.col("is_answer").first(),
            pieces=pl.len().cast(pl.Int64),
        )
        .sort("prompt", maintain_order=True)
    )
    first = options.select(*option, first=pl.col("pieces").cum_sum() - pl.col("pieces"))
    tokens = named.join(first, on=option).select(
        *("query_set", "row", "token"),
        index=pl.col("first") + pl.col("piece").rank("dense").over(option) - 1,
    )
    by_query_set = tokens.partition_by("query_set", as_dict=True, include_key=False)
    return _Layout(
        prompts.select(*_PROMPT, "text", "answer", *own),
        options,
        first["first"].to_numpy(),
        {str(name): part for (name,), part in by_query_set.items()},
    )


def _read(
    deposits: Sequence[Deposit], steps: Sequence[Step], layout: _Layout
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Log-probabilities, ranks and ties, (c, o), of the options at these steps."""
    shape = len(steps), len(layout.options)
    logprob, (rank, ties) = np.full(shape, np.nan), np.zeros((2, *shape), np.int64)
    if not shape[1]:
        return logprob, rank, ties
    number = layout.options["pieces"].to_numpy()
    size = int(number.sum())
    # What a deposit lists for other prompts is read as well.
    at_once = max(1, READ // max(size, *(d.layout.queries for d in deposits)))
    for start in range(0, len(steps), at_once):
        part = steps[start : start + at_once]
        values, counts = (
            np.full((len(part), size), np.nan),
            np.zeros((2, len(part), size), np.int32),
        )
        for query_set, tokens in layout.tokens.items():
            chosen = [d for d in deposits if d.query_set == query_set and d.checkpoint.step in part]
            if chosen:
                scores = _scores(chosen, tokens)
                step = np.array([part.index(d.checkpoint.step) for d in chosen])
                cells = step[scores[DEPOSIT].to_numpy()], scores["index"].to_numpy()
                values[cells] = scores["logprob"].to_numpy()
                counts[0][cells] = scores["rank"].to_numpy()
                counts[1][cells] = scores["ties"].to_numpy()
        rows = slice(start, start + len(part))
        logprob[rows] = np.add.reduceat(values, layout.first, axis=1)
        rank[rows], ties[rows] = np.where(number == 1, counts[:, :, layout.first], 0)
    return logprob, rank, ties


def _scores(deposits: Sequence[Deposit], tokens: pl.DataFrame) -> pl.DataFrame:
    """`index`, logprob, rank, ties and deposit of the tokens of one query set."""
    scores = option_scores(deposits)
    rows = tokens["row"].unique()
    if 2 * len(rows) < deposits[0].layout.queries:
        scores = scores.filter(pl.col("query").is_in(rows.cast(pl.Int32).implode()))
    key = pl.col("token").cast(pl.Int64) + pl.lit(2**32) * pl.col("query").cast(pl.Int64)
    logprob = pl.col("logit").cast(pl.Float64) - pl.col("logsumexp").cast(pl.Float64)
    places = tokens.lazy().rename({"row": "query"}).select("index", key=key)
    ties = pl.when("exact").then("ties").otherwise(0)
    keyed = scores.select("rank", DEPOSIT, ties=ties, logprob=logprob, key=key)
    joined = keyed.join(places, on="key")
    return joined.select("index", "logprob", "rank", "ties", DEPOSIT).collect()
