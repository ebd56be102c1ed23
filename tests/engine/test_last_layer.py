"""The last layer of packed contexts runs where its outputs are read, and the trial refuses it
elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.hf import last_layer
from logitbank.engine.backends.hf.packs import packed_positions
from tests.support.checkpoints import PACKED_ARCHITECTURES, Architecture, make_checkpoint
from tests.support.engine_driver import reference
from tests.support.packed_driver import loaded, scored, tree


@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_the_mlp_of_the_last_layer_runs_where_it_is_read(
    architecture: Architecture, tmp_path: Path
) -> None:
    backend, note = loaded(make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture))
    assert note == ""
    model: Any = backend._model
    mlps = [module for name, module in model.named_modules() if name.endswith(".mlp")]
    rows: list[list[int]] = [[] for _ in mlps]

    def counted(module: int) -> Any:
        return lambda _, inputs: rows[module].append(inputs[0].shape[:-1].numel())

    with backend._unwatched():
        for i, mlp in enumerate(mlps):
            inner = next(each for each in mlp.modules() if [*each.parameters(recurse=False)])
            inner.register_forward_pre_hook(counted(i))
        _, run = scored(backend, tree())
    first, last = map(sum, rows)
    assert run == packed_positions(leaf_contexts(tree()), most=4096) <= first
    assert last == len(tree()) < first / 10


def test_a_layer_that_others_read_is_refused_by_the_trial_of_packing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_the_first(model: Any) -> list[torch.nn.Module]:
        return [model.model.layers[0].mlp]

    monkeypatch.setattr(last_layer, "last_parts", of_the_first)
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="llama_tied")
    backend, note = loaded(folder)
    assert "packing them is refused: logits differ" in note
    [expected] = reference([folder], tree())
    np.testing.assert_allclose(scored(backend, tree())[0], expected, atol=1e-4)


def test_layouts_that_no_test_has_packed_run_whole(tmp_path: Path) -> None:
    backend, _ = loaded(make_checkpoint(tmp_path / "step0", seed=1, architecture="cohere"))
    assert last_layer.last_parts(backend._model) == []
