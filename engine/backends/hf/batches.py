"""Batches of queries under a budget of tokens: one head, one language and one length each."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logitbank.store.format.schema import Query


class Input(NamedTuple):
    """What one forward pass sees of a query."""

    next_sentence: bool
    language: str
    ids: tuple[int, ...]
    segments: tuple[int, ...]


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
