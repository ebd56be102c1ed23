"""Take what is damaged out of a bank, so that the same extraction computes it again.

The only code that removes what was committed. Undamaged blocks stay, byte for byte; a seal over a
damaged block is turned back into commits of the others.
"""

import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import BankError, LogitbankError
from logitbank.store.bank import Bank, open_unfiltered
from logitbank.store.care.damage import Damage
from logitbank.store.deposits.catalog import TABLE_FOLDERS, deposit_folders
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import read_scores
from logitbank.store.deposits.writer import (
    DepositWriter,
    move_into_place,
    remove_sealed_parts,
    write_scores,
)
from logitbank.store.files import locks, objects
from logitbank.store.files.staging import Staging, remove_dead, remove_dead_staging
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL
from logitbank.store.format.index import head_of
from logitbank.store.tables import prompt_tables, query_tables, table_files, token_texts

_OPTIONS = re.compile(r"(?:commits|scores)/(options-[0-9a-f]{12})\.(?:json|parquet)")
_ALL_BLOCKS = ("scores/all.parquet", f"commits/{SEAL}.json")


class Repaired(NamedTuple):
    """What a repair did."""

    dropped: dict[str, tuple[int, ...]]
    """Blocks that are to be computed again, by the deposit's folder."""
    restored: tuple[str, ...]
    """Objects that were made again from what is sound."""


def can_repair(damage: Damage) -> bool:
    """Whether `repair` may do something about it; content of a table may turn out damaged too.

    Not about what is foreign, nor about a table or a deposit of which nothing is left.
    """
    if damage.problem == "foreign":
        return False
    if damage.deposit or head_of(damage.path) or damage.path.endswith("/zarr.json"):
        return True
    return damage.path.partition("/")[0] in TABLE_FOLDERS and not is_lost_table(damage)


def is_lost_table(damage: Damage) -> bool:
    """Whether a table of queries, prompts or tokens is gone, which extractions and merges bring."""
    folder = damage.path.partition("/")[0]
    gone = damage.problem == "missing" and damage.path.endswith(".parquet")
    return gone and folder in TABLE_FOLDERS


def repair(bank: Bank, damage: Iterable[Damage]) -> Repaired:
    """Drop the damaged blocks that `verify` named, and make again what follows from the rest.

    A damaged head is removed. Only an extraction writes it again, so one deposit that needs it
    gives up its last block; merging another copy of the bank into this one brings it back too.
    What killed writers left beside the bank's objects goes as well.

    Query sets and prompts whose content is damaged stay as they are, and so do foreign objects:
    the first are to be had from another copy only, the others are not the bank's to delete. Nobody
    may write to the deposits meanwhile but through locks.

    Raises
    ------
    UsageError
        It is a filtered bank; repair the bank itself.
    """
    open_unfiltered(bank)
    remove_dead(bank.path)
    by_deposit: dict[str, list[Damage]] = {}
    restored: list[str] = []
    lost_heads: set[str] = set()
    for each in damage:
        if each.deposit:
            by_deposit.setdefault(each.deposit, []).append(each)
        elif head := head_of(each.path):
            if each.problem != "foreign":
                lost_heads.add(head)
        elif _restore(bank.path, each):
            restored.append(each.path)
    for folder, damages in _of_lost_heads(bank, lost_heads).items():
        by_deposit.setdefault(folder, []).extend(damages)
    dropped: dict[str, tuple[int, ...]] = {}
    for folder, damages in by_deposit.items():
        repairable = [d for d in damages if d.problem != "foreign"]
        if not repairable:
            continue
        lost, made = _repair_deposit(bank.path, folder, repairable)
        restored += made
        if lost:
            dropped[folder] = lost
    return Repaired(dropped, tuple(restored))


def _restore(root: Path, damage: Damage) -> bool:
    """Make a plain group, or a table whose content is sound, again."""
    path = objects.plain_path(root, damage.path)
    if damage.path.endswith("/zarr.json"):
        path.unlink(missing_ok=True)
        return objects.write_new(path, zarrays.GROUP)
    table = path.with_name(path.name.removesuffix(".sha256"))
    if not _readable(table):
        return False
    aside = table.with_name(f".{table.name}-{uuid.uuid4().hex}")
    try:
        if table.parent.name == "queries":
            query_set = query_tables.query_set_in(table)
            frame, metadata = (
                query_set.to_frame(),
                {query_tables.TOKENIZER_KEY: query_set.tokenizer},
            )
        elif table.parent.name == token_texts.FOLDER:
            frame, metadata = token_texts.tokens_in(table), {}
        else:
            frame, metadata = prompt_tables.prompts_in(table), {}
    except (LogitbankError, OSError):
        return False  # its content is damaged too
    table.rename(aside)
    try:
        table_files.write_table(root, table, frame, metadata)
    except BaseException:
        aside.replace(table)
        raise
    aside.unlink()
    return True


