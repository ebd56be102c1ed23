"""Adapted weights by hand, and what is refused of an adapter, before any engine has it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.variants.checkpoint import checkpoint_weights
from logitbank.errors import LogitbankError
from tests.support.adapters import write_adapter

A = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])
B = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
# B·A = [[1, 2, 0], [0, 1, -1]]
W = torch.tensor([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return base_of(tmp_path / "tiny", W)


def base_of(folder: Path, weight: torch.Tensor, **config: Any) -> Path:
    folder.mkdir()
    fields = {"model_type": "llama", "vocab_size": 4, "tie_word_embeddings": False} | config
    (folder / "config.json").write_text(json.dumps(fields))
    tensors = {
        "model.q_proj.weight": weight,
        "model.norm.weight": torch.ones(3),
        "model.embed_tokens.weight": torch.ones(4, 3),
        "lm_head.weight": torch.ones(4, 3),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


def q_proj(a: torch.Tensor = A, b: torch.Tensor = B) -> dict[str, torch.Tensor]:
    return {"model.q_proj.lora_A.weight": a, "model.q_proj.lora_B.weight": b}


def streamed(folder: Path, base: Path, *, legacy: bool = False) -> dict[str, torch.Tensor]:
    weights = checkpoint_weights(folder, base=base, legacy_weights=legacy)
    tensors = dict(weights.stream())
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == weights.shapes()
    return tensors


def expect(tensor: torch.Tensor, values: list[list[float]]) -> None:
    torch.testing.assert_close(tensor, torch.tensor(values), rtol=0, atol=0)


def test_alpha_over_r_times_b_a_is_added(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)  # 6 / 2 = 3
    tensors = streamed(adapter, base)
    expect(tensors["model.q_proj.weight"], [[13.0, 26.0, 30.0], [40.0, 53.0, 57.0]])
    expect(tensors["lm_head.weight"], [[1.0] * 3] * 4)


def test_rank_stabilised_is_divided_by_the_root_of_the_rank(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(
        tmp_path / "a", q_proj(), base=base, lora_alpha=2**0.5, use_rslora=True
    )  # √2 / √2 = 1
    found = streamed(adapter, base)["model.q_proj.weight"]
    expect(found, [[11.0, 22.0, 30.0], [40.0, 51.0, 59.0]])


def test_patterns_give_a_module_its_own_rank_and_alpha(base: Path, tmp_path: Path) -> None:
    patterns = {"r": 8, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"model.q_proj": 4}}
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base, **patterns)  # 4 / 2 = 2
    found = streamed(adapter, base)["model.q_proj.weight"]
    expect(found, [[12.0, 24.0, 30.0], [40.0, 52.0, 58.0]])


def test_a_base_of_in_by_out_gets_the_product_transposed(tmp_path: Path) -> None:
    base = base_of(tmp_path / "gpt2", W.T.contiguous(), model_type="gpt2")
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base, fan_in_fan_out=True)
    found = streamed(adapter, base)["model.q_proj.weight"]
    expect(found, [[13.0, 40.0], [26.0, 53.0], [30.0, 57.0]])


def test_a_module_that_was_trained_whole_takes_the_bases_place(base: Path, tmp_path: Path) -> None:
    head = torch.full((4, 3), 7.0)
    tensors = q_proj() | {"lm_head.weight": head, "model.norm.weight": torch.zeros(3)}
    adapter = write_adapter(tmp_path / "a", tensors, base=base, modules_to_save=["lm_head", "norm"])
    found = streamed(adapter, base)
    expect(found["lm_head.weight"], [[7.0] * 3] * 4)
    assert found["model.norm.weight"].tolist() == [0.0] * 3


def test_names_may_lack_the_models_first_part(base: Path, tmp_path: Path) -> None:
    short = {name.removeprefix("model."): tensor for name, tensor in q_proj().items()}
    adapter = write_adapter(tmp_path / "a", short, base=base)
    assert streamed(adapter, base)["model.q_proj.weight"][0, 0] == 13


def test_low_precision_is_merged_in_float32(tmp_path: Path) -> None:
    base = base_of(tmp_path / "tiny", torch.full((2, 3), 256.0, dtype=torch.bfloat16))
    a, b = torch.full((2, 3), 0.25), torch.full((2, 2), 0.25)
    adapter = write_adapter(tmp_path / "a", q_proj(a, b), base=base, lora_alpha=2)
    # 256 + 0.125: bfloat16 would have 256 again
    found = streamed(adapter, base)["model.q_proj.weight"]
    assert found.dtype == torch.float32
    expect(found, [[256.125] * 3] * 2)


def test_only_some_tensors_are_read_and_provenance_names_both(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)
    weights = checkpoint_weights(adapter, base=base, legacy_weights=False)
    assert weights.changed == {"model.q_proj.weight"}
    assert [name for name, _ in weights.stream(only=weights.changed)] == ["model.q_proj.weight"]
    whole, own = ContentDigest(), ContentDigest()
    for name, tensor in checkpoint_weights(base, base=None, legacy_weights=False).stream():
        whole.update(name, tensor)
    for name, tensor in q_proj().items():
        own.update(f"base_model.model.{name}", tensor)
    assert weights.describe() == {
        "adapter": {
            "type": "LoRA",
            "weights": own.hexdigest(),
            "base_weights": whole.hexdigest(),
            "r": 2,
            "alpha": 6.0,
            "tensors": 1,
        }
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"use_dora": True}, "use_dora 'True', which is not supported: merge the adapter"),
        ({"bias": "lora_only"}, "bias 'lora_only', which is not supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa', which is not supported"),
        ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens '\\[5\\]', which is not"),
        ({"of_tomorrow": 3}, "of_tomorrow '3', which is not supported"),
        ({"peft_type": "IA3"}, "peft_type 'IA3'; only LORA is supported: merge the adapter"),
        ({"r": 0}, "r '0'; a positive number is needed"),
        ({"lora_alpha": "much"}, "lora_alpha 'much'; a number is needed"),
        ({"lora_alpha": float("nan")}, "lora_alpha 'nan'; a number is needed"),
        ({"rank_pattern": {"(a+)+$": 3}}, "rank_pattern '\\(a\\+\\)\\+\\$'; only plain names"),
        ({"alpha_pattern": [1]}, "alpha_pattern '\\[1\\]'; an object is needed"),
        ({"modules_to_save": "lm_head"}, "modules_to_save 'lm_head'; names are needed"),
        ({"use_rslora": "yes"}, "use_rslora 'yes'; true or false is needed"),
        ({"r": 3}, "not of the rank 3 that its config says"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out true, and its base of type 'llama' holds"),
    ],
)
def test_what_would_change_the_numbers_is_refused_by_its_name(
    fields: dict[str, Any], message: str, base: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base, **fields)
    with pytest.raises(LogitbankError, match=message):
        checkpoint_weights(adapter, base=base, legacy_weights=False)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"model.q_proj.lora_A.weight": A}, "without its lora_B; save it again"),
        ({"model.q_proj.lora_B.weight": B}, "without its lora_A; save it again"),
        (q_proj(a=A[:, :2]), r"is \[2, 2\], the base's weight \[2, 3\]; give the base"),
        (q_proj(a=A[0]), "not of the rank 2"),
        ({"model.k_proj.lora_A.weight": A, "model.k_proj.lora_B.weight": B}, "no tensor of the"),
        (q_proj() | {"model.norm.weight": torch.ones(3)}, "no name in modules_to_save ends so"),
        (
            {"model.embed_tokens.lora_embedding_A": A, "model.embed_tokens.lora_embedding_B": B},
            "is neither lora_A nor lora_B",
        ),
        ({"model.q_proj.lora_magnitude_vector.weight.x y": A}, "is of a kind that is not"),
        ({}, "holds no tensor of an adapter"),
        (q_proj(A.to(torch.int64)), "is of torch.int64; floating-point numbers are needed"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tensors: dict[str, torch.Tensor], message: str, base: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "a", tensors, base=base)
    with pytest.raises(LogitbankError, match=message):
        streamed(adapter, base)


def test_a_whole_module_of_another_shape_is_refused(base: Path, tmp_path: Path) -> None:
    tensors = {"lm_head.weight": torch.ones(5, 3)}
    adapter = write_adapter(tmp_path / "a", tensors, base=base, modules_to_save=["lm_head"])
    with pytest.raises(LogitbankError, match=r"has shape \[5, 3\], the base's \[4, 3\]"):
        streamed(adapter, base)


def test_one_of_two_tied_tensors_is_refused(tmp_path: Path) -> None:
    base = base_of(tmp_path / "tied", W, tie_word_embeddings=True)
    tensors = {"lm_head.weight": torch.ones(4, 3)}
    adapter = write_adapter(tmp_path / "a", tensors, base=base, modules_to_save=["lm_head"])
    with pytest.raises(LogitbankError, match="ties to another tensor"):
        streamed(adapter, base)


def test_legacy_adapters_are_read_without_running_code_if_asked(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(LogitbankError, match=r"holds no adapter_model\.safetensors"):
        streamed(adapter, base)
    named = {f"base_model.model.{name}": tensor for name, tensor in q_proj().items()}
    torch.save(named, adapter / "adapter_model.bin")
    with pytest.raises(LogitbankError, match="add --legacy-weights"):
        streamed(adapter, base)
    assert streamed(adapter, base, legacy=True)["model.q_proj.weight"][0, 0] == 13
    torch.save({"x": Path("/")}, adapter / "adapter_model.bin")
    with pytest.raises(LogitbankError, match="nothing in it ran"):
        streamed(adapter, base, legacy=True)


def test_damaged_adapters_are_named(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(LogitbankError, match="truncated or damaged"):
        streamed(adapter, base)
    (adapter / "adapter_config.json").write_text("[1")
    with pytest.raises(LogitbankError, match="cannot be read as JSON"):
        streamed(adapter, base)
    (adapter / "adapter_config.json").write_text("[1]")
    with pytest.raises(LogitbankError, match="is no JSON object"):
        streamed(adapter, base)


def test_a_folder_with_a_model_and_an_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(base / name, adapter / name)
    with pytest.raises(LogitbankError, match="it is not said which is meant"):
        streamed(adapter, base)


def test_an_adapter_without_a_base_is_refused(base: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", q_proj(), base=base)
    with pytest.raises(LogitbankError, match="is an adapter; give the folder of its base"):
        checkpoint_weights(adapter, base=None, legacy_weights=False)
