"""Weights that an engine loads wrongly are refused, by their sums or by the reference check."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.plain_logits import evaluate
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.reference_check import Reference, compare
from logitbank.errors import ReferenceCheckError, WeightsError
from logitbank.store.format.schema import Query
from tests.support.checkpoints import (
    MASKED_ARCHITECTURES,
    VOCAB,
    Architecture,
    make_checkpoint,
    make_series,
)
from tests.support.packed_driver import scored

SETTINGS = EngineSettings("transformers", max_length=16)
QUERIES = [Query((7, 8, 9), 2), Query((7, 10), 1), Query((11, 5, 60, 7, 300, 21, 8), 6)]
LAYER = "gpt_neox.layers.{}"
QKV = f"{LAYER.format(0)}.attention.query_key_value"
DENSE = f"{LAYER.format(1)}.attention.dense"
Injection = Callable[[Any, Any], object]


def put(model: Any, name: str, value: torch.Tensor) -> None:
    model.get_parameter(name).copy_(value.clone())


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Injection:
    return lambda model, _: put(model, name, change(model.get_parameter(name)))


def of_other(*beginnings: str) -> Injection:
    """Parameters with these names from another checkpoint."""

    def inject(model: Any, other: Any) -> None:
        for name, _ in model.named_parameters():
            if name.startswith(beginnings):
                put(model, name, other.get_parameter(name))

    return inject


def exchanged(first: str, second: str) -> Injection:
    def inject(model: Any, _: Any) -> None:
        values = [model.get_parameter(name).clone() for name in (first, second)]
        put(model, first, values[1])
        put(model, second, values[0])

    return inject


def all_in(first: str, second: str, *, both: bool) -> Injection:
    """The parameters of one module in another, and of the other in the first if `both`."""

    def inject(model: Any, other: Any) -> None:
        for name, _ in model.get_submodule(first).named_parameters():
            pair = f"{first}.{name}", f"{second}.{name}"
            if both:
                exchanged(*pair)(model, other)
            else:
                put(model, pair[1], model.get_parameter(pair[0]))

    return inject


INJECTED: dict[str, Injection] = {
    "the checkpoint before": of_other(""),
    "the last shard before": of_other("gpt_neox.layers.1", "gpt_neox.final", "lm_head"),
    "the embedding before": of_other("gpt_neox.embed_in"),
    "the norm of another checkpoint": of_other("gpt_neox.final_layer_norm.weight"),
    "one bias of another checkpoint": of_other(f"{DENSE}.bias"),
    "head tied to the embedding": lambda model, _: put(
        model, "lm_head.weight", model.get_parameter("gpt_neox.embed_in.weight")
    ),
    "two layers exchanged": all_in(LAYER.format(0), LAYER.format(1), both=True),
    "a layer loaded twice": all_in(LAYER.format(0), LAYER.format(1), both=False),
    "both norms of a layer exchanged": all_in(
        f"{LAYER.format(0)}.input_layernorm",
        f"{LAYER.format(0)}.post_attention_layernorm",
        both=True,
    ),
    "weight and bias of a norm exchanged": exchanged(
        "gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias"
    ),
    "a matrix transposed": changed(f"{DENSE}.weight", torch.t),
    "queries, keys and values in another order": changed(
        f"{QKV}.weight", lambda w: w.view(2, 3, 32, 64)[:, [1, 0, 2]].reshape(w.shape)
    ),
    "attention heads in another order": changed(
        f"{QKV}.weight", lambda w: w.view(2, -1, 64).flip(0).reshape(w.shape)
    ),
    "heads not interleaved": changed(
        f"{QKV}.weight", lambda w: w.view(2, 3, 32, 64).transpose(0, 1).reshape(w.shape)
    ),
    "tokens shifted by one": changed("gpt_neox.embed_in.weight", lambda w: w.roll(1, 0)),
    "outputs shifted by one": changed("lm_head.weight", lambda w: w.roll(1, 0)),
    "a missing bias": changed(f"{DENSE}.bias", torch.zeros_like),
    "a norm that is not loaded": changed("gpt_neox.final_layer_norm.weight", torch.ones_like),
    "a matrix that is not loaded": changed(f"{DENSE}.weight", torch.zeros_like),
    "float16 overflow": changed(f"{DENSE}.weight", lambda w: (w * 1e6).half().float()),
    "rounded to bfloat16": changed("lm_head.weight", lambda w: w.bfloat16().float()),
    "a scale applied twice": changed(f"{DENSE}.weight", lambda w: w * 2),
    "another base of rotary positions": lambda model, _: model.gpt_neox.rotary_emb.inv_freq.mul_(
        0.5
    ),
}


def check(backend: TransformersBackend, folder: Path, queries: list[Query]) -> None:
    backend.load(folder, checkpoint="toy step 1")
    rows, _ = scored(backend, queries)
    for logits, row in zip(evaluate(folder, queries, SETTINGS), rows, strict=True):
        compare(Reference(*logits), row, dtype="float32", checkpoint="toy step 1")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return sorted(make_series(tmp_path_factory.mktemp("toy"), steps=(0, 1)).iterdir())


@pytest.mark.parametrize("name", INJECTED)
def test_a_bad_load_is_refused_by_the_name_of_its_checkpoint(
    name: str, series: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = series
    other = TransformersBackend(first, SETTINGS)
    other.load(first, checkpoint="toy step 0")
    backend = TransformersBackend(first, SETTINGS)
    backend.load(first, checkpoint="toy step 0")
    replace = TransformersBackend._replace

    def badly(self: TransformersBackend, *arguments: Any) -> object:
        account = replace(self, *arguments)
        with torch.no_grad():
            INJECTED[name](self._model, other._model)
        return account

    monkeypatch.setattr(TransformersBackend, "_replace", badly)
    with pytest.raises((WeightsError, ReferenceCheckError), match="^toy step 1"):
        check(backend, second, QUERIES)


@pytest.mark.long
@pytest.mark.parametrize(
    "architecture", [each for each in get_args(Architecture) if each not in MASKED_ARCHITECTURES]
)
def test_sound_loads_are_not_refused(architecture: Architecture, tmp_path: Path) -> None:
    """Fourteen of each causal architecture, 200 together, by one engine each."""
    draw = np.random.default_rng(0)
    backend = None
    for seed in range(14):
        folder = make_checkpoint(tmp_path / f"step{seed}", seed=seed, architecture=architecture)
        backend = backend or TransformersBackend(folder, SETTINGS)
        sequences = [tuple(map(int, draw.integers(5, VOCAB, size))) for size in (1, 5, 16)]
        check(backend, folder, [Query(ids, len(ids) - 1) for ids in sequences])
