"""Commits of one deposit: readers trust nothing else.

A block exists if `commits/<block>.json` does. A sealed deposit has `commits/seal.json` instead.
Scores of options that were added later have `commits/options-<digest>.json`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from logitbank.errors import DamagedError
from logitbank.store.files import documents, objects, verified
from logitbank.store.files.objects import Digest

SEAL = "seal"
_BLOCK = re.compile(r"(0|[1-9]\d{0,8})\.json")
_OPTIONS = re.compile(r"(options-[0-9a-f]{12})\.json")
_MOVED = "it was moved or swapped. Move it back, or run `logitbank verify --repair`."


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed state of a deposit at one moment."""

    sealed: bool
    blocks: frozenset[int]
    """Committed blocks; all if the deposit is sealed."""
    options: tuple[str, ...]
    """Names of the commits of options that were added later."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the commits in force."""
        blocks = (SEAL,) if self.sealed else tuple(str(b) for b in sorted(self.blocks))
        return (*blocks, *self.options)

    @property
    def score_parts(self) -> tuple[str, ...]:
        """Files with scores, relative to the deposit."""
        blocks = ("all",) if self.sealed else tuple(str(b) for b in sorted(self.blocks))
        return tuple(f"scores/{name}.parquet" for name in (*blocks, *self.options))


def committed(deposit: Path, *, blocks: int) -> Committed:
    """List the commits of a deposit of `blocks` blocks."""
    names = [entry.name for entry in objects.entries(objects.plain_name(deposit, "commits"))]
    options = tuple(match[1] for name in names if (match := _OPTIONS.fullmatch(name)))
    # After the listing: a seal removes block commits only once it exists, so if it does not exist
    # now, the listing is complete.
    if f"{SEAL}.json" in names or objects.plain_path(deposit, f"commits/{SEAL}.json").exists():
        return Committed(True, frozenset(range(blocks)), options)
    listed = (int(match[1]) for name in names if (match := _BLOCK.fullmatch(name)))
    return Committed(False, frozenset(b for b in listed if b < blocks), options)


def commit(deposit: Path, name: str, *, objects_: Mapping[str, Digest], **fields: object) -> bool:
    """Create a commit exclusively; False if another writer created it."""
    path = objects.plain_path(deposit, f"commits/{name}.json")
    return objects.write_new(path, document(deposit, name, objects_=objects_, **fields))


def document(
    deposit: Path, name: str, *, objects_: Mapping[str, Digest], **fields: object
) -> bytes:
    """The bytes of a new commit. A seal names its deposit by the digest of its attributes."""
    content = {
        **({} if name == SEAL else {"deposit": relative_folder(deposit)}),
        **fields,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "objects": {path: value._asdict() for path, value in sorted(objects_.items())},
    }
    return documents.signed(content, content)


def relative_folder(deposit: Path) -> str:
    """A deposit's folder, relative to its bank."""
    return "/".join(deposit.parts[-4:])


def read(deposit: Path, name: str) -> dict[str, Any]:
    """Fields of a commit.

    Raises FileNotFoundError if it does not exist or a seal has just replaced it, and DamagedError
    if it is damaged or belongs to another deposit.
    """
    path = objects.plain_name(deposit, f"commits/{name}.json")
    return _read(path, deposit)


def _read(path: str, deposit: Path) -> dict[str, Any]:
    content = verified.document(path)
    folder = relative_folder(deposit)
    # A seal names its deposit by the digest of its attributes.
    named = content.get("deposit", folder if path.endswith(f"/{SEAL}.json") else None)
    if named != folder:
        raise DamagedError(f"{path} is a commit of {named!r}: {_MOVED}")
    return content


def digests(deposit: Path, name: str) -> Mapping[str, Digest]:
    """Digests of the objects in a commit, by path relative to the deposit.

    A commit is read again only if its file changed. Raises as `read`, and DamagedError if a seal
    belongs to other attributes.
    """
    path = objects.plain_name(deposit, f"commits/{name}.json")
    stamp = verified.file_stamp(path)
    listed = (_lasting if stamp.settled else _listed)(path, deposit, stamp)
    if name == SEAL and not _is_sealed(deposit, listed.get("zarr.json", Digest("", 0))):
        raise DamagedError(
            f"{deposit}/commits/{SEAL}.json does not belong to the zarr.json of its deposit:"
            f" {_MOVED}"
        )
    return listed


def _is_sealed(deposit: Path, expected: Digest) -> bool:
    """Whether a deposit's attributes have the digest in its seal."""
    return verified.is_known(f"{deposit}/zarr.json", expected) or not verified.unsound(
        {objects.plain_path(deposit, "zarr.json"): expected}
    )


def _listed(path: str, deposit: Path, _: verified.Stamp) -> Mapping[str, Digest]:
    listed = _read(path, deposit).get("objects")
    try:
        return {path: objects.digest_from_json(value) for path, value in listed.items()}  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{path} does not list objects with digests; run `logitbank verify`"
        ) from error


_lasting = lru_cache(maxsize=1024)(_listed)


def committed_digests(deposit: Path, state: Committed) -> dict[str, Digest]:
    """Digests of all objects in the commits in force; raises as `digests`."""
    by_path: dict[str, Digest] = {}
    for name in state.names:
        by_path |= digests(deposit, name)
    return by_path
