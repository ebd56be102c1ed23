"""Plan which objects to send, so that a target has all requested objects. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from logitbank.errors import BankError, DamagedError
from logitbank.store.files.objects import Digest
from logitbank.store.format.attributes import OF_CHECKPOINT
from logitbank.store.format.index import Object, Objects, deposit_of, head_of, in_force, is_replaced

GROUP_BYTES = 256 * 2**20
GROUP_OBJECTS = 100  # what the Hub recommends for a commit of it


@dataclass(frozen=True, slots=True)
class Moves:
    """Objects to send, and objects to delete afterwards."""

    groups: tuple[Mapping[str, Object], ...]
    """Sent in this order, heads before deposits. All objects of a deposit are in one group."""
    replaced: tuple[str, ...]
    """Objects of the target that a seal replaces."""

    @property
    def bytes(self) -> int:
        return sum(value.digest.bytes for group in self.groups for value in group.values())


def moves(requested: Objects, stored: Objects, *, place: str) -> Moves:
    """The requested objects that are not in `stored`.

    The bank's own attributes, plain groups and tables in `stored` stay: tables are named by their
    content, and their bytes may differ between writers.

    Raises
    ------
    BankError
        `stored` has a deposit with other attributes, content or weights.
    """
    _check_model(requested, stored, place)
    sealed = {
        p.removesuffix("commits/seal.json") for p in stored if p.endswith("/commits/seal.json")
    }
    missing: dict[str, Object] = {}
    for path, value in requested.items():
        if (other := stored.get(path)) is not None:
            if deposit_of(path) and not _same(path, value, other):
                raise conflict(path, place)
            _check_table(path, stored, place)
        elif not is_replaced(path, sealed):
            missing[path] = value
    missing = _without_second_digests(missing, stored)
    joined = {**stored, **missing}
    return Moves(_groups(missing), tuple(sorted(set(joined) - set(in_force(joined)))))


def conflict(path: str, place: str) -> BankError:
    """The error of two things in one place."""
    return BankError(
        f"{deposit_of(path) or path} is in {place} already, with another {path.rsplit('/', 1)[-1]}:"
        " it was computed or continued separately. Nothing there was changed; store yours under"
        " another model or run name, or leave it out with --model or --steps"
    )


def clash(path: str, ours: Digest, vouched: Mapping[str, Digest], place: str) -> BankError:
    """The error of other bytes where ours are to go; `vouched` is what commits there say."""
    if vouched.get(path) != ours:
        return conflict(path, place)
    return _damaged(place, path)


def _damaged(place: str, path: str, *others: str) -> DamagedError:
    return DamagedError(
        f"{place}/{path} is damaged: it does not hold the bytes that were published there. Delete"
        f" {' and '.join((path, *others))} there and run the same command again: it is sent anew"
    )


def _check_table(path: str, stored: Objects, place: str) -> None:
    """A table has the digest that lies beside it."""
    beside = stored.get(f"{path}.sha256")
    if beside is not None and (beside.text or "")[:64] != stored[path].digest.sha256:
        raise _damaged(place, path, f"{path}.sha256")


def _rank(path: str) -> int:
    """What must be there before what: the document that makes a folder a bank comes first, so that
    an interrupted copy can be continued, and a commit comes after all that it vouches for."""
    if path == "zarr.json":
        return -1
    if "/commits/" in path:
        return 3
    if deposit_of(path) is None:  # a head's own document comes after its data
        return 1 if path.endswith(".parquet") or path == f"{head_of(path)}/zarr.json" else 0
    return 1 if path == f"{deposit_of(path)}/zarr.json" else 2


def rounds(paths: Iterable[str]) -> list[list[str]]:
    """Paths in the order in which they may appear; those of one list at once."""
    by_rank: dict[int, list[str]] = {}
    for path in sorted(paths):
        by_rank.setdefault(_rank(path), []).append(path)
    return [by_rank[key] for key in sorted(by_rank)]


def _same(path: str, one: Object, other: Object) -> bool:
    if one.digest == other.digest:
        return True
    if "/commits/" not in path or one.text is None or other.text is None:
        return False
    return bool(_vouches(one.text) == _vouches(other.text))  # the time of a commit may differ


def _vouches(text: str) -> Any:
    try:
        return json.loads(text)["objects"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _check_model(requested: Objects, stored: Objects, place: str) -> None:
    """One checkpoint has one model and one set of weights, whatever it was asked."""
    known = dict(_digests(stored))
    for (folder, name), digest in _digests(requested):
        other = known.get((folder, name), digest)
        if other != digest:
            raise BankError(
                f"{place} holds {folder} with {name} digest {other}, not {digest}: not the same"
                f" {name}; store these under another model or run name"
            )


def _digests(objects: Objects) -> Iterable[tuple[tuple[str, str], str]]:
    """Those of each checkpoint's folder that all its deposits have in common, by name."""
    for path, value in objects.items():
        deposit = deposit_of(path)
        if deposit and path == f"{deposit}/zarr.json" and value.text is not None:
            try:
                made = json.loads(value.text)["attributes"]["logitbank"]["provenance"]
                digests = [(name, made.get(name)) for name in OF_CHECKPOINT]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # whoever opens the deposit is told
            for name, digest in digests:
                if isinstance(digest, str):
                    yield (deposit.rpartition("/")[0], name), digest


def _without_second_digests(missing: dict[str, Object], stored: Objects) -> dict[str, Object]:
    """A file with the digest of a table goes with that table, or not at all."""
    return {
        path: value
        for path, value in missing.items()
        if not path.endswith(".parquet.sha256") or path.removesuffix(".sha256") not in stored
    }


def _groups(missing: Objects) -> tuple[Mapping[str, Object], ...]:
    by_deposit: dict[str, dict[str, Object]] = {"": {}}
    for path, value in sorted(missing.items(), key=lambda item: (not head_of(item[0]), item[0])):
        by_deposit.setdefault(deposit_of(path) or head_of(path) or "", {})[path] = value
    groups: list[dict[str, Object]] = []
    room = 0
    for members in by_deposit.values():
        size = sum(value.digest.bytes for value in members.values())
        if not groups or size > room or len(groups[-1]) + len(members) > GROUP_OBJECTS:
            groups.append({})
            room = GROUP_BYTES
        groups[-1].update(members)
        room -= size
    return tuple(group for group in groups if group)
