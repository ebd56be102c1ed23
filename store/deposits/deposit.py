"""One deposit, read: a checkpoint × a query set. Everything goes by the commits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import DamagedError, KeepLevelError
from logitbank.notebook import html_table, told
from logitbank.store.deposits.normalised import normalised as sum_to_one
from logitbank.store.deposits.requested import index_of, require_committed
from logitbank.store.deposits.rows import Shards, check_sizes, read_rows
from logitbank.store.deposits.score_parts import VERIFY, scan_parts
from logitbank.store.deposits.shard_files import shard_digests, shards_of
from logitbank.store.deposits.token_texts import numbered
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits
from logitbank.store.format.attributes import from_attributes, read_attributes
from logitbank.store.format.commits import Committed
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.schema import CheckpointId
from logitbank.store.remote import mirror

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Deposit:
    """One checkpoint × one query set, as it lies in a bank.

    Nothing is cached but the attributes, which never change: each question looks at the commits of
    the moment, so a deposit may be read while others write it.
    """

    path: Path
    attributes: dict[str, Any] = field(compare=False)

    @classmethod
    def open(cls, root: Path, folder: str) -> "Deposit":
        """Open the deposit at `<root>/<folder>`.

        Raises
        ------
        FileNotFoundError
            There is none.
        DamagedError
            Its attributes are unreadable, not as they were written, or are those of another place
            in the bank.
        """
        path = objects.plain_path(root, folder)
        deposit = cls(path, read_attributes(path))
        belongs = f"{deposit.checkpoint.path}/{deposit.query_set}"
        if belongs != folder:
            raise DamagedError(
                f"{path} holds the attributes of {belongs!r}: it was moved or swapped; put it back"
            )
        return deposit

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

    def logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        normalised: bool = False,
    ) -> np.ndarray:
        """Natural-log probabilities, as stored.

        Rounded to float16, a row's probabilities sum to 0.99986 … 1.00014, not to 1. What is
        summed over a row by hand, such as a KL divergence, is wrong by as much, and may come out
        below zero: ask for `normalised` rows.

        Parameters
        ----------
        rows
            Rows of the query set, (q,), in any order; all if None.
        tokens
            Outputs of the head, (v,), in any order; or what they say, as texts: `[" he", " she"]`.
            All, padding included, if None.
        normalised
            Subtract each row's log-sum-exp, taken in float64 over all outputs of the head, padding
            included, so that it sums to 1 within float32's rounding. Reads whole rows, however few
            tokens are asked for.

        Returns
        -------
        (q, v) float32, normalised over all outputs of the head before it was rounded; never NaN.
        −inf only in a view whose filter truncates.

        Raises
        ------
        KeepLevelError
            The deposit keeps no full vocabulary rows.
        UsageError
            A row or token is outside the deposit; or no token says a text, or several do.
        BankError
            A row is not committed yet; or the bank keeps no texts of tokens.
        DamagedError
            Stored bytes are not what was committed.
        """
        if tokens is not None:
            # <bank>/<model>/<run>/<step>/<query set>
            tokens = numbered(self.path.parents[3], self.query_set, tokens)
        if not normalised:
            return self.stored_logprobs(rows, tokens, dtype=np.float32)
        layout = self.layout
        self.require(row_index := None if rows is None else index_of("row", rows, layout.queries))
        return sum_to_one(
            self.logprobs,
            np.arange(layout.queries) if row_index is None else row_index,
            None if tokens is None else index_of("token", tokens, layout.vocab),
            vocab=layout.vocab,
        )

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """What `logprobs` gives, in another dtype: that in which they are stored if None."""
        layout = self.layout
        if not layout.keep.whole_rows:
            raise KeepLevelError(
                f"{self} keeps {layout.keep}, not full vocabulary rows; ask for listed tokens"
                " with scores(), or extract again with --keep full into another bank;"
                " the column keep of info() says which checkpoints have full rows"
            )
        row_index = None if rows is None else index_of("row", rows, layout.queries)
        token_index = None if tokens is None else index_of("token", tokens, layout.vocab)
        self.require(row_index)
        return read_rows(
            self._shards(),
            layout,
            self._shard_digests(row_index),
            rows=row_index,
            tokens=token_index,
            dtype=layout.dtype if dtype is None else dtype,
        )

    def _shards(self) -> Shards:
        return shards_of(self.path, self.layout)

    def _shard_digests(self, rows: np.ndarray | None) -> dict[int, Digest]:
        """What was committed of the shards of some rows, or all, by block."""
        layout = self.layout
        blocks = range(layout.blocks) if rows is None else np.unique(rows // layout.block_rows)
        return self.retrying(lambda state: shard_digests(self.path, state, blocks))

    def check_sizes(self) -> None:
        """Refuse sizes that the committed shards are too small for.

        Raises
        ------
        DamagedError
            The attributes are a stranger's, who claims more than there is.
        """
        if self.layout.keep.whole_rows and mirror.mirror_of(self.path) is None:
            blocks = sorted(self.committed())
            rows = np.array([self.layout.rows(block).start for block in blocks], np.int64)
            check_sizes(self._shards(), self.layout, self._shard_digests(rows))

    def logsumexp(self, rows: ArrayLike | None = None) -> np.ndarray:
        """Natural log of the sum of exponentials of all logits of a row; logit = logprob + this.

        Returns
        -------
        (q,) float64 for the rows asked for; never NaN. float32 could not tell it better than by
        1.2e-4 where logits are about 3,000. Deposits that are older have it in float32.

        Raises
        ------
        UsageError, BankError, DamagedError
            As in `logprobs`.
        """
        index = None if rows is None else index_of("row", rows, self.layout.queries)
        self.require(index)
        frame = self.scores().select("query", "logsumexp").unique("query").collect()
        if len(frame) != self.rows_committed:
            raise DamagedError(f"{self}: scores are of {len(frame):,} queries; {VERIFY}")
        out = np.full(self.layout.queries, np.nan)
        out[frame["query"].to_numpy()] = frame["logsumexp"].to_numpy()
        return out if index is None else np.asarray(out[index])

    def scores(self, *, checked: bool = False) -> pl.LazyFrame:
        """Committed rows of `SCORES_SCHEMA`, scores of further options included.

        `checked` says that `check_scores` has looked at them.
        """
        return self.retrying(lambda state: self._scores(state, checked=checked))

    def option_scores(self, *, checked: bool = False) -> pl.LazyFrame:
        """Scores of the tokens that a prompt names as options."""
        return self.scores(checked=checked).filter(pl.col("kind") == "option")

    def retrying(self, read: Callable[[Committed], T]) -> T:
        """Read by the commits; where a seal has just removed a part, read the sealed one."""
        try:
            return read(self.state())
        except FileNotFoundError:
            pass
        try:
            return read(self.state())
        except FileNotFoundError as error:
            raise DamagedError(f"{self}: a committed object is gone ({error}); {VERIFY}") from error

    def score_files(self) -> list[Path]:
        """The files that `scores` reads at this moment."""
        return self._score_files(self.state())

    def _score_files(self, state: Committed) -> list[Path]:
        return [objects.plain_path(self.path, part) for part in state.score_parts]

    def _scores(self, state: Committed, *, checked: bool) -> pl.LazyFrame:
        return scan_parts(self.vouched_scores(state), state, checked=checked)

    def vouched_scores(self, state: Committed) -> dict[Path, Digest]:
        """The files with scores, with the digests that they were committed with.

        Raises
        ------
        FileNotFoundError
            A seal has just replaced a commit.
        DamagedError
            A commit is damaged, or does not name its part.
        """
        vouched = commits.vouched(self.path, state)
        try:
            return {objects.plain_path(self.path, p): vouched[p] for p in state.score_parts}
        except KeyError as error:
            raise DamagedError(f"{self}: no commit names {error.args[0]}; {VERIFY}") from error

    def require(self, rows: np.ndarray | None) -> None:
        """Raise a BankError that names the rows among `rows`, or all, that are not committed."""
        require_committed(self, self.layout, self.committed(), rows)

    def __str__(self) -> str:
        return f"{self.checkpoint}, {self.query_set}"

    def __repr__(self) -> str:
        about = told(lambda: f"{self}: {', '.join(f'{n} {v}' for n, v in self._about())}")
        return f"<{type(self).__name__} {about}>"

    def _repr_html_(self) -> str:
        return html_table(str(self), [], self._about())

    def _about(self) -> list[tuple[str, str]]:
        layout = self.layout
        return [
            ("queries", f"{self.rows_committed:,} of {layout.queries:,}"),
            ("keep", f"{layout.keep}"),
            ("dtype", layout.dtype),
            ("outputs", f"{layout.vocab:,}"),
        ]
