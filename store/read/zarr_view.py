"""The Zarr groups of a bank, for readers that use Zarr itself."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from logitbank.errors import DamagedError
from logitbank.store.deposits.rows import ShardedArray
from logitbank.store.files import copies, objects, verified
from logitbank.store.format import zarrays
from logitbank.store.format.index import object_deposit, object_head
from logitbank.store.heads.stored import BIAS, StoredHead
from logitbank.wording import VERIFY

if TYPE_CHECKING:
    import zarr


class Reader(Protocol):
    """Reads documents of a deposit in a folder of a bank."""

    def digests(self, root: Path, folder: str) -> Mapping[str, objects.Digest]:
        """Digests of its committed objects, by their paths in it."""

    def require_claims(self, root: Path, folder: str, name: str, committed: objects.Digest) -> None:
        """Refuse a chunk that claims more than its array has, with a DamagedError."""


def zarr_group(root: Path, in_deposit: Reader, folder: str = "") -> "zarr.Group":
    """The read-only group of a bank, or of a deposit in a folder of it.

    It lists Zarr nodes only: Zarr itself warns of every table and commit that it meets. Objects are
    compared with the digests of the bank; `in_deposit` reads those of a deposit.
    """
    import zarr  # 0.3 s, which readers of scores need not wait for
    from zarr.storage import LocalStore, WrapperStore

    class Nodes(WrapperStore[LocalStore]):
        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            async for name in self._store.list_dir(prefix):
                if (self._store.root / prefix / name / "zarr.json").is_file():
                    yield name

        async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
            path = f"{folder}/{key}".lstrip("/")
            if not await asyncio.to_thread(_is_committed, root, path, in_deposit):
                return None
            return await self._store.get(key, *arguments, **options)

    return zarr.open_group(Nodes(LocalStore(root / folder, read_only=True)), mode="r")


def _is_committed(root: Path, path: str, in_deposit: Reader) -> bool:
    """Whether a bank has an object; DamagedError if it differs from its digest."""
    file = objects.plain_path(root, path)
    if (head := object_head(path)) is not None:
        folder, listed = Path(head), StoredHead.open(root, Path(head).name).objects
    elif (owner := object_deposit(path)) is not None and (root / owner / "zarr.json").exists():
        folder, listed = Path(owner), in_deposit.digests(root, owner)
    else:
        if path.endswith("/zarr.json") and file.exists() and file.read_bytes() != zarrays.GROUP:
            raise DamagedError(f"{file} is not a group of the format. Run `logitbank verify`.")
        return True
    name = Path(path).relative_to(folder).as_posix()
    if name == "zarr.json":
        return True  # it was compared with its own digest
    if name not in listed:
        return False
    try:
        verified.require({file: listed[name]})
        if "/c/" in name:
            stamp = verified.file_stamp(file)
            _require_claims(root, path, name, listed[name], in_deposit, stamp)  # type: ignore[arg-type]
    except FileNotFoundError as error:
        advice = copies.missing_advice(file, VERIFY)
        raise DamagedError(f"{file} is missing; {advice}") from error
    return True


@lru_cache(maxsize=4096)  # Zarr reads a shard in many parts
def _require_claims(
    root: Path, path: str, name: str, committed: objects.Digest, deposits: Reader, _: verified.Stamp
) -> None:
    """Refuse a chunk that claims more than its array has, before Zarr takes memory for it."""
    if (head := object_head(path)) is None:
        deposits.require_claims(root, object_deposit(path) or "", name, committed)
    elif name != BIAS:
        array, _slash, chunk = name.partition("/c/")
        block, grid = int(chunk.partition("/")[0]), StoredHead.open(root, Path(head).name).grid
        ShardedArray(root / head / array, grid, {block: committed}).require_claims(block)
