"""A filter as a value and as a file."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from logitbank.errors import UsageError
from logitbank.store.filter.filters import FORMAT, Filter

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.numerical


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
    with pytest.raises(UsageError, match=r"f\.safetensors exists already"):
        by.save(tmp_path / "f.safetensors")


@pytest.mark.parametrize(
    ("weight", "bias", "mode"),
    [
        (np.ones((2, 3)), np.ones(2), "truncate"),
        (np.ones((0, 0)), np.ones(0), "truncate"),
        (np.full((1, 1), np.nan), np.ones(1), "truncate"),
        (np.full((1, 1), 1e308), np.ones(1), "truncate"),
        (np.ones((1, 1)), np.array(1.0), "truncate"),
        (np.ones((1, 1)), np.ones(1), "half"),
    ],
)
def test_invalid_filters_are_refused(weight: np.ndarray, bias: np.ndarray, mode: str) -> None:
    with pytest.raises(UsageError, match="ilter"):
        Filter(weight, bias, mode)  # type: ignore[arg-type]


def test_files_of_others_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(UsageError, match=r"There is no filter at .*x\.safetensors"):
        Filter.load(path)
    tensors = {"weight": np.ones((2, 2)), "bias": np.ones(2)}
    good = {"format": FORMAT, "mode": "truncate", "about": "{}"}
    save_file({"weight": np.ones((2, 2))}, path, metadata=good)
    with pytest.raises(UsageError, match=r"is not a filter of logitbank.*bias"):
        Filter.load(path)
    save_file({**tensors, "bias": np.ones(3)}, path, metadata=good)
    with pytest.raises(UsageError, match=r"is not a filter of logitbank.*Got shapes"):
        Filter.load(path)
    path.write_bytes(json.dumps({"a": 1}).encode() * 100)
    with pytest.raises(UsageError, match=r"x\.safetensors is not a filter of logitbank"):
        Filter.load(path)


def written(path: Path, metadata: object, **tensors: object) -> Path:
    """A file whose header is what is given, with 16 bytes of zeros behind it."""
    entries = {"weight": tensor("F64", [1, 1], 0, 8), "bias": tensor("F64", [1], 8, 16)} | tensors
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    return path


def tensor(dtype: str, shape: list[int], first: int, last: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


GOOD = {"format": FORMAT, "mode": "truncate", "about": "{}"}


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, 7, [], [GOOD], "text", {}, {"format": 1}, {"format": [FORMAT]}),
        *(GOOD | {"mode": value} for value in ("half\nline", "x" * 10**6, 3, None)),
        *(GOOD | {"about": value} for value in (None, 7, {}, [], "", "no JSON", "null", "3")),
        GOOD | {"about": "[" * 10**5},
        GOOD | {"about": "{" + '"a":{' * 10**5},
        GOOD | {"about": "1" * 10**4},
        GOOD | {"about": '{"model": ["m"]}'},
        GOOD | {"about": '{"model": " "}'},
        GOOD | {"about": '{"model": "\\ud800"}'},
        GOOD | {"about": '{"tokenizer": {"a": 1}}'},
        GOOD | {"about": '{"seed": -1}'},
        GOOD | {"about": '{"seed": 1e400}'},
        GOOD | {"about": f'{{"seed": {10**30}}}'},
        GOOD | {"about": f'{{"a": {"1" * 10**4}}}'},
        {**GOOD, "about": "{}", "more": {"a": [1]}},
    ],
)
def test_metadata_of_any_shape_are_read_or_refused_in_a_line(
    tmp_path: Path, metadata: object
) -> None:
    path = written(tmp_path / "x.safetensors", metadata)
    with pytest.raises(UsageError, match=r"x\.safetensors is not a filter of logitbank") as refused:
        Filter.load(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "entries",
    [
        {"weight": tensor("I64", [1, 1], 0, 8)},
        {"weight": tensor("F64", [2**31, 2**31], 0, 8)},
        {"weight": tensor("F64", [1, 1], 0, 2**62)},
        {"weight": tensor("F64", [1, 1], 8, 0)},
        {"weight": tensor("F64", [1], 0, 8)},
        {"bias": tensor("F64", [], 8, 16)},
        {"bias": tensor("F64", [0], 8, 8)},
        {"bias": 3},
        {"weight": None},
    ],
)
def test_tensors_of_any_shape_are_refused_in_a_line(
    tmp_path: Path, entries: dict[str, object]
) -> None:
    path = written(tmp_path / "x.safetensors", GOOD, **entries)
    with pytest.raises(UsageError, match=r"x\.safetensors is not a filter of logitbank") as refused:
        Filter.load(path)
    assert "\n" not in str(refused.value)


def test_a_header_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for data in (b"", b"\0" * 8, (2**63).to_bytes(8, "little") + b"{}", b"\xff" * 100):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"x\.safetensors is not a filter"):
            Filter.load(path)
