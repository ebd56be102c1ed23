"""A filter as a value and as a file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from logitbank.errors import UsageError
from logitbank.store.filters import FORMAT, Filter


def drawn(k: int, mode: str = "truncate", seed: int = 0) -> Filter:
    random = np.random.default_rng(seed)
    return Filter(random.normal(size=(k, k)), random.normal(size=k), mode)  # type: ignore[arg-type]


def test_shares_are_those_of_a_linear_layer_and_a_softmax() -> None:
    by, logits = drawn(5), np.random.default_rng(1).normal(size=(7, 5)) * 9
    layer = torch.nn.Linear(5, 5, dtype=torch.float64)
    layer.weight.data, layer.bias.data = torch.tensor(by.weight), torch.tensor(by.bias)
    want = torch.log_softmax(layer(torch.tensor(logits)), dim=1).detach().numpy()
    np.testing.assert_allclose(by.log_shares(logits.T).T, want, atol=1e-12)


def test_all_weights_one_answer_alike_whatever_the_logits_are() -> None:
    by = Filter.ones(8)
    logits = np.random.default_rng(2).normal(size=(50, 8)) * 5
    shares = np.exp(by.log_shares(logits.T).T)
    want = np.exp(by.bias) / np.exp(by.bias).sum()
    np.testing.assert_allclose(shares, np.tile(want, (50, 1)), rtol=1e-9)
    assert np.abs(by.bias).max() <= 8**-0.5
    assert Filter.ones(8).digest == by.digest != Filter.ones(8, seed=1).digest


def test_identity_shares_as_the_logits_do() -> None:
    logits = np.array([[2.0, 1.0, 0.0]])
    want = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(np.exp(Filter.identity(3).log_shares(logits.T).T), want)


def test_a_saved_filter_reads_back_to_the_same(tmp_path: Path) -> None:
    by = Filter(*(lambda f: (f.weight, f.bias))(drawn(8)), "keep_tail", {"model": "m", "k": 8})
    by.save(tmp_path / "deep" / "f.safetensors")
    by.save(tmp_path / "f.safetensors")
    found = Filter.load(tmp_path / "deep" / "f.safetensors")
    assert found.weight.tobytes() == by.weight.tobytes()
    assert found.bias.tobytes() == by.bias.tobytes()
    assert (found.mode, found.about, found.digest) == (
        "keep_tail",
        {"model": "m", "k": 8},
        by.digest,
    )
    with pytest.raises(UsageError, match=r"f\.safetensors is there already; choose another name"):
        by.save(tmp_path / "f.safetensors")


@pytest.mark.parametrize(
    ("weight", "bias", "mode", "message"),
    [
        (
            np.ones((2, 3)),
            np.ones(2),
            "truncate",
            r"weights \(k, k\).*these are \(2, 3\) and \(2,\)",
        ),
        (np.ones((0, 0)), np.ones(0), "truncate", r"k from 1 to 4096"),
        (np.full((1, 1), np.nan), np.ones(1), "truncate", "a weight of the filter is not finite"),
        (np.ones((1, 1)), np.ones(1), "half", "filter mode 'half' is unknown; use truncate or"),
    ],
)
def test_what_is_no_filter_is_refused(
    weight: np.ndarray, bias: np.ndarray, mode: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Filter(weight, bias, mode)  # type: ignore[arg-type]


def test_files_of_others_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(UsageError, match=r"there is no filter at .*x\.safetensors; make one with"):
        Filter.load(path)
    tensors = {"weight": np.ones((2, 2)), "bias": np.ones(2)}
    good = {"format": FORMAT, "mode": "truncate", "about": "{}"}
    for metadata, message in (
        ({}, "its format is None, not 'logitbank-filter-1'"),
        (good | {"mode": "half"}, "filter mode 'half' is unknown"),
        (good | {"about": "[]"}, "what it says about itself is no object"),
        (good | {"about": "{"}, "Expecting property name"),
    ):
        save_file(tensors, path, metadata=metadata)
        with pytest.raises(
            UsageError, match=rf"x\.safetensors is no filter of logitbank.*{message}"
        ):
            Filter.load(path)
    save_file({"weight": np.ones((2, 2))}, path, metadata=good)
    with pytest.raises(UsageError, match=r"is no filter of logitbank.*bias"):
        Filter.load(path)
    save_file({**tensors, "bias": np.ones(3)}, path, metadata=good)
    with pytest.raises(UsageError, match=r"is no filter of logitbank.*these are"):
        Filter.load(path)
    path.write_bytes(json.dumps({"a": 1}).encode() * 100)
    with pytest.raises(UsageError, match=r"x\.safetensors is no filter of logitbank"):
        Filter.load(path)
