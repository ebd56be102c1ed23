"""Recompute the digests of everything in a bank, and name what is damaged.

`logitbank.store.care.damage.CHECKS` lists every fault that these functions find.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError
from logitbank.store.bank import Bank
from logitbank.store.care.contents import deposit_contradictions, prompt_contradictions
from logitbank.store.care.damage import Damage, Problem
from logitbank.store.care.lost import missing_tables
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit, check_commit, check_documents
from logitbank.store.files import copies, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, index, zarrays
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.commits import Committed
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.numbers import as_float32, logsumexp
from logitbank.store.heads.stored import FOLDER, StoredHead, forget_whole, head_digests
from logitbank.store.progress import Progress, counting
from logitbank.store.tables import query_tables, table_files
from logitbank.store.tables.contents import check_table

_ROOT_FILES = (index.NAME, "README.md")
"""Files of a bank that are no objects: the index for readers at a URL, and the card."""
_RUN_LOG = re.compile(r"runs/\d{8}T\d{6}Z-[0-9a-f]{8}\.jsonl")
_SAMPLE = 16
"""Rows of each block whose log-sum-exp is computed from their states."""
_TOLERANCE = 1e-3
"""Nats that it may differ by, in addition to `_rounding`."""
_RELATIVE = {"float32": 2.0**-20, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Relative rounding error of a sum of products. Of float32 it is that of some dozen random
roundings; of float16 and bfloat16, half a unit in the last place of every entry of a state."""


FileDigest = Callable[[Path], Digest]
"""`objects.digest`, which also reports the bytes of data."""


def _reporting_digest(root: Path, progress: Progress | None) -> FileDigest:
    total = 0
    if progress is not None:
        with suppress(BankError, OSError):  # damage is reported later
            data = filter(index.is_data, objects.visible_files(root))
            total = sum((root / path).stat().st_size for path in data)
    advance = counting(total, progress)

    def digest(path: Path) -> Digest:
        value = objects.digest(path)
        advance(0 if path.suffix == ".json" else value.bytes)
        return value

    return digest


def verify(bank: Bank | str | Path, *, progress: Progress | None = None) -> tuple[Damage, ...]:
    """Find damage in a bank, and change nothing.

    Every byte of every object of the bank is read once.

    A checkpoint whose whole folder was removed is reported only if the bank has an `index.json.gz`,
    like a pushed bank. Nothing else lists the checkpoints.

    Parameters
    ----------
    bank
        The bank or its folder. Others may write to it at the same time.
    progress
        Called with the bytes of data that were read, and the total.

    Returns
    -------
    Objects that are missing, changed, or foreign to the format. Empty for a sound bank.

    Raises
    ------
    UsageError
        The bank is at a URL: pull it first.
    BankError
        The folder is not a bank.
    """
    if not isinstance(bank, Bank):
        bank = Bank.open(bank, prompts=[])
    copies.require_folder(bank.path)
    root, digest_file = bank.path, _reporting_digest(bank.path, progress)
    folders = catalog.deposit_folders(root)
    needed = {Path(folder).name: folder for folder in folders}
    damage = [*_root_damage(root), *_table_damage(root, digest_file, needed)]
    known = {each.path for each in damage}
    damage += prompt_contradictions(root, known)
    missing = {
        f"queries/{name}.parquet": f"{user} needs its queries"
        for name, user in sorted(needed.items())
        if not query_tables.query_file(root, name).exists()
    }
    heads: set[str] = set()
    for folder in folders:
        with suppress(BankError, FileNotFoundError):  # `_deposit_damage` reports it
            deposit = Deposit.open(root, folder)
            heads.update(deposit.spec.heads.values())
            missing = missing_tables(root, [deposit]) | missing
    damage += [Damage(path, "missing", why) for path, why in missing.items() if path not in known]
    damage += _file_damage(root)
    damage += _head_damage(root, digest_file, heads)
    for folder in folders:
        damage += _deposit_damage(root, folder, digest_file)
    forget_whole()
    damage += _index_damage(root, {each.path for each in damage})
    return tuple(damage)


