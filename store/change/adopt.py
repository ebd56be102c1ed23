"""Take over what a merge planned: data beside, checked, moved into place, and then the commit."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from logitbank.store.change.copying import copy_checked
from logitbank.store.change.merge_plan import Addition, block_commit_of, options_commit_of, seal_of
from logitbank.store.change.overlap import committed_scores, conflict
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import move_into_place, remove_sealed_parts, write_scores
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import commits
from logitbank.store.format.attributes import compared
from logitbank.store.format.commits import SEAL

Copied = Callable[[int], None]


def adopt(root: Path, addition: Addition, copied: Copied) -> None:
    """Copy what `addition` says into the bank at `root`; what is there by now is dropped."""
    source = addition.source
    metadata = objects.plain_path(source.path, "zarr.json").read_bytes()
    deposit = catalog.create(root, addition.folder, metadata)
    if compared(deposit.spec) != compared(source.spec):  # made since the plan
        raise conflict(deposit, source, "the latter was made meanwhile, of something else")
    with locks.locked(deposit.path / ".lock"):
        remove_dead_staging(deposit.path)
        staging = Staging(deposit.path)
    try:
        if addition.whole:
            _whole(deposit, addition, staging.path, copied)
        else:
            for block in addition.blocks:
                adopt_block(deposit, addition, block, staging.path, copied)
        for name in addition.options:
            _options(deposit, addition, name, staging.path, copied)
    finally:
        staging.remove()


def _whole(deposit: Deposit, addition: Addition, staging: Path, copied: Copied) -> None:
    content = seal_of(addition.source)
    staged = _stage(addition, list(addition.objects), staging, copied)
    with locks.locked(deposit.path / ".lock"):
        if not deposit.sealed:
            move_into_place(deposit.path, staged)
            objects.write_new(deposit.path / "commits" / f"{SEAL}.json", content)
            remove_sealed_parts(deposit)


def adopt_block(
    deposit: Deposit, addition: Addition, block: int, staging: Path, copied: Copied
) -> None:
    """Copy one block into a deposit that is there; dropped where it has the block by then."""
    source, part = addition.source, f"scores/{block}.parquet"
    paths = [p for p in (part, *source.layout.shards(block)) if p in addition.objects]
    staged = _stage(addition, paths, staging, copied)
    made = {path: addition.objects[path] for path in paths}  # proved while they were copied
    name = str(block) if part in made else SEAL
    if part in made:
        content = block_commit_of(source, block)
    else:  # out of a sealed deposit, whose scores are one part
        state, rows = source.state(), source.layout.rows(block)
        staged[part] = staging / "scores.parquet"
        write_scores(
            staged[part], committed_scores(source, state, np.arange(rows.start, rows.stop))
        )
        made[part] = objects.fsync_digest(staged[part])
    if name == SEAL or addition.folder != commits.folder_of(source.path):
        content = _commit_again(deposit, block, made, commits.read(source.path, name))
    with locks.locked(deposit.path / ".lock"):
        if block not in deposit.committed():
            move_into_place(deposit.path, staged)
            objects.write_new(deposit.path / "commits" / f"{block}.json", content)
    _drop(staged)


def _commit_again(
    deposit: Deposit, block: int, made: Mapping[str, Digest], commit: Mapping[str, Any]
) -> bytes:
    """The commit of a block by a seal, or by the commit of another deposit."""
    rows, engine = deposit.layout.rows(block), commits.engine_of(commit, block)
    fields = {"block": block, "rows": [rows.start, rows.stop], "engine": engine}
    return commits.document(deposit.path, str(block), objects_=made, **fields)


def _options(
    deposit: Deposit, addition: Addition, name: str, staging: Path, copied: Copied
) -> None:
    content = options_commit_of(addition.source, name)
    staged = _stage(addition, [f"scores/{name}.parquet"], staging, copied)
    with locks.locked(deposit.path / ".lock"):
        if name not in deposit.state().options:
            move_into_place(deposit.path, staged)
            objects.write_new(deposit.path / "commits" / f"{name}.json", content)
    _drop(staged)


def _stage(addition: Addition, paths: list[str], staging: Path, copied: Copied) -> dict[str, Path]:
    """Copies beside, by the path that they are to have in the deposit."""
    staged = {path: staging / uuid.uuid4().hex for path in paths}
    for path, file in staged.items():
        source = objects.plain_path(addition.source.path, path)
        with disk.naming_full(staging.parent, addition.objects[path].bytes):
            copy_checked(source, file, addition.objects[path], copied=copied)
    return staged


def _drop(staged: dict[str, Path]) -> None:
    """What another writer had committed by then."""
    for file in staged.values():
        file.unlink(missing_ok=True)
