"""Copy parts of banks to a target: everything is compared first, then sent, resumably.

`push`, `pull`, `merge` and `shrink` are calls of `copy`. Banks may come from strangers. They are
only read: no link out of them is followed, and nothing is copied that the format does not name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from logitbank.errors import DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.files import objects, verified
from logitbank.store.format import index
from logitbank.store.format.about import Incoming, root_document
from logitbank.store.format.commits import SEAL
from logitbank.store.format.index import Object, Objects
from logitbank.store.progress import Progress, counting
from logitbank.store.share.moves import Moves, moves
from logitbank.store.share.targets import Folder, Source, Target, publish, stored_objects
from logitbank.store.share.urls import require_new_folder
from logitbank.store.tables import prompt_checks, query_tables
from logitbank.store.tables.contents import check_table
from logitbank.store.tables.prompt_tables import (
    Version,
    prompt_paths,
    prompts_in,
    require_one_version,
)


@dataclass(frozen=True)
class Part:
    """Requested objects of one bank."""

    source: Source
    objects: Objects
    """Objects of whole deposits, and the tables and heads that they need."""
    models: Collection[str] | None = None
    """Models whose deposits follow; by default those of the objects that are sent."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did."""

    moves: Sequence[Moves]
    """Of each part."""
    stored: Objects
    """The objects that the target has now."""
    is_new: bool
    """Whether the target had no root document."""

    @property
    def objects(self) -> int:
        return sum(len(each.sent) for each in self.moves) + self.is_new

    @property
    def bytes(self) -> int:
        """Bytes of the objects that were sent, without the root document."""
        return sum(each.bytes for each in self.moves)


def open_folder(path: str | Path) -> Folder:
    """A new folder, or the one of a bank, as a target; UsageError for a URL."""
    folder = require_new_folder(path)
    if objects.is_occupied(folder):
        Bank.open(folder)
    return Folder(folder)


def require_other(folder: str | Path, bank: Path) -> None:
    """Refuse the folder of a bank as the target of its copy, with a UsageError."""
    resolved = Path(folder).resolve()
    if resolved.exists() and resolved.samefile(bank):
        raise UsageError(f"{folder} is the bank itself. Use another folder.")


def copy(
    parts: Sequence[Part],
    target: Target,
    *,
    progress: Progress | None = None,
    published: bool = False,
) -> Copied:
    """Send what a target does not have, and record where it came from.

    With `published`, the target has one license, and an index for readers.

    Raises
    ------
    BankError
        The target, or an earlier part, has other numbers of a deposit or another version of a
        prompt set; or, with `published`, another license. Nothing was sent.
    DamagedError
        An object of a part is missing, or differs from its commit.
    """
    stored = stored_objects(target)
    versions = _Versions(target, parts)
    versions.require_one(stored)
    unfinished = target.unfinished()
    known, plans, earlier = dict(stored), list[Moves](), dict[str, str]()
    for part in parts:
        requested = {path: value for path, value in part.objects.items() if path != "zarr.json"}
        plan = moves(
            requested, known, location=target.url, origin=part.source.url, unfinished=unfinished,
            earlier=earlier,
        )  # fmt: skip
        _check_tables(part, plan, parts, target)
        known |= plan.sent
        earlier = dict.fromkeys(plan.deposits, part.source.url) | earlier
        plans.append(plan)
    incoming = [
        Incoming(
            (part.objects["zarr.json"].text or "").encode(),
            part.source.url,
            part.models or {index.deposit_model(folder) for folder in plan.deposits},
            bool(plan.sent),
        )
        for part, plan in zip(parts, plans, strict=True)
    ]
    seals = {path for path in stored if path.endswith(f"/{SEAL}.json")}
    fills = published and len(parts) == 1 and seals <= {*parts[0].objects}

    def root(current: bytes | None) -> bytes:
        if current is not None and not index.is_sound(
            "zarr.json", current.decode(errors="replace")
        ):
            raise DamagedError(f"{target.url}/zarr.json is damaged. Run `logitbank verify`.")
        return root_document(current, incoming, place=target.url, published=published, fills=fills)

    before = target.root() if "zarr.json" in stored else None
    root(before)  # raises before anything is sent
    target.put_root(root)
    kept: dict[str, Object] = {}
    advance = counting(sum(plan.bytes for plan in plans), progress)
    with verified.copying_to(target.url):
        for part, plan in zip(parts, plans, strict=True):
            for group in plan.groups:
                kept |= target.send(group, part.source, advance, versions.require_one)
    listed: Objects = {**known, **kept}
    if published:
        listed = publish(target, listed)
    return Copied(plans, listed, before is None)


def _check_tables(part: Part, plan: Moves, parts: Sequence[Part], target: Target) -> None:
    """Refuse tables whose content differs from their names, or that refer to no query."""
    roots = [part.source.root, *(other.source.root for other in parts), Path(target.url)]

    def count(name: str) -> int:
        holders = [root for root in roots if query_tables.query_file(root, name).exists()]
        return query_tables.query_count((holders or roots)[0], name)

    for path in filter(index.is_table, plan.sent):
        table = check_table(part.source.root / path)
        if path.startswith("prompts/"):
            with _named(part.source.root / path):
                prompt_checks.check_prompts(table, count)


@contextmanager
def _named(table: Path | str) -> Iterator[None]:
    """Name a table in errors of its content."""
    try:
        yield
    except (DamagedError, UsageError) as error:
        raise DamagedError(f"{table}: {error}. Run `logitbank verify`.") from error


class _Versions:
    """The versions of prompt sets in some parts, to compare with those at a target."""

    def __init__(self, target: Target, parts: Sequence[Part]) -> None:
        self._target = target
        self._parts = [
            (part, prompt_paths(part.objects)) for part in parts if prompt_paths(part.objects)
        ]
        self._at_target = cache(self._read_at_target)
        self._in_part = cache(self._read_checked)

    def require_one(self, stored: Iterable[str]) -> None:
        """Refuse parts with another version of a prompt set than a target with these paths."""
        before: list[tuple[str, Mapping[str, Mapping[str, str]], Callable[[str], pl.DataFrame]]]
        before = [(self._target.url, prompt_paths(stored), self._at_target)]
        for number, (part, paths) in enumerate(self._parts):

            def read(path: str, number: int = number) -> pl.DataFrame:
                return self._in_part(number, path)

            for name, tables in paths.items():
                for place, others, read_other in before:
                    if (
                        name not in others
                        or {*others[name]} >= {*tables}
                        or ({*others[name]} <= {*tables})
                    ):
                        continue
                    require_one_version(
                        name,
                        Version(part.source.url, {d: read(p) for d, p in tables.items()}),
                        Version(place, {d: read_other(p) for d, p in others[name].items()}),
                    )
            before.append((part.source.url, paths, read))

    def _read_at_target(self, path: str) -> pl.DataFrame:
        """A table of prompts of the target, verified against its name, or DamagedError."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / Path(path).name
            file.write_bytes(self._target.read(path))
            with _named(f"{self._target.url}/{path}"):
                return prompts_in(file)

    def _read_checked(self, number: int, path: str) -> pl.DataFrame:
        root = self._parts[number][0].source.root
        with _named(f"{root}/{path}"):
            return prompts_in(root / path)
