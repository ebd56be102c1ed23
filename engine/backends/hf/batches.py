"""Batches of queries under a budget of tokens: one head, one language and one length each, or rows
of packed contexts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logitbank.engine.backends.hf.memory import BatchSize
from logitbank.engine.backends.hf.packs import Pack, packed_batches
from logitbank.engine.backends.hf.shapes import Shape
from logitbank.store.format.schema import Query

OUTPUTS = 256
"""Rows of logits that one product with the head gives. It reads a matrix that no cache holds: each
of 64 rows of 50,304 takes 0.84 ms of a processor, of 256 rows 0.59."""
_SPARE = 16
"""Packs have an output in this many more than a batch is to have, as they are not cut: blocks for
two batches would be three, of which the last is one row. WinoBias in five orders on a GPU: 12
passes in place of 17."""


class Input(NamedTuple):
    """What one forward pass sees of a query."""

    next_sentence: bool
    language: str
    ids: tuple[int, ...]
    segments: tuple[int, ...]


class Batch(NamedTuple):
    """Queries that one forward pass answers: query `queries[i]` in row `rows[i]` at
    `positions[i]`."""

    queries: list[int]
    rows: list[int]
    positions: list[int]
    sequences: Sequence[Input] | Sequence[Pack]
    shape: Shape | None = None
    """Of packs: what they are padded to."""

    @property
    def tokens(self) -> int:
        """Tokens that are run, without padding."""
        return sum(len(sequence.ids) for sequence in self.sequences)

    @property
    def width(self) -> int:
        return max(len(sequence.ids) for sequence in self.sequences)

    @property
    def divisible(self) -> bool:
        """False where all of it is one sequence."""
        only = self.sequences[0]
        branched = isinstance(only, Pack) and max(only.depths) < len(only.ids) - 1
        return len(self.sequences) > 1 or branched


def input_of(query: Query) -> Input:
    next_sentence = query.head == "next_sentence"
    return Input(next_sentence, query.language, query.ids, query.segments)


def batches(queries: Sequence[Query], max_tokens: int, max_sequences: int) -> Iterator[list[int]]:
    """Indices of `queries`, cut so that no batch exceeds the budget.

    A batch is for one head, of one language and one length: some models, such as MobileBERT, let
    padding change the logits of the rest, whatever the attention mask says. Queries of one sequence
    stay together, so that it is run once.
    """

    def place(i: int) -> tuple[bool, str, int, Input]:
        sequence = input_of(queries[i])
        return sequence.next_sentence, sequence.language, len(sequence.ids), sequence

    batch: list[int] = []
    sequences: set[Input] = set()
    for i in sorted(range(len(queries)), key=place):
        sequence = input_of(queries[i])
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


def plan_batches(queries: Sequence[Query], size: BatchSize, *, packed: int = 0) -> Iterator[Batch]:
    """Every query once, in batches of that size.

    `packed` is how many positions of packed rows are run together, if that is less; 0 packs none.
    """
    if packed:
        outputs, together = max(size.sequences, OUTPUTS), min(size.tokens, packed)
        outputs += outputs // _SPARE
        for packs in packed_batches(queries, size.tokens, outputs, together=together):
            asked, width = sum(len(p.asked) for p in packs), max(len(p.ids) for p in packs)
            yield Batch(
                [i for pack in packs for i, _ in pack.asked],
                [row for row, pack in enumerate(packs) for _ in pack.asked],
                [place for pack in packs for _, place in pack.asked],
                packs,
                Shape(len(packs), width, asked),
            )
        return
    for indices in batches(queries, *size):
        rows = {
            s: row for row, s in enumerate(dict.fromkeys(input_of(queries[i]) for i in indices))
        }
        yield Batch(
            indices,
            [rows[input_of(queries[i])] for i in indices],
            [queries[i].position for i in indices],
            [*rows],
        )
