"""Scores of a prompt set through training, dense: checkpoint × option, one model and run at a time.

A score that the bank does not contain is NaN.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.dense import Dense, Layout, TokenScores
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.store.read.choose import Names, Steps, as_names
from logitbank.store.steps import Step

Measure = Literal["share", "probability"]
READ = 300_000
"""Scores that are read at once, or those of one checkpoint. With 1,200,000 the options of 154
checkpoints of WinoBias took 380 MB instead of 245, and as long."""
COLUMNS = ("logit", "logsumexp", "rank", "ties", "exact")


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
    models, runs, chosen = (
        None if names is None else sorted(as_names(names)) for names in (models, runs, ids)
    )
    where = None if chosen is None else ("prompt_id", frozenset(chosen))
    scores = Scores([bank], (prompts,), models, steps=steps, where=where, runs=runs)
    reader = scores.dense(COLUMNS, rows=READ)
    if chosen is not None and not reader.checkpoints:
        if scores.prompt_rows(bank, prompts).head(1).collect().is_empty():
            raise UsageError(
                f"Prompt set {prompts!r} has no prompt {', '.join(map(repr, chosen))}. "
                f'bank.prompts("{prompts}") lists them.'
            )
        raise BankError(
            f"Prompt {chosen[0]!r} has no scores at these checkpoints."
            " Run `logitbank extract` to add them."
        )
    return _parts(reader) if few else _whole_runs(reader)


def read_options(scores: Scores) -> Iterator[PromptScores]:
    """Scores of a prompt set in each bank that has any, a few checkpoints at a time.

    Raises
    ------
    BankError
        Options of the prompts were named after full rows were stored.
    UsageError
        A run is in two banks, or these have other content of one prompt.
    """
    of_banks = [
        replace(scores, banks=[bank], models=sorted({d.checkpoint.model for d in deposits}))
        for bank, deposits in scores.holding()
    ]
    return chain.from_iterable(_parts(each.dense(COLUMNS, rows=READ)) for each in of_banks)


def _parts(reader: Dense) -> Iterator[PromptScores]:
    """The scores of a few checkpoints of a model and run after the other."""
    for read in reader:
        layout = reader.layouts[read.model]
        yield PromptScores(
            read.model, read.run, read.steps, layout.prompts, layout.options, *_whole(read, layout)
        )


def _whole_runs(reader: Dense) -> Iterator[PromptScores]:
    """The scores of all checkpoints of a model and run after the other."""
    number = Counter((model, run) for model, run, _ in reader.checkpoints)
    for key, parts in groupby(_parts(reader), lambda part: (part.model, part.run)):
        steps = list[Step]()
        for part in parts:
            if not steps:
                shape = number[key], len(part.options)
                logprob, (rank, ties) = np.empty(shape), np.empty((2, *shape), np.int64)
            at = slice(len(steps), len(steps) + len(part.steps))
            logprob[at], rank[at] = part.logprob, part.rank
            ties[at] = 0 if part.ties is None else part.ties
            steps += part.steps
        yield replace(part, steps=tuple(steps), logprob=logprob, rank=rank, ties=ties)


def _whole(
    scores: TokenScores, layout: Layout
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Log-probabilities, ranks and ties, (c, o), of options, which may have several tokens."""
    first, single = layout.first, layout.options["pieces"].to_numpy() == 1
    if not len(first):
        empty = np.zeros((len(scores.steps), 0), np.int64)
        return empty.astype(np.float64), empty, empty
    read = scores.values
    logprob = np.where(scores.scored, read["logit"] - read["logsumexp"], np.nan)
    ties = np.where(read["exact"], read["ties"], 0)
    rank, ties = (
        np.where(single, each.take(first, axis=1), 0).astype(np.int64)
        for each in (read["rank"], ties)
    )
    return np.add.reduceat(logprob, first, axis=1), rank, ties
