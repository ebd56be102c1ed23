"""Differences of two deposits of the same checkpoint and queries, row by row."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.store import Deposit
from logitbank.store.format.numbers import logsumexp
from logitbank.store.format.schema import Dtype

_CHUNK = 2**17
"""Numbers that are float64 at once: 1 MB, which stays in a core's cache."""


class RowDifferences(NamedTuple):
    """Differences of two deposits over the rows of both."""

    rows: int
    entries: int
    """Logits compared: all if both have full rows, otherwise those that both list."""
    max_logit_difference: float | None
    mean_logit_difference: float | None
    rounding: float | None
    """The largest difference that rounding of the stored rows explains, nats; None unless both have
    full rows that do not come from float16 states. Listed logits are float32."""
    max_kl: float | None
    """KL(A‖B) of a row, nats; None unless both have full rows."""
    mean_kl: float | None
    argmax_changed: int
    """Rows without a common top-1 token."""
    argmax_unknown: int
    """Rows of which it is unknown, because equal tokens are not listed and rows are not whole."""
    options: int
    """Options (query × token) in both lists."""
    ranks_changed: int
    ranks_changed_share: float | None
    max_rank_change: int | None
    inexact: int
    """Options whose rank is an interval in either bank; the lower end is compared."""


ROWS = {
    name: pl.Float64 if "float" in str(kind) else pl.Int64
    for name, kind in RowDifferences.__annotations__.items()
}
"""The columns of the fields."""


def compare_rows(
    a: Deposit, b: Deposit, rows: np.ndarray, queries: Mapping[str, pl.DataFrame] | None
) -> RowDifferences:
    """Compare the committed `rows` of two deposits of one query set.

    `queries` limits the options to its (row, token) by query set.
    """
    row_list = pl.Series(rows, dtype=pl.Int32).implode()
    scores = [d.scores().filter(pl.col("query").is_in(row_list)).collect() for d in (a, b)]
    full = all(d.layout.keep.has_full_rows for d in (a, b)) and a.layout.vocab == b.layout.vocab
    if full:
        entries, largest, total, rounding, divergences = _full(a, b, rows)
    else:
        entries, largest, total = _listed(*scores)
        rounding, divergences = None, np.empty(0)
    options = _both([s.filter(pl.col("kind") == "option") for s in scores])
    if queries is not None:
        tokens = queries[a.query_set].select(query="row", token="token")
        options = options.join(tokens, on=["query", "token"], how="semi")
    top = _argmax_changed(a, b, scores, full=full)
    change = (options["rank"] - options["rank_b"]).abs()
    changed = int((change > 0).sum())
    return RowDifferences(
        rows=len(rows),
        entries=entries,
        max_logit_difference=largest if entries else None,
        mean_logit_difference=total / entries if entries else None,
        rounding=rounding,
        max_kl=float(divergences.max()) if full else None,
        mean_kl=float(divergences.mean()) if full else None,
        argmax_changed=top.changed,
        argmax_unknown=top.unknown,
        options=len(options),
        ranks_changed=changed,
        ranks_changed_share=changed / len(options) if len(options) else None,
        max_rank_change=None if change.is_empty() else int(change.max()),  # type: ignore[arg-type]
        inexact=int((~(options["exact"] & options["exact_b"])).sum()),
    )


def _kl(logp: Floats, logq: Floats, difference: Floats) -> Floats:
    r"""Kullback–Leibler divergence of rows, :math:`\sum_v p_v(\ln p_v-\ln q_v)`, (q,) in nats.

    `logp` and `logq` are (q, v), `difference` is the first minus the second. Each row is
    normalised, because rounded ones do not add up to 1; there is one exponential per number.
    """
    highest = logp.max(axis=1)
    p = np.exp(logp - highest[:, None])
    total = p.sum(axis=1)
    mean: Floats = np.einsum("qv,qv->q", p, difference) / total
    return np.asarray(np.maximum(mean - (highest + np.log(total)) + logsumexp(logq), 0.0))


def half_spacing(magnitude: float, dtype: Dtype) -> float:
    """The largest rounding error in `dtype` of a number up to `magnitude`.

    >>> half_spacing(20.0, "float16"), half_spacing(40.0, "float16")
    (0.0078125, 0.015625)
    """
    return float(np.spacing(np.dtype(dtype).type(magnitude))) / 2


