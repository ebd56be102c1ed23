"""What an `index.json.gz` in the bank's own folder lists and what is no longer there."""

from collections.abc import Collection, Iterator
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.care.damage import Damage
from logitbank.store.care.objects_read import Reader
from logitbank.store.files import objects
from logitbank.store.format import index
from logitbank.wording import counted


def index_damage(root: Path, read: Reader, named: Collection[str]) -> Iterator[Damage]:
    """Deposits, heads and tables that lack what the index lists; nothing where there is no index.

    What a seal replaced since is not missed, nor are plain groups, and what is `named` already is
    not named twice. Bytes are compared with the commits, not with the index.
    """
    path = objects.plain_path(root, index.NAME)
    if not path.is_file():
        return
    try:
        listed = index.parse(read.read(index.NAME, path), where=str(path))
    except DamagedError as error:
        yield Damage(index.NAME, "unreadable", str(error))
        return
    gone = {name for name in listed if not objects.plain_path(root, name).exists()} - set(named)
    sealed = {
        name.removesuffix("commits/seal.json")
        for name in listed
        if name.endswith("/commits/seal.json") and name not in gone
    } | {
        f"{file.parents[1].relative_to(root).as_posix()}/"
        for file in root.glob("*/*/*/*/commits/seal.json")
    }
    by_owner: dict[str, list[str]] = {}
    for name in sorted(gone):
        owner = index.deposit_of(name) or index.head_of(name) or name
        if not owner.endswith("zarr.json") and not index.is_replaced(name, sealed):
            by_owner.setdefault(owner, []).append(name)
    for owner, names in by_owner.items():
        more = f" and {counted(len(names) - 1, 'more object')}" if len(names) > 1 else ""
        what = "it" if names == [owner] else f"{names[0].removeprefix(f'{owner}/')}{more} of it"
        yield Damage(
            owner,
            "missing",
            f"{index.NAME} lists {what}; take it from another copy of the bank, run the same"
            " extract, or push what is here to a new place",
        )
