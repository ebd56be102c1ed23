"""What the installed code would not compute as its authors do is refused, by name, in the plan."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.protocol import EngineName, EngineSettings, EngineStart
from logitbank.engine.extract import extract
from logitbank.engine.plan.engine_choice import fitting_engine, fitting_task
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig, length_limits
from logitbank.engine.weights.supported import check_fields, unread_fields
from logitbank.errors import LogitbankError, PromptError, SuiteError, UsageError, WeightsError
from tests.support.checkpoints import (
    WORDS,
    make_checkpoint,
    write_masked_tokenizer,
    write_tokenizer,
)

RELEASED = json.loads((Path(__file__).parents[1] / "data" / "released_configs.json").read_text())
"""Fields of released configs, by model; sizes are not theirs."""
MALE = (Option("male", " male"),)
CAUSAL = PromptSet("mine", (Prompt("a", " the nurse said", MALE),))
MASKED = PromptSet("mine", (Prompt("a", "[MASK] was tired", (Option("he", "he"),)),))


def refused(folder: Path, prompts: PromptSet, **options: Any) -> str:
    """What a plan says of a suite; nothing is run."""
    with pytest.raises(LogitbankError) as error:
        extract(folder / "b.zarr", suites=str(folder), prompts=prompts, dry_run=True, **options)
    return str(error.value)


def tensors_changed(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def config_changed(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))


# Fields of a config


@pytest.mark.parametrize("model", RELEASED)
def test_no_field_of_a_released_config_is_refused(model: str) -> None:
    assert unread_fields(RELEASED[model]) == []


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        ("bert", "position_embedding_type", "relative_key"),
        ("roberta", "position_embedding_type", "relative_key_query"),
        ("gpt2", "use_relu_squared", True),
        ("smollm2", "residual_scale", 0.5),
        ("pythia", "alibi_slopes", [0.5, 0.25]),
    ],
)
def test_a_field_that_changes_the_model_and_is_not_read_is_refused(
    tmp_path: Path, model: str, field: str, value: object
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(RELEASED[model] | {field: value}))
    with pytest.raises(SuiteError, match=f"has {field} = .* does not read for models of type"):
        check_fields(tmp_path)
    code = RELEASED[model] | {field: value, "auto_map": {"AutoModel": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(code))
    check_fields(tmp_path, trust_remote_code=True)


def test_a_field_is_read_by_the_types_whose_code_has_it() -> None:
    esm = {"model_type": "esm", "position_embedding_type": "rotary_of_another_kind"}
    assert unread_fields(esm) == []
    assert unread_fields({"model_type": "nobody-knows-this", "field": 5}) == []


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_relative_positions_are_refused_without_advice_that_gives_wrong_numbers(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "logitbank.engine.plan.engine_choice.choose_engine", lambda *_, **__: engine
    )
    config_changed(
        make_checkpoint(tmp_path / "step0", seed=1, architecture="bert"),
        position_embedding_type="relative_key",
    )
    message = refused(tmp_path, MASKED, engine=engine)
    assert "position_embedding_type" in message
    assert "--engine" not in message


# Tensors


def test_tensors_that_the_model_does_not_use_are_refused(tmp_path: Path) -> None:
    """Of relative positions, where the config no longer says so; and of a causal model."""
    from logitbank.engine.backends.hf.model import read_model

    bert = make_checkpoint(tmp_path / "bert", seed=1, architecture="bert")
    distances = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
    tensors_changed(bert, lambda held: held | {distances: torch.randn(255, 32)})
    with pytest.raises(WeightsError, match=f"1 tensors that BertForMaskedLM does not.*{distances}"):
        read_model(bert, EngineSettings("transformers", task="masked"), torch.float32)
    gpt2 = make_checkpoint(tmp_path / "gpt2", seed=1, architecture="gpt2")
    tensors_changed(gpt2, lambda held: held | {"transformer.gate.weight": torch.randn(8)})
    with pytest.raises(WeightsError, match=r"GPT2LMHeadModel does not use.*gate\.weight"):
        read_model(gpt2, EngineSettings("transformers"), torch.float32)


def test_buffers_and_other_heads_are_no_tensors_of_another_model(tmp_path: Path) -> None:
    from logitbank.engine.backends.hf.model import read_model

    bert = make_checkpoint(tmp_path / "bert", seed=1, architecture="bert_pretraining")
    ids = {"bert.embeddings.position_ids": torch.arange(128)[None]}
    tensors_changed(bert, lambda held: held | ids)
    assert "cls.seq_relationship.weight" in load_file(bert / "model.safetensors")
    read_model(bert, EngineSettings("transformers", task="masked"), torch.float32)
    gpt2 = make_checkpoint(tmp_path / "gpt2", seed=1, architecture="gpt2")
    masks = {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}
    tensors_changed(gpt2, lambda held: held | masks)
    read_model(gpt2, EngineSettings("transformers"), torch.float32)


@pytest.mark.parametrize(("architecture", "prompts"), [("bert", MASKED), ("gpt2", CAUSAL)])
def test_a_wrapper_s_prefix_is_named(tmp_path: Path, architecture: Any, prompts: PromptSet) -> None:
    from logitbank.engine.backends.hf.model import read_model

    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    tensors_changed(folder, lambda held: {f"module.{name}": held[name] for name in held})
    assert "tensor names begin with 'module.'" in refused(tmp_path, prompts)
    task: Any = "masked" if architecture == "bert" else "causal"
    with pytest.raises(WeightsError, match="tensor names begin with 'module.'"):  # a later one
        read_model(folder, EngineSettings("transformers", task=task), torch.float32)


# Architectures


def test_an_architecture_that_is_not_causal_is_named_in_the_plan(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=640,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        is_decoder=True,
    )
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path / "step0")
    write_tokenizer(tmp_path / "step0")
    assert refused(tmp_path, CAUSAL).startswith("BertLMHeadModel is not supported")


def test_a_multimodal_config_is_refused_by_name(tmp_path: Path) -> None:
    from transformers import Gemma3Config

    Gemma3Config(architectures=["Gemma3ForConditionalGeneration"]).save_pretrained(tmp_path)
    with pytest.raises(SuiteError, match=r"multimodal model \(Gemma3ForConditionalGeneration\)"):
        ModelConfig.read(tmp_path)


# Engines


def fitted(folder: Path, *texts: str, auto: bool = True) -> tuple[EngineName, tuple[str, ...]]:
    prompts = PromptSet("mine", tuple(Prompt(text, text, MALE) for text in texts))
    tokenized = [tokenize(prompts, Tokenizer.load(folder))]
    config = ModelConfig.read(folder)
    task = fitting_task(tokenized, config)
    return fitting_engine(EngineStart("vllm"), task, tokenized, config, auto=auto)


def test_auto_takes_the_engine_that_has_the_model_s_switch(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="gpt2")
    assert fitted(folder, " the nurse")[0] == "vllm"
    config_changed(folder, scale_attn_by_inverse_layer_idx=True)
    engine, notes = fitted(folder, " the nurse")
    assert engine == "transformers"
    assert "does not support scale_attn_by_inverse_layer_idx" in notes[0]
    with pytest.raises(UsageError, match="scale_attn_by_inverse_layer_idx.*--engine transformers"):
        fitted(folder, " the nurse", auto=False)


def test_prompts_above_the_switch_of_longrope_are_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    scaling = {"rope_type": "longrope", "original_max_position_embeddings": 8} | factors
    config_changed(folder, rope_parameters=scaling)
    assert length_limits(json.loads((folder / "config.json").read_text())) == (8,)
    short, long = ("".join(f" {word}" for word in WORDS[:count]) for count in (7, 8))
    fitted(folder, short)
    with pytest.raises(PromptError, match="8 tokens"):
        fitted(folder, short, long)


def test_masked_prompts_still_fit_a_masked_model(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="distilbert")
    write_masked_tokenizer(folder)
    tokenized = [tokenize(MASKED, Tokenizer.load(folder))]
    config = ModelConfig.read(folder)
    assert fitting_task(tokenized, config) == "masked"
    engine, notes = fitting_engine(EngineStart("vllm"), "masked", tokenized, config, auto=True)
    assert engine == "transformers"
    assert "vLLM runs no masked models" in notes[0]
