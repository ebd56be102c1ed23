"""Batches of queries under a budget of tokens: one head, one language and one length each, or rows
of packed contexts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logitbank.engine.backends.hf.packs import Pack, packed_batches
from logitbank.store.format.schema import Query

OUTPUTS = 256
"""Rows of logits in one product with the head, which exceeds every cache: with 64 rows of 50,304
each row takes 0.84 ms of a processor, with 256 rows 0.59."""
_SPARE = 16
"""A batch of packs may have one output in this many above its limit. Packs are not cut, so a
block for two batches would otherwise need a third one with a single row."""


class Input(NamedTuple):
    """The part of a query that a forward pass depends on."""

    next_sentence: bool
    language: str
    ids: tuple[int, ...]
    segments: tuple[int, ...]


class Batch(NamedTuple):
    """Queries of one forward pass: `queries[i]` is answered at `positions[i]` of row `rows[i]`."""

    queries: list[int]
    rows: list[int]
    positions: list[int]
    sequences: Sequence[Input] | Sequence[Pack]

    @property
    def packed(self) -> bool:
        """Whether its rows are packed contexts."""
        return isinstance(self.sequences[0], Pack)

    @property
    def tokens(self) -> int:
        """Number of tokens, without padding."""
        return sum(len(sequence.ids) for sequence in self.sequences)


def model_input(query: Query) -> Input:
    next_sentence = query.head == "next_sentence"
    return Input(next_sentence, query.language, query.ids, query.segments)


def batches(queries: Sequence[Query], max_tokens: int, max_sequences: int) -> Iterator[list[int]]:
    """Indices of `queries`, in batches that do not exceed the budget.

    A batch has one head, one language and one length: in some models, such as MobileBERT, padding
    changes the logits of the rest despite the attention mask. Queries of one sequence stay
    together, so that it runs once.
    """

    def place(i: int) -> tuple[bool, str, int, Input]:
        sequence = model_input(queries[i])
        return sequence.next_sentence, sequence.language, len(sequence.ids), sequence

    batch: list[int] = []
    sequences: set[Input] = set()
    for i in sorted(range(len(queries)), key=place):
        sequence = model_input(queries[i])
        grown = len(sequences) + 1
        full = grown * len(sequence.ids) > max_tokens or grown > max_sequences
        other = bool(batch) and place(batch[0])[:3] != place(i)[:3]
        if batch and sequence not in sequences and (full or other):
            yield batch
            batch, sequences = [], set()
        batch.append(i)
        sequences.add(sequence)
    if batch:
        yield batch


def plan_batches(
    queries: Sequence[Query], max_tokens: int, max_sequences: int, *, packed: int = 0
) -> Iterator[Batch]:
    """Every query once, in batches of at most that size.

    `packed` limits the positions of packed rows that run together; 0 disables packing.
    """
    if packed:
        outputs, together = max(max_sequences, OUTPUTS), min(max_tokens, packed)
        outputs += outputs // _SPARE
        for packs in packed_batches(queries, max_tokens, outputs, together=together):
            yield Batch(
                [i for pack in packs for i, _ in pack.outputs],
                [row for row, pack in enumerate(packs) for _ in pack.outputs],
                [place for pack in packs for _, place in pack.outputs],
                packs,
            )
        return
    for indices in batches(queries, max_tokens, max_sequences):
        rows = {
            s: row for row, s in enumerate(dict.fromkeys(model_input(queries[i]) for i in indices))
        }
        yield Batch(
            indices,
            [rows[model_input(queries[i])] for i in indices],
            [queries[i].position for i in indices],
            [*rows],
        )