def _full(
    a: Deposit, b: Deposit, rows: np.ndarray
) -> tuple[int, float, float, float | None, Floats]:
    """Number of entries, largest and summed difference of logits, the difference that rounding
    explains, and the divergence of each row."""
    offset = a.logsumexp(rows).astype(np.float64) - b.logsumexp(rows)
    largest, total, divergences = 0.0, 0.0, []
    lowest = [0.0, 0.0]
    read = math.gcd(a.layout.block_rows, 128)  # rows of an inner chunk
    size = max(1, _CHUNK // a.layout.vocab)
    for start in range(0, len(rows), read):
        part = rows[start : start + read]
        stored = a.stored_logprobs(part), b.stored_logprobs(part)
        for first in range(0, len(part), size):
            p, q = (values[first : first + size].astype(np.float64) for values in stored)
            lowest = [min(low, float(x.min())) for low, x in zip(lowest, (p, q), strict=True)]
            difference = p - q
            divergences.append(_kl(p, q, difference))
            difference += offset[start + first : start + first + len(p), None]
            np.abs(difference, out=difference)
            largest = max(largest, float(difference.max()))
            total += float(difference.sum())
    rounding: float | None = None
    # The effect of rounding a state on a logit depends on the LM head.
    if all(d.layout.width is None or d.layout.dtype == "float32" for d in (a, b)):
        dtypes = (d.layout.row_dtype for d in (a, b))
        rounding = sum(half_spacing(-x, dtype) for x, dtype in zip(lowest, dtypes, strict=True))
    return len(rows) * a.layout.vocab, largest, total, rounding, np.concatenate(divergences)


def _listed(a: pl.DataFrame, b: pl.DataFrame) -> tuple[int, float, float]:
    both = _both([scores.unique(["query", "token"]) for scores in (a, b)])
    difference = (both["logit"].cast(pl.Float64) - both["logit_b"].cast(pl.Float64)).abs()
    return len(both), float(difference.max() or 0), float(difference.sum())  # type: ignore[arg-type]


def _both(scores: list[pl.DataFrame]) -> pl.DataFrame:
    """Entries in both lists; columns of the second end in `_b`."""
    columns = ["query", "token", "logit", "rank", "exact"]
    a, b = (one.select(columns) for one in scores)
    return a.join(b, on=["query", "token"], suffix="_b")


class _TopChanges(NamedTuple):
    """Rows without a common top-1 token, and those of which it is unknown."""

    changed: int
    unknown: int


def _argmax_changed(
    a: Deposit, b: Deposit, scores: Sequence[pl.DataFrame], *, full: bool
) -> _TopChanges:
    """Count the rows without a token that has rank 1 on both sides.

    Equal tokens all have rank 1, and the storage level decides how many of them are listed. Whether
    one that is not listed is common is read from full rows, if both sides have them.
    """
    sides = [one.unique(["query", "token"]).select("query", "token", "rank", "ties")
             for one in scores]  # fmt: skip
    tops = [one.filter(rank=1) for one in sides]
    both = tops[0].join(tops[1], on="query", how="semi")["query"].unique()
    common = tops[0].join(tops[1], on=["query", "token"])["query"].unique()
    rest = both.filter(~both.is_in(common.implode())).sort()
    partial, hidden = [], []
    for own, top, other in zip(sides, tops, reversed(tops), strict=True):
        number = top.group_by("query").agg(left=pl.col("ties").first() + 1 - pl.len())
        partial.append(number.filter(pl.col("left") > 0)["query"])
        unlisted = other.join(own, on=["query", "token"], how="anti")["query"]
        hidden.append(partial[-1].filter(partial[-1].is_in(unlisted.implode())))
    equal = partial[0].filter(partial[0].is_in(partial[1].implode()))
    doubtful = pl.concat([*hidden, equal]).unique()
    unsure = rest.filter(rest.is_in(doubtful.implode()))
    changed = len(rest) - len(unsure)
    if not full:
        return _TopChanges(changed, len(unsure))
    for query in unsure:
        tokens = [
            np.flatnonzero((row := deposit.stored_logprobs(np.array([query]))[0]) == row.max())
            if query in part
            else top.filter(query=query)["token"].to_numpy()
            for deposit, part, top in zip((a, b), partial, tops, strict=True)
        ]
        changed += not np.intersect1d(tokens[0], tokens[1]).size
    return _TopChanges(changed, 0)