def verify_documents(bank: Bank) -> tuple[Damage, ...]:
    """Damage of documents and tables alone, of a bank in a folder or at a URL.

    A copy of a bank at a URL has no more, and has compared each with the bank's index.
    """
    root = bank.path
    damage = [*_root_damage(root), *_table_damage(root, objects.digest, {})]
    damage += prompt_contradictions(root, {each.path for each in damage})
    for folder in catalog.deposit_folders(root):
        try:
            deposit = Deposit.open(root, folder)
            check_documents(deposit)
            missing = missing_tables(root, [deposit])
            damage += [Damage(path, "missing", why) for path, why in missing.items()]
        except (BankError, FileNotFoundError) as error:
            damage.append(Damage(f"{folder}/zarr.json", "changed", str(error)))
    return tuple(dict.fromkeys(damage))


def _file_damage(root: Path) -> Iterator[Damage]:
    """Files that the format does not have, and damaged plain groups.

    Groups let Zarr walk from the root.
    """
    for name, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        links = [each for each in folders if Path(name, each).is_symlink()]  # not walked
        for each in sorted([*links, *(each for each in files if not each.startswith("."))]):
            file = Path(name, each)
            path = file.relative_to(root).as_posix()
            if file.is_symlink():
                yield Damage(path, "foreign", "it is a symbolic link")
            elif file.exists() and not file.is_file():  # a reader of a pipe would wait for ever
                yield Damage(path, "foreign", "it is not a file")
            elif not (index.is_object(path) or path in _ROOT_FILES or _RUN_LOG.fullmatch(path)):
                yield Damage(path, "foreign", "a bank has no such file")
            elif index.is_group(path) and objects.read_file(file)[1] != zarrays.GROUP:
                yield Damage(path, "changed", "it is not the group of the format")


def _fault(committed: Digest, actual: Digest | None) -> tuple[Problem, str] | None:
    """Fault of an object by its digest (None if the object is missing), or None if it is sound."""
    if actual is None:
        return "missing", f"{committed.bytes:,} bytes were committed"
    if actual.bytes != committed.bytes:
        return "changed", f"{actual.bytes:,} bytes instead of the committed {committed.bytes:,}"
    if actual != committed:
        return "changed", "its SHA-256 differs from the committed one"
    return None


def _root_damage(root: Path) -> Iterator[Damage]:
    """Damage of the bank's own attributes since it was opened."""
    try:
        verified.document(objects.plain_path(root, "zarr.json"), *zarrays.ATTRIBUTES)
    except BankError as error:
        yield Damage("zarr.json", "changed", str(error))


def _table_damage(root: Path, digest_file: FileDigest, needed: dict[str, str]) -> Iterator[Damage]:
    """Damage of tables; adds the query sets that prompts refer to to `needed`."""
    for folder in catalog.TABLE_FOLDERS:
        for entry in objects.entries(root / folder):
            path = f"{folder}/{entry.name.removesuffix('.sha256')}"
            if not index.is_table(path):
                continue  # `_file_damage` reports it
            if entry.is_dir():
                yield Damage(f"{folder}/{entry.name}", "foreign", "it is a folder")
            elif not entry.is_file():
                continue  # `_file_damage` reports a pipe
            elif path.endswith(entry.name):
                yield from _table(root, path, digest_file, needed)
            elif not objects.plain_path(root, path).exists():
                yield Damage(path, "missing", "its digest exists")


