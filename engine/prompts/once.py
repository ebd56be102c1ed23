"""Prompts that were tokenized before are not tokenized again: 15,840 take three seconds."""

import io
import json

import polars as pl

from logitbank.engine.cache import remember, remembered
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import TokenizedPrompts, tokenized_for
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from logitbank.store.format.schema import Query


def tokenized_once(
    prompts: PromptSet, tokenizer: Tokenizer, config: ModelConfig | None
) -> TokenizedPrompts:
    """As `tokenized_for`, or what it has given for equal prompts, tokenizer and config.

    A way of scoring that is not logitbank's own may change, and is run each time. Raises as
    `tokenized_for`.
    """
    ways = [p.scored and f"{p.scored.__module__}.{p.scored.__qualname__}" for p in prompts.prompts]
    if any(way and not way.startswith("logitbank.engine.") for way in {*ways}):
        return tokenized_for(prompts, tokenizer, config)
    key = [repr(prompts), ways, tokenizer.identity, repr(config)]
    if (known := remembered(key)) is not None:
        return _parsed(known)
    tokenized = tokenized_for(prompts, tokenizer, config)
    remember(key, _bytes(tokenized))
    return tokenized


def _bytes(tokenized: TokenizedPrompts) -> bytes:
    """A line of JSON and a table, as `_parsed` reads them."""
    sequences: dict[tuple[int, ...], int] = {}  # queries of one text share its ids
    queries = []
    for q in tokenized.queries:
        sequence = sequences.setdefault(q.ids, len(sequences))
        queries.append([sequence, q.position, q.head, q.segments, q.language])
    plain = [tokenized.name, [*sequences], queries, tokenized.notes, tokenized.warnings]
    table = io.BytesIO()
    tokenized.table.write_ipc(table, compression="zstd")
    return json.dumps(plain).encode() + b"\n" + table.getvalue()


def _parsed(data: bytes) -> TokenizedPrompts:
    plain, _, table = data.partition(b"\n")
    name, sequences, queries, notes, warnings = json.loads(plain)
    ids = [tuple(sequence) for sequence in sequences]
    return TokenizedPrompts(
        name,
        tuple(
            Query(ids[sequence], position, head, tuple(segments), language)
            for sequence, position, head, segments, language in queries
        ),
        pl.read_ipc(io.BytesIO(table)),
        tuple(notes),
        tuple(warnings),
    )
