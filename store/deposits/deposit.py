"""One deposit, read: a checkpoint × a query set. Everything goes by the commits.

It is one file because the class is all that analyses see of a deposit: what each method does lies
in modules of its own, and here are their names and their documentation.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import BankError, DamagedError, UsageError
from logitbank.notebook import html_table, printable, summary_or_error
from logitbank.store.deposits.row_reader import RowReader
from logitbank.store.deposits.row_reader import normalised as sum_to_one
from logitbank.store.deposits.scores import VERIFY, committed_parts, logsumexp_of, scan_parts
from logitbank.store.files import copies, objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits
from logitbank.store.format.attributes import from_attributes, read_attributes
from logitbank.store.format.commits import Committed
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.schema import SCORES_SCHEMA, CheckpointId
from logitbank.store.tables.query_tables import query_count
from logitbank.store.tables.token_texts import numbered

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Deposit:
    """One checkpoint × one query set, as it lies in a bank.

    Nothing is cached but the attributes, which never change: each question looks at the commits of
    the moment, so a deposit may be read while others write it.
    """

    scores_schema: ClassVar[pl.Schema] = SCORES_SCHEMA
    path: Path
    attributes: dict[str, Any] = field(compare=False)

    @classmethod
    def open(cls, root: Path, folder: str) -> "Deposit":
        """Open the deposit at `<root>/<folder>`.

        Raises
        ------
        FileNotFoundError
            It does not exist.
        DamagedError
            Its attributes are damaged, or belong to another folder of the bank.
        """
        return cls.listed(objects.plain_path(root, folder), folder)

    @classmethod
    def listed(cls, path: Path, folder: str) -> "Deposit":
        """Open the deposit at a path that passes no link, as `open` does."""
        deposit = cls(path, read_attributes(path))
        belongs = f"{deposit.checkpoint.path}/{deposit.query_set}"
        if belongs != folder:
            raise DamagedError(
                f"{path} holds the attributes of {belongs!r}: it was moved or swapped; put it back"
            )
        return deposit

    @property
    def stored(self) -> "Deposit":
        """The deposit in the bank: this one, or the one that a filter is applied to."""
        return self

    def absolute(self) -> "Deposit":
        """The same deposit with an absolute path, for other processes."""
        return replace(self, path=self.path.absolute())

    @cached_property
    def spec(self) -> DepositSpec:
        """What was deposited, and how it was made."""
        return from_attributes(self.attributes, where=self.path)

    @property
    def checkpoint(self) -> CheckpointId:
        return self.spec.checkpoint

    @property
    def query_set(self) -> str:
        return self.spec.query_set

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    def state(self) -> Committed:
        """What is committed at this moment."""
        return commits.committed(self.path, blocks=self.layout.blocks)

    @property
    def sealed(self) -> bool:
        return self.state().sealed

    def committed(self) -> frozenset[int]:
        """Committed blocks."""
        return self.state().blocks

    @property
    def complete(self) -> bool:
        return len(self.committed()) == self.layout.blocks

    @property
    def rows_committed(self) -> int:
        return sum(len(self.layout.rows(block)) for block in self.committed())

    def committed_rows(self) -> np.ndarray:
        """(q,) whether each row is in a committed block.

        Raises
        ------
        DamagedError
            The query set and the attributes have different numbers of queries.
        """
        self.check_queries()
        return self.claimed_rows()

    def claimed_rows(self) -> np.ndarray:
        """As `committed_rows`, without a look at the query set, which may be lost."""
        rows = np.zeros(self.layout.queries, bool)
        for block in self.committed():
            span = self.layout.rows(block)
            rows[span.start : span.stop] = True
        return rows

    def check_queries(self) -> None:
        """Refuse attributes with another number of queries than the query set has."""
        if (count := query_count(self.row_reader.bank, self.query_set)) != self.layout.queries:
            raise DamagedError(
                f"{self.path} is said to have {self.layout.queries:,} queries, and its bank has"
                f" {count:,} of {self.query_set}; {VERIFY}"
            )

    def logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        normalised: bool = False,
    ) -> np.ndarray:
        """Natural-log probabilities, as stored or computed from stored states.

        From states they are float32 products with the LM head, minus the stored log-sum-exp. The
        probabilities of a float16 row sum to 0.99986 … 1.00014. Ask for `normalised` rows before
        you sum over a row, as in a KL divergence, which could come out negative otherwise.

        Parameters
        ----------
        rows
            Rows of the query set, (q,), in any order; all if None.
        tokens
            Outputs of the head, (v,), in any order, or token texts: `[" he", " she"]`. All, padding
            included, if None.
        normalised
            Subtract each row's log-sum-exp, in float64 over all outputs of the head, padding
            included. Rows then sum to 1 within float32's rounding. Reads whole rows, however few
            the tokens.

        Returns
        -------
        (q, v) float32, normalised over all outputs of the head before it was rounded; never NaN.
        −inf only through a filter that truncates.

        Raises
        ------
        KeepLevelError
            The deposit has no full vocabulary rows.
        UsageError
            A row or token is outside the deposit, or a text is not exactly one token.
        BankError
            A row is not committed yet, or the bank has no token texts.
        DamagedError
            Stored bytes are not what was committed.
        """
        if tokens is not None:
            tokens = numbered(self.row_reader.bank, self.query_set, tokens)
        if not normalised:
            return self.stored_logprobs(rows, tokens, dtype=np.float32)
        vocab, at = self.layout.vocab, self._committed(rows)
        if at is None:
            self.check_queries()
        return sum_to_one(
            self.logprobs,
            np.arange(self.layout.queries) if at is None else at,
            None if tokens is None else _index_of("token", tokens, vocab),
            vocab=vocab,
        )

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """`logprobs` in another dtype; the stored dtype if None, float32 from states."""
        self.row_reader.require_whole(self)
        row_index = self._committed(rows)
        token_index = None if tokens is None else _index_of("token", tokens, self.layout.vocab)
        return self.row_reader.logprobs(row_index, token_index, self.logsumexp, dtype=dtype)

    def hidden(self, rows: ArrayLike | None = None) -> np.ndarray:
        """States that the LM head multiplies: after the last norm, before the head.

        (q, width) float32 of the requested rows, in their order, all if None; never NaN. Raises as
        `logprobs`, and KeepLevelError if the deposit has no states.
        """
        self.row_reader.require_states(self)
        return self.row_reader.read(self._committed(rows), dtype=np.float32)

    @property
    def row_reader(self) -> RowReader:
        """Reader of the arrays that blocks have beside scores."""
        return RowReader(self.path, self.spec, self.retrying)

    def check_sizes(self) -> None:
        """Refuse attributes with sizes that the committed shards or the query set do not have.

        Raises
        ------
        DamagedError
            The attributes claim more than there is.
        """
        self.check_queries()
        if self.layout.keep.whole_rows and copies.url_of_copy(self.path) is None:
            self.row_reader.check_sizes(self.committed())

    def logsumexp(self, rows: ArrayLike | None = None) -> np.ndarray:
        """Natural log of the sum of exponentials of all logits of a row; logit = logprob + this.

        Returns
        -------
        (q,) float64 of the requested rows; never NaN. float32 would be off by up to 1.2e-4 for
        logits of about 3,000.

        Raises
        ------
        UsageError, BankError, DamagedError
            As in `logprobs`.
        """
        index = self._committed(rows)
        before = self.rows_committed  # others may commit blocks meanwhile
        query, values = logsumexp_of(self.scores())
        if not before <= len(query) <= self.rows_committed:
            raise DamagedError(f"{self}: scores are of {len(query):,} queries; {VERIFY}")
        if index is None:
            return values
        at = np.minimum(np.searchsorted(query, index), len(query) - 1)
        if (query[at] != index).any():
            raise DamagedError(f"{self}: scores lack some queries; {VERIFY}")
        return np.asarray(values[at])

    def scores(self) -> pl.LazyFrame:
        """Committed rows of `SCORES_SCHEMA`, including scores of options that were named later."""
        return self.retrying(lambda state: scan_parts(self.committed_scores(state), state))

    def option_scores(self) -> pl.LazyFrame:
        """Scores of option tokens."""
        return self.scores().filter(pl.col("kind") == "option")

    def retrying(self, read: Callable[[Committed], T]) -> T:
        """Read by the commits; read again if a seal removed a part meanwhile."""
        return commits.retrying(read, self.state, name=str(self))

    def score_files(self) -> list[Path]:
        """The files that `scores` reads now."""
        return [objects.plain_path(self.path, part) for part in self.state().score_parts]

    def committed_scores(self, state: Committed) -> dict[Path, Digest]:
        """Score files with their committed digests."""
        return committed_parts(self.path, state, name=str(self))

    def _committed(self, rows: ArrayLike | None) -> np.ndarray | None:
        """Rows as an index, or None for all; BankError if one is not committed."""
        index = None if rows is None else _index_of("row", rows, self.layout.queries)
        self.require(index)
        return index

    def require(self, rows: np.ndarray | None) -> None:
        """Refuse rows, or all rows if None, that are not committed, with a BankError."""
        _require_committed(self, self.layout, self.committed(), rows)

    def __str__(self) -> str:
        return f"{self.checkpoint}, {self.query_set}"

    def __repr__(self) -> str:
        about = summary_or_error(lambda: f"{self}: {self.layout.formatted(self.rows_committed)}")
        return printable(f"<{type(self).__name__} {about}>")

    def _repr_html_(self) -> str:
        return html_table(str(self), [], self.layout.about(self.rows_committed))


def _index_of(name: str, values: ArrayLike, length: int) -> np.ndarray:
    """Rows or tokens as an index into an axis of `length`, or UsageError."""
    index = np.asarray(values)
    if index.ndim != 1 or not (np.issubdtype(index.dtype, np.integer) or index.size == 0):
        raise UsageError(
            f"{name}s must be a list of whole numbers; got shape {index.shape}, {index.dtype}"
        )
    index = index.astype(np.int64)
    outside = index[(index < 0) | (index >= length)]
    if len(outside):
        raise UsageError(f"{name} {outside[0]} is not in the deposit; use 0 to {length - 1:,}")
    return index


def _require_committed(
    deposit: object, layout: Layout, committed: Collection[int], rows: np.ndarray | None
) -> None:
    """Refuse rows, or all rows, of which some are not committed, with a BankError."""
    missing = sorted(set(range(layout.blocks)).difference(committed))
    if rows is None:
        absent, requested = sum(len(layout.rows(block)) for block in missing), layout.queries
    else:
        absent = int(np.isin(rows // layout.block_rows, missing).sum())
        requested = len(rows)
    if absent:
        spans = ", ".join(f"{span.start}–{span.stop - 1}" for span in map(layout.rows, missing[:5]))
        more = ", …" if len(missing) > 5 else ""
        raise BankError(
            f"{deposit}: {absent:,} of {requested:,} rows asked for are not there yet"
            f" (the bank lacks rows {spans}{more}); run `logitbank extract` again to finish"
        )
