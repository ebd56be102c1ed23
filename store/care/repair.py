"""Drop damaged objects from a bank, so that the same extraction computes them again.

Only this module removes committed objects. Sound blocks stay, byte for byte. A seal over a damaged
block becomes commits of the other blocks.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import BankError, LogitbankError
from logitbank.store.bank import Bank, open_unfiltered
from logitbank.store.care.damage import Damage, Remedy
from logitbank.store.care.verify import check_table
from logitbank.store.deposits.catalog import deposit_folders
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import read_scores
from logitbank.store.deposits.writer import (
    DepositWriter,
    move_staged,
    remove_sealed_parts,
    write_scores,
)
from logitbank.store.files import locks, objects
from logitbank.store.files.staging import Staging, remove_dead, remove_dead_staging
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL
from logitbank.store.format.index import object_head
from logitbank.store.heads.stored import FOLDER
from logitbank.store.steps import in_order
from logitbank.store.tables import prompt_tables, table_files

_LOGSUMEXP, _SCORES = "logsumexp/c/0", "scores/all.parquet"


class Repaired(NamedTuple):
    """Result of a repair."""

    dropped: dict[str, tuple[int, ...]]
    """Blocks to compute again, by the deposit's folder."""
    restored: tuple[str, ...]
    """Objects that were written again from sound ones."""
    commands: tuple[str, ...]
    """Commands that compute the dropped blocks again. `…` stands for a suite that is a folder."""


def repair(bank: Bank, damage: Iterable[Damage]) -> Repaired:
    """Apply the remedies of damage that `verify` found; `Damage.remedy` names each.

    Damaged blocks and heads are dropped, and the same extraction writes them again. Objects that
    follow from sound ones are written again at once. Files of killed writers are removed.

    Other damage stays: missing tables, foreign objects, and tables whose content is damaged, which
    only another copy of the bank has. Others may write to the bank at the same time.

    Raises
    ------
    UsageError
        The bank is filtered: repair the bank itself.
    """
    open_unfiltered(bank)
    remove_dead(bank.path)
    damage = [each for each in damage if each.remedy.is_repair]
    heads = {object_head(each.path) or "" for each in damage if each.remedy is Remedy.DROP_HEAD}
    by_deposit: dict[str, list[Damage]] = {}
    restored: list[str] = []
    for each in damage:
        if each.remedy is Remedy.DROP_HEAD:
            continue
        if each.deposit:
            by_deposit.setdefault(each.deposit, []).append(each)
        elif _rewrite(bank.path, each.path):
            restored.append(each.path)
    repos = {folder: _repo(bank.path, folder) for folder in by_deposit}
    dropped: dict[str, tuple[int, ...]] = {}
    for folder, damages in by_deposit.items():
        lost, rewritten = _repair_deposit(bank.path, folder, damages)
        restored += rewritten
        if lost:
            dropped[folder] = lost
    dropped |= (of_heads := _drop_heads(bank.path, heads))
    repos |= {folder: _repo(bank.path, folder) for folder in of_heads}
    return Repaired(dropped, tuple(restored), _commands(bank, {f: repos[f] for f in dropped}))


def _repo(root: Path, folder: str) -> str:
    """The repository that the checkpoint of a deposit came from, `…` if it is unknown."""
    with suppress(BankError, FileNotFoundError):
        source = Deposit.open(root, folder).spec.provenance.get("source")
        if isinstance(source, dict) and isinstance(repo := source.get("repo"), str):
            return shlex.quote(repo)
    return "…"


def _commands(bank: Bank, repos: Mapping[str, str]) -> tuple[str, ...]:
    """The commands that compute these deposits again, by the repositories of their checkpoints."""
    sets: dict[str, list[str]] = {}
    for name in bank.prompt_sets:
        with suppress(BankError):  # a damaged table
            for query_set in prompt_tables.linked_query_sets(bank.prompts(name)):
                sets.setdefault(query_set, []).append(name)
    steps: dict[str, set[int | None]] = {}
    for folder, repo in repos.items():
        _, _, step, query_set = folder.split("/")
        prompts = "".join(f" --prompts {shlex.quote(name)}" for name in sets.get(query_set, ["…"]))
        command = f"logitbank extract {shlex.quote(str(bank.path))} --suite {repo}{prompts}"
        steps.setdefault(command, set()).add(None if step == "release" else int(step))
    return tuple(
        f"{command} --steps {','.join('release' if s is None else str(s) for s in in_order(each))}"
        for command, each in steps.items()
    )


def _rewrite(root: Path, name: str) -> bool:
    """Write a plain group again, or the digest of a table whose content matches its name."""
    path = objects.plain_path(root, name)
    if name.endswith("/zarr.json"):
        path.unlink(missing_ok=True)
        return objects.write_new(path, zarrays.GROUP)
    table = path.with_name(path.name.removesuffix(".sha256"))
    if not _is_readable(table):
        return False
    try:
        check_table(table)
    except (LogitbankError, OSError):
        return False  # the content is damaged too
    table_files.digest_file(table).unlink(missing_ok=True)
    table_files.write_digest(table, objects.digest(table).sha256)
    return True


