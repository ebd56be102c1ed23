"""Copy what is committed from one bank into another: bytes with their digests checked on the way.

Sources may come from strangers. They are only read: no link out of them is followed, nothing is
copied that the format does not name, and every digest is recomputed.
"""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.metadata import commit_bytes
from logitbank.store.change.merge_plan import Addition, committed_scores, conflict
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import VERIFY
from logitbank.store.deposits.writer import move_into_place, remove_sealed_parts, write_scores
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import commits
from logitbank.store.format.attributes import compared
from logitbank.store.format.commits import SEAL
from logitbank.store.heads.put import create_head
from logitbank.store.heads.stored import FOLDER, StoredHead
from logitbank.store.tables import (
    prompt_checks,
    prompt_tables,
    query_tables,
    table_files,
    token_texts,
)

Progress = Callable[[int, int], None]
"""Called with the bytes or rows that are done, and their total."""
Copied = Callable[[int], None]
"""Called with the bytes of each piece that was copied."""
_PIECE = 4 * 2**20


def counting(total: int, progress: Progress | None) -> Copied:
    """A callback that adds up what is done and reports the sum to `progress`."""
    done = 0

    def more(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return more


def copy_checked(source: Path, target: Path, expected: Digest, *, copied: Copied) -> None:
    """Copy a file durably and compare its digest.

    Raises
    ------
    DamagedError
        The source is missing or differs from `expected`. The caller drops the partial copy.
    """
    objects.require_file(source)
    digest, size = hashlib.sha256(), 0
    try:
        with source.open("rb") as reading, target.open("wb") as writing:
            # A stranger's file may be longer than it should be, or have no end.
            while piece := reading.read(min(_PIECE, expected.bytes + 1 - size)):
                size += len(piece)
                digest.update(piece)
                writing.write(piece)
                copied(len(piece))
            writing.flush()
            os.fsync(writing.fileno())
    except FileNotFoundError as error:
        raise DamagedError(f"{source} was committed and is missing; {VERIFY}") from error
    if Digest(digest.hexdigest(), size) != expected:
        raise DamagedError(f"{source} is not what was committed, so it is not copied; {VERIFY}")


class TableCopy(NamedTuple):
    """A query set, or a table of prompts or tokens, that the target bank does not have."""

    path: str
    """Relative to either bank."""
    data: bytes


def tables_to_copy(into: Bank | None, sources: Sequence[Bank]) -> list[TableCopy]:
    """Tables that `into` does not have: query sets, then prompts, then tokens. All are checked.

    Raises
    ------
    DamagedError
        The content of a table does not match its name.
    BankError
        Two banks have different prompts of one name and id. The message names both.
    """
    copies: dict[str, TableCopy] = {}

    def add(path: str, bank: Bank) -> None:
        copies[path] = TableCopy(path, objects.plain_path(bank.path, path).read_bytes())

    for bank in sources:
        for name in query_tables.query_set_names(bank.path):
            path = f"queries/{name}.parquet"
            bank.query_set(name)
            if path not in copies and not (into is not None and _has(into, path)):
                add(path, bank)
    known: dict[str, dict[Path, pl.DataFrame]] = {}  # by prompt set, then by file
    for bank in [*([] if into is None else [into]), *sources]:
        # The target may have lost query sets, which the sources bring back.
        queries = [bank, *sources] if bank is into else [bank]
        for file in prompt_tables.prompt_files(bank.path):
            tables = known.setdefault(file.name, {})
            if file.path.name in {other.name for other in tables}:
                continue
            table = _checked_prompts(queries, file)
            _check_joins(file, table, tables)
            tables[file.path] = table
            if bank is not into:
                add(f"prompts/{file.path.name}", bank)
    files = [] if into is None else token_texts.tokens_files(into.path)
    tokenizers = {file.name for file in files}
    for bank in sources:
        for file in token_texts.tokens_files(bank.path):
            if file.name not in tokenizers:
                with _checked(file):
                    token_texts.tokens_in(file.path)
                tokenizers.add(file.name)
                add(f"{token_texts.FOLDER}/{file.path.name}", bank)
    return list(copies.values())


def write_tables(into: Bank, copies: Iterable[TableCopy]) -> None:
    for copy in copies:
        table_files.put_table(into.path, objects.plain_path(into.path, copy.path), copy.data)


def _has(bank: Bank, path: str) -> bool:
    return objects.plain_path(bank.path, path).exists()


@contextmanager
def _checked(file: table_files.TableFile) -> Iterator[None]:
    """Refuse a table whose bytes are damaged, and name the table in errors of its content."""
    table_files.require_sound(file.path)
    try:
        yield
    except (DamagedError, UsageError) as error:
        raise DamagedError(f"{file.path}: {error}; {VERIFY}") from error


def _checked_prompts(queries: Sequence[Bank], file: table_files.TableFile) -> pl.DataFrame:
    """A table of prompts, checked against its name and the query sets of these banks."""

    def count(name: str) -> int:
        holding = (bank for bank in queries if _has(bank, f"queries/{name}.parquet"))
        return query_tables.query_count(next(holding, queries[0]).path, name)

    with _checked(file):
        table = prompt_tables.prompts_in(file.path)
        prompt_checks.check_prompts(table, count)
    return table


def _check_joins(
    file: table_files.TableFile, table: pl.DataFrame, tables: Mapping[Path, pl.DataFrame]
) -> None:
    for other, stored in tables.items():
        try:
            prompt_checks.check_unchanged(file.name, table, stored)
        except UsageError as error:
            raise BankError(
                f"{file.path} cannot be joined with {other}: {error}. Nothing was copied"
            ) from error


def missing_heads(into: Path | None, deposits: Iterable[Deposit]) -> list[StoredHead]:
    """The heads that these deposits need and the bank at `into` does not have whole.

    A head counts as missing if its attributes are damaged or an object has another size. `verify`
    finds other bytes, because it reads them all.

    Raises
    ------
    DamagedError
        A source's head is missing, or its content does not match its digest.
    """
    needed: dict[str, Deposit] = {}
    for deposit in deposits:
        for digest in deposit.spec.heads.values():
            needed.setdefault(digest, deposit)
    missing = []
    for digest, deposit in needed.items():
        if into is None or not _has_whole_head(into, digest):
            head = StoredHead.open(deposit.row_reader.bank, digest, needed_by=str(deposit))
            head.read()
            missing.append(head)
    return missing


def copy_head(source: StoredHead, root: Path, copied: Copied = lambda _: None) -> None:
    """Copy a head into the bank at `root`, unless it is there; replace one that is damaged there.

    Raises
    ------
    DamagedError
        A file differs from what the head's attributes say.
    """

    def write(folder: Path) -> None:
        folder.mkdir()
        for name, digest in source.objects.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            file = objects.plain_path(source.path, name)
            copy_checked(file, folder / name, digest, copied=copied)
        objects.write_durable(folder / "zarr.json", (source.path / "zarr.json").read_bytes())

    present = objects.plain_path(root, f"{FOLDER}/{source.digest}")
    if present.exists() and not _has_whole_head(root, source.digest):
        objects.remove_folder(present)
    create_head(root, source.digest, write, size=source.size)


def _has_whole_head(root: Path, digest: str) -> bool:
    """Whether a head's attributes are sound and each of its objects has its size."""
    try:
        return not StoredHead.open(root, digest).missing()
    except BankFormatError:  # of a later version
        return True
    except DamagedError:
        return False


def copy_deposit(root: Path, addition: Addition, copied: Copied) -> None:
    """Copy what `addition` names into the bank at `root`, unless it was committed meanwhile."""
    source = addition.source
    metadata = objects.plain_path(source.path, "zarr.json").read_bytes()
    deposit = catalog.create(root, addition.folder, metadata)
    if compared(deposit.spec) != compared(source.spec):  # made since the plan
        raise conflict(deposit, source, "another process has just created it, with other settings")
    with locks.locked(deposit.path / ".lock"):
        remove_dead_staging(deposit.path)
        staging = Staging(deposit.path)
    try:
        if addition.whole:
            staged = _stage(addition, list(addition.objects), staging.path, copied)
            _publish(deposit, SEAL, commit_bytes(source, SEAL), staged)
        else:
            for block in addition.blocks:
                copy_block(deposit, addition, block, staging.path, copied)
        for name in addition.options:
            staged = _stage(addition, [f"scores/{name}.parquet"], staging.path, copied)
            _publish(deposit, name, commit_bytes(source, name), staged)
    finally:
        staging.remove()


def copy_block(
    deposit: Deposit, addition: Addition, block: int, staging: Path, copied: Copied
) -> None:
    """Copy one block into a deposit, unless somebody has committed the block meanwhile."""
    source, part = addition.source, f"scores/{block}.parquet"
    paths = [p for p in (part, *source.layout.shards(block)) if p in addition.objects]
    staged = _stage(addition, paths, staging, copied)
    digests = {path: addition.objects[path] for path in paths}  # compared during the copy
    rows, name = source.layout.rows(block), str(block)
    if part not in digests:  # the source is sealed: one file has the scores of all blocks
        name, staged[part] = SEAL, staging / "scores.parquet"
        scores = committed_scores(source, source.state(), np.arange(rows.start, rows.stop))
        write_scores(staged[part], scores)
        digests[part] = objects.fsync_digest(staged[part])
    if name != SEAL:
        content = commit_bytes(source, name)
    if name == SEAL or addition.folder != commits.folder_of(source.path):
        content = commits.document(
            deposit.path,
            str(block),
            objects_=digests,
            block=block,
            rows=[rows.start, rows.stop],
            engine=commits.engine_of(commits.read(source.path, name), block),
        )
    _publish(deposit, str(block), content, staged)


def _publish(deposit: Deposit, name: str, commit: bytes, staged: Mapping[str, Path]) -> None:
    """Move staged objects into place, then commit them; drop them if the commit is there."""
    with locks.locked(deposit.path / ".lock"):
        state = deposit.state()
        blocks = {str(block) for block in state.blocks}
        if not (state.sealed if name == SEAL else name in blocks or name in state.options):
            move_into_place(deposit.path, staged)
            objects.write_new(deposit.path / "commits" / f"{name}.json", commit)
            if name == SEAL:
                remove_sealed_parts(deposit)
    for file in staged.values():
        file.unlink(missing_ok=True)


def _stage(addition: Addition, paths: list[str], staging: Path, copied: Copied) -> dict[str, Path]:
    """Copies in the staging folder, by their final path in the deposit."""
    staged = {path: staging / uuid.uuid4().hex for path in paths}
    for path, file in staged.items():
        source = objects.plain_path(addition.source.path, path)
        with disk.naming_full(staging.parent, addition.objects[path].bytes):
            copy_checked(source, file, addition.objects[path], copied=copied)
    return staged
