"""The Zarr groups of a bank, for readers that use Zarr itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zarr


def zarr_group(folder: Path) -> "zarr.Group":
    """The read-only group of a bank or deposit in a folder.

    It lists Zarr nodes only. Zarr itself warns of every table and commit that it meets.
    """
    import zarr  # 0.3 s, which readers of scores need not wait for
    from zarr.storage import LocalStore, WrapperStore

    class Nodes(WrapperStore[LocalStore]):
        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            async for name in self._store.list_dir(prefix):
                if (folder / prefix / name / "zarr.json").is_file():
                    yield name

    return zarr.open_group(Nodes(LocalStore(folder, read_only=True)), mode="r")
