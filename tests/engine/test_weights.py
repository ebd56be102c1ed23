import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.weights import check_plain, stream_weights, weight_files
from logitbank.errors import WeightsError

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "c": torch.tensor(7),
}


def digest(tensors: dict[str, torch.Tensor]) -> str:
    content = ContentDigest()
    for name, tensor in tensors.items():
        content.update(name, tensor)
    return content.hexdigest()


def write_shards(folder: Path) -> None:
    parts = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    save_file({"b": TENSORS["b"]}, folder / parts[0])
    save_file({"a": TENSORS["a"], "c": TENSORS["c"]}, folder / parts[1])
    mapping = {"a": parts[1], "b": parts[0], "c": parts[1]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": mapping}))


def test_tensors_come_back_as_they_were_saved(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    read = dict(stream_weights(tmp_path))
    assert sorted(read) == ["a", "b", "c"]
    assert read["b"].dtype == torch.bfloat16
    assert torch.equal(read["a"], TENSORS["a"])


def test_shards_hold_the_same_weights_as_one_file(tmp_path):
    write_shards(tmp_path)
    assert [path.name[:11] for path in weight_files(tmp_path)] == ["model-00001", "model-00002"]
    assert digest(dict(stream_weights(tmp_path))) == digest(TENSORS)


def test_single_file_wins_over_shards_of_the_same_weights(tmp_path):
    write_shards(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]


def test_safetensors_win_over_legacy_weights(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    torch.save(TENSORS, tmp_path / "pytorch_model.bin")
    files = weight_files(tmp_path)
    assert [path.name for path in files] == ["model.safetensors"]


def test_content_digest_is_this_number():
    # sha256 of: [["x", sha256("float32 [1]\n" + 00 00 80 3f)]]
    assert digest({"x": torch.tensor([1.0])}) == (
        "8af342214f785492baf9c44d09ab8fa30739feadea45ba5b9b50a49cb09413bb"
    )


def test_content_digest_ignores_order_and_memory_layout():
    strided = torch.arange(6, dtype=torch.float32).reshape(3, 2).t().contiguous().t()
    assert not strided.is_contiguous()
    plain = torch.arange(6, dtype=torch.float32).reshape(3, 2)
    one = torch.ones(1)
    assert digest({"x": strided, "y": one}) == digest({"y": one, "x": plain})


@pytest.mark.parametrize(
    "other",
    [
        {"y": torch.tensor([[1.0, 2.0]])},
        {"x": torch.tensor([1.0, 2.0])},
        {"x": torch.tensor([[1.0, 2.0]], dtype=torch.float64)},
        {"x": torch.tensor([[1.0, 2.0]]).view(torch.int32)},
        {"x": torch.tensor([[1.0, 2.0000002]])},
        {},
    ],
)
def test_content_digest_sees_name_shape_dtype_and_bytes(other):
    assert digest(other) != digest({"x": torch.tensor([[1.0, 2.0]])})


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(0, 3), torch.tensor(True), torch.zeros(2, dtype=torch.float8_e4m3fn)],
)
def test_content_digest_takes_unusual_tensors(tensor):
    assert len(digest({"x": tensor})) == 64


def test_content_digest_refuses_a_name_twice():
    content = ContentDigest()
    content.update("x", torch.ones(1))
    with pytest.raises(WeightsError, match="tensor 'x' occurs twice; a checkpoint contains each"):
        content.update("x", torch.ones(1))


def test_a_folder_without_weights_lists_the_expected_files(tmp_path):
    message = (
        r"contains no weights: looked for model\.safetensors, \*\.safetensors and pytorch_model"
    )
    with pytest.raises(WeightsError, match=message):
        weight_files(tmp_path)
    with pytest.raises(WeightsError, match=message):
        weight_files(tmp_path / "absent")


def test_truncated_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(WeightsError, match=r"model\.safetensors is truncated or damaged \(\d+ by"):
        list(stream_weights(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"version https://git-lfs"])
def test_file_that_is_no_safetensors_is_named(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.safetensors is truncated or damaged"):
        list(stream_weights(tmp_path))


def test_missing_shard_is_named(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    message = r"has no weight file model-00002-of-00002\.safetensors \(1 of 2 are missing\)"
    with pytest.raises(WeightsError, match=message):
        weight_files(tmp_path)


def test_missing_shard_is_named_without_an_index_too(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(WeightsError, match=r"has no weight file model-00001-of-00002"):
        weight_files(tmp_path)


def test_tensor_in_two_files_is_named(tmp_path):
    save_file({"x": torch.ones(1)}, tmp_path / "one.safetensors")
    save_file({"x": torch.ones(1)}, tmp_path / "two.safetensors")
    with pytest.raises(WeightsError, match=r"tensor 'x' is in .*one\.safetensors and in .*two\."):
        list(stream_weights(tmp_path))


def test_tensor_that_only_the_index_knows_is_named(tmp_path):
    write_shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["d"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=r"lists tensor 'd', which no shard contains \(1 such\)"):
        list(stream_weights(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a weight index"),
        ("[]", "is not a weight index"),
        ('{"weight_map": {}}', "lists no tensor; fetch"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', r"names the file '\.\./secret\.safe"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "which is not a weight file in its own folder"),
    ],
)
def test_bad_index_is_named(tmp_path, content, message):
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(WeightsError, match=message):
        weight_files(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_legacy_weights_hold_the_same_content(tmp_path, zipped):
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=zipped)
    assert digest(dict(stream_weights(tmp_path))) == digest(TENSORS)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("how", ["zip", "old", "plain"])
def test_malicious_pickle_is_refused_and_does_not_run(tmp_path, how):
    path, trace = tmp_path / "pytorch_model.bin", tmp_path / "trace"
    if how == "plain":
        path.write_bytes(pickle.dumps({"x": Malicious(trace)}, protocol=2))
    else:
        torch.save({"x": Malicious(trace)}, path, _use_new_zipfile_serialization=how == "zip")
    with pytest.raises(WeightsError, match=r"needs more than tensors to load, so it was not load"):
        list(stream_weights(tmp_path))
    assert not trace.exists()


def test_legacy_tensor_larger_than_its_file_is_refused(tmp_path):
    huge = torch.zeros(1).expand(10**9)
    torch.save({"x": huge}, tmp_path / "pytorch_model.bin")
    message = r"claims a tensor 'x' of shape \[1000000000\], larger than the file"
    with pytest.raises(WeightsError, match=message):
        list(stream_weights(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "contains a list, not tensors by name"),
        ({"x": 3}, "contains 'x' of type int, not a tensor"),
    ],
)
def test_legacy_file_without_tensors_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=message):
        list(stream_weights(tmp_path))


def test_truncated_legacy_file_is_named(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin"):
        list(stream_weights(tmp_path))


@pytest.mark.parametrize("field", ["quantization_config", "compression_config"])
def test_quantised_weights_are_refused_by_the_name_of_their_method(
    tmp_path: Path, field: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama"}))
    check_plain(tmp_path)
    config.write_text(json.dumps({"model_type": "llama", field: {"quant_method": "gptq"}}))
    with pytest.raises(WeightsError, match=r"quantised weights \(gptq\).*before it was quantised"):
        check_plain(tmp_path)
    config.unlink()
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(WeightsError, match="is an adapter"):
        check_plain(tmp_path)
