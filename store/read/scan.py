"""One row per checkpoint × prompt × option, lazily: prompts joined with scores.

Files of many deposits are read at once, and scores are gathered at places that are searched once
per query set. A join searched them for every deposit, which took most of the time.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.format.schema import COUNTS, PROMPTS_SCHEMA, SCORES_SCHEMA
from logitbank.store.read.scan_files import option_scores
from logitbank.store.tables.io_source import io_source

VALUES = pl.Schema(
    {
        "logit": pl.Float32(),
        "logsumexp": pl.Float64(),
        "logprob": pl.Float64(),
        **{name: SCORES_SCHEMA[name] for name in (*COUNTS, "exact")},
    }
)
_READ = pl.Schema({name: dtype for name, dtype in VALUES.items() if name != "logprob"})
"""Values that score files have."""
_AT_ONCE = 400_000
"""Rows of prompts whose scores are read at once."""
CHECKPOINT = pl.Schema(
    {"model": pl.String, "run": pl.String, "run_seed": pl.Int64, "step": pl.Int64}
)
_OPTION = ("prompt_id", "order_seed", "option")
_PIECE = (*_OPTION, "piece")
_TOKENIZER, _PIECES = "_tokenizer", "_pieces"
_TOKEN_COLUMNS = ("piece", "token", "query_set", "row")


class PromptRows:
    """The rows of a prompt set, and the scores of deposits that belong to them.

    Every deposit of a query set lists the same tokens, as a rule in the same order. The place of
    each row's score is therefore searched once, and reused while the tokens stay the same.

    Parameters
    ----------
    prompts
        Columns of `PROMPTS_SCHEMA`, then the prompt set's own.
    coded
        Text columns to return as Categorical, if they exist: Polars then looks up the text of a
        prompt once, not for each checkpoint.
    """

    def __init__(self, prompts: pl.LazyFrame, coded: Collection[str] = ()) -> None:
        texts = prompts.collect_schema()
        names = [name for name in coded if texts.get(name) == pl.String]
        self._prompts = prompts.with_columns(pl.col(names).cast(pl.Categorical))
        self._of_checkpoint = pl.Schema(
            {n: pl.Categorical() if n in coded else t for n, t in CHECKPOINT.items()}
        )
        self.schema = pl.Schema({**self._of_checkpoint, **self._prompts.collect_schema(), **_READ})
        self._tables: dict[str, tuple[list[str], pl.DataFrame]] = {}
        self._places: dict[str, _Places] = {}

    def scores(self, deposits: Sequence[Deposit]) -> pl.LazyFrame:
        """Rows with a committed score of deposits of one query set: columns of `schema`."""
        (name,) = {deposit.query_set for deposit in deposits}

        def read(
            columns: list[str], predicate: pl.Expr | None, n_rows: int | None
        ) -> Iterator[pl.DataFrame]:
            used = {*columns, *(() if predicate is None else predicate.meta.root_names())}
            for frame in self._joined(name, deposits, used):
                frame = frame if predicate is None else frame.filter(predicate)
                yield frame.select(columns)

        return io_source(self.schema, read)

    def matrix_rows(
        self, deposits: Sequence[Deposit], columns: Sequence[str]
    ) -> Iterator[tuple[int, np.ndarray | None, dict[str, np.ndarray]]]:
        """Columns of the scores of each of some deposits of one query set, for dense arrays.

        Each is the number of the deposit; which of the n rows of prompts with a token have a score,
        in the order of the prompts, None if all; and the values (n or fewer,) by column.
        """
        (name,) = {deposit.query_set for deposit in deposits}
        places = self._of(name)
        for group, start in _groups(deposits, max(places.number, deposits[0].layout.queries)):
            for at, part in _by_deposit(self._scores(group, places, columns)):
                rows, source = places.of(part["query"].to_numpy(), part["token"].to_numpy())
                values = {column: part[column].to_numpy()[source] for column in columns}
                yield start + at, rows, values

    def _scores(
        self, deposits: Sequence[Deposit], places: "_Places", columns: Sequence[str]
    ) -> pl.DataFrame:
        """Scores of deposits whose files are read at once; if few, only those of the prompts."""
        scores = option_scores(deposits)
        if 2 * len(places.queries) < deposits[0].layout.queries:
            scores = scores.filter(pl.col("query").is_in(places.queries.implode()))
        return scores.select("query", "token", DEPOSIT, *columns).collect()

    def _joined(
        self, name: str, deposits: Sequence[Deposit], used: Collection[str]
    ) -> Iterator[pl.DataFrame]:
        own = [column for column in self._prompts.collect_schema().names() if column in used]
        table, places = self._table(name, own), self._of(name)
        values = [column for column in _READ if column in used]
        checkpoint = [column for column in CHECKPOINT if column in used]
        for group, _ in _groups(deposits, max(places.number, deposits[0].layout.queries)):
            for at, part in _by_deposit(self._scores(group, places, values)):
                rows, source = places.of(part["query"].to_numpy(), part["token"].to_numpy())
                gathered = table if rows is None or not own else table[rows]
                joined = part.select("query", *values)[source].hstack(gathered.get_columns())
                about = group[at].checkpoint
                yield joined.with_columns(
                    pl.lit(getattr(about, column), CHECKPOINT[column])
                    .cast(self._of_checkpoint[column])
                    .alias(column)
                    for column in checkpoint
                )

    def _table(self, name: str, columns: list[str]) -> pl.DataFrame:
        """Columns of the rows of a query set; those of the last request are kept."""
        known, table = self._tables.get(name, (None, pl.DataFrame()))
        if known != columns:
            table = self._rows(name).select(columns).collect()
            self._tables[name] = columns, table
        return table

    def _of(self, name: str) -> "_Places":
        if name not in self._places:
            self._places[name] = _Places(self._rows(name).select("row", "token").collect())
        return self._places[name]

    def _rows(self, name: str) -> pl.LazyFrame:
        return self._prompts.filter(
            pl.col("query_set") == name, pl.col("row", "token").is_not_null()
        )


class _Places:
    """Where the scores of rows of prompts are among those of a deposit."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._wanted = _key(rows["row"].to_numpy(), rows["token"].to_numpy())
        self.queries = rows["row"].unique().cast(pl.Int32)
        self._query = self._token = np.empty(0, np.int32)
        self._found: tuple[np.ndarray | None, np.ndarray] = (None, np.empty(0, np.int64))

    @property
    def number(self) -> int:
        """Rows of prompts."""
        return len(self._wanted)

    def of(self, query: np.ndarray, token: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """Rows of prompts that have a score, None if all have one, and the place of each score."""
        if not (np.array_equal(query, self._query) and np.array_equal(token, self._token)):
            self._query, self._token = query, token
            self._found = self._search(_key(query, token))
        return self._found

    def _search(self, listed: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        order = None
        if (listed[1:] < listed[:-1]).any():  # written in another order
            order = np.argsort(listed, kind="stable")
            listed = listed[order]
        place = np.searchsorted(listed, self._wanted)
        rows = None
        found = np.zeros(len(place), bool)
        inside = place < len(listed)
        found[inside] = listed[place[inside]] == self._wanted[inside]
        if not found.all():
            rows = np.flatnonzero(found)
            place = place[rows]
        return rows, place if order is None else order[place]


def _key(query: np.ndarray, token: np.ndarray) -> np.ndarray:
    """A query's row and a token as one integer."""
    return np.asarray(query.astype(np.int64) * 2**32 + token)


def _groups(deposits: Sequence[Deposit], rows: int) -> Iterator[tuple[Sequence[Deposit], int]]:
    """Deposits whose files are read at once, and the number of the first."""
    at_once = max(1, _AT_ONCE // max(1, rows))
    for start in range(0, len(deposits), at_once):
        yield deposits[start : start + at_once], start


def _by_deposit(scores: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The scores of each deposit, whose rows follow each other."""
    numbers = scores[DEPOSIT].to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, stop in pairwise([*starts, len(numbers)]):
        yield int(numbers[start]), scores[start:stop]


def scan(prompts: PromptRows, deposits: Sequence[Deposit]) -> pl.LazyFrame:
    """Join a prompt set with the committed scores of deposits, of which there is at least one.

    Returns
    -------
    As `Bank.scan`. If two query sets of a checkpoint have the same prompt, it has one row.
    """
    by_query_set: dict[str, list[Deposit]] = {}
    for deposit in deposits:
        by_query_set.setdefault(deposit.query_set, []).append(deposit)
    scores = pl.concat(prompts.scores(own) for own in by_query_set.values())
    if len({deposit.checkpoint for deposit in deposits}) < len(deposits):
        # The prompt set grew: both query sets of one tokenizer have the same scores.
        scores = scores.unique([*CHECKPOINT, *_PIECE], keep="first")
    logprob = pl.col("logit").cast(pl.Float64) - pl.col("logsumexp").cast(pl.Float64)
    names = [name for name in prompts.schema if name not in _READ]
    return scores.with_columns(logprob=logprob).select(*names, *VALUES)


def by_option(
    scores: pl.LazyFrame, prompts: pl.LazyFrame, tokenizers: Mapping[str, str]
) -> pl.LazyFrame:
    """One row per checkpoint × prompt × option of `scan`: the sum over the option's tokens.

    Parameters
    ----------
    scores, prompts
        Result of `scan`, and its prompts.
    tokenizers
        The tokenizer of each query set: an option may have other tokens in another vocabulary.

    Returns
    -------
    Columns model, run, run_seed, step, those of the prompts except piece, token, query_set and row,
    then pieces (Int64) and logprob (nats), null if a token has no score.

    Raises UsageError if the prompts have a column `pieces`.
    """
    names = [name for name in prompts.collect_schema().names() if name not in _TOKEN_COLUMNS]
    if "pieces" in names:
        raise UsageError("The prompts have a column 'pieces'. Rename it, or omit whole_options.")
    key = [*_OPTION, _TOKENIZER]
    tokenizer = pl.col("query_set").replace_strict(tokenizers, default=None).alias(_TOKENIZER)
    whole = (
        prompts.with_columns(tokenizer)
        .filter(pl.col(_TOKENIZER).is_not_null() & pl.col("token").is_not_null())
        .group_by(key)
        .agg(pl.col("piece").n_unique().cast(pl.Int64).alias(_PIECES))
    )
    others = [name for name in names if name not in (*_OPTION, "continuation")]
    text = pl.col("continuation").sort_by("piece").str.join("")
    return (
        scores.with_columns(tokenizer)
        .group_by(*CHECKPOINT, *key)
        .agg(pl.col(others).first(), text, pl.col("logprob").sum(), _scored=pl.len())
        .join(whole, on=key, how="left", nulls_equal=True)
        .with_columns(logprob=pl.when(pl.col("_scored") == pl.col(_PIECES)).then("logprob"))
        .select(*CHECKPOINT, *names, pl.col(_PIECES).alias("pieces"), "logprob")
    )


assert PROMPTS_SCHEMA["token"] == pl.Int32, "the packed key needs tokens below 2**32"
