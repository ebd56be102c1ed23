"""Copy tables and heads of one bank into another. All digests are compared on the way.

Sources may come from strangers. They are only read: no link out of them is followed, and nothing is
copied that the format does not name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.change.about import add_sources, described_as
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import locks, objects
from logitbank.store.format.about import about_fields
from logitbank.store.heads.stored import FOLDER, StoredHead
from logitbank.store.progress import Advance
from logitbank.store.share.selection import head_objects
from logitbank.store.share.targets import Folder, Source
from logitbank.store.tables import (
    prompt_checks,
    prompt_tables,
    query_tables,
    table_files,
    token_texts,
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
    versions: dict[str, dict[Path, dict[str, pl.DataFrame]]] = {}  # then by bank and digest
    for bank in [*targets, *sources]:
        for file in prompt_tables.prompt_files(bank.path):
            known = prompts.setdefault(file.name, {})
            own = versions.setdefault(file.name, {}).setdefault(bank.path, {})
            if same := [table for other, table in known.items() if other.name == file.path.name]:
                own[file.digest] = same[0]
                continue
            # The target may have lost query sets, which the sources bring back.
            table = _checked_prompts([bank, *sources] if bank is into else [bank], file)
            _check_unchanged(file, table, known)
            known[file.path] = own[file.digest] = table
            add(f"prompts/{file.path.name}", bank)
    for name, by_bank in versions.items():
        for (one, here), (other, there) in combinations(by_bank.items(), 2):
            prompt_tables.require_one_version(name, here, there, places=f"in {one} and {other}")
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
        first, *others = [about_fields(bank.attributes) for bank, _ in sources]
        shared = {n: v if all(o[n] == v for o in others) else "" for n, v in first.items()}
        target = Bank.create(into, **shared)
    fields = about_fields(target.attributes)
    for bank, models in sources:
        described = described_as(bank, models) if models else []
        add_sources(target.path, [each for each in described if about_fields(each) != fields])
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
        if into is None or not _has_complete_head(into, digest):
            head = StoredHead.open(deposit.bank, digest, needed_by=str(deposit))
            head.read()
            missing.append(head)
    return missing


def copy_heads(into: Path, heads: Iterable[StoredHead], advance: Advance = lambda _: None) -> None:
    """Copy heads into the bank at `into`; damaged ones there are replaced.

    Raises
    ------
    DamagedError
        A file differs from the head's attributes.
    """
    for head in heads:
        present = objects.plain_path(into, f"{FOLDER}/{head.digest}")
        with locks.locked(into / ".lock"):  # another writer may be placing it
            if present.exists() and not _has_complete_head(into, head.digest):
                objects.remove_folder(present)
        Folder(into).send(head_objects(head), Source(head.path.parents[1]), advance)


def _has_complete_head(root: Path, digest: str) -> bool:
    """Whether a head's attributes are sound and each of its objects has its size."""
    try:
        return not StoredHead.open(root, digest).missing()
    except BankFormatError:  # of a later version
        return True
    except DamagedError:
        return False
