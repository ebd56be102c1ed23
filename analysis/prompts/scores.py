"""Scores of a prompt set through training, dense: checkpoint × option, one model and run at a time.

For looking at single prompts. A score that is not in the bank is NaN.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.batches import evenly
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.prompts.layout import Codes, PromptLayout, layout
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen, require_scored_models
from logitbank.store.read.scan_files import option_scores
from logitbank.store.steps import in_order

Measure = Literal["share", "probability"]
READ = 300_000
"""Scores that are read at once, or those of one checkpoint. With 1,200,000 the options of 154
checkpoints of WinoBias took 380 MB in place of 245, and as long."""
_LOGPROB = (pl.col("logit").cast(pl.Float64) - pl.col("logsumexp").cast(pl.Float64)).alias(
    "logprob"
)


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Scores of a prompt set by one model and run; c checkpoints, p prompts, o options.

    Prompts are those that the model was asked, of which no checkpoint may have a score.
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
    option, continuation (of all pieces), is_answer, pieces (how many)."""
    logprob: NDArray[np.float64]
    """(c, o) nats, the sum over the option's pieces; NaN where one is not scored."""
    rank: NDArray[np.int64]
    """(c, o) rank of the option's token in the vocabulary; 0 where there are several, or where it
    is not scored."""

    @property
    def measure(self) -> Measure:
        """What moves: shares; but the probability itself where no prompt has two options.

        Of a single option, as in LAMBADA and for sentences, the share is 1 always.
        """
        several = self.options["prompt"].is_duplicated().any()
        return "share" if several else "probability"

    def share(self) -> NDArray[np.float64]:
        r"""Shares of a prompt's options, :math:`e^{\ell_i} / \sum_j e^{\ell_j}`.

        (c, o), between 0 and 1, computed stably; NaN for all options of a prompt where one is not
        scored, or where all have probability 0.

        >>> nurse = pl.DataFrame({"prompt": [0, 0], "option": [" he", " she"]})
        >>> scores = PromptScores("m", "main", (0,), pl.DataFrame(), nurse,
        ...     np.log([[0.02, 0.06]]), np.array([[3, 1]]))
        >>> scores.share().round(3).tolist()
        [[0.25, 0.75]]
        """
        shares = np.empty_like(self.logprob)
        for at, share in enumerate(self._each_share()):  # by rows, for the cache
            shares[at] = share
        return shares

    def _each_share(self) -> Iterator[NDArray[np.float64]]:
        """(o,) shares of one checkpoint after the other."""
        prompt = self.options["prompt"].to_numpy()
        new = np.concatenate(([True], prompt[1:] != prompt[:-1]))[: len(prompt)]
        starts, group = np.flatnonzero(new), np.cumsum(new) - 1
        for logprob in self.logprob:
            if not len(starts):
                yield logprob.copy()
                continue
            highest = np.maximum.reduceat(logprob, starts)
            highest[np.isneginf(highest)] = np.nan
            share = np.exp(logprob - highest[group])
            share /= np.add.reduceat(share, starts)[group]
            yield share

    def values(self) -> NDArray[np.float64]:
        """(c, o) shares, or probabilities, as `measure` says."""
        return self.share() if self.measure == "share" else np.exp(self.logprob)

    def each_values(self) -> Iterator[NDArray[np.float64]]:
        """The rows (o,) of `values`, one checkpoint after the other."""
        return self._each_share() if self.measure == "share" else map(np.exp, self.logprob)

    def only(self, prompt: int) -> "PromptScores":
        """The scores of one prompt, by its index into `prompts`."""
        of_prompt = np.flatnonzero(self.options["prompt"].to_numpy() == prompt)
        return PromptScores(
            *(self.model, self.run, self.steps, self.prompts[[prompt]]),
            self.options[of_prompt].with_columns(prompt=pl.lit(0, pl.Int64)),
            *(self.logprob[:, of_prompt], self.rank[:, of_prompt]),
        )


def prompt_scores(
    bank: Bank,
    prompts: str,
    *,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
    ids: Collection[str] | str | None = None,
    first_piece: bool = False,
    few: bool = False,
) -> Iterator[PromptScores]:
    """Scores of a prompt set, one model and run after the other, each read when it is asked for.

    154 checkpoints of 15,840 prompts with three options take 2 s and 0.3 GB on two busy
    cores.

    Parameters
    ----------
    bank
        Or a view.
    prompts
        Name of the prompt set.
    models, runs, steps
        Keep these checkpoints, as `Bank.scan` does; all if None.
    ids
        Only prompts with these ids; only their rows of the scores are read. Models that were not
        asked any of them are left out.
    first_piece
        Whether `logprob` is that of an option's first piece alone, in place of the sum.
    few
        Give a few checkpoints of a model and run at a time, whatever their number.

    Raises
    ------
    UsageError
        The prompt set has none of these ids.
    BankError
        The bank has no such prompts, no deposit of them by such checkpoints, or options of them
        were named after full rows were kept.
    """
    table = bank.prompts(prompts)
    deposits = bank.deposits_of(prompts)
    if not deposits:
        bank.scan(prompts)  # says what is missing
    require_scored_models(prompts, models, deposits, there=bank.models)
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    if ids is not None:
        chosen = [ids] if isinstance(ids, str) else list(ids)
        table = table.filter(pl.col("prompt_id").is_in(chosen))
    rows = table.collect()
    if rows.is_empty():
        raise UsageError(
            f"prompt set {prompts!r} has no prompt {', '.join(map(repr, chosen))}; "
            f'bank.prompts("{prompts}") lists them'
        )
    query_sets = {d.query_set for d in deposits} & set(rows["query_set"].unique())
    if not query_sets:
        raise BankError(
            f"none of these checkpoints was asked prompt {rows['prompt_id'][0]!r}; run "
            "`logitbank extract` to ask them"
        )
    asked = [d for d in deposits if d.query_set in query_sets]
    bank.require_scored(prompts, asked, of=rows.lazy())
    expected = expected_query_sets(bank, prompts)
    return _each(rows, asked, expected, first_piece=first_piece, few=few)


