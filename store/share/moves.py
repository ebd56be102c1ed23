"""Plan which objects to send, so that a target has all requested objects. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from logitbank.errors import BankError
from logitbank.store.format.attributes import (
    ARRAY,
    DIGESTS,
    compared,
    describe_states,
    from_attributes,
    unlike,
)
from logitbank.store.format.commits import SEAL
from logitbank.store.format.index import (
    Object,
    Objects,
    committed_digests,
    object_deposit,
    object_head,
)
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.schema import Json
from logitbank.store.tables.table_files import TABLE_FILE

GROUP_BYTES = 256 * 2**20
GROUP_OBJECTS = 100  # what the Hub recommends for one of its commits


@dataclass(frozen=True, slots=True)
class Moves:
    """Objects to send."""

    groups: tuple[Objects, ...]
    """Sent in this order, tables and heads before deposits. A deposit is in one group."""

    @property
    def sent(self) -> dict[str, Object]:
        return {path: value for group in self.groups for path, value in group.items()}

    @property
    def bytes(self) -> int:
        return sum(value.digest.bytes for value in self.sent.values())

    @property
    def deposits(self) -> set[str]:
        """Folders of the deposits that get objects."""
        return {deposit for path in self.sent if (deposit := object_deposit(path))}


def moves(
    requested: Objects,
    stored: Objects,
    *,
    location: str,
    origin: str = "",
    unfinished: Objects | None = None,
    earlier: Mapping[str, str] | None = None,
) -> Moves:
    """The requested objects that are not in `stored`.

    Attributes of the bank, plain groups and tables in `stored` stay: tables are named by their
    content, and their bytes may differ between writers. So do deposits with the same numbers.

    Parameters
    ----------
    requested, stored
        Objects of whole deposits, and what they need, of a bank and of the target.
    location, origin
        The target and the bank, for messages.
    unfinished
        Documents of deposits in progress at the target, which whole ones replace.
    earlier
        Bank of each deposit in `stored` that is not at the target yet, for messages.

    Raises
    ------
    BankError
        The target has a deposit with other weights, settings or numbers.
    DamagedError
        The attributes of a deposit are invalid.
    """
    _Comparison(
        requested, stored, unfinished or {}, location, origin, earlier or {}
    ).require_equal()
    sealed = {d for path in stored if path == f"{(d := object_deposit(path))}/commits/{SEAL}.json"}
    damaged = {head for path in requested if (head := object_head(path)) and path not in stored}
    tokenizers = _tokenizers(stored)
    missing: dict[str, Object] = {}
    for path, value in requested.items():
        deposit = object_deposit(path)
        if deposit in sealed:
            if path not in stored:
                missing[path] = value
                _require_same_seal(deposit, path, requested, stored, location)
        elif deposit is not None or object_head(path) in damaged:
            missing[path] = value
        elif last_object(path) not in stored and not _tokenizers([last_object(path)]) & tokenizers:
            missing[path] = value  # another writer may have left a part of a table
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
        f"{problem} Another process has written it meanwhile. Run the same command again."
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


def _tokenizers(paths: Iterable[str]) -> set[str]:
    """Tokenizers with a table of token texts among some paths: a bank has one for each."""
    found = (TABLE_FILE.fullmatch(p.removeprefix("tokens/")) for p in paths if p[:7] == "tokens/")
    return {match[1] for match in found if match}


def _require_same_seal(
    deposit: str | None, path: str, requested: Objects, stored: Objects, location: str
) -> None:
    """Refuse to replace lost attributes of a deposit by those that another seal names."""
    seal = f"{deposit}/commits/{SEAL}.json"
    if path == f"{deposit}/zarr.json" and not is_same(seal, requested[seal], stored[seal]):
        raise conflict(path, location)


@dataclass(frozen=True)
class _Comparison:
    """Compares the deposits of a bank with those of a target."""

    requested: Objects
    stored: Objects
    unfinished: Objects
    location: str
    origin: str
    earlier: Mapping[str, str]
    _checkpoints: dict[str, list[str]] = field(default_factory=dict)
    """Folders of deposits at the target, by checkpoint."""

    def require_equal(self) -> None:
        for path in {**self.stored, **self.unfinished}:
            if (folder := object_deposit(path)) and path == f"{folder}/zarr.json":
                self._checkpoints.setdefault(folder.rpartition("/")[0], []).append(folder)
        spec_there = cache(self._spec_there)
        there, here = (_texts_of_commits(objects) for objects in (self.stored, self.requested))
        for path, value in self.requested.items():
            folder = object_deposit(path)
            if folder is None or path != f"{folder}/zarr.json":
                continue
            spec = _spec(value, f"{self.origin}/{folder}")
            for sibling in self._checkpoints.get(folder.rpartition("/")[0], ()):
                other = spec_there(sibling)
                if different := unlike(other.provenance, spec.provenance):
                    raise self._conflict(spec, folder, sibling, _differ(different[0]))
                if sibling == folder:
                    self._require_same_settings(spec, other, folder)
            self._require_same_numbers(spec, folder, here.get(folder, {}), there.get(folder, {}))

    def _spec_there(self, folder: str) -> DepositSpec:
        path = f"{folder}/zarr.json"
        return _spec(self.stored.get(path) or self.unfinished[path], f"{self.location}/{folder}")

    def _require_same_settings(self, spec: DepositSpec, other: DepositSpec, folder: str) -> None:
        theirs, ours = _compared(other), _compared(spec)
        for name, value in ours.items():
            if theirs[name] == value:
                continue
            if name in (*DIGESTS, ARRAY):
                raise self._conflict(spec, folder, folder, _differ(name))
            advice = "Run `logitbank shrink` on the larger bank first." if name == "keep" else ""
            difference = f"{name} is {value}, not {theirs[name]}"
            raise self._conflict(spec, folder, folder, difference, advice)

    def _require_same_numbers(
        self, spec: DepositSpec, folder: str, here: Mapping[str, str], there: Mapping[str, str]
    ) -> None:
        """Require equal bytes of all data that both deposits have; provenance may differ."""
        theirs = committed_digests(there)
        for path, digest in committed_digests(here).items():
            if theirs.get(path, digest) != digest:
                name = path.removeprefix(f"{folder}/")
                raise self._conflict(spec, folder, folder, f"{name} differs")

    def _conflict(
        self, spec: DepositSpec, folder: str, other: str, difference: str, advice: str = ""
    ) -> BankError:
        """The error of two deposits that cannot be in one bank."""
        location = self.earlier.get(other, self.location)
        return BankError(
            f"Cannot copy {spec.checkpoint}, {spec.query_set}: {difference} ({self.origin}/{folder}"
            f" and {location}/{other}). Nothing was copied. "
            + (
                advice
                or "Run `logitbank compare` to see how they differ. Then store yours under another"
                " model or run name, or remove one of the two folders. `push` and `pull` can also"
                " exclude it, with --model or --steps."
            )
        )


def _differ(name: str) -> str:
    return f"{name} {'differ' if name.endswith('weights') else 'differs'}"


def _spec(document: Object, where: str) -> DepositSpec:
    attributes = json.loads(document.text or "{}").get("attributes", {}).get("logitbank")
    return from_attributes(attributes, where=where)


def _texts_of_commits(objects: Objects) -> dict[str, dict[str, str]]:
    """Texts of commits by deposit and path."""
    found: dict[str, dict[str, str]] = {}
    for path, value in objects.items():
        folder, slash, _ = path.rpartition("/commits/")
        if slash and value.text is not None:
            found.setdefault(folder, {})[path] = value.text
    return found


def _compared(spec: DepositSpec) -> dict[str, Json]:
    layout = spec.layout
    states = describe_states(spec) if layout.keep.array == "hidden" else None
    own: dict[str, Json] = {
        "keep": str(layout.keep),
        "block_rows": layout.block_rows,
        "states": states,
    }
    return compared(spec) | own


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
