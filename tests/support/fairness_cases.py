"""Small frames with the columns of `Bank.scan("winobias")`, made from arrays."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

LABELS = ("male", "female", "not specified")
MALE, FEMALE, NEUTRAL = range(3)


def scan_frame(
    logits: ArrayLike,
    *,
    gold: Sequence[int],
    steps: Sequence[int | None] | None = None,
    ranks: ArrayLike = 1,
    ties: ArrayLike = 0,
    padding_above: ArrayLike = 0,
    padding_ties: ArrayLike = 0,
    exact: ArrayLike = True,
    model: str = "toy",
    run: str = "main",
    sentences: Sequence[str] | None = None,
    paired: bool = True,
) -> pl.LazyFrame:
    """One row per checkpoint, order, prompt and option from `logits` (c, s, p, 3).

    Ranks, ties and flags are (c, s, p), or broadcast, and hold for every option. Prompts 0 and 1
    share a sentence, 2 and 3 another, and so on, unless `sentences` says otherwise.
    """
    z = np.asarray(logits, np.float32)
    c, s, p, o = np.indices(z.shape).reshape(4, -1)
    steps = list(range(z.shape[0])) if steps is None else steps
    sentences = sentences or [f"dev-{i // 2}" for i in range(z.shape[2])]

    def each(values: ArrayLike) -> np.ndarray:
        return np.broadcast_to(np.asarray(values), z.shape[:3])[c, s, p]

    return pl.LazyFrame(
        {
            "model": model,
            "run": run,
            "run_seed": pl.Series([None] * z.size, dtype=pl.Int64),
            "step": pl.Series([steps[i] for i in c], dtype=pl.Int64),
            "prompt_id": [f"prompt-{i}" for i in p],
            "order_seed": pl.Series(s, dtype=pl.Int32),
            "piece": pl.Series(np.zeros(z.size), dtype=pl.Int32),
            "answer": [LABELS[gold[i]] for i in p],
            "option": [LABELS[i] for i in o],
            "is_answer": [gold[i] == j for i, j in zip(p, o, strict=True)],
            "sentence_id": [sentences[i] for i in p],
            "paired": paired,
            "logit": z.reshape(-1),
            "rank": each(ranks).astype(np.int32),
            "ties": each(ties).astype(np.int32),
            "padding_above": each(padding_above).astype(np.int32),
            "padding_ties": each(padding_ties).astype(np.int32),
            "exact": each(exact),
        }
    )


def random_frame(
    *,
    checkpoints: int = 6,
    orders: int = 3,
    sentences: int = 30,
    skew_from: int | None = None,
    model: str = "toy",
    steps: Sequence[int | None] | None = None,
    seed: int = 0,
) -> pl.LazyFrame:
    """Noise, with one male, one female and two neutral prompts per sentence.

    From checkpoint `skew_from` on, the female option loses 2 logits everywhere.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(checkpoints, orders, 4 * sentences, 3))
    if skew_from is not None:
        z[skew_from:, ..., FEMALE] -= 2
    return scan_frame(
        z,
        gold=[MALE, FEMALE, NEUTRAL, NEUTRAL] * sentences,
        steps=steps if steps is not None else [0, *(2**i for i in range(checkpoints - 1))],
        ranks=rng.integers(1, 500, z.shape[:3]),
        sentences=[f"dev-{i // 4}" for i in range(4 * sentences)],
        model=model,
    )
