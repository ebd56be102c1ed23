"""What TF32 and bfloat16 do to the ranks of trained models, on a CPU: TF32 is simulated.

`python -m bench precision`: the demo's toy at its last step, and SmolLM2-135M as `make real` makes
it, which is downloaded once. Nothing here is measured on a card: the operands of every product of
the body are rounded to TF32's ten bits, and what tensor cores add up is added up in float32.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.figures import Figure
from bench.models import DATA
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.store.format.schema import Query

ROOT = Path(__file__).parents[1]
HIGH = 100
"""Ranks up to here are told by themselves: metrics of ranks live there."""


class Asked(NamedTuple):
    """Contexts, and the tokens whose ranks are compared: `tokens[i]` after `queries[rows[i]]`."""

    queries: list[Query]
    rows: np.ndarray
    tokens: np.ndarray


def precision(tmp: Path) -> Iterator[Figure]:
    from logitbank.engine.demo.causal import STEPS, demo_prompts, train_series
    from scripts.real.samples import samples
    from scripts.real.weights import base_model

    train_series(tmp / "demo")
    toy, real = tmp / "demo" / f"step{STEPS}", ROOT / "real" / "base"
    base_model(real)
    for name, folder, sets in (
        ("the demo's toy", toy, [demo_prompts()]),
        ("SmolLM2-135M", real, samples(DATA)),
    ):
        asked = asked_of(sets, folder)
        exact = logits_in("float32", folder, asked)
        for dtype, how in (("tf32", "TF32, simulated on a CPU"), ("bfloat16", "bfloat16 on a CPU")):
            found = logits_in(dtype, folder, asked)
            yield from compared(f"{name} in {how}", exact, found, asked)


def asked_of(sets: Sequence[PromptSet | SequenceSet], folder: Path) -> Asked:
    """The options' tokens of prompts, and all tokens that sentences are scored by; each once."""
    from logitbank.engine.tokenizers.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    places: dict[Query, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for prompts in sets:
        tokenized = prompts.tokenize(tokenizer)
        at = [places.setdefault(query, len(places)) for query in tokenized.queries]
        wanted = tokenized.table.select("query", "token").drop_nulls()
        pairs |= {(at[query], token): None for query, token in wanted.iter_rows()}
    rows, tokens = np.array([*pairs]).T
    return Asked([*places], rows, tokens)


def logits_in(dtype: ComputeDtype, folder: Path, asked: Asked) -> np.ndarray:
    """(queries, v) by the transformers engine; its head is in float32 in every dtype."""
    import torch

    from logitbank.engine.backends.hf.backend import TransformersBackend
    from logitbank.engine.backends.simulated import tensor_cores

    longest = max(len(query.ids) for query in asked.queries)
    held: ComputeDtype = "float32" if dtype == "tf32" else dtype
    settings = EngineSettings(
        "transformers", compute_dtype=held, device="cpu", max_length=longest, many_positions=True
    )
    backend = TransformersBackend(folder, settings)
    outputs = backend.load(folder, checkpoint=folder.name).vocab
    found = np.full((len(asked.queries), outputs), np.nan, np.float32)

    def take(indices: Sequence[int], logits: torch.Tensor, *_: object) -> None:
        found[list(indices)] = logits.numpy()

    with tensor_cores() if dtype == "tf32" else nullcontext():
        backend.score(asked.queries, take)
    assert np.isfinite(found).all()
    return found


def compared(name: str, exact: np.ndarray, found: np.ndarray, asked: Asked) -> Iterator[Figure]:
    """How far logits are from float32's, and what that does to ranks."""
    difference = np.abs(found - exact)
    yield Figure(
        f"{name}: the largest difference of a logit from float32's", float(difference.max()), "",
        detail=f"{np.median(difference):.2g} in the median of {difference.size:,}",
    )  # fmt: skip
    before, after = ranks(exact, asked), ranks(found, asked)
    change = np.abs(after - before)
    far, high = np.quantile(change, 0.99), before <= HIGH
    yield Figure(
        f"{name}: ranks that are not float32's", float((change > 0).mean()), "of all",
        detail=f"{len(change):,} ranks: they move by {np.median(change):.3g} in the median,"
        f" {far:.3g} at the 99th percentile, {change.max():,} at most; of the {high.sum():,} up to"
        f" {HIGH} {(change[high] > 0).mean():.3g} move, by {change[high].max()} at most",
    )  # fmt: skip


def ranks(logits: np.ndarray, asked: Asked) -> np.ndarray:
    """Rank of each token: 1 and how many outputs are above it."""
    own = logits[asked.rows, asked.tokens]
    return np.array([1 + (logits[r] > o).sum() for r, o in zip(asked.rows, own, strict=True)])