def _drop_heads(root: Path, heads: set[str]) -> dict[str, tuple[int, ...]]:
    """Remove damaged heads; return the blocks that were dropped, by deposit.

    An extraction that runs a block writes its head first. So a head costs a block only while all
    deposits that need it are complete.
    """
    needing: dict[str, list[Deposit]] = {head: [] for head in heads}
    for folder in deposit_folders(root) if heads else ():
        with suppress(BankError, FileNotFoundError):  # damaged itself, or being created
            deposit = Deposit.open(root, folder)
            for digest in deposit.spec.heads.values():
                needing.get(f"{FOLDER}/{digest}", []).append(deposit)
    dropped: dict[str, tuple[int, ...]] = {}
    for head, deposits in sorted(needing.items()):
        if (remains := objects.plain_path(root, head)).exists():
            objects.remove_folder(remains)
        if deposits and all(deposit.complete for deposit in deposits):
            folder, block = commits.relative_folder(deposits[0].path), deposits[0].layout.blocks - 1
            path = f"{folder}/{deposits[0].layout.shards(block)[0]}"
            dropped[folder], _ = _repair_deposit(
                root, folder, [Damage(path, "missing", "its head is missing")]
            )
    return dropped


def _is_readable(table: Path) -> bool:
    """Whether Polars can read a file. A damaged file may kill the process that reads it."""
    code = "import sys, polars; polars.read_parquet(sys.argv[1], glob=False)"
    command = [sys.executable, "-I", "-c", code, str(table)]
    return subprocess.run(command, capture_output=True, timeout=600).returncode == 0


def _repair_deposit(
    root: Path, folder: str, damage: Sequence[Damage]
) -> tuple[tuple[int, ...], list[str]]:
    """Blocks that were dropped from a deposit, and objects that were written again."""
    path, remedies = objects.plain_path(root, folder), {each.remedy for each in damage}
    if Remedy.DROP_DEPOSIT in remedies:
        blocks = _stored_blocks(root, folder)
        objects.remove_folder(path)
        return blocks, []
    rewrite = {
        each.path.removeprefix(f"{folder}/") for each in damage if each.remedy is Remedy.REWRITE
    }
    deposit = Deposit.open(root, folder)
    state = deposit.state()
    with locks.locked(path / ".lock"):
        remove_dead_staging(path)
        metadata = zarrays.array_metadata(deposit.layout)
        restored = [name for array in metadata if (name := f"{array}/zarr.json") in rewrite]
        for name in restored:
            objects.make_folders(root, (path / name).parent)
            (path / name).unlink(missing_ok=True)
            objects.write_new(path / name, metadata[name.removesuffix("/zarr.json")])
        lost = {each.block for each in damage if each.block is not None} & state.blocks
        if Remedy.DROP_BLOCKS in remedies:
            lost = set(state.blocks)
        options = {Path(each.path).stem for each in damage if each.remedy is Remedy.DROP_OPTIONS}
        for part in state.options if lost else options:  # a part may have scores of any block
            (path / "commits" / f"{part}.json").unlink(missing_ok=True)
            (path / "scores" / f"{part}.parquet").unlink(missing_ok=True)
        if state.sealed and (lost or _LOGSUMEXP in rewrite):
            _unseal(deposit, state.blocks - lost)
        for block in lost:
            _drop_block(deposit, block)
    if _LOGSUMEXP in rewrite and not lost:
        with DepositWriter(deposit) as writer:
            writer.seal()
        restored.append(_LOGSUMEXP)
    return tuple(sorted(lost)), [f"{folder}/{name}" for name in restored]


def _stored_blocks(root: Path, folder: str) -> tuple[int, ...]:
    """Blocks that have objects, of a deposit whose attributes may be damaged."""
    names = [p.stem for p in (root / folder / "commits").glob("*.json")]
    if SEAL in names:
        names = ["0", *(p.name for p in (root / folder).glob("*/c/*"))]
    return tuple(sorted({int(name) for name in names if name.isdecimal()}))


def _unseal(deposit: Deposit, kept: Iterable[int]) -> None:
    """Replace a seal by commits of the blocks that are kept. The caller holds the lock.

    The commits exist before the seal is removed, so readers always find the blocks.
    """
    kept = sorted(kept)
    remove_sealed_parts(deposit)  # a seal or a repair was interrupted
    if kept:
        digests = commits.digests(deposit.path, SEAL)
        seal = commits.read(deposit.path, SEAL)
        scores = read_scores(objects.plain_path(deposit.path, _SCORES), digests[_SCORES])
        with Staging(deposit.path) as folder:
            for block in kept:
                rows, name = deposit.layout.rows(block), f"scores/{block}.parquet"
                part = folder / f"{block}.parquet"
                in_block = pl.col("query").is_between(rows.start, rows.stop - 1)
                write_scores(part, scores.filter(in_block))
                committed = {name: objects.fsync_digest(part)}
                committed |= {shard: digests[shard] for shard in deposit.layout.shards(block)}
                move_staged(deposit.path, {name: part})
                commits.commit(
                    deposit.path,
                    str(block),
                    objects_=committed,
                    block=block,
                    rows=[rows.start, rows.stop],
                    engine=commits.block_engine(seal, block),
                )
    path = deposit.path / "commits" / f"{SEAL}.json"
    objects.require_file(path)
    path.unlink()
    objects.sync(deposit.path / "commits")
    for name in (_SCORES, _LOGSUMEXP):
        objects.plain_path(deposit.path, name).unlink(missing_ok=True)


def _drop_block(deposit: Deposit, block: int) -> None:
    """Remove a block, its commit first."""
    names = [f"commits/{block}.json", f"scores/{block}.parquet", *deposit.layout.shards(block)]
    files = [objects.plain_path(deposit.path, name) for name in names]
    for file in files:
        objects.require_file(file)
    for file in files:
        file.unlink(missing_ok=True)
        if file.parent.name == "commits":
            objects.sync(file.parent)
