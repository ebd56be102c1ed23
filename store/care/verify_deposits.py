"""Damage of deposits: what their commits name is compared with what is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from logitbank.errors import BankError, DamagedError, LogitbankError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Damage
from logitbank.store.care.metadata import check_metadata, commit_bytes
from logitbank.store.care.objects_read import Reader, compare, document_damage
from logitbank.store.care.verify_heads import states_damage
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import Committed
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.tables.query_tables import query_count

# Commits themselves, and what a writer makes before it commits or removes after it sealed.
_LEFT_OVER = re.compile(
    r"zarr\.json|commits/(seal|\d+|options-[0-9a-f]{12})\.json"
    r"|scores/(all|\d+|options-[0-9a-f]{12})\.parquet|(?:logprobs|hidden)/c/\d+/0|logsumexp/c/0"
)
_OF_BLOCK = re.compile(
    r"(?:scores/(\d+)\.parquet|commits/(\d+)\.json|(?:logprobs|hidden)/c/(\d+)/0)"
)


def deposit_damage(bank: Bank, folder: str, read: Reader) -> list[Damage]:
    """Damage of the deposit in a folder, with the prompts that it concerns."""
    try:
        deposit = Deposit.open(bank.path, folder)
    except FileNotFoundError:
        return _orphans(bank.path, folder)
    except BankError as error:
        changed = document_damage(bank.path, f"{folder}/zarr.json", read, folder)
        return [*changed] or [Damage(f"{folder}/zarr.json", "unreadable", str(error), folder)]
    try:
        damages = _deposit(bank.path, deposit, folder, read)
    except BankError as error:  # a symbolic link, or commits that are no commits
        return [Damage(folder, "foreign", str(error), folder)]
    return [_with_concerns(bank, deposit, damage) for damage in damages]


def _orphans(root: Path, folder: str) -> list[Damage]:
    """Files of a deposit without attributes, which its writer makes first."""
    files = files_of(root / folder)
    if not files or (root / folder / "zarr.json").exists():  # somebody is making it
        return []
    detail = f"nothing says what {len(files):,} files there are of"
    return [Damage(f"{folder}/zarr.json", "missing", detail, folder)]


def _deposit(root: Path, deposit: Deposit, folder: str, read: Reader) -> list[Damage]:
    state = deposit.state()
    damages, expected = _expected(root, deposit, folder, state, read)
    actual: dict[str, Digest] = {}
    for path in expected:
        if (file := objects.plain_path(deposit.path, path)).is_file():
            actual[path] = read.digest(f"{folder}/{path}", file)
    owners = {digest.sha256: path for path, digest in expected.items()}
    for path, digest in expected.items():
        if damage := _compare(folder, path, digest, actual.get(path), owners):
            damages.append(damage)
    strange = "no commit names it, and no writer makes such a file"
    damages += [
        Damage(f"{folder}/{path}", "foreign", strange, folder)
        for path in files_of(deposit.path)
        if path not in expected and not _LEFT_OVER.fullmatch(path)
    ]
    if not damages:  # only of what is what was committed is it worth to ask
        damages += _contradictions(deposit, folder)
        damages += states_damage(root, deposit, folder)
    if deposit.state().sealed != state.sealed:  # sealed meanwhile: what we looked for moved
        return _deposit(root, deposit, folder, read)
    return damages


def _contradictions(deposit: Deposit, folder: str) -> Iterator[Damage]:
    """Where two sound documents make different statements about one fact.

    They are what somebody signed again after a change: each has the digest that it says.
    """
    try:
        query_count(deposit.row_reader.bank, deposit.query_set)
    except BankError:
        return  # of the query set, which `verify` names
    own = deposit.checkpoint
    expected: dict[str, object] = {"model": own.model, "run": own.run, "step": own.step}
    expected["query_set"] = deposit.query_set
    try:
        check_metadata(deposit)
        for part in deposit.score_files() if deposit.sealed else ():
            check_rows(part)
            scores = pl.scan_parquet(part, glob=False)
            named = [name for name in expected if name in scores.collect_schema().names()]
            for row in scores.select(named).unique().collect().iter_rows(named=True):
                for name, value in row.items():
                    if value != expected[name]:
                        detail = f"its {name} is {value!r}, that of zarr.json {expected[name]!r}"
                        path = f"{folder}/{part.relative_to(deposit.path).as_posix()}"
                        yield Damage(path, "changed", detail, folder)
    except DamagedError as error:
        yield Damage(f"{folder}/zarr.json", "changed", str(error), folder)


def _expected(
    root: Path, deposit: Deposit, folder: str, state: Committed, read: Reader
) -> tuple[list[Damage], dict[str, Digest]]:
    """Digests that the commits name; commits and attributes that are not as they were."""
    damages = [*document_damage(root, f"{folder}/zarr.json", read, folder)]
    arrays = zarrays.array_metadata(deposit.layout)
    expected = {
        f"{name}/zarr.json": objects.digest_of(data)
        for name, data in arrays.items()
        if state.names or (deposit.path / name / "zarr.json").exists()  # first commit comes later
    }
    for name in state.names:
        path = f"{folder}/commits/{name}.json"
        try:
            listed = commits.digests(deposit.path, name)
            for object_ in listed:
                objects.plain_path(deposit.path, object_)
            commit_bytes(deposit, name)
        except FileNotFoundError:  # sealed meanwhile
            continue
        except DamagedError as error:
            damages.append(
                Damage(path, "unreadable", str(error), folder, _block(f"commits/{name}.json"))
            )
            continue
        expected |= listed
        damages += document_damage(root, path, read, folder, _block(f"commits/{name}.json"))
    return damages, expected


def _compare(
    folder: str, path: str, expected: Digest, actual: Digest | None, owners: dict[str, str]
) -> Damage | None:
    if (compared := compare(expected, actual)) is None:
        return None
    problem, detail = compared
    if actual is not None and actual.sha256 in owners:
        problem, detail = "swapped", f"it holds the bytes of {owners[actual.sha256]}"
    return Damage(f"{folder}/{path}", problem, detail, folder, _block(path))


def _block(path: str) -> int | None:
    match = _OF_BLOCK.fullmatch(path)
    return int(next(filter(None, match.groups()))) if match else None


def _with_concerns(bank: Bank, deposit: Deposit, damage: Damage) -> Damage:
    """The damage with its checkpoint, and the prompts whose queries are in the block."""
    rows = range(deposit.layout.queries)
    if damage.block is not None and damage.block < deposit.layout.blocks:
        rows = deposit.layout.rows(damage.block)
    here = (pl.col("query_set") == deposit.query_set) & pl.col("row").is_between(
        rows.start, rows.stop - 1
    )
    named = [str(deposit.checkpoint)]
    try:
        for name in bank.prompt_sets:
            ids = bank.prompts(name).filter(here).select("prompt_id").unique().sort("prompt_id")
            if len(prompt_ids := ids.collect()["prompt_id"]):
                named.append(
                    f"{len(prompt_ids):,} prompts of {name!r} ({prompt_ids[0]} to {prompt_ids[-1]})"
                )
    except (LogitbankError, *PARQUET_ERRORS, OSError):
        named.append("prompts that cannot be read")
    return Damage(
        *(damage.path, damage.problem, damage.detail, damage.deposit, damage.block),
        ", ".join(named),
    )


def files_of(deposit: Path, folder: str = "") -> list[str]:
    """Files of a deposit, relative to it, but for hidden ones: locks and staging."""
    files: list[str] = []
    for entry in objects.entries(deposit / folder):
        path = f"{folder}{entry.name}"
        files += files_of(deposit, f"{path}/") if entry.is_dir() else [path]
    return files
