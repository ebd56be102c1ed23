"""The tables that trainers read, each made of what a teacher said at a batch of queries."""

import math

import numpy as np
import polars as pl

from logitbank.analysis.distillation.teacher import Teacher
from logitbank.store import Deposit
from logitbank.store.format.queries import QUERIES_SCHEMA

PARQUET = pl.Schema(
    {
        "model": pl.String(),
        "run": pl.String(),
        "step": pl.Int64(),
        "query_set": pl.String(),
        **{name: dtype for name, dtype in QUERIES_SCHEMA.items() if name != "sequence"},
        "logsumexp": pl.Float64(),
        "token_ids": pl.List(pl.Int32),
        "logprobs": pl.List(pl.Float32),
        "rest_logprob": pl.Float64(),
        "draw_ids": pl.List(pl.Int32),
        "draw_logprobs": pl.List(pl.Float32),
        "draw_log_weight": pl.Float64(),
    }
)
TRL = pl.Schema(
    {
        "input_ids": pl.List(pl.Int32),
        "prompt_length": pl.Int32(),
        "logprobs": pl.List(pl.List(pl.Float32)),
        "logprob_token_ids": pl.List(pl.List(pl.Int32)),
        "actual_logprobs": pl.List(pl.List(pl.Float32)),
        "actual_token_ids": pl.List(pl.List(pl.Int32)),
    }
)
DISTILLKIT = pl.Schema(
    {
        "input_ids": pl.List(pl.Int64),
        "attention_mask": pl.List(pl.Int64),
        "labels": pl.List(pl.Int64),
        "compressed_logprobs": pl.List(pl.List(pl.UInt8)),
        "bytepacked_indices": pl.List(pl.List(pl.UInt8)),
    }
)
NO_LABEL = -100
_LOWEST = -1e4
"""Stands for −∞, which times a probability of 0 is no number."""


def parquet_rows(deposit: Deposit, queries: pl.DataFrame, teacher: Teacher) -> pl.DataFrame:
    """One row a query, columns of `PARQUET`; `queries` are the teacher's, in its order."""
    checkpoint = deposit.checkpoint
    return queries.drop("sequence").select(
        pl.lit(checkpoint.model).alias("model"),
        pl.lit(checkpoint.run).alias("run"),
        pl.lit(checkpoint.step, pl.Int64).alias("step"),
        pl.lit(deposit.query_set).alias("query_set"),
        pl.all(),
        pl.Series("logsumexp", teacher.logsumexp),
        _lists("token_ids", teacher.tokens),
        _lists("logprobs", teacher.logprobs),
        pl.Series("rest_logprob", teacher.rest),
        _lists("draw_ids", teacher.draws),
        _lists("draw_logprobs", teacher.draw_logprobs),
        pl.Series("draw_log_weight", teacher.draw_weight)
        if teacher.draws.shape[1]
        else pl.lit(None, pl.Float64).alias("draw_log_weight"),
    )


def trl_rows(queries: pl.DataFrame, teacher: Teacher) -> pl.DataFrame:
    """One row a query, columns of `TRL`: what TRL's client says of a completion of one token.

    That token is the next of the query's sequence, or the most probable one where that ends. Where
    prompts continue one context in several ways, one sequence stands for all.
    """
    rows: list[tuple[object, ...]] = []
    for i, (ids, position) in enumerate(queries.select("ids", "position").iter_rows()):
        context, following = ids[: position + 1], ids[position + 1 : position + 2]
        (actual,) = following or teacher.tokens[i, :1].tolist()
        at = np.flatnonzero(teacher.tokens[i] == actual)
        logprob = float(teacher.logprobs[i, at[0]]) if len(at) else -math.inf
        rows.append(
            (
                [*context, actual],
                len(context),
                [teacher.logprobs[i].tolist()],
                [teacher.tokens[i].tolist()],
                [[logprob]],
                [[actual]],
            )
        )
    return pl.DataFrame(rows, schema=TRL, orient="row")


