"""What an engine does otherwise than when a checkpoint began, a line each. Pure."""

from collections.abc import Iterator, Mapping

from logitbank.store.format.schema import Json


def changes(before: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
    """Lines about batches that had to become smaller.

    Examples
    --------
    >>> [*changes({"max_batch_tokens": 4096}, {"max_batch_tokens": 2048})]
    ['out of memory; batches have 2,048 tokens from here on']
    """
    if (tokens := now.get("max_batch_tokens")) != before.get("max_batch_tokens"):
        yield f"out of memory; batches have {tokens:,} tokens from here on"
