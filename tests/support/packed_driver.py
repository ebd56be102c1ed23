"""The transformers engine on a tiny checkpoint, and contexts that share beginnings in every way."""

from pathlib import Path

import numpy as np
import torch

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.store import Query
from tests.support.checkpoints import LONGEST, VOCAB


def loaded(
    folder: Path, *, dtype: str = "float32", length: int = LONGEST
) -> tuple[TransformersBackend, str]:
    """The engine with the checkpoint, and the note about it."""
    settings = EngineSettings("transformers", compute_dtype=dtype, max_length=length)  # type: ignore[arg-type]
    backend = TransformersBackend(folder, settings)
    return backend, backend.load(folder, checkpoint="tiny").note


def scored(backend: TransformersBackend, queries: list[Query]) -> tuple[np.ndarray, int]:
    """Logits (queries, outputs), and how many tokens were run."""
    rows = np.full((len(queries), VOCAB), np.nan, np.float32)

    def take(indices: list[int], logits: torch.Tensor, _: object) -> None:
        rows[indices] = logits.numpy()

    cost = backend.score(queries, take)  # type: ignore[arg-type]
    return rows, cost.requested - cost.reused


def scored_alone(backend: TransformersBackend, queries: list[Query]) -> np.ndarray:
    """The same, each context by itself, as models run it that cannot be packed."""
    backend._not_packed = "not now"
    try:
        return np.concatenate([scored(backend, [query])[0] for query in queries])
    finally:
        backend._not_packed = ""


def tree() -> list[Query]:
    """Depth 1, a single chain, beginnings of each other, twins, and two of the longest."""
    rng = np.random.default_rng(3)
    stem = tuple(int(t) for t in rng.integers(1, 600, 30))
    lengths = (1, 2, 9, 9, 40, LONGEST - 30)
    tails = [tuple(int(t) for t in rng.integers(1, 600, n)) for n in lengths]
    branched = [(*stem, *tail) for tail in (*tails, (*tails[-1][:-1], 601))]
    texts = [(7,), (8,), stem[:1], stem[:5], stem, *branched, branched[4]]
    queries = [Query(ids, len(ids) - 1) for ids in texts]
    longest = branched[5]
    return [*queries, Query(longest, 3), Query(longest, 31), Query(longest, 29)]
