"""Copy committed parts of one bank into another. All digests are compared on the way.

Sources may come from strangers. They are only read: no link out of them is followed, and nothing is
copied that the format does not name.
"""

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.metadata import commit_bytes
from logitbank.store.change.about import add_sources, described_as
from logitbank.store.change.merge_plan import committed_scores
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import move_into_place, remove_sealed_parts, write_scores
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import staging_folder
from logitbank.store.format import commits
from logitbank.store.format.about import own_fields
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.heads.put import create_head
from logitbank.store.heads.stored import FOLDER, StoredHead
from logitbank.store.progress import Advance
from logitbank.store.tables import (
    prompt_checks,
    prompt_tables,
    query_tables,
    table_files,
    token_texts,
)

_CHUNK_BYTES = 4 * 2**20


def copy_checked(source: Path, target: Path, expected: Digest, advance: Advance) -> None:
    """Copy a file durably and compare its digest.

    Raises
    ------
    FileNotFoundError
        The source is missing.
    DamagedError
        The source differs from `expected`. The caller drops the partial copy.
    """
    objects.require_file(source)
    digest, size = hashlib.sha256(), 0
    full = disk.naming_full(target, expected.bytes)
    with full, source.open("rb") as reading, target.open("wb") as writing:
        # A stranger's file may be longer than it should be, or have no end.
        while chunk := reading.read(min(_CHUNK_BYTES, expected.bytes + 1 - size)):
            size += len(chunk)
            digest.update(chunk)
            writing.write(chunk)
            advance(len(chunk))
        writing.flush()
        os.fsync(writing.fileno())
    if Digest(digest.hexdigest(), size) != expected:
        raise DamagedError(
            f"{source} differs from its commit, so it is not copied. Run `logitbank verify`."
        )


def tables_to_copy(into: Bank | None, sources: Sequence[Bank]) -> dict[str, bytes]:
    """Tables that `into` does not have, by path: query sets, prompts and tokens. All are verified.

    Raises
    ------
    DamagedError
        The content of a table does not match its name.
    BankError
        Two banks have different prompts of one name and id. The message names both.
    """
    tables: dict[str, bytes] = {}
    targets = [] if into is None else [into]

    def add(path: str, bank: Bank) -> None:
        if path not in tables and not any((each.path / path).exists() for each in targets):
            tables[path] = objects.plain_path(bank.path, path).read_bytes()

    for bank in sources:
        for name in bank.query_sets():  # verified against their names
            add(f"queries/{name}.parquet", bank)
    prompts: dict[str, dict[Path, pl.DataFrame]] = {}  # by prompt set, then by file
    for bank in [*targets, *sources]:
        for file in prompt_tables.prompt_files(bank.path):
            known = prompts.setdefault(file.name, {})
            if file.path.name in {other.name for other in known}:
                continue
            # The target may have lost query sets, which the sources bring back.
            table = _checked_prompts([bank, *sources] if bank is into else [bank], file)
            _check_unchanged(file, table, known)
            known[file.path] = table
            add(f"prompts/{file.path.name}", bank)
    tokenizers = {file.name for each in targets for file in token_texts.tokens_files(each.path)}
    for bank in sources:
        for file in token_texts.tokens_files(bank.path):
            if file.name not in tokenizers:
                with _checked(file):
                    token_texts.tokens_in(file.path)
                tokenizers.add(file.name)
                add(f"{token_texts.FOLDER}/{file.path.name}", bank)
    return tables


@contextmanager
def _checked(file: table_files.TableFile) -> Iterator[None]:
    """Refuse a table whose bytes are damaged, and name the table in errors of its content."""
    table_files.require_sound(file.path)
    try:
        yield
    except (DamagedError, UsageError) as error:
        raise DamagedError(f"{file.path}: {error}. Run `logitbank verify`.") from error


def _checked_prompts(banks: Sequence[Bank], file: table_files.TableFile) -> pl.DataFrame:
    """A table of prompts, checked against its name and the query sets of these banks."""

    def count(name: str) -> int:
        holders = [b for b in banks if query_tables.query_file(b.path, name).exists()]
        return query_tables.query_count((holders or banks)[0].path, name)

    with _checked(file):
        table = prompt_tables.prompts_in(file.path)
        prompt_checks.check_prompts(table, count)
    return table


def _check_unchanged(
    file: table_files.TableFile, table: pl.DataFrame, known: Mapping[Path, pl.DataFrame]
) -> None:
    for other, stored in known.items():
        try:
            prompt_checks.check_unchanged(file.name, table, stored)
        except UsageError as error:
            raise BankError(
                f"Cannot merge {file.path} with {other}: {error}. Nothing was copied."
            ) from error


