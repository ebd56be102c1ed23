"""Writing of one deposit: blocks are staged durably, moved into place, committed, then sealed.

Any number of writers, in threads, processes or on machines that share the file system, may work on
one deposit. The first commit of a block wins, and the block of a later writer is dropped.
"""

import shutil
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.rows import write_shard
from logitbank.store.deposits.scores import committed_parts, read_scores
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import commits, zarrays
from logitbank.store.format.attributes import read_attributes
from logitbank.store.format.block import check_block
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.layout import BlockData, Layout
from logitbank.store.format.parquet import PARQUET_ERRORS
from logitbank.store.tables import prompt_tables, query_tables, token_texts

_ORDER = ("query", "kind", pl.when(pl.col("kind") == "top").then("rank"), "token")
"""Options by token, so that those of all deposits of a query set are in the same order; the highest
entries by rank."""


class DepositWriter:
    """Adds blocks to one deposit. A context manager that removes uncommitted blocks at its end.

    Attributes
    ----------
    deposit
        The deposit. Its layout may have other blocks than the requested one, and keep more.
    """

    def __init__(self, deposit: Deposit) -> None:
        self.deposit = deposit
        self._staging: Staging | None = None
        self._opening = threading.Lock()  # a writer may be used by several threads

    @property
    def layout(self) -> Layout:
        return self.deposit.layout

    def missing(self) -> list[int]:
        """Blocks without a commit."""
        return sorted(set(range(self.layout.blocks)) - self.deposit.committed())

    def write(self, block: int, data: BlockData) -> bool:
        """Write a block and commit it.

        Returns
        -------
        False if the block is already committed; the data are then dropped.

        Raises
        ------
        UsageError
            `data` do not match the layout, or are not finite.
        BankError
            Another run has replaced the deposit.
        DiskSpaceError
            The disk is full. Committed blocks stay.
        """
        check_block(self.layout, block, data)
        self._require_current()
        if block in self.deposit.committed():
            return False
        needed = data.array_bytes + int(data.scores.estimated_size())
        with disk.naming_full(self.deposit.path, needed):
            folder = self._open_staging().path / uuid.uuid4().hex
            try:
                staged, digests = self._stage_block(folder, block, data)
                return self._publish(block, staged, digests)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def seal(self) -> None:
        """Join the scores and commits of all blocks; no-op unless complete.

        The next call finishes an interrupted seal.

        Raises
        ------
        BankError
            Another run has replaced the deposit.
        """
        self._require_current()
        if not self.deposit.complete:
            return
        with (
            disk.naming_full(self.deposit.path, 2**20),
            locks.locked(self.deposit.path / ".lock"),
        ):
            remove_dead_staging(self.deposit.path, keep=self._staging)
            state = self.deposit.state()
            if not state.sealed:
                with Staging(self.deposit.path) as folder:
                    self._write_seal(state, folder)
            remove_sealed_parts(self.deposit)

    def close(self) -> None:
        """Remove the uncommitted blocks of this writer."""
        if self._staging is not None:
            self._staging.remove()
            self._staging = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open_staging(self) -> Staging:
        with self._opening:
            if self._staging is not None:
                return self._staging
            try:
                with locks.locked(self.deposit.path / ".lock"):
                    self._require_current()  # from here on it cannot be replaced
                    remove_dead_staging(self.deposit.path)
                    self._staging = Staging(self.deposit.path)
            except FileNotFoundError:
                self._require_current()
                raise
            return self._staging

    def _require_current(self) -> None:
        """Refuse a deposit that another run has replaced (`catalog.open_or_create`)."""
        with suppress(FileNotFoundError):
            if read_attributes(self.deposit.path) == self.deposit.attributes:
                return
        raise BankError(
            f"Another run has replaced {self.deposit.path}, with other weights or settings. Run the"
            " same command again."
        )

    def _stage_block(
        self, folder: Path, block: int, data: BlockData
    ) -> tuple[dict[str, Path], dict[str, Digest]]:
        """Write the block's durable objects into the staging folder; files and digests by path."""
        folder.mkdir()
        name, file = f"scores/{block}.parquet", folder / "scores.parquet"
        write_scores(file, data.scores)
        staged, digests = {name: file}, {name: objects.fsync_digest(file)}
        if (grid := self.layout.grid) is not None:
            assert data.rows is not None, "check_block was called"
            (shard,) = self.layout.shards(block)
            staged[shard] = folder / "rows"
            digests[shard] = write_shard(folder / "rows", grid, data.rows)
        return staged, digests

    def _publish(
        self, block: int, staged: Mapping[str, Path], digests: Mapping[str, Digest]
    ) -> bool:
        path = self.deposit.path
        with locks.locked(path / ".lock"):
            if block in self.deposit.committed():
                return False
            move_staged(path, staged)
            rows = self.layout.rows(block)
            return commits.commit(
                path,
                str(block),
                objects_=digests,
                block=block,
                rows=[rows.start, rows.stop],
            )

    def _write_seal(self, state: Committed, folder: Path) -> None:
        deposit = self.deposit
        state = replace(state, options=())
        digests = commits.committed_digests(deposit.path, state)
        parts = committed_parts(deposit.path, state, name=str(deposit))
        try:
            scores = pl.concat([read_scores(part, digest) for part, digest in parts.items()])
        except (FileNotFoundError, DamagedError) as error:
            raise DamagedError(f"{deposit} cannot be sealed: {error}") from error
        write_scores(folder / "scores.parquet", scores, deposit)
        logsumexp = scores.unique("query").sort("query")["logsumexp"].to_numpy()
        (folder / "logsumexp").write_bytes(zarrays.logsumexp_chunk(logsumexp))
        staged = {
            "scores/all.parquet": folder / "scores.parquet",
            "logsumexp/c/0": folder / "logsumexp",
        }
        sealed = {path: d for path, d in digests.items() if not path.startswith("scores/")}
        sealed |= {path: objects.fsync_digest(file) for path, file in staged.items()}
        sealed["zarr.json"] = objects.digest(deposit.path / "zarr.json")
        for name, metadata in zarrays.array_metadata(deposit.layout).items():
            sealed[f"{name}/zarr.json"] = objects.compute_digest(metadata)
        move_staged(deposit.path, staged)
        commits.commit(
            deposit.path,
            SEAL,
            objects_=sealed,
            blocks=deposit.layout.blocks,
            rows=[0, deposit.layout.queries],
            tables=_deposit_tables(deposit),
        )