def distillkit_rows(
    sequences: pl.DataFrame, teacher: Teacher, *, vocab: int, length: int
) -> pl.DataFrame:
    """One row a sequence, columns of `DISTILLKIT`, all of `length` positions.

    Positions that the bank has no row of are no labels, and have a uniform distribution in place of
    one; so are those that fill a sequence up.

    Parameters
    ----------
    sequences
        ids, and the `position` of each of its queries, whose rows are the teacher's in this order.
    """
    tokens, logprobs = _entries(teacher)
    packed, listed = pack_bits(tokens, index_bits(vocab)), as_bytes(logprobs)
    k = tokens.shape[1]
    no_tokens = pack_bits(np.arange(k)[None] % vocab, index_bits(vocab))[0].tolist()
    no_logprobs = as_bytes(np.full((1, k), -math.log(vocab), np.float32))[0].tolist()
    rows: list[tuple[object, ...]] = []
    at = 0
    for ids, positions in sequences.select("ids", "position").iter_rows():
        labels = [NO_LABEL] * length
        indices, values = [no_tokens] * length, [no_logprobs] * length
        for position in positions:
            labels[position] = ids[position]
            indices[position], values[position] = packed[at].tolist(), listed[at].tolist()
            at += 1
        fill = length - len(ids)
        mask = [1] * len(ids) + [0] * fill
        rows.append(([*ids, *[0] * fill], mask, labels, values, indices))
    return pl.DataFrame(rows, schema=DISTILLKIT, orient="row")


def compression_config(vocab: int, entries: int) -> str:
    """What DistillKit must be told of the bytes, in YAML: all entries are float32, none is fitted.

    >>> print(compression_config(50304, 64).splitlines()[1])
    k: 64
    """
    settings = {"d": vocab, "k": entries, "exact_k": entries, "exact_dtype": "float32"}
    settings |= {"polynomial_terms": "[]", "term_dtype": "float32", "residual_bins": "[]"}
    settings |= {"delta_encoding": "false", "error_diffusion": "false"}
    return "".join(f"{name}: {value}\n" for name, value in settings.items())


def index_bits(vocab: int) -> int:
    """Bits of a token's number.

    >>> index_bits(2), index_bits(50304), index_bits(65536), index_bits(65537)
    (1, 16, 16, 17)
    """
    return max(1, (vocab - 1).bit_length())


def pack_bits(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers (n, k) of so many bits each, highest bit first, one after another in bytes.

    The last byte is filled up with zeros.

    >>> pack_bits(np.array([[5, 1, 7]]), 3)  # 101 001 111 → 10100111 10000000
    array([[167, 128]], dtype=uint8)
    """
    places = np.arange(bits - 1, -1, -1)
    spread = (numbers[:, :, None].astype(np.int64) >> places) & 1
    return np.packbits(spread.reshape(len(numbers), -1).astype(np.uint8), axis=1)


def as_bytes(values: np.ndarray) -> np.ndarray:
    """The bytes (n, 4k) of float32 (n, k), little-endian."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def _entries(teacher: Teacher) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and weights (n, k + m) in logarithms: top entries and draws, by falling weight.

    A token that was drawn twice is there twice, with half of the weight each time.
    """
    weights = np.broadcast_to(teacher.draw_weight[:, None], teacher.draws.shape)
    values = np.concatenate([teacher.logprobs, weights], axis=1).astype(np.float32)
    tokens = np.concatenate([teacher.tokens, teacher.draws], axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.maximum(np.take_along_axis(values, order, axis=1), _LOWEST)
    return np.take_along_axis(tokens, order, axis=1), values


def _lists(name: str, values: np.ndarray) -> pl.Series:
    inner = pl.Int32 if values.dtype.kind == "i" else pl.Float32
    if not values.shape[1]:
        return pl.Series(name, [[]] * len(values), pl.List(inner))
    return pl.Series(name, values).cast(pl.List(inner))


def by_sequence(queries: pl.DataFrame) -> pl.DataFrame:
    """Sequences with their queries: `ids`, and lists `position` and `row`, by first row."""
    return queries.group_by("sequence", maintain_order=True).agg(
        pl.col("ids").first(), "position", "row"
    )
