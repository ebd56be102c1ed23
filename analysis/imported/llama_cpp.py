"""Base files of llama.cpp's perplexity tool (`--kl-divergence-base FILE.kld`): whole rows.

The file: `_logits_`, then as little-endian 32-bit integers the length of a chunk, the vocabulary
and the number of chunks, then the tokens of all chunks; then, for the positions of each chunk from
its middle to the last but one, a row of 16-bit numbers: two float32 (scale, lowest) in the first
four, and one number for each token, of which log-probability = scale × number + lowest. Rows are
filled up to an even number. What is more than 16 nats below a row's highest is written as that.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.imported.items import provenance
from logitbank.errors import UsageError
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Deposit,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
)
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.files.objects import digest
from logitbank.store.format.attributes import ARRAY
from logitbank.store.format.schema import PROMPTS_SCHEMA, OptionTokens

MAGIC = b"_logits_"
TOKENIZER = "unknown: that of a model of llama.cpp"
"""In place of a digest: the file has ids alone."""
_HEAD = 20
_LARGEST = 2**24
_OFF = 0.1
"""Nats that the sum of a row's probabilities may be off by: 0.02 for what is cut off at 16 nats."""


class KldFile(NamedTuple):
    """What the head of a file says."""

    path: Path
    context: int
    """Tokens of a chunk."""
    vocab: int
    tokens: np.ndarray
    """(chunks, context) int32."""

    @property
    def first(self) -> int:
        """The first scored position of a chunk."""
        return self.context // 2

    @property
    def scored(self) -> int:
        """Scored positions of a chunk."""
        return self.context - 1 - self.first

    @property
    def rows(self) -> np.ndarray:
        """(chunks × scored, width) uint16, read as they are used."""
        shape = len(self.tokens) * self.scored, _width(self.vocab)
        return np.memmap(self.path, "<u2", "r", offset=_HEAD + self._all_tokens(), shape=shape)

    def _all_tokens(self) -> int:
        return 4 * self.context * int(np.fromfile(self.path, "<i4", 1, offset=16)[0])


def is_kld(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_head(path: Path, *, chunks: int | None) -> KldFile:
    """Sizes and tokens, of the first `chunks`; all if None.

    Raises
    ------
    UsageError
        The file is cut short, or sizes or tokens cannot be.
    """
    size = path.stat().st_size
    if size < _HEAD:
        raise UsageError(f"{path} is cut short: it has {size} bytes; write it again")
    context, vocab, count = (int(n) for n in np.fromfile(path, "<i4", 3, offset=len(MAGIC)))
    if not (3 < context < _LARGEST and 0 < vocab < _LARGEST and 0 < count < _LARGEST):
        raise UsageError(
            f"{path} cannot be read: it has chunks of {context} tokens, {vocab} outputs and"
            f" {count} chunks; write it again with llama.cpp's own tool"
        )
    scored = context - 1 - context // 2
    whole = (size - _HEAD - 4 * context * count) // (2 * _width(vocab) * scored)
    wanted = count if chunks is None else min(chunks, count)
    if whole < wanted:
        raise UsageError(
            f"{path} is cut short: {max(0, whole):,} of {count:,} chunks are whole; write it again"
            + (f", or take those with --chunks {whole}" if whole > 0 else "")
        )
    tokens = np.fromfile(path, "<i4", context * count, offset=_HEAD).reshape(count, context)
    if tokens.min() < 0 or tokens.max() >= vocab:
        raise UsageError(f"{path} has tokens outside its {vocab:,} outputs; write it again")
    return KldFile(path, context, vocab, tokens[:wanted])


def write_rows(
    bank: Bank,
    file: KldFile,
    *,
    checkpoint: CheckpointId,
    prompts: str,
    keep: Keep,
    bos: int | None,
) -> Deposit:
    """Deposit the rows of a file; the same again changes nothing.

    Ranks are those of the file's rounded numbers: intervals, flagged `exact` = False.

    Raises
    ------
    UsageError
        A row is not one of log-probabilities.
    BankError
        Other rows of this checkpoint and these tokens are there.
    """
    query_set = QuerySet(TOKENIZER, tuple(_queries(file, bos)))
    name = bank.add_query_set(query_set)
    bank.add_prompts(prompts, _prompts(file, name))
    options = OptionTokens.build([[token] for token in _next_tokens(file)])
    layout = Layout.plan(queries=len(query_set), vocab=file.vocab, dtype="float16", keep=keep)
    sha256 = digest(file.path).sha256
    made = provenance("llama.cpp", None, "perplexity", {file.path.name: sha256})
    made |= {"tokenizer": TOKENIZER, ARRAY: sha256}
    with bank.begin(DepositSpec(checkpoint, name, layout, file.vocab, made)) as writer:
        for block in writer.missing():
            span = writer.layout.rows(block)
            reducer = BlockReducer(writer.layout, block, options=options, vocab_entries=file.vocab)
            for i, row in enumerate(_logprobs(file, span)):
                reducer.put(i, row)
            data = reducer.finish()
            scores = data.scores.with_columns(exact=pl.lit(False))
            writer.write(block, BlockData(data.logprobs, scores))
        writer.seal()
    return writer.deposit


def _width(vocab: int) -> int:
    """16-bit numbers of a row."""
    return 2 * ((vocab + 1) // 2) + 4


def _logprobs(file: KldFile, span: range) -> Iterator[np.ndarray]:
    for number, packed in enumerate(file.rows[span.start : span.stop], span.start):
        scale, lowest = np.ascontiguousarray(packed[:4]).view("<f4")
        row = packed[4 : 4 + file.vocab] * np.float32(scale) + np.float32(lowest)
        with np.errstate(over="ignore"):  # what overflows is refused
            off = abs(np.log(np.exp(row.astype(np.float64)).sum()))
        if not off <= _OFF:
            chunk, position = divmod(number, file.scored)
            raise UsageError(
                f"{file.path}: the row of chunk {chunk}, position {file.first + position} has no"
                " log-probabilities whose sum is 1; the file is damaged: write it again"
            )
        yield row


def _queries(file: KldFile, bos: int | None) -> Iterator[Query]:
    for chunk in file.tokens.tolist():
        ids = (chunk[0] if bos is None else bos, *chunk[1:])
        yield from (Query(ids, file.first + i) for i in range(file.scored))


def _next_tokens(file: KldFile) -> list[int]:
    following: list[int] = file.tokens[:, file.first + 1 :].ravel().tolist()
    return following


def _prompts(file: KldFile, query_set: str) -> pl.DataFrame:
    """A prompt for each row, whose answer is the token that follows."""
    rows = []
    for number, token in enumerate(_next_tokens(file)):
        chunk, i = divmod(number, file.scored)
        place = f"chunk {chunk}, position {file.first + i}"
        rows.append(
            (place, None, 0, place, "target", "target", str(token), token, True, query_set, number)
        )
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    return table.with_columns(score_kind=pl.lit("target"))
