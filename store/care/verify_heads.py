"""Damage of heads, and of states that do not give the log-sum-exp that is stored of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from logitbank.errors import BankError, BankFormatError
from logitbank.store.care.damage import Damage
from logitbank.store.care.objects_read import Reader, compare, document_damage
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.format.heads import OutputHead, Scale
from logitbank.store.format.numbers import as_float32, logsumexp
from logitbank.store.heads.stored import FOLDER, StoredHead, SwappedHeadError, head_digests

SAMPLE = 16
"""Rows of each block whose log-sum-exp is worked out of their states."""
TOLERANCE = 1e-3
"""Nats that it may differ by, beside what `_allowed` adds."""
_RELATIVE = {"float32": 2.0**-20, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""What rounding takes of a sum of products: of float32, some dozen roundings at random; of float16
and bfloat16, half a unit in the last place of every entry of a state."""


def head_damage(root: Path, read: Reader) -> Iterator[Damage]:
    """Damage of the heads of a bank: other bytes or files, or the content of another head."""
    for digest in head_digests(root):
        where = f"{FOLDER}/{digest}"
        found = [*document_damage(root, f"{where}/zarr.json", read)]
        found = found or [*_files(root, digest, read)]
        yield from found


def _files(root: Path, digest: str, read: Reader) -> Iterator[Damage]:
    where, sound = f"{FOLDER}/{digest}", True
    try:
        head = StoredHead.open(root, digest)
    except BankFormatError:
        raise  # a later version's head is no damage, and what cannot be read is not to be repaired
    except SwappedHeadError as error:
        yield Damage(f"{where}/zarr.json", "swapped", str(error))
        return
    except BankError as error:
        yield Damage(f"{where}/zarr.json", "unreadable", str(error))
        return
    for name, expected in head.objects.items():
        file = objects.plain_path(head.path, name)
        actual = read.digest(f"{where}/{name}", file) if file.is_file() else None
        if compared := compare(expected, actual):
            sound = False
            yield Damage(f"{where}/{name}", *compared)
    for file in sorted(p for p in head.path.rglob("*") if p.is_file()):
        name = file.relative_to(head.path).as_posix()
        if name != "zarr.json" and name not in head.objects:
            yield Damage(f"{where}/{name}", "foreign", "a head has no such file")
    if sound:
        try:
            head.read()
        except BankError as error:
            yield Damage(f"{where}/zarr.json", "swapped", str(error))


def states_damage(root: Path, deposit: Deposit, folder: str) -> Iterator[Damage]:
    """Blocks whose stored log-sum-exp does not follow from states and head; a head that lacks.

    A sample of each block is worked out. Where no states are kept there is nothing to look at.
    """
    if deposit.layout.width is None or not deposit.committed():
        return
    (digest,) = deposit.spec.heads.values()
    try:
        stored = deposit.row_reader.head()
        if stored.missing():
            return  # which `head_damage` names
        head = stored.whole()
    except BankError as error:
        if not (root / FOLDER / digest / "zarr.json").exists():
            yield Damage(f"{FOLDER}/{digest}/zarr.json", "missing", str(error))
        elif _sound(root, digest):
            yield Damage(f"{folder}/zarr.json", "swapped", str(error), folder)
        return
    for block in sorted(deposit.committed()):
        rows = deposit.layout.rows(block)
        sample = np.unique(np.linspace(rows.start, rows.stop - 1, SAMPLE).astype(np.int64))
        states = deposit.hidden(sample)
        logits = head.logits(states).astype(np.float64)
        off = np.abs(logsumexp(logits) - deposit.logsumexp(sample))
        beyond = off > TOLERANCE + _allowed(head, states, deposit.layout.dtype)
        if beyond.any():
            worst = int(np.where(beyond, off, 0).argmax())
            yield Damage(
                f"{folder}/hidden/c/{block}/0",
                "changed",
                f"states times head give row {sample[worst]} a log-sum-exp that is off by"
                f" {off[worst]:.3g} nats",
                folder,
                block,
            )


def _sound(root: Path, digest: str) -> bool:
    """Whether the head itself is sound, so that the deposit that names it is wrong."""
    try:
        StoredHead.open(root, digest).read()
    except BankError:
        return False
    return True


def _allowed(head: OutputHead, states: np.ndarray, dtype: str) -> np.ndarray:
    """What rounding may take of logits (q,): a part of the largest sum of |state · weight|."""
    largest = np.zeros(len(states))
    for start in range(0, head.outputs, 4096):
        weight = np.abs(as_float32(head.weight[start : start + 4096]))
        largest = np.maximum(largest, (np.abs(states) @ weight.T).max(axis=1))
    scaled = [abs(one.by) for one in head.after if isinstance(one, Scale)]
    return np.asarray(_RELATIVE[dtype] * largest * np.prod(scaled))