def _table(
    root: Path, path: str, digest_file: FileDigest, needed: dict[str, str]
) -> Iterator[Damage]:
    """Damage of one table: its bytes differ from its digest, or its content from its name."""
    # Bytes first: a Parquet reader may allocate too much memory for damaged ones.
    file = objects.plain_path(root, path)
    digest = digest_file(file).sha256
    sidecar, where = table_files.digest_file(file), f"{path}.sha256"
    try:
        committed = table_files.recorded_digest(file)
    except DamagedError as error:
        yield Damage(where, "changed" if sidecar.is_file() else "missing", str(error))
        return
    if committed != digest:
        yield Damage(path, "changed", f"its SHA-256 differs from that in {where}")
        return
    try:
        frame = check_table(file)
    except DamagedError as error:
        yield Damage(path, "changed", str(error))
        return
    for name in frame.get_column("query_set", default=pl.Series([])).unique():
        if QUERY_SET.fullmatch(str(name)):
            needed.setdefault(name, path)


def _deposit_damage(root: Path, folder: str, digest_file: FileDigest) -> list[Damage]:
    """Damage of the deposit in a folder."""
    try:
        deposit = Deposit.open(root, folder)
    except FileNotFoundError:
        return _orphans(root, folder)
    except BankError as error:
        return [Damage(f"{folder}/zarr.json", "changed", str(error))]
    try:
        return _damages(root, deposit, folder, digest_file)
    except BankError as error:  # a symbolic link, or a commit that names other paths
        return [Damage(folder, "foreign", str(error))]


def _orphans(root: Path, folder: str) -> list[Damage]:
    """Files of a deposit without attributes, although a writer makes attributes first."""
    files = objects.visible_files(root / folder)
    if not files or (root / folder / "zarr.json").exists():  # a writer is creating it
        return []
    detail = f"its folder has {len(files):,} files but no attributes"
    return [Damage(f"{folder}/zarr.json", "missing", detail)]


def _damages(root: Path, deposit: Deposit, folder: str, digest_file: FileDigest) -> list[Damage]:
    state = deposit.state()
    damages, expected = _expected(deposit, folder, state)
    actual: dict[str, Digest] = {}
    for path in expected:
        if (file := objects.plain_path(deposit.path, path)).is_file():
            actual[path] = digest_file(file)
    for path, digest in expected.items():
        if fault := _fault(digest, actual.get(path)):
            damages.append(Damage(f"{folder}/{path}", *fault))
    if not damages:  # sound objects may still contradict each other
        damages += deposit_contradictions(deposit, folder)
    if not damages:
        damages += _states_damage(root, deposit, folder)
    if deposit.state().sealed != state.sealed:  # sealed meanwhile: objects have moved
        return _damages(root, deposit, folder, digest_file)
    return damages


def _expected(
    deposit: Deposit, folder: str, state: Committed
) -> tuple[list[Damage], dict[str, Digest]]:
    """Damaged commits, and the digests that the commits list."""
    damages = []
    arrays = zarrays.array_metadata(deposit.layout)
    expected = {
        f"{name}/zarr.json": objects.compute_digest(data)
        for name, data in arrays.items()
        if state.names
        or (deposit.path / name / "zarr.json").exists()  # a writer makes it with the first commit
    }
    for name in state.names:
        path = f"{folder}/commits/{name}.json"
        try:
            listed = commits.digests(deposit.path, name)
            for object_ in listed:
                objects.plain_path(deposit.path, object_)
            check_commit(deposit, name)
        except FileNotFoundError:  # sealed meanwhile
            continue
        except DamagedError as error:
            damages.append(Damage(path, "changed", str(error)))
            continue
        expected |= listed
    return damages, expected


def _head_damage(root: Path, digest_file: FileDigest, needed: Collection[str]) -> Iterator[Damage]:
    """Damage of heads: other bytes, or the content of another head.

    A head that no deposit needs may be a part without attributes, which a killed copy leaves.
    """
    for digest in head_digests(root):
        if digest not in needed and not (root / FOLDER / digest / "zarr.json").exists():
            continue
        yield from _find_head_damage(root, digest, digest_file)


