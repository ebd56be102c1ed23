"""Checkpoints swapped tensor by tensor: the logits of each by itself, and when a model is read."""

import json
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.hf import backend as hf
from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Query
from tests.support.checkpoints import MASKED_ARCHITECTURES, Architecture, make_series
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

    def watched(folder: Path, settings: EngineSettings) -> object:
        folders.append(folder)
        return whole(folder, settings)

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


def test_a_swap_does_not_mind_what_touches_no_logit(tmp_path: Path, read: list[Path]) -> None:
    suite = make_series(tmp_path, steps=(0, 1))
    first, second = suite / "step0", suite / "step1"
    config = json.loads((first / "config.json").read_text())
    (second / "config.json").write_text(json.dumps(config | {"transformers_version": "9"}))
    backend = TransformersBackend(first, SETTINGS)
    for folder in (first, second):
        backend.load(folder, checkpoint=folder.name)
    assert read == [first]


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
    with pytest.raises(WeightsError, match=rf"^second: .* lacks 1 parameters .* {name}"):
        backend.load(second, checkpoint="second")
    weights, expected = alone(third)
    assert backend.load(third, checkpoint="third").weights == weights
    np.testing.assert_array_equal(rows(backend), expected)
