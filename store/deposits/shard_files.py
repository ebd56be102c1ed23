"""The shards of a deposit, and the digests that they were committed with."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.deposits.rows import LocalShards, Shards
from logitbank.store.deposits.score_parts import VERIFY
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.layout import Layout
from logitbank.store.remote import mirror


def shards_of(deposit: Path, layout: Layout) -> Shards:
    """Where the shards are, once what a stranger may have written beside them is refused.

    Raises
    ------
    DamagedError
        The metadata of the array are not those of this layout.
    """
    path = objects.plain_path(deposit, "logprobs")
    if (remote := mirror.remote_shards(path)) is not None:
        return remote
    metadata = objects.plain_path(path, "zarr.json")
    expected = zarrays.logprobs_metadata(layout, (layout.queries, layout.vocab))
    try:
        same = metadata.stat().st_size == len(expected) and metadata.read_bytes() == expected
    except OSError as error:
        raise DamagedError(f"{metadata} cannot be read ({error}); {VERIFY}") from error
    if not same:
        raise DamagedError(f"{metadata} is not the metadata of this array; {VERIFY}")
    return LocalShards(path)


def shard_digests(deposit: Path, state: Committed, blocks: Iterable[int]) -> dict[int, Digest]:
    """What was committed of the shards of some blocks, by block.

    Raises
    ------
    FileNotFoundError
        A seal has just replaced a commit.
    DamagedError
        A commit is damaged, or does not list its shard.
    """
    names = {int(block): SEAL if state.sealed else str(block) for block in blocks}
    listed = {name: commits.digests(deposit, name) for name in {*names.values()}}
    return {block: _shard_digest(listed[name], block, deposit) for block, name in names.items()}


def _shard_digest(listed: Mapping[str, Digest], block: int, deposit: Path) -> Digest:
    try:
        return listed[f"logprobs/c/{block}/0"]
    except KeyError as error:
        raise DamagedError(
            f"{deposit}: the commit of block {block} does not list its shard; {VERIFY}"
        ) from error