def _of_lost_heads(bank: Bank, heads: set[str]) -> dict[str, list[Damage]]:
    """Remove what is left of damaged heads; a block, to be run again, of a deposit that needs each.

    Whoever runs it puts the head again, as it comes before every deposit.
    """
    for head in heads:
        if (remains := objects.plain_path(bank.path, head)).exists():
            objects.remove_folder(remains)
    again: dict[str, list[Damage]] = {}
    for folder in deposit_folders(bank.path) if heads else ():
        try:
            deposit = Deposit.open(bank.path, folder)
        except (BankError, FileNotFoundError):  # damaged itself, or about to be created
            continue
        for digest in deposit.spec.heads.values():
            if f"heads/{digest}" in heads and (committed := deposit.committed()):
                heads = heads - {f"heads/{digest}"}
                block, detail = max(committed), "its head is to be written again"
                path = f"{folder}/{deposit.layout.shards(block)[0]}"
                again[folder] = [Damage(path, "missing", detail, folder, block)]
    return again


def _readable(table: Path) -> bool:
    """Whether Polars can read a file: tried in another process, which a damaged one may kill."""
    code = "import sys, polars; polars.read_parquet(sys.argv[1], glob=False)"
    command = [sys.executable, "-I", "-c", code, str(table)]
    return subprocess.run(command, capture_output=True, timeout=600).returncode == 0


def _repair_deposit(
    root: Path, folder: str, damage: Sequence[Damage]
) -> tuple[tuple[int, ...], list[str]]:
    """Blocks that were dropped from a deposit, and objects that were made again."""
    path = objects.plain_path(root, folder)
    inside = {each.path.removeprefix(f"{folder}/"): each for each in damage}
    if "zarr.json" in inside:
        blocks = _blocks_of(root, folder)
        objects.remove_folder(path)
        return blocks, []
    deposit = Deposit.open(root, folder)
    state = deposit.state()
    restored = []
    with locks.locked(path / ".lock"):
        remove_dead_staging(path)
        for name, data in zarrays.array_metadata(deposit.layout).items():
            if f"{name}/zarr.json" in inside:
                objects.make_folders(root, path / name)
                (path / name / "zarr.json").unlink(missing_ok=True)
                objects.write_new(path / name / "zarr.json", data)
                restored.append(f"{folder}/{name}/zarr.json")
        lost = {each.block for each in damage if each.block is not None} & state.blocks
        if any(p in inside for p in _ALL_BLOCKS):
            lost = set(state.blocks)
        options = {match[1] for p in inside if (match := _OPTIONS.fullmatch(p))}
        for part in state.options if lost else options:  # a part may have scores of any block
            (path / "commits" / f"{part}.json").unlink(missing_ok=True)
            (path / "scores" / f"{part}.parquet").unlink(missing_ok=True)
        if state.sealed and (lost or "logsumexp/c/0" in inside):
            _unseal(deposit, state.blocks - lost)
        for block in lost:
            _drop_block(deposit, block)
    if "logsumexp/c/0" in inside and not lost:
        with DepositWriter(deposit) as writer:
            writer.seal()
        restored.append(f"{folder}/logsumexp/c/0")
    return tuple(sorted(lost)), restored


def _blocks_of(root: Path, folder: str) -> tuple[int, ...]:
    """Blocks of a deposit whose attributes may be damaged: those with objects."""
    names = [p.stem for p in (root / folder / "commits").glob("*.json")]
    if SEAL in names:
        names = ["0", *(p.name for p in (root / folder).glob("*/c/*"))]
    return tuple(sorted({int(name) for name in names if name.isdecimal()}))


def _unseal(deposit: Deposit, kept: Iterable[int]) -> None:
    """Turn a seal back into commits of the blocks that are kept. The caller holds the lock.

    They exist before the seal goes, so a reader finds them at every moment.
    """
    kept = sorted(kept)
    remove_sealed_parts(deposit)  # of a seal, or a repair, that was interrupted
    if kept:
        digests = commits.digests(deposit.path, SEAL)
        seal = commits.read(deposit.path, SEAL)
        all_ = "scores/all.parquet"
        scores = read_scores(objects.plain_path(deposit.path, all_), digests[all_])
        staging = Staging(deposit.path)
        try:
            for block in kept:
                rows, name = deposit.layout.rows(block), f"scores/{block}.parquet"
                part = staging.path / f"{block}.parquet"
                of_block = pl.col("query").is_between(rows.start, rows.stop - 1)
                write_scores(part, scores.filter(of_block))
                shards = deposit.layout.shards(block)
                vouched = {name: objects.fsync_digest(part)}
                vouched |= {shard: digests[shard] for shard in shards if shard in digests}
                move_into_place(deposit.path, {name: part})
                commits.commit(
                    deposit.path,
                    str(block),
                    objects_=vouched,
                    block=block,
                    rows=[rows.start, rows.stop],
                    engine=commits.engine_of(seal, block),
                )
        finally:
            staging.remove()
    path = deposit.path / "commits" / f"{SEAL}.json"
    objects.require_file(path)
    path.unlink()
    objects.sync(deposit.path / "commits")
    for made in ("scores/all.parquet", "logsumexp/c/0"):
        objects.plain_path(deposit.path, made).unlink(missing_ok=True)


def _drop_block(deposit: Deposit, block: int) -> None:
    """Remove a block, its commit first."""
    path, shards = deposit.path, deposit.layout.shards(block)
    names = (f"commits/{block}.json", f"scores/{block}.parquet", *shards)
    for name in names:
        objects.require_file(objects.plain_path(path, name))
    for name in names:
        objects.plain_path(path, name).unlink(missing_ok=True)
        if name.startswith("commits/"):
            objects.sync(path / "commits")
