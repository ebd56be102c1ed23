"""Shards at a URL, read by ranges and never kept. What arrives is checked as a local shard is."""

from dataclasses import dataclass

from logitbank.store.remote.remote import AT_ONCE, Remote


@dataclass(frozen=True)
class RemoteShards:
    """Shards at a URL, `<path>/c/<block>/0`.

    Their sizes are the committed ones: an index at its committed place that has its CRC-32C bears
    them out, without a request of its own.
    """

    remote: Remote
    path: str
    """The array's path, relative to the bank."""
    at_once: int = AT_ONCE
    by_block: bool = True
    remedy: str = (
        "run the same command again, and if that does not help, ask its publisher to run"
        " `logitbank verify` and to push again"
    )

    def name(self, block: int) -> str:
        return f"{self.remote.url}/{self._object(block)}"

    def size(self, block: int) -> None:
        """Not asked for."""

    def read(self, block: int, offset: int, length: int) -> bytes:
        answer = self.remote.read_range(self._object(block), offset, length)
        assert answer is not None, "asked for whatever its ETag is"
        return answer.data

    def _object(self, block: int) -> str:
        return f"{self.path}/c/{block}/0"
