"""Checkpoints swapped tensor by tensor: the logits of each by itself, and when a model is read."""

import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from logitbank.engine.backends.hf import backend as hf
from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Query
from tests.support.checkpoints import (
    MASK_ID,
    MASKED_ARCHITECTURES,
    VOCAB,
    Architecture,
    make_series,
)
from tests.support.packed_driver import scored

SETTINGS = EngineSettings("transformers", max_length=16)
QUERIES = [Query((7, 8, 9), 2), Query((7, 10), 1)]
CAUSAL = [each for each in get_args(Architecture) if each not in MASKED_ARCHITECTURES]


def rows(backend: TransformersBackend) -> np.ndarray:
    return scored(backend, QUERIES)[0]


def alone(folder: Path) -> tuple[str, np.ndarray]:
    backend = TransformersBackend(folder, SETTINGS)
    return backend.load(folder, checkpoint="alone").weights, rows(backend)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that a whole model is read from."""
    folders: list[Path] = []
    whole = hf.read_model

    def watched(folder: Path, settings: EngineSettings, dtype: torch.dtype) -> object:
        folders.append(folder)
        return whole(folder, settings, dtype)

    monkeypatch.setattr(hf, "read_model", watched)
    return folders


@pytest.mark.parametrize("architecture", CAUSAL)
def test_a_swap_gives_what_the_checkpoint_gives_by_itself(
    tmp_path: Path, architecture: Architecture, read: list[Path]
) -> None:
    suite = make_series(tmp_path, steps=(0, 1), architecture=architecture)
    first, second = suite / "step0", suite / "step1"
    expected = {folder: alone(folder) for folder in (first, second)}
    read.clear()
    backend = TransformersBackend(first, SETTINGS)
    for folder in (first, second, first):
        weights = backend.load(folder, checkpoint=folder.name).weights
        assert (weights, read) == (expected[folder][0], [first])
        np.testing.assert_array_equal(rows(backend), expected[folder][1])


def test_the_folder_before_may_be_gone_or_changed(tmp_path: Path, read: list[Path]) -> None:
    """Weights are deleted as a run goes on, and a training may write another into one folder."""
    suite = make_series(tmp_path, steps=(0, 1))
    first, second = suite / "step0", suite / "step1"
    backend = TransformersBackend(first, SETTINGS)
    loaded = [backend.load(first, checkpoint="first").weights]
    shutil.rmtree(first)
    shutil.copytree(second, first)
    loaded.append(backend.load(first, checkpoint="first").weights)
    shutil.rmtree(first)
    loaded.append(backend.load(second, checkpoint="second").weights)
    assert len({*loaded}) == 2
    assert read == [first]


def test_what_is_left_of_a_swap_that_failed_is_not_scored(tmp_path: Path, read: list[Path]) -> None:
    suite = make_series(tmp_path, steps=(0, 1, 2))
    first, second, third = (suite / f"step{n}" for n in range(3))
    path = second / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}  # not the file
    kept = path.read_bytes()
    backend = TransformersBackend(first, SETTINGS)
    backend.load(first, checkpoint="first")
    path.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(WeightsError, match=r"^second: .* is truncated or damaged"):
        backend.load(second, checkpoint="second")
    name = next(name for name in tensors if name.endswith("dense.weight"))
    save_file({n: t for n, t in tensors.items() if n != name}, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=rf"^second: .* misses 1 parameters .* {name}"):
        backend.load(second, checkpoint="second")
    weights, expected = alone(third)
    assert backend.load(third, checkpoint="third").weights == weights
    np.testing.assert_array_equal(rows(backend), expected)


# Files that hold buffers: those that logits come of are proved as weights are

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
BETA = "model.layers.1.mlp.act_fn.beta"


def made(folder: Path, kind: str, *, seed: int = 0, **config: Any) -> Path:
    torch.manual_seed(seed)
    classes: Any = AutoModelForMaskedLM if kind == "esm" else AutoModelForCausalLM
    classes.from_config(AutoConfig.for_model(kind, **SIZES, **config)).save_pretrained(folder)
    return folder


def apertus(folder: Path, *, seed: int, beta: float) -> Path:
    """Its activation keeps two constants as buffers, and files hold them."""
    ropes = {"rope_type": "default", "rope_theta": 1e4}
    made(folder, "apertus", seed=seed, num_key_value_heads=1, rope_parameters=ropes)
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    tensors[BETA] = torch.full_like(tensors[BETA], beta)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def row(backend: TransformersBackend, query: Query) -> torch.Tensor:
    return torch.from_numpy(scored(backend, [query])[0][0])


def plain(classes: Any, folder: Path, query: Query) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = classes.from_pretrained(folder)(torch.tensor([query.ids])).logits
    return logits[0, query.position]


def test_a_buffer_that_a_file_holds_is_swapped_and_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query((7, 8, 9), 2)
    first = apertus(tmp_path / "step1", seed=1, beta=0.5)
    second = apertus(tmp_path / "step2", seed=1, beta=0.9)
    backend = TransformersBackend(first, EngineSettings("transformers", max_length=16))
    rows = []
    for folder in (first, second, first):
        backend.load(folder, checkpoint=folder.name)
        rows.append(row(backend, query))
        expected = plain(AutoModelForCausalLM, folder, query)
        torch.testing.assert_close(rows[-1], expected, rtol=0, atol=1e-5)
    assert (rows[0] - rows[1]).abs().max() > 1e-3, "the buffer alone differs"

    def parameters_alone(source: torch.nn.Module, target: torch.nn.Module) -> None:
        for name, parameter in target.named_parameters():
            parameter.data.copy_(source.get_parameter(name))

    monkeypatch.setattr("logitbank.engine.backends.hf.backend.copy_weights", parameters_alone)
    with pytest.raises(WeightsError, match=r"^step2: .* are not those of the file .*Bank.deposit"):
        backend.load(second, checkpoint="step2")


def test_rotary_frequencies_of_esm_are_left_to_the_model(tmp_path: Path) -> None:
    ids = {"pad_token_id": 1, "mask_token_id": MASK_ID}
    folder = made(tmp_path / "step1", "esm", position_embedding_type="rotary", **ids)
    query = Query((7, 8, MASK_ID, 9), 2, head="mask")
    settings = EngineSettings("transformers", task="masked", max_length=16)
    backend = TransformersBackend(folder, settings)
    backend.load(folder, checkpoint="esm")
    expected = plain(AutoModelForMaskedLM, folder, query)
    torch.testing.assert_close(row(backend, query), expected, rtol=0, atol=1e-5)