def prepare(
    into: str | Path,
    target: Bank | None,
    tables: Mapping[str, bytes],
    sources: Sequence[tuple[Bank, Set[str]]],
) -> Bank:
    """The target, created if it is None, with these tables and the citations of the sources.

    Each source comes with the models that are copied from it. A new bank has the title, license and
    citation that all sources share.
    """
    if target is None:
        first, *others = [own_fields(bank.attributes) for bank, _ in sources]
        shared = {n: v if all(o[n] == v for o in others) else "" for n, v in first.items()}
        target = Bank.create(into, **shared)
    fields = own_fields(target.attributes)
    for bank, models in sources:
        described = described_as(bank, models) if models else []
        add_sources(target.path, [each for each in described if own_fields(each) != fields])
    for path, data in tables.items():
        table_files.put_table(target.path, objects.plain_path(target.path, path), data)
    return target


def missing_heads(into: Path | None, deposits: Iterable[Deposit]) -> list[StoredHead]:
    """The heads that these deposits need and the bank at `into` does not have whole.

    A head is missing if its attributes are damaged or an object has another size. `verify` finds
    other bytes, because it reads them all.

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
            head = StoredHead.open(deposit.bank, digest, needed_by=str(deposit))
            head.read()
            missing.append(head)
    return missing


def copy_head(source: StoredHead, root: Path, advance: Advance = lambda _: None) -> None:
    """Copy a head into the bank at `root`, unless it has it; replace a damaged one.

    Raises
    ------
    DamagedError
        A file differs from the head's attributes.
    """

    def write(folder: Path) -> None:
        folder.mkdir()
        for name, digest in source.objects.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            file = objects.plain_path(source.path, name)
            copy_checked(file, folder / name, digest, advance)
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


def copy_block(
    deposit: Deposit, source: Deposit, block: int, advance: Advance = lambda _: None
) -> None:
    """Commit a copy of a block in another deposit of the same layout, unless it has the block.

    Raises DamagedError if the source differs from its commit. Nothing of the block is kept then.
    """

    def copy(state: Committed) -> None:
        name, part = SEAL if state.sealed else str(block), f"scores/{block}.parquet"
        paths = source.layout.shards(block)
        rows = source.layout.rows(block)
        with staging_folder(deposit.path) as folder:
            staged, digests = _stage(
                source, name, paths if state.sealed else [part, *paths], folder, advance
            )
            if state.sealed:  # one file has the scores of all blocks
                staged[part] = folder / "scores.parquet"
                write_scores(staged[part], committed_scores(source, state, np.array(rows)))
                digests[part] = objects.fsync_digest(staged[part])
            content = commits.document(
                deposit.path,
                str(block),
                objects_=digests,
                block=block,
                rows=[rows.start, rows.stop],
                engine=commits.engine_of(commits.read(source.path, name), block),
            )
            _publish(deposit, str(block), content, staged)

    source.read_committed(copy)


def copy_sealed(deposit: Deposit, source: Deposit, advance: Advance) -> None:
    """Copy a sealed deposit with its seal, byte for byte, unless the target is sealed."""
    paths = ["logsumexp/c/0", "scores/all.parquet"]
    paths += source.layout.shards(*range(source.layout.blocks))
    _copy_commit(deposit, source, SEAL, paths, advance)


def copy_options(deposit: Deposit, source: Deposit, name: str, advance: Advance) -> None:
    """Copy scores of further options with their commit, unless the target has them."""
    _copy_commit(deposit, source, name, [f"scores/{name}.parquet"], advance)


def _copy_commit(
    deposit: Deposit, source: Deposit, name: str, paths: list[str], advance: Advance
) -> None:
    def copy(_: Committed) -> None:
        content = commit_bytes(source, name)
        with staging_folder(deposit.path) as folder:
            staged, _digests = _stage(source, name, paths, folder, advance)
            _publish(deposit, name, content, staged)

    source.read_committed(copy)


def _stage(
    source: Deposit, name: str, paths: Sequence[str], folder: Path, advance: Advance
) -> tuple[dict[str, Path], dict[str, Digest]]:
    """Copies of objects that a commit lists, by their path in the deposit, and their digests."""
    listed = commits.digests(source.path, name)
    if missing := [path for path in paths if path not in listed]:
        raise DamagedError(f"{source.path}: no commit lists {missing[0]}. Run `logitbank verify`.")
    staged = {path: folder / uuid.uuid4().hex for path in paths}
    for path, file in staged.items():
        copy_checked(objects.plain_path(source.path, path), file, listed[path], advance)
    return staged, {path: listed[path] for path in paths}


def _publish(deposit: Deposit, name: str, commit: bytes, staged: Mapping[str, Path]) -> None:
    """Move staged objects into place, then commit them, unless the commit exists."""
    with locks.locked(deposit.path / ".lock"):
        state = deposit.state()
        if name in state.names or (state.sealed and name.isdecimal()):
            return
        move_into_place(deposit.path, staged)
        objects.write_new(deposit.path / "commits" / f"{name}.json", commit)
        if name == SEAL:
            remove_sealed_parts(deposit)
