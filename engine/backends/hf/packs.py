"""Contexts of a causal model packed as trees into rows, where every shared prefix occurs once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logitbank.engine.backends.contexts import LeafContext, leaf_contexts, shared_prefix_length
from logitbank.engine.weights.config import ModelConfig
from logitbank.store.format.schema import Query

PACKED = ("gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "qwen2", "qwen3", "gemma2")
"""Model types for which packed contexts are tested in transformers."""
POSITIONS = 256
"""Positions of a row that several contexts share. With 128, prefixes are repeated more often; with
512, attention computes more scores that the mask discards."""
CPU_POSITIONS = 2048
"""Positions that run together on a CPU. The activations of 4,096 exceed its cache: 6 to 10 % slower
(70M shape)."""


class Pack(NamedTuple):
    """A row of a batch: trees of tokens, each of which attends to its ancestors and itself.

    `ids`, `depths` and `ends` have one entry per token of the row. The depth of a token is its
    position in its context. The tokens that continue its context follow it directly, and its end is
    the index in the row after the last of them. So token j attends to token i if i ≤ j < ends[i].
    """

    ids: list[int]
    depths: list[int]
    ends: list[int]
    outputs: list[tuple[int, int]]
    """Pairs of a query's index and the index in the row at which its output is read."""


def rows(
    leaves: Iterable[LeafContext], positions: int = POSITIONS, *, most: int | None = None
) -> Iterator[list[tuple[LeafContext, int]]]:
    """Contexts that share a row, each with the length of its common prefix with the previous one.

    A row has at most `positions` tokens, or twice those of its first context, so that a long shared
    prefix is repeated in few rows. A row longer than `most` is a single context. Contexts are
    sorted, so those with equal prefixes are neighbours.
    """
    row: list[tuple[LeafContext, int]] = []
    size, limit = 0, positions
    for leaf in leaves:
        length = len(leaf.context)
        shared = shared_prefix_length(row[-1][0].context, leaf.context) if row else 0
        if row and size + length - shared > limit:
            yield row
            row, size, shared = [], 0, 0
        if not row:
            limit = widest_row(length, positions, most=most)
        row.append((leaf, shared))
        size += length - shared
    if row:
        yield row


def run_positions(
    leaves: Iterable[LeafContext], config: ModelConfig, max_batch_tokens: int, gpu: bool
) -> int | None:
    """Number of positions that transformers runs for contexts; None if they are not packed."""
    if config.model_type not in PACKED:
        return None
    return packed_positions(leaves, most=max_batch_tokens)


def packed_positions(leaves: Iterable[LeafContext], *, most: int) -> int:
    """Number of positions in all rows of packed contexts.

    Examples
    --------
    >>> packed_positions([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], most=4096)
    4
    """
    return sum(
        len(leaf.context) - shared for row in rows(leaves, most=most) for leaf, shared in row
    )


def widest_row(length: int, positions: int = POSITIONS, *, most: int | None = None) -> int:
    """Largest number of tokens in a row whose first context has `length`, unless that is longer."""
    limit = max(positions, 2 * length)
    return limit if most is None else min(limit, most)


def packs(
    queries: Sequence[Query], positions: int = POSITIONS, *, most: int | None = None
) -> Iterator[Pack]:
    """The trees of `rows`: each context adds the tokens after its shared prefix.

    Examples
    --------
    >>> queries = [Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6, 7), 1)]
    >>> [pack] = packs(queries, 8)
    >>> pack.ids, pack.depths, pack.ends
    ([5, 6, 7, 8], [0, 1, 2, 2], [4, 4, 3, 4])
    >>> pack.outputs
    [(2, 1), (0, 2), (1, 3)]
    """
    for row in rows(leaf_contexts(queries), positions, most=most):
        pack = Pack([], [], [], [])
        path: list[int] = []
        for (context, indices), shared in row:
            for index in path[shared:]:
                pack.ends[index] = len(pack.ids)
            path[shared:] = range(len(pack.ids), len(pack.ids) + len(context) - shared)
            pack.ids.extend(context[shared:])
            pack.depths.extend(range(shared, len(context)))
            pack.ends.extend([0] * (len(context) - shared))
            pack.outputs.extend((i, path[queries[i].position]) for i in indices)
        for index in path:
            pack.ends[index] = len(pack.ids)
        yield pack


def packed_batches(
    queries: Sequence[Query],
    max_tokens: int,
    max_outputs: int,
    *,
    together: int,
) -> Iterator[list[Pack]]:
    """Rows of similar length that run together: `together` positions with padding, `max_outputs`
    outputs at most.

    A single row may have up to `max_tokens` tokens, or more if it is one context.
    """
    batch: list[Pack] = []
    outputs = 0
    rows = packs(queries, most=max_tokens)
    for pack in sorted(rows, key=lambda pack: len(pack.ids)):
        outputs += len(pack.outputs)
        full = (len(batch) + 1) * len(pack.ids) > together or outputs > max_outputs
        if batch and full:
            yield batch
            batch, outputs = [], len(pack.outputs)
        batch.append(pack)
    if batch:
        yield batch
