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
from logitbank.store.format.heads import HEAD_DIGEST
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.schema import CheckpointId
from logitbank.store.heads.stored import FOLDER as HEADS
from logitbank.store.heads.stored import StoredHead
from logitbank.store.tables import query_tables

TABLE_FOLDERS = ("prompts", "queries", "tokens")
_HEADS = f"{HEADS}/"
"""Walked all the same: before there were heads, a model might be called so."""


def has_parts(root: Path) -> bool:
    """Whether a folder has tables, heads or deposits, as a bank has."""
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
                if entry.is_dir()
                and not (level == 0 and entry.name in TABLE_FOLDERS)
                and not (parent == _HEADS and HEAD_DIGEST.fullmatch(entry.name))
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
    opened = (_listed_or_none(root / folder, folder) for folder in folders)
    return sorted((deposit for deposit in opened if deposit is not None), key=_training_order)


def _training_order(deposit: Deposit) -> tuple[str, str, float, str]:
    c = deposit.checkpoint
    return c.model, c.run, math.inf if c.step is None else c.step, deposit.query_set


def open_or_create(root: Path, spec: DepositSpec) -> Deposit:
    """The deposit of a spec: a new one, or an existing one that fits the spec.

    An existing one that differs and has no commit is replaced: its first run may have failed.
    Raises UsageError if the spec does not fit its query set, BankError or KeepLevelError if an
    existing deposit differs or keeps less.
    """
    _check_spec(root, spec)
    metadata = _metadata(spec)
    folder = f"{spec.checkpoint.path}/{spec.query_set}"
    deposit = _listed_or_none(objects.plain_path(root, folder), folder)
    if deposit is None or not (deposit.path / "commits").is_dir():
        deposit = create(root, folder, metadata)
    try:
        check_same(deposit.spec, spec, where=deposit.path)
    except BankError:
        if not _abandoned(deposit):
            raise
        deposit = create(root, folder, metadata)
        check_same(deposit.spec, spec, where=deposit.path)
    _check_siblings(root, deposit)
    return deposit


def _abandoned(deposit: Deposit) -> bool:
    """Remove a deposit without commits and writers; False if it has some."""
    gone = deposit.path.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        with locks.locked(deposit.path / ".lock"):
            remove_dead_staging(deposit.path)
            if deposit.committed() or any_staging(deposit.path):
                return False
            deposit.path.rename(gone)  # at once, so that no writer finds half of it
    except FileNotFoundError:
        return True  # another run did the same
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _check_siblings(root: Path, deposit: Deposit) -> None:
    """Refuse two sets of weights for one checkpoint."""
    for other in deposits(root, deposit.checkpoint):
        different = unlike(other.spec.provenance, deposit.spec.provenance)
        if different is not None and not _abandoned(other):
            name, before, now = different
            raise BankError(
                f"{other.path} holds {deposit.checkpoint} with {name} digest {before}, not"
                f" {now}: not the same {name}; store these under another model or run name"
            )


def _listed_or_none(path: Path, folder: str) -> Deposit | None:
    try:
        return Deposit.listed(path, folder)
    except FileNotFoundError:
        _refuse_orphans(path)
        return None  # its writer has only made the folder yet


def _metadata(spec: DepositSpec) -> bytes:
    """The zarr.json of a deposit, after a check that readers accept it."""
    attributes = to_attributes(spec)
    try:
        from_attributes(attributes, where=Path(spec.query_set))
    except DamagedError as error:
        raise UsageError(f"no bank can hold such a deposit: {error.__cause__}") from error
    try:
        return zarrays.deposit_metadata(attributes, spec.layout)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"provenance cannot be written as JSON ({error}); use plain values"
        ) from error


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
            objects.make_folders(root, path / "commits")  # last: says that all is there
    return deposit


def _refuse_orphans(deposit: Path) -> None:
    """Refuse new attributes where commits have lost theirs."""
    if not (deposit / "zarr.json").exists() and objects.entries(deposit / "commits"):
        raise DamagedError(
            f"{deposit} has commits and no zarr.json, which says what they are of; take it from"
            " another copy of the bank, or run `logitbank verify --repair` to drop them"
        )


def _check_spec(root: Path, spec: DepositSpec) -> None:
    queries = query_tables.query_count(root, spec.query_set)
    if spec.layout.queries != queries:
        raise UsageError(
            f"the layout is for {spec.layout.queries} queries; {spec.query_set} has {queries}"
        )
    if not 1 <= spec.vocab_entries <= spec.layout.vocab:
        raise UsageError(
            f"vocab_entries {spec.vocab_entries} does not fit a head with {spec.layout.vocab}"
            f" outputs; use 1 to {spec.layout.vocab}"
        )
    _check_head(root, spec)
    if spec.checkpoint.model in (*TABLE_FOLDERS, HEADS):
        raise UsageError(
            f"a model cannot be called {spec.checkpoint.model!r}: a bank keeps others in the"
            " folder of that name; call it otherwise"
        )
    expected = query_tables.tokenizer_of(root, spec.query_set)
    given = spec.provenance.get("tokenizer", expected)
    if given != expected:
        raise BankError(
            f"{spec.query_set} was made with tokenizer {expected}, not {given}; tokenize the"
            " prompts with this checkpoint's tokenizer and add the query set of that"
        )


def _check_head(root: Path, spec: DepositSpec) -> None:
    """Refuse states without a stored head that fits them."""
    if spec.layout.width is None:
        if spec.heads:
            raise UsageError(f"keep level {spec.layout.keep} has no heads; leave them out")
        return
    if len(spec.heads) != 1:
        raise UsageError(
            f"states of {spec.query_set} are for {len(spec.heads)} heads; name the one of its"
            " queries, as Bank.put_head returned it"
        )
    (digest,) = spec.heads.values()
    head = StoredHead.open(root, digest, needed_by=str(spec.checkpoint))
    if head.grid.shape != (spec.layout.vocab, spec.layout.width):
        raise UsageError(
            f"head {digest[:12]}… has {head.grid.rows:,} outputs for states of"
            f" {head.grid.columns:,} entries; the layout says {spec.layout.vocab:,} and"
            f" {spec.layout.width:,}"
        )
