import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.config import ModelConfig, check_sizes
from logitbank.errors import SuiteError, WeightsError
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded

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
    shape = ("gpt_neox", 64, 2, 4, 640)
    assert read(tmp_path, **NEOX) == ModelConfig(640, 256, shape, "gpt_neox")
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 640}
    assert read(tmp_path, **gpt2, n_positions=128, n_ctx=100) == ModelConfig(
        640, 100, ("gpt2", 64, 2, 4, 640), "gpt2"
    )
    assert read(tmp_path, vocab_size=5) == ModelConfig(5, None, (None, None, None, None, 5))


def test_a_difference_names_what_differs_and_both_values(tmp_path: Path) -> None:
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
def test_a_config_that_says_nothing_is_refused(tmp_path: Path, content: str, message: str) -> None:
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


# Sizes that are claimed, and refused before memory is asked for

LIMIT = 8 << 30


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-NeoX, as transformers saves it."""
    folder = tmp_path_factory.mktemp("models") / "neox"
    make_checkpoint(folder, seed=0)
    return folder


def claiming(sound: Path, folder: Path, **sizes: Any) -> Path:
    folder.mkdir()
    for file in sound.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((sound / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | sizes))
    return folder


def test_a_released_checkpoint_claims_what_it_holds(sound: Path) -> None:
    check_sizes(sound)
    ModelConfig.read(sound)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_hidden_layers": 9_999}, r"claims num_hidden_layers 9999, .* have \d+ tensors"),
        ({"hidden_size": 2**20}, r"claims hidden_size 1048576, .* as longest axis"),
        ({"vocab_size": 2**25}, "claims vocab_size 33554432"),
        ({"text_config": {"n_layer": 10**6}}, "claims n_layer 1000000"),
        ({"intermediate_size": [8, 2**40]}, "claims intermediate_size 1099511627776"),
        ({"hidden_size": float("nan")}, "claims hidden_size nan"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_by_every_engine(
    tmp_path: Path, sound: Path, sizes: dict[str, Any], message: str
) -> None:
    folder = claiming(sound, tmp_path / "m", **sizes)
    for engine in ("transformers", "vllm"):
        with pytest.raises(WeightsError, match=rf"config\.json {message}"):
            open_backend(folder, EngineSettings(engine=engine))  # type: ignore[arg-type]


def refused_within(limit: int, folder: Path) -> str:
    """The error of reading the model in this process, which may not use more memory than that."""
    from logitbank.engine.backends.hf.model import read_model

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with pytest.raises(WeightsError) as refused:
        read_model(folder, EngineSettings(engine="transformers"))
    return str(refused.value)


def test_reading_such_a_model_requests_no_memory(
    tmp_path: Path, sound: Path, preloaded: Preloaded
) -> None:
    """In a process that may take 8 GB: what the config claims would take 16 TB."""
    folder = claiming(sound, tmp_path / "m", hidden_size=2**20, intermediate_size=2**22)
    message = preloaded.run("transformers", tmp_path, f"{__name__}:refused_within", LIMIT, folder)
    assert "config.json claims hidden_size 1048576" in message


def test_weights_that_layers_share_are_not_refused(tmp_path: Path) -> None:
    """As ALBERT's: twelve layers, one group of tensors."""
    tensors = {f"shared.{name}": torch.zeros(8, 8) for name in range(12)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 12, "hidden_size": 8}))
    check_sizes(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 13, "hidden_size": 8}))
    with pytest.raises(WeightsError, match="claims num_hidden_layers 13, .* have 12 tensors"):
        check_sizes(tmp_path)