def each_series(parts: Iterable[PromptScores]) -> Iterator[Iterator[PromptScores]]:
    """The parts of each model and run, as `few` gives them, to be gone through one by one."""
    return (series for _, series in groupby(parts, key=lambda part: (part.model, part.run)))


def _each(
    rows: pl.DataFrame,
    deposits: Sequence[Deposit],
    expected: Mapping[str, frozenset[str]],
    *,
    first_piece: bool,
    few: bool,
) -> Iterator[PromptScores]:
    series: dict[tuple[str, str], list[Deposit]] = {}
    for deposit in deposits:
        checkpoint = deposit.checkpoint
        series.setdefault((checkpoint.model, checkpoint.run), []).append(deposit)
    known: tuple[frozenset[str], PromptLayout] | None = None
    for (model, run), deposits_of in series.items():
        sets = expected[model]
        if known is None or known[0] != sets:
            every = sets.issuperset(rows["query_set"].unique())
            own_rows = rows if every else rows.filter(pl.col("query_set").is_in(list(sets)))
            known = sets, layout(own_rows)
        for part in _few(deposits_of, len(known[1].options)) if few else [deposits_of]:
            yield _read(model, run, part, known[1], first_piece=first_piece)


def _few(deposits: Sequence[Deposit], options: int) -> Iterator[list[Deposit]]:
    """Deposits of a few checkpoints each, as `batches` would divide them."""
    steps = in_order({deposit.checkpoint.step for deposit in deposits})
    for part in evenly(steps, rows=options * len(steps), most=READ):
        yield [deposit for deposit in deposits if deposit.checkpoint.step in part]


def _read(
    model: str, run: str, deposits: Sequence[Deposit], where: PromptLayout, *, first_piece: bool
) -> PromptScores:
    steps = tuple(in_order(d.checkpoint.step for d in deposits))
    shape = len(steps), len(where.options)
    logprob, rank = np.full(shape, np.nan), np.zeros(shape, np.int64)
    single = where.options["pieces"].to_numpy() == 1
    pieces = int(where.options["pieces"].sum())
    by_set = {str(name): _Keys.of(part) for (name,), part in where.places.group_by("query_set")}
    # What a deposit lists for other prompts is read as well.
    at_once = max(1, READ // max(pieces, *(d.layout.queries for d in deposits)))
    for first in range(0, len(steps), at_once):
        own = steps[first : first + at_once]
        cells = np.full((len(own), pieces), np.nan)
        ranks = np.zeros((len(own), pieces), np.int32)
        for name, keys in by_set.items():
            chosen = [d for d in deposits if d.query_set == name and d.checkpoint.step in own]
            if chosen:
                keys.fill(cells, ranks, chosen, own)
        if not shape[1]:
            break
        batch = slice(first, first + len(own))
        sums = np.add.reduceat(cells, where.first, axis=1)
        logprob[batch] = cells[:, where.first] if first_piece else sums
        rank[batch] = np.where(single, ranks[:, where.first], 0)
    return PromptScores(model, run, steps, where.prompts, where.options, logprob, rank)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Places of pieces in one query set."""

    distinct: Codes
    """(k,) row and token as one integer, sorted."""
    place: Codes
    """Index into `distinct` of each place: prompts may share one."""
    piece: Codes
    """Index of the piece of each place."""

    @classmethod
    def of(cls, places: pl.DataFrame) -> "_Keys":
        keys, inverse = np.unique(_key(places["row"], places["token"]), return_inverse=True)
        return cls(keys, inverse, places["piece"].to_numpy())

    def fill(
        self,
        logprobs: NDArray[np.float64],
        ranks: NDArray[np.int32],
        deposits: Sequence[Deposit],
        steps: Sequence[int | None],
    ) -> None:
        """Put the scores of some deposits into (c, pieces) arrays, whose rows are `steps`.

        A piece may be in other query sets too.
        """
        rows = pl.Series(np.unique(self.distinct >> 32)).cast(pl.Int32)
        scores = option_scores(deposits)
        if 2 * len(rows) < deposits[0].layout.queries:
            scores = scores.filter(pl.col("query").is_in(rows.implode()))
        texts = scores.select("query", "token", "rank", _LOGPROB, DEPOSIT).collect()
        c = np.array([steps.index(deposit.checkpoint.step) for deposit in deposits])
        keys = _key(texts["query"], texts["token"])
        at = np.searchsorted(self.distinct, keys)
        at[at == len(self.distinct)] = 0
        kept = self.distinct[at] == keys
        cell = c[texts[DEPOSIT].to_numpy()[kept]], at[kept]
        for name, nothing, target in (("logprob", np.nan, logprobs), ("rank", 0, ranks)):
            dense = np.full((len(steps), len(self.distinct)), nothing, target.dtype)
            dense[cell] = texts[name].to_numpy()[kept]
            for row, values in zip(target, dense, strict=True):  # by rows, for the cache
                row[self.piece] = np.fmax(row[self.piece], values[self.place])


def _key(row: pl.Series, token: pl.Series) -> Codes:
    keys: Codes = (row.to_numpy().astype(np.int64) << 32) + token.to_numpy()
    return keys