def _find_head_damage(root: Path, digest: str, digest_file: FileDigest) -> Iterator[Damage]:
    where, sound = f"{FOLDER}/{digest}", True
    try:
        head = StoredHead.open(root, digest)
    except BankFormatError:
        raise  # a head of a later version is not damage: it must not be repaired
    except BankError as error:
        yield Damage(f"{where}/zarr.json", "changed", str(error))
        return
    for name, expected in head.objects.items():
        file = objects.plain_path(head.path, name)
        actual = digest_file(file) if file.is_file() else None
        if fault := _fault(expected, actual):
            sound = False
            yield Damage(f"{where}/{name}", *fault)
    if sound:
        try:
            head.read()
        except BankError as error:
            yield Damage(f"{where}/zarr.json", "changed", str(error))


def _states_damage(root: Path, deposit: Deposit, folder: str) -> Iterator[Damage]:
    """A missing head, and blocks whose states and head give another log-sum-exp than is stored.

    A sample of each block is computed. Only deposits that keep states have any.
    """
    if deposit.layout.width is None or not deposit.committed():
        return
    (digest,) = deposit.spec.heads.values()
    try:
        stored = deposit.head()
        if stored.missing():
            return  # `_head_damage` reports them
        head = stored.whole()
    except BankError as error:
        if not (root / FOLDER / digest / "zarr.json").exists():
            yield Damage(f"{FOLDER}/{digest}/zarr.json", "missing", str(error))
        elif _is_sound_head(root, digest):
            yield Damage(f"{folder}/zarr.json", "changed", str(error))
        return
    for block in sorted(deposit.committed()):
        rows = deposit.layout.rows(block)
        sample = np.unique(np.linspace(rows.start, rows.stop - 1, _SAMPLE).astype(np.int64))
        states = deposit.hidden(sample)
        logits = head.logits(states).astype(np.float64)
        off = np.abs(logsumexp(logits) - deposit.logsumexp(sample))
        beyond = off > _TOLERANCE + _rounding(head, states, deposit.layout.dtype)
        if beyond.any():
            worst = int(np.where(beyond, off, 0).argmax())
            yield Damage(
                f"{folder}/hidden/c/{block}/0",
                "changed",
                f"the log-sum-exp of row {sample[worst]} differs by {off[worst]:.3g} nats from that"
                " of its state and head",
            )


def _is_sound_head(root: Path, digest: str) -> bool:
    """Whether the head itself is sound, so that the deposit that names it is wrong."""
    try:
        StoredHead.open(root, digest).read()
    except BankError:
        return False
    return True


def _rounding(head: OutputHead, states: np.ndarray, dtype: str) -> np.ndarray:
    """Rounding error of logits (q,): a part of the largest sum of |state · weight|."""
    largest = np.zeros(len(states))
    for start in range(0, head.outputs, 4096):
        weight = np.abs(as_float32(head.weight[start : start + 4096]))
        largest = np.maximum(largest, (np.abs(states) @ weight.T).max(axis=1))
    scaled = [abs(one.number) for one in head.after if one.name == "scale"]
    return np.asarray(_RELATIVE[dtype] * largest * np.prod(scaled))


def _index_damage(root: Path, known: Collection[str]) -> Iterator[Damage]:
    """Deposits and heads without an object that the index lists; `known` paths are left out.

    Existing objects are compared with commits.
    """
    path = objects.plain_path(root, index.NAME)
    if not path.is_file():
        return
    try:
        listed = index.parse(path.read_bytes(), where=str(path))
    except DamagedError as error:
        yield Damage(index.NAME, "changed", str(error))
        return
    missing = [
        name for name in sorted({*listed} - {*known}) if not objects.plain_path(root, name).exists()
    ]
    owners = {
        index.object_deposit(name) or index.object_head(name) or "": name for name in missing[::-1]
    }
    for owner, name in sorted(owners.items()):
        if owner:
            yield Damage(owner, "missing", f"{index.NAME} lists {name.removeprefix(f'{owner}/')}")
