"""Polars expressions and array functions: ranks, divergences, and equality with a row."""

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.errors import UsageError

Ties = Literal["competition", "midrank"]
Floats = NDArray[np.float64]

HALF_LN2 = 0.5 * math.log(2)
"""Largest value of a JSD-P term, in nats; dividing by it gives the scaled unit."""
ROUNDING = 1e-12
"""Largest rounding error of a divergence below zero."""


def strictly_greater(*, vocab_limit: bool = False) -> pl.Expr:
    """Number of entries with a greater logit; `vocab_limit` excludes padding outputs."""
    above = pl.col("rank").cast(pl.Int64) - 1
    return above - pl.col("padding_above") if vocab_limit else above


def tied_others(*, vocab_limit: bool = False) -> pl.Expr:
    """Number of other entries with the same logit; `vocab_limit` excludes padding outputs."""
    ties = pl.col("ties").cast(pl.Int64)
    return ties - pl.col("padding_ties") if vocab_limit else ties


def vocabulary_rank(*, ties: Ties = "competition", vocab_limit: bool = False) -> pl.Expr:
    """Rank of a token in the whole vocabulary, `1 + #greater`, as Float64; 1 is best.

    Expression over the columns `rank`, `ties`, `padding_above` and `padding_ties` of a scan.
    `midrank` adds half the number of other entries with the same logit. `vocab_limit` ranks
    among the tokenizer's entries only. If `exact` is false, the exact rank is between
    `rank` and `rank + ties`.

    Raises
    ------
    UsageError
        `ties` is neither `competition` nor `midrank`.

    References
    ----------
    Average Rank, arXiv 2506.01709, §2 and App. C.1. The paper does not define ranks of ties; the
    default is the strictly-greater rank.

    Examples
    --------
    Two entries are greater, one of them padding; two others are equal.

    >>> row = pl.DataFrame({"rank": [3], "ties": [2], "padding_above": [1], "padding_ties": [0]})
    >>> row.select(vocabulary_rank()).item()
    3.0
    >>> row.select(vocabulary_rank(ties="midrank", vocab_limit=True)).item()
    3.0
    """
    check_choice("ties", ties, get_args(Ties))
    rank = (strictly_greater(vocab_limit=vocab_limit) + 1).cast(pl.Float64)
    return rank + tied_others(vocab_limit=vocab_limit) / 2 if ties == "midrank" else rank


def everything_ties() -> pl.Expr:
    """Whether the entries with a score's logit have all the probability of their row.

    A row of equal logits, as of an output layer of zeros, ranks nothing: each of its entries has
    the competition rank 1. Expression over the columns `rank`, `ties` and `logprob` of a scan.

    >>> row = pl.DataFrame({"rank": 1, "ties": [3, 0], "logprob": [-1.3862943611, 0.0]})
    >>> row.select(everything_ties()).to_series().to_list()
    [True, False]
    """
    share = (pl.col("ties") + 1) * pl.col("logprob").cast(pl.Float64).exp()
    return (pl.col("rank") == 1) & (pl.col("ties") > 0) & (share > 1 - 1e-6)


def unique_maximum(*, vocab_limit: bool = False) -> pl.Expr:
    """True if the token's logit is greater than that of every other vocabulary entry."""
    first = strictly_greater(vocab_limit=vocab_limit) == 0
    return first & (tied_others(vocab_limit=vocab_limit) == 0)


def jsd_parts(logits: ArrayLike, gold: ArrayLike) -> Floats:
    r"""Contribution of each option to the divergence between prediction and correct answer.

    With :math:`P` the softmax over the options only, :math:`Q` one-hot on the gold option and
    :math:`M=(P+Q)/2`, part `i` is :math:`\frac12[Q_i\ln(Q_i/M_i)+P_i\ln(P_i/M_i)]`. It reduces to
    :math:`\frac12[\ln\frac{2}{1+p}+p\ln\frac{2p}{1+p}]` for the gold option and to
    :math:`\frac12p\ln2` for another.

    Parameters
    ----------
    logits
        (..., o): raw logits or log-probabilities of the options; a constant added to a prompt's
        options changes nothing.
    gold
        (...) integers, broadcast against the leading axes: index of the correct option.

    Returns
    -------
    numpy.ndarray
        (..., o) float64, nats, each in [0, ½ ln 2]; the parts of a prompt sum to the
        Jensen–Shannon divergence. NaN if a prompt has a NaN logit.

    Raises
    ------
    UsageError
        A part is below zero by more than rounding.

    References
    ----------
    JSD-P, arXiv 2506.01709, §2 and App. B, Eq. 2.

    Examples
    --------
    >>> parts = jsd_parts([0.0, 0.0, -np.inf], 0)
    >>> [round(float(part), 4) for part in parts]
    [0.0425, 0.1733, 0.0]
    """
    z = np.asarray(logits, np.float64)
    # Option by option: NumPy reduces a last axis of 3 four times slower than it adds 3 arrays.
    p = z - reduce(np.maximum, np.moveaxis(z, -1, 0))[..., None]
    np.exp(p, out=p)
    p /= reduce(np.add, np.moveaxis(p, -1, 0))[..., None]
    index = np.broadcast_to(np.asarray(gold), z.shape[:-1])[..., None]
    hit = np.take_along_axis(p, index, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(hit == 0, 0.0, hit * np.log(2 * hit / (1 + hit)))
    gold_part = 0.5 * (np.log(2 / (1 + hit)) + inner)
    p *= HALF_LN2
    np.put_along_axis(p, index, gold_part, axis=-1)
    return clip_divergence(p)


def scaled(nats: ArrayLike) -> Floats:
    """Divide JSD-P in nats by its largest value ½ ln 2, so that it lies in [0, 1].

    >>> float(scaled(HALF_LN2))
    1.0
    """
    return np.asarray(nats, np.float64) / HALF_LN2


def clip_divergence(values: Floats) -> Floats:
    """Set rounding below zero to zero, in place; NaN stays NaN.

    Raises
    ------
    UsageError
        A value is below −1e-12, which rounding cannot explain.

    >>> clip_divergence(np.array([-1e-16, 0.2])).tolist()
    [0.0, 0.2]
    """
    lowest = np.fmin.reduce(values, axis=None, initial=0.0)
    if lowest < -ROUNDING:
        raise UsageError(
            f"Divergence {lowest:.3g} is below zero by more than rounding (-1e-12). "
            "Its inputs must be logits or log-probabilities."
        )
    return np.maximum(values, 0.0, out=values)


def three_way_correct(logits: ArrayLike, gold: ArrayLike) -> NDArray[np.bool_]:
    """True if the gold option's logit is strictly greater than those of the other options.

    `logits` is (..., o), `gold` (...) integers; the result is (...). A tie or a NaN is false.

    >>> three_way_correct([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]], [0, 0]).tolist()
    [True, False]
    """
    z = np.asarray(logits, np.float64)
    index = np.broadcast_to(np.asarray(gold), z.shape[:-1])[..., None]
    lower = z < np.take_along_axis(z, index, axis=-1)
    hit: NDArray[np.bool_] = reduce(np.add, np.moveaxis(lower.view(np.int8), -1, 0)) == (
        z.shape[-1] - 1
    )
    return hit


def same_as(row: Mapping[str, Any], names: Iterable[str]) -> pl.Expr:
    """Whether the columns have the values of a row; null equals null."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.lit(row[name])) for name in names)


def check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise UsageError unless `value` is one of the allowed ones."""
    if value not in allowed:
        choices = ", ".join(map(str, allowed))
        raise UsageError(f"Unknown {name} {value!r}. Use one of {choices}.")