def _deposit_tables(deposit: Deposit) -> list[str]:
    """Paths of the tables of prompts and tokens that belong to a deposit."""
    root, query_set = deposit.bank, deposit.query_set
    prompts = [
        f"prompts/{file.path.name}"
        for file in prompt_tables.prompt_files(root)
        if _points_into(file.path, query_set)
    ]
    tokenizer = query_tables.query_set_tokenizer(root, query_set)
    tokens = (file for file in token_texts.tokens_files(root) if file.name == tokenizer)
    return [*prompts, *(f"{token_texts.FOLDER}/{file.path.name}" for file in tokens)]


def _points_into(prompts: Path, query_set: str) -> bool:
    try:
        return query_set in prompt_tables.linked_query_sets(pl.scan_parquet(prompts, glob=False))
    except PARQUET_ERRORS:
        return True  # it is damaged, and `verify` reports that


def remove_sealed_parts(deposit: Deposit) -> None:
    """Remove the parts that a seal has replaced. The caller holds the deposit's lock."""
    for block in range(deposit.layout.blocks):
        for relative in (f"scores/{block}.parquet", f"commits/{block}.json"):
            objects.plain_path(deposit.path, relative).unlink(missing_ok=True)


def move_staged(deposit: Path, staged: Mapping[str, Path]) -> None:
    """Move objects to their paths in the deposit, durably. The caller holds the deposit's lock."""
    folders = set()
    for relative, file in staged.items():
        target = objects.plain_path(deposit, relative)
        objects.make_folders(deposit, target.parent)
        file.replace(target)
        folders.add(target.parent)
    for folder in folders:
        objects.sync(folder)


def write_scores(path: Path, scores: pl.DataFrame, deposit: Deposit | None = None) -> None:
    """Write a score file in its fixed order; `objects.fsync_digest` makes it durable.

    With a deposit, columns name it for readers of the file alone. The file of a block has none.
    """
    if deposit is not None:
        scores = scores.with_columns(
            model=pl.lit(deposit.checkpoint.model),
            run=pl.lit(deposit.checkpoint.run),
            step=pl.lit(deposit.checkpoint.step, pl.Int64),
            query_set=pl.lit(deposit.query_set),
        )
    scores.sort(_ORDER).write_parquet(path, compression="zstd", statistics=True)
