"""Results of one checkpoint on one query set, as the commits describe them."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import BankError, DamagedError, KeepLevelError, UsageError
from logitbank.notebook import printable, summary_or_error
from logitbank.store.deposits.rows import ShardedArray, shard_digests
from logitbank.store.deposits.scores import committed_parts, query_logsumexp, scan_parts
from logitbank.store.files import copies, objects, verified
from logitbank.store.format import commits, zarrays
from logitbank.store.format.attributes import from_attributes, read_attributes
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.numbers import as_float32, normalise_rows, subtract_logsumexp
from logitbank.store.format.schema import CheckpointId
from logitbank.store.heads.stored import FOLDER as HEADS
from logitbank.store.heads.stored import StoredHead
from logitbank.store.tables.query_tables import query_count, query_file
from logitbank.store.tables.token_texts import token_numbers
from logitbank.wording import VERIFY

if TYPE_CHECKING:
    import zarr

T = TypeVar("T")
_AT_ONCE = 128
"""Rows that are read and normalised at once: those of one inner chunk."""


@dataclass(frozen=True, repr=False)
class Deposit:
    """Results of one checkpoint on one query set in a bank.

    Only the attributes are cached, and they never change. Each method reads the current commits, so
    a deposit may be read while others write it.
    """

    path: Path
    attributes: dict[str, Any] = field(compare=False)

    @classmethod
    def open(cls, root: Path, folder: str) -> "Deposit":
        """Open the deposit at `<root>/<folder>`, a path without symbolic links.

        Raises
        ------
        FileNotFoundError
            It does not exist.
        DamagedError
            Its attributes are damaged, or belong to another folder of the bank.
        """
        path = root / folder
        deposit = cls(path, read_attributes(path))
        expected = f"{deposit.checkpoint.path}/{deposit.query_set}"
        if expected != folder:
            raise DamagedError(
                f"{path} has the attributes of {expected!r}: it was moved or swapped. Move it back."
            )
        return deposit

    @property
    def bank(self) -> Path:
        """Folder of the bank: a deposit is `<bank>/<model>/<run>/<step>/<query set>`."""
        return self.path.parents[3]

    @cached_property
    def spec(self) -> DepositSpec:
        """Contents of the deposit, and how it was made."""
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
        """The current commits."""
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
        require_query_count(self)
        rows = np.zeros(self.layout.queries, bool)
        for block in self.committed():
            span = self.layout.rows(block)
            rows[span.start : span.stop] = True
        return rows

    def logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        normalised: bool = False,
    ) -> np.ndarray:
        """Natural-log probabilities, as stored or computed from stored states.

        From states they are float32 products with the LM head, minus the stored log-sum-exp. The
        probabilities of a float16 row sum to 0.99986 … 1.00014. Request `normalised` rows before
        you sum over a row: a KL divergence could be negative otherwise.

        Parameters
        ----------
        rows
            Rows of the query set, (q,), in any order; all if None.
        tokens
            Outputs of the head, (v,), in any order, or token texts: `[" he", " she"]`. All, padding
            included, if None.
        normalised
            Subtract each row's log-sum-exp, in float64 over all outputs of the head, padding
            included. Rows then sum to 1 within float32's rounding. Reads whole rows, also for few
            tokens.

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
            tokens = token_numbers(self.bank, self.query_set, tokens)
        if not normalised:
            return self.stored_logprobs(rows, tokens, dtype=np.float32)
        columns = slice(None) if tokens is None else _axis_index("token", tokens, self.layout.vocab)
        index = self._committed_index(rows)
        if index is None:
            require_query_count(self)
            index = np.arange(self.layout.queries)
        order = np.argsort(index, kind="stable")  # so that an inner chunk is decoded once
        parts = [index[order[i : i + _AT_ONCE]] for i in range(0, max(1, len(index)), _AT_ONCE)]
        values = [normalise_rows(self.logprobs(part))[:, columns] for part in parts]
        return np.asarray(np.concatenate(values)[np.argsort(order)])

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """`logprobs` in another dtype; the stored dtype if None, float32 from states."""
        layout = self.layout
        if not layout.keep.has_full_rows:
            raise KeepLevelError(
                f"{self} keeps {layout.keep}, not full vocabulary rows. Read listed tokens with"
                " scores(), or extract again with --keep full or --keep hidden into another bank."
            )
        index = self._committed_index(rows)
        columns = None if tokens is None else _axis_index("token", tokens, layout.vocab)
        if layout.width is None:
            return self.stored_rows(index, columns, dtype=dtype)
        head = self.head()
        states = self.stored_rows(index, dtype=np.float32)
        if columns is not None and not len(columns):
            return np.empty((len(states), 0), dtype or layout.row_dtype)
        outputs = head.whole() if columns is None else head.part(columns)
        values = subtract_logsumexp(outputs.logits(states), self.logsumexp(index))
        return values.astype(dtype or layout.row_dtype, copy=False)

    def hidden(self, rows: ArrayLike | None = None) -> np.ndarray:
        """Final hidden states that the LM head multiplies, after the last norm.

        (q, width) float32 of the requested rows, in their order, all if None; never NaN. Raises as
        `logprobs`, and KeepLevelError if the deposit has no states.
        """
        if self.layout.width is None:
            raise KeepLevelError(
                f"{self} keeps {self.layout.keep}, not hidden states. Extract again with"
                " --keep hidden into another bank."
            )
        return self.stored_rows(self._committed_index(rows), dtype=np.float32)

    @property
    def group(self) -> "zarr.Group":
        """The deposit as a read-only Zarr group with its attributes and arrays.

        The arrays are `logsumexp`, and `logprobs` or `hidden` at keep levels full and hidden. Rows
        that are not in the bank are NaN. Each shard is compared with its commit at its first use.
        """
        from logitbank.store.read.zarr_view import zarr_group

        return zarr_group(self.bank, COMMITTED_OBJECTS, commits.relative_folder(self.path))

    def head(self) -> StoredHead:
        """The LM head of the states, or DamagedError if it is missing or does not fit."""
        (digest,) = self.spec.heads.values()
        head = StoredHead.open(self.bank, digest, needed_by=str(self))
        head.require_shape(self.layout.vocab, self.layout.width, str(self))
        return head

    @property
    def lacks_head(self) -> bool:
        """Whether the head of its states is not in the bank, as after a repair."""
        heads = (self.bank / HEADS / digest for digest in self.spec.heads.values())
        return not all((head / "zarr.json").exists() for head in heads)

    def stored_rows(
        self,
        rows: np.ndarray | None,
        columns: np.ndarray | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """The array of log-probabilities or states at rows (q,) and columns, all if None.

        Without a dtype it has the stored one, or float32 for bfloat16.
        """
        layout, grid, name = self.layout, self.layout.grid, self.layout.keep.array
        assert grid is not None, "callers check the keep level"
        assert name is not None, "an array has a name"
        blocks = range(layout.blocks) if rows is None else np.unique(rows // layout.block_rows)
        digests = self.read_committed(lambda state: shard_digests(self.path, name, state, blocks))
        metadata = zarrays.rows_metadata(grid, zarrays.AXES[name])
        array = ShardedArray.open(objects.plain_path(self.path, name), metadata, grid, digests)
        if layout.dtype == "bfloat16":
            bits = array.read(rows, columns, dtype=grid.dtype)
            return as_float32(bits).astype(dtype or np.float32, copy=False)
        return array.read(rows, columns, dtype=layout.dtype if dtype is None else dtype)

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
        index = self._committed_index(rows)
        before = self.rows_committed  # others may commit blocks meanwhile
        query, values = query_logsumexp(self.scores())
        if not before <= len(query) <= self.rows_committed:
            raise DamagedError(f"{self}: scores contain {len(query):,} queries; {VERIFY}")
        if index is None:
            return values
        positions = np.minimum(np.searchsorted(query, index), len(query) - 1)
        if (query[positions] != index).any():
            raise DamagedError(f"{self}: scores of some queries are missing; {VERIFY}")
        return np.asarray(values[positions])

    def scores(self) -> pl.LazyFrame:
        """Committed rows of `SCORES_SCHEMA`, including scores of options that were added later."""
        return self.read_committed(
            lambda state: scan_parts(committed_parts(self.path, state, name=str(self)), state)
        )

    def option_scores(self) -> pl.LazyFrame:
        """Scores of option tokens."""
        return self.scores().filter(pl.col("kind") == "option")

    def read_committed(self, read: Callable[[Committed], T]) -> T:
        """Call `read` with the commits; call it again if a seal removed an object meanwhile.

        Raises DamagedError if the object is still missing.
        """
        with suppress(FileNotFoundError):
            return read(self.state())
        try:
            return read(self.state())
        except FileNotFoundError as error:
            advice = copies.missing_advice(str(error.filename), VERIFY)
            raise DamagedError(
                f"{self}: a committed object is missing ({error}); {advice}"
            ) from error

    def _committed_index(self, rows: ArrayLike | None) -> np.ndarray | None:
        """Rows as an index, or None for all; BankError if one is not committed."""
        index = None if rows is None else _axis_index("row", rows, self.layout.queries)
        require_committed(self, index)
        return index

    def __str__(self) -> str:
        return f"{self.checkpoint}, {self.query_set}"

    def __repr__(self) -> str:
        about = summary_or_error(
            lambda: (
                f"{self}: {self.rows_committed:,} of {self.layout.queries:,} queries,"
                f" keep {self.layout.keep}, {self.layout.dtype}, {self.layout.vocab:,} outputs"
            )
        )
        return printable(f"<{type(self).__name__} {about}>")


def require_query_count(deposit: Deposit) -> None:
    """Refuse attributes with another number of queries than the query set has."""
    count, claimed = query_count(deposit.bank, deposit.query_set), deposit.layout.queries
    if count != claimed:
        raise DamagedError(
            f"{deposit.path} claims {claimed:,} queries, but {deposit.query_set} has {count:,};"
            f" {VERIFY}"
        )


def check_metadata(deposit: Deposit) -> None:
    """Refuse a deposit whose arrays or queries do not match its attributes.

    Raises
    ------
    DamagedError
        Two documents contradict each other.
    """
    require_query_count(deposit)
    if not deposit.state().names:
        return
    attributes = objects.plain_path(deposit.path, "zarr.json")
    metadata = verified.document(attributes, *zarrays.ATTRIBUTES)
    consolidated = json.loads(zarrays.deposit_metadata({}, deposit.layout))["consolidated_metadata"]
    if metadata.get("consolidated_metadata") != consolidated:
        raise DamagedError(
            f"{attributes} does not describe the arrays of its deposit. Run `logitbank verify`."
        )


def check_documents(deposit: Deposit) -> None:
    """Refuse a deposit whose documents contradict each other, as DamagedError."""
    if query_file(deposit.bank, deposit.query_set).exists():
        check_metadata(deposit)
    for name in deposit.state().names:
        check_commit(deposit, name)


def check_commit(deposit: Deposit, name: str) -> None:
    """Refuse a commit that lists other objects or rows than the format prescribes for its name.

    `name` is the seal, a block, or further options. Raises DamagedError.
    """
    layout, commit = deposit.layout, commits.read(deposit.path, name)
    expected, fields = {f"scores/{name}.parquet"}, dict[str, object]()
    if name == SEAL:
        expected = {"zarr.json", "scores/all.parquet", "logsumexp/c/0"}
        expected |= {f"{array}/zarr.json" for array in zarrays.array_metadata(layout)}
        expected |= set(layout.shards(*range(layout.blocks)))
        fields = {"rows": [0, layout.queries]}
    elif name.isdecimal():
        rows = layout.rows(int(name))
        expected |= set(layout.shards(int(name)))
        fields = {"block": int(name), "rows": [rows.start, rows.stop]}
    listed, metadata = commit["objects"], zarrays.array_metadata(layout)
    has_metadata = name != SEAL or all(
        listed.get(f"{array}/zarr.json") == objects.compute_digest(data)._asdict()
        for array, data in metadata.items()
    )
    has_fields = all(commit.get(field) == value for field, value in fields.items())
    if set(listed) != expected or not has_fields or not has_metadata:
        raise DamagedError(
            f"{deposit.path}/commits/{name}.json lists other objects or rows than its deposit has."
            " Run `logitbank verify`."
        )


class CommittedObjects:
    """Objects of deposits for readers that use Zarr itself."""

    def digests(self, root: Path, folder: str) -> dict[str, objects.Digest]:
        """The digests of the documents and committed objects of a deposit, by their paths in it."""
        deposit = Deposit.open(root, folder)
        check_metadata(deposit)
        arrays = zarrays.array_metadata(deposit.layout).items()
        documents = {f"{name}/zarr.json": objects.compute_digest(data) for name, data in arrays}
        return documents | commits.committed_digests(deposit.path, deposit.state())

    def require_claims(self, root: Path, folder: str, name: str, committed: objects.Digest) -> None:
        """Refuse a chunk that claims more than its array has, with a DamagedError."""
        layout, path = Deposit.open(root, folder).layout, root / folder
        array, _, chunk = name.partition("/c/")
        if layout.grid is not None and array == layout.keep.array:
            block = int(chunk.partition("/")[0])
            ShardedArray(path / array, layout.grid, {block: committed}).require_claims(block)
            return
        try:
            zarrays.read_logsumexp((path / name).read_bytes(), layout.queries)
        except ValueError as error:
            raise DamagedError(f"{path / name}: {error}; {VERIFY}") from error


COMMITTED_OBJECTS = CommittedObjects()


def _axis_index(name: str, values: ArrayLike, length: int) -> np.ndarray:
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


def require_committed(deposit: Deposit, rows: np.ndarray | None) -> None:
    """Refuse rows, or all rows if None, of which some are not committed, with a BankError."""
    layout = deposit.layout
    missing = sorted(set(range(layout.blocks)).difference(deposit.committed()))
    if rows is None:
        absent, requested = sum(len(layout.rows(block)) for block in missing), layout.queries
    else:
        absent = int(np.isin(rows // layout.block_rows, missing).sum())
        requested = len(rows)
    if absent:
        spans = ", ".join(f"{span.start}–{span.stop - 1}" for span in map(layout.rows, missing[:5]))
        more = ", …" if len(missing) > 5 else ""
        raise BankError(
            f"{deposit}: {absent:,} of {requested:,} requested rows are not in the bank (missing:"
            f" {spans}{more}). Fix: run the same `logitbank extract` again."
        )
