"""The deposits of a bank: found in `<model>/<run>/<step>/<query set>`, or created there."""

import math
import shutil
import uuid
from pathlib import Path

from logitbank.errors import BankError, DamagedError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.staging import any_staging, remove_dead_staging
from logitbank.store.format import zarrays
from logitbank.store.format.attributes import (
    QUERY_SET,
    check_same,
    from_attributes,
    to_attributes,
    unlike,
)
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.schema import CheckpointId
from logitbank.store.heads.stored import FOLDER as HEADS
from logitbank.store.heads.stored import StoredHead
from logitbank.store.tables import query_tables

TABLE_FOLDERS = ("prompts", "queries", "tokens")


def has_parts(root: Path) -> bool:
    """Whether a folder has tables, heads or deposits of a bank."""
    names = {entry.name for entry in objects.entries(root)}
    return not names.isdisjoint({*TABLE_FOLDERS, HEADS}) or bool(deposit_folders(root))


def deposit_folders(root: Path, checkpoint: CheckpointId | None = None) -> list[str]:
    """Folders with names of deposits, relative to the bank."""
    parents = [""]
    if checkpoint is not None:
        objects.plain_path(root, checkpoint.path)
        parents = [f"{checkpoint.path}/"]
    else:
        for level in range(3):
            parents = [
                f"{parent}{entry.name}/"
                for parent in parents
                for entry in objects.entries(f"{root}/{parent}")
                if entry.is_dir() and not (level == 0 and entry.name in (*TABLE_FOLDERS, HEADS))
            ]
    return [
        f"{parent}{entry.name}"
        for parent in parents
        for entry in objects.entries(f"{root}/{parent}")
        if entry.is_dir() and QUERY_SET.fullmatch(entry.name)
    ]


def deposits(root: Path, checkpoint: CheckpointId | None = None) -> list[Deposit]:
    """All deposits, or those of one checkpoint, in the order of training; releases come last."""
    folders = deposit_folders(root, checkpoint)
    opened = (_open_or_none(root, folder) for folder in folders)
    return sorted((deposit for deposit in opened if deposit is not None), key=_training_order)


def _training_order(deposit: Deposit) -> tuple[str, str, float, str]:
    c = deposit.checkpoint
    return c.model, c.run, math.inf if c.step is None else c.step, deposit.query_set


def open_or_create(root: Path, spec: DepositSpec) -> Deposit:
    """The deposit of a spec: a new one, or an existing one that fits the spec.

    An existing deposit that differs and has no commit is replaced: its first run may have failed.
    Raises as `Bank.begin`.
    """
    _check_spec(root, spec)
    metadata = _metadata(spec)
    folder = f"{spec.checkpoint.path}/{spec.query_set}"
    objects.plain_path(root, folder)
    deposit = _open_or_none(root, folder)
    if deposit is None or not (deposit.path / "commits").is_dir():
        deposit = create(root, folder, metadata)
    try:
        check_same(deposit.spec, spec, where=deposit.path)
    except BankError:
        if not remove_abandoned(deposit):
            raise
        deposit = create(root, folder, metadata)
        check_same(deposit.spec, spec, where=deposit.path)
    _check_siblings(root, deposit)
    return deposit


def remove_abandoned(deposit: Deposit, *, with_blocks: bool = False) -> bool:
    """Remove a deposit that has no writers and no commits, or no seal; False if it has some."""
    gone = deposit.path.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        with locks.locked(deposit.path / ".lock"):
            remove_dead_staging(deposit.path)
            is_kept = deposit.sealed if with_blocks else bool(deposit.committed())
            if is_kept or any_staging(deposit.path):
                return False
            deposit.path.rename(gone)  # atomic: no writer sees half of it
    except FileNotFoundError:
        return True  # another run did the same
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _check_siblings(root: Path, deposit: Deposit) -> None:
    """Refuse two sets of weights for one checkpoint."""
    for other in deposits(root, deposit.checkpoint):
        different = unlike(other.spec.provenance, deposit.spec.provenance)
        if different is not None and not remove_abandoned(other):
            raise BankError(
                f"{other.path} has {deposit.checkpoint} with other {different[0]}. Use another"
                " model or run name."
            )


def _open_or_none(root: Path, folder: str) -> Deposit | None:
    try:
        return Deposit.open(root, folder)
    except FileNotFoundError:
        _refuse_orphans(root / folder)
        return None  # its writer has not written the attributes yet


def _metadata(spec: DepositSpec) -> bytes:
    """The zarr.json of a deposit, which readers accept."""
    attributes = to_attributes(spec)
    try:
        from_attributes(attributes, where=Path(spec.query_set))
    except DamagedError as error:
        raise UsageError(f"Invalid deposit: {error.__cause__}") from error
    try:
        return zarrays.deposit_metadata(attributes, spec.layout)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"provenance is not JSON ({error}); use plain values") from error


def create(root: Path, folder: str, metadata: bytes) -> Deposit:
    """Create a deposit, or finish one that another writer began. The first attributes stay."""
    path = objects.plain_path(root, folder)
    with disk.naming_full(path, len(metadata)):
        objects.make_folders(root, path)
        for parent in list(path.relative_to(root).parents)[:-1]:
            if not (root / parent / "zarr.json").exists():
                objects.write_new(root / parent / "zarr.json", zarrays.GROUP)
        with locks.locked(path / ".lock"):
            _refuse_orphans(path)
            objects.write_new(path / "zarr.json", metadata)
            deposit = Deposit.open(root, folder)
            for name, array in zarrays.array_metadata(deposit.layout).items():
                objects.make_folders(root, path / name)
                objects.write_new(path / name / "zarr.json", array)
            objects.make_folders(root, path / "scores")
            objects.make_folders(root, path / "commits")  # last: readers wait for it
    return deposit


def _refuse_orphans(deposit: Path) -> None:
    """Refuse a deposit with commits but without attributes, as damage."""
    if not (deposit / "zarr.json").exists() and objects.entries(deposit / "commits"):
        raise DamagedError(
            f"{deposit} has commits but no zarr.json. Fix: copy zarr.json from another copy of the"
            " bank, or run `logitbank verify --repair` to remove the deposit."
        )


def _check_spec(root: Path, spec: DepositSpec) -> None:
    layout, model = spec.layout, spec.checkpoint.model
    queries = query_tables.query_count(root, spec.query_set)
    if layout.queries != queries:
        raise UsageError(
            f"The layout is for {layout.queries} queries, but {spec.query_set} has {queries}."
        )
    if not 1 <= spec.vocab_entries <= layout.vocab:
        raise UsageError(
            f"vocab_entries {spec.vocab_entries} is invalid for {layout.vocab} outputs; use 1 to"
            f" {layout.vocab}."
        )
    if len(spec.heads) != (layout.width is not None):
        raise UsageError(
            f"Keep level {layout.keep} needs {int(layout.width is not None)} heads, not"
            f" {len(spec.heads)}; hidden states need the one that Bank.put_head stored."
        )
    for digest in spec.heads.values():
        head = StoredHead.open(root, digest, needed_by=str(spec.checkpoint))
        head.require_shape(layout.vocab, layout.width, str(spec.checkpoint))
    if model in (*TABLE_FOLDERS, HEADS):
        raise UsageError(f"Model name {model!r} is reserved; choose another name.")
    expected = query_tables.query_set_tokenizer(root, spec.query_set)
    if spec.provenance.get("tokenizer", expected) != expected:
        raise BankError(
            f"{spec.query_set} was made with another tokenizer. Tokenize the prompts with this"
            " checkpoint's tokenizer and add that query set."
        )
