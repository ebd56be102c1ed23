import json
from pathlib import Path

import pytest

from logitbank.engine.weights.config import Attention, ModelConfig
from logitbank.errors import SuiteError

NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 640,
    "max_position_embeddings": 256,
}


def read(folder: Path, **config: object) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(config))
    return ModelConfig.read(folder)


def test_sizes_are_found_under_every_architectures_names(tmp_path: Path) -> None:
    shape, sizes = ("gpt_neox", 64, 2, 4, 640), Attention(2, 4, 16)
    neox = ModelConfig(640, 256, shape, "gpt_neox", attention=sizes)
    assert read(tmp_path, **NEOX) == neox
    grouped = read(tmp_path, **NEOX, num_key_value_heads=1, head_dim=32, sliding_window=8)
    assert grouped.attention == Attention(2, 1, 32, has_window=True)
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 640}
    assert read(tmp_path, **gpt2, n_positions=128, n_ctx=100) == ModelConfig(
        640, 100, ("gpt2", 64, 2, 4, 640), "gpt2", attention=sizes
    )
    assert read(tmp_path, vocab_size=5) == ModelConfig(5, None, (None, None, None, None, 5))


def test_a_difference_names_the_field_and_both_values(tmp_path: Path) -> None:
    first = read(tmp_path, **NEOX)
    assert read(tmp_path, **NEOX, torch_dtype="float16").difference(first) == ""
    other = read(tmp_path, **(NEOX | {"vocab_size": 704, "hidden_size": 128}))
    assert other.difference(first) == (
        "hidden_size is 128, the first checkpoint's 64, "
        "vocab_size is 704, the first checkpoint's 640"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[1]", "has vocab_size None; a positive number is needed"),
        ('{"vocab_size": 0}', "has vocab_size 0"),
        ('{"vocab_size": "640"}', "has vocab_size '640'"),
    ],
)
def test_an_empty_config_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SuiteError, match=message):
        ModelConfig.read(tmp_path)


def test_a_folder_without_config_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="has no config.json, so it is not a checkpoint"):
        ModelConfig.read(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("BertForMaskedLM", "masked"),
        ("BertForPreTraining", "masked"),
        ("GPTNeoXForCausalLM", "causal"),
        ("GPT2LMHeadModel", "causal"),
        ("XLMWithLMHeadModel", None),
        ("BertModel", None),
    ],
)
def test_the_task_is_that_of_the_architecture(
    tmp_path: Path, architecture: str, task: str | None
) -> None:
    assert read(tmp_path, **NEOX, architectures=[architecture]).task == task


def test_positions_that_start_after_the_padding_are_fewer(tmp_path: Path) -> None:
    sizes = {"vocab_size": 640, "max_position_embeddings": 514, "pad_token_id": 1}
    assert read(tmp_path, **sizes, model_type="roberta").max_length == 512
    assert read(tmp_path, **sizes, model_type="bert").max_length == 514
