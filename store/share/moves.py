"""Plan which objects to send, so that a target has all requested objects. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from logitbank.errors import BankError
from logitbank.store.format.attributes import OF_CHECKPOINT
from logitbank.store.format.index import (
    Object,
    Objects,
    object_deposit,
    object_head,
)

GROUP_BYTES = 256 * 2**20
GROUP_OBJECTS = 100  # what the Hub recommends for one of its commits


@dataclass(frozen=True, slots=True)
class Moves:
    """Objects to send."""

    groups: tuple[Objects, ...]
    """Sent in this order, heads before deposits. All objects of a deposit are in one group."""

    @property
    def sent(self) -> dict[str, Object]:
        return {path: value for group in self.groups for path, value in group.items()}

    @property
    def bytes(self) -> int:
        return sum(value.digest.bytes for value in self.sent.values())


def moves(requested: Objects, stored: Objects, *, location: str) -> Moves:
    """The requested objects that are not in `stored`.

    Attributes of the bank, plain groups and tables in `stored` stay: tables are named by their
    content, and their bytes may differ between writers.

    Raises
    ------
    BankError
        `stored` has a deposit with other attributes, content or weights.
    """
    _check_weights(requested, stored, location)
    missing: dict[str, Object] = {}
    for path, value in requested.items():
        other = stored.get(path)
        if object_deposit(path) is None and last_object(path) not in stored:
            missing[path] = value  # another writer may have left a part of a table or a head
        elif other is not None:
            if object_deposit(path) and not is_same(path, value, other):
                raise conflict(path, location)
        elif not path.endswith(".parquet.sha256"):  # a digest goes with its own table
            missing[path] = value
    return Moves(_groups(missing))


def conflict(path: str, location: str) -> BankError:
    """The error of an object that the target has with other bytes."""
    problem = f"{location} already has {path} with other bytes, and was not changed."
    if object_deposit(path) is None:
        table = path.removesuffix(".sha256")
        both = f"{table} and {table}.sha256" if table.endswith(".parquet") else path
        return BankError(
            f"{problem} Run the same command again. If this error returns, delete"
            f" {object_head(path) or both} there and run the same command again."
        )
    return BankError(
        f"{problem} Either it was computed separately: store yours under another model or run name,"
        " or exclude it with --model or --steps. Or it is damaged there: delete it there and run"
        " the same command again."
    )


def rounds(paths: Iterable[str]) -> list[list[str]]:
    """Paths in the order in which they may appear; those of one list at once.

    The document that makes a folder a bank comes first, so that an interrupted copy can be resumed.
    A commit comes after everything that it lists.
    """
    by_rank: dict[int, list[str]] = {}
    for path in sorted(paths):
        by_rank.setdefault(_rank(path), []).append(path)
    return [by_rank[rank] for rank in sorted(by_rank)]


def last_object(path: str) -> str:
    """The object that is placed last: the table of a digest, or the document of a head."""
    head = object_head(path)
    return f"{head}/zarr.json" if head else path.removesuffix(".sha256")


def _rank(path: str) -> int:
    if path == "zarr.json":
        return 0
    if "/commits/" in path:
        return 4
    if (deposit := object_deposit(path)) is not None:
        return 2 if path == f"{deposit}/zarr.json" else 3
    return 2 if path.endswith(".parquet") or path == f"{object_head(path)}/zarr.json" else 1


def is_same(path: str, one: Object, other: Object) -> bool:
    """Whether two objects of one path are equal; the time of a commit may differ."""
    if one.digest == other.digest:
        return True
    if "/commits/" not in path:
        return False
    return bool(_listed(one.text) == _listed(other.text))


def _listed(commit: str | None) -> Any:
    try:
        return json.loads(commit or "")["objects"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return commit


def _check_weights(requested: Objects, stored: Objects, location: str) -> None:
    """Refuse two models or two sets of weights of one checkpoint."""
    known = dict(_model_digests(stored))
    for (folder, name), digest in _model_digests(requested):
        if known.get((folder, name), digest) != digest:
            raise BankError(
                f"{location} already has {folder} with other {name}. Nothing was sent. Store yours"
                " under another model or run name."
            )


def _model_digests(objects: Objects) -> Iterable[tuple[tuple[str, str], str]]:
    """Digests that all deposits of a checkpoint have in common, by its folder and their names."""
    for path, value in objects.items():
        deposit = object_deposit(path)
        if not deposit or path != f"{deposit}/zarr.json":
            continue
        try:
            provenance = json.loads(value.text or "")["attributes"]["logitbank"]["provenance"]
            digests = {name: provenance.get(name) for name in OF_CHECKPOINT}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # opening the deposit reports it
        for name, digest in digests.items():
            if isinstance(digest, str):
                yield (deposit.rpartition("/")[0], name), digest


def _groups(missing: Objects) -> tuple[Objects, ...]:
    by_owner: dict[str, dict[str, Object]] = {"": {}}
    for path, value in sorted(
        missing.items(), key=lambda item: (not object_head(item[0]), item[0])
    ):
        by_owner.setdefault(object_deposit(path) or object_head(path) or "", {})[path] = value
    groups: list[dict[str, Object]] = []
    room = 0
    for members in by_owner.values():
        size = sum(value.digest.bytes for value in members.values())
        if not groups or size > room or len(groups[-1]) + len(members) > GROUP_OBJECTS:
            groups.append({})
            room = GROUP_BYTES
        groups[-1].update(members)
        room -= size
    return tuple(group for group in groups if group)
