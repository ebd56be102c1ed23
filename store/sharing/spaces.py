"""Which object goes into which repository, where one has not room for all."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from logitbank.errors import UsageError
from logitbank.store.format.index import deposit_of


@dataclass(frozen=True, slots=True)
class Limits:
    """What the Hub holds."""

    files: int = 100_000
    """Most files of a repository."""
    entries: int = 10_000
    """Most entries of a folder."""
    file_bytes: int = 50 * 10**9


@dataclass
class _Space:
    """How full a repository is."""

    limits: Limits
    files: int = (
        5  # the card, the index and it compressed, .gitattributes, and one that others may add
    )
    children: dict[str, set[str]] = field(default_factory=dict)

    def add(self, path: str) -> None:
        self.files += 1
        while path:
            path, _, name = path.rpartition("/")
            self.children.setdefault(path, set()).add(name)

    def fits(self, paths: Collection[str]) -> bool:
        if self.files + len(paths) > self.limits.files:
            return False
        new: dict[str, set[str]] = {}
        for path in paths:
            while path:
                path, _, name = path.rpartition("/")
                new.setdefault(path, set()).add(name)
        return all(
            len(names | self.children.get(folder, set())) <= self.limits.entries
            for folder, names in new.items()
        )


def assign(
    paths: Iterable[str], files_of_parts: Sequence[Collection[str]], limits: Limits
) -> dict[str, int]:
    """In which part of a bank objects go: deposits whole, where they are already or where is room.

    Parameters
    ----------
    paths
        Objects to place.
    files_of_parts
        Files of each part that there is, the first first.

    Raises
    ------
    UsageError
        A deposit is too large for any repository.
    """
    spaces = [_Space(limits) for _ in files_of_parts] or [_Space(limits)]
    where: dict[str, int] = {}
    for part, files in enumerate(files_of_parts):
        for path in files:
            spaces[part].add(path)
            if deposit := deposit_of(path):
                where[deposit] = part
    paths_of_deposits: dict[str, list[str]] = {}
    for path in paths:
        paths_of_deposits.setdefault(deposit_of(path) or "", []).append(path)
    placed: dict[str, int] = {}
    for deposit, members in paths_of_deposits.items():
        if not deposit:
            part = 0
        elif deposit in where:
            part = where[deposit]
        else:
            if not _Space(limits).fits(members):
                raise UsageError(
                    f"{deposit} has {len(members):,} objects, more than a repository or folder of"
                    " the Hub holds; extract it again with larger blocks, or push to s3://"
                )
            part = next((i for i, s in enumerate(spaces) if s.fits(members)), len(spaces))
        if part == len(spaces):
            spaces.append(_Space(limits))
        for path in members:
            spaces[part].add(path)
        placed |= dict.fromkeys(members, part + 1)
    return placed
