"""What a checkpoint's files show is found for every step before an engine starts, by its reason."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.extract import extract
from logitbank.engine.plan.engine_choice import fitting_engine
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.supported import check_architecture, check_fields, unread_fields
from logitbank.engine.weights.weights import TensorHeader, check_tensors
from logitbank.errors import SuiteError, UsageError, WeightsError
from tests.support.checkpoints import make_checkpoint, make_series

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "ab" * 32 + "\nsize 123\n"
PROMPTS = PromptSet("mine", (Prompt("a", " the nurse said", (Option("he", " he"),)),))


def planned(folder: Path) -> dict[int | None, str]:
    """The messages of a dry run about single steps."""
    summary = extract(folder / "b.zarr", suites=str(folder), prompts=PROMPTS, dry_run=True,
                      engine="transformers")  # fmt: skip
    return {failure.checkpoint.step: failure.message for failure in summary.failed}


def changed(folder: Path, **tensors: torch.Tensor) -> None:
    file = folder / "model.safetensors"
    save_file(load_file(file) | tensors, file, metadata={"format": "pt"})


@pytest.mark.usefixtures("quick_workers")
def test_each_step_s_files_are_looked_at_in_the_plan(tmp_path: Path) -> None:
    steps = (0, 1, 2, 3, 4)
    series = make_series(tmp_path, steps=steps)
    names = {step: series / f"step{step}" for step in steps}
    (names[1] / "model.safetensors").write_text(POINTER)
    (names[2] / "tokenizer.json").write_text(POINTER)
    first = next(iter(load_file(names[3] / "model.safetensors")))
    changed(names[3], **{first: torch.zeros(0)})
    held = load_file(names[4] / "model.safetensors")
    name = "gpt_neox.layers.0.attention.dense.weight"
    changed(names[4], **{name: held[name].to(torch.int8)})
    messages = planned(series)
    assert list(messages) == [1, 2, 3, 4]
    assert "model.safetensors is a Git LFS pointer" in messages[1]
    assert "Run git lfs pull" in messages[1]
    assert "tokenizer.json is a Git LFS pointer" in messages[2]
    assert "ZeRO-3" in messages[3]
    assert first in messages[3]
    assert f"such as {name} (I8)" in messages[4]


@pytest.mark.usefixtures("quick_workers")
def test_a_legacy_file_may_be_a_pointer(tmp_path: Path) -> None:
    series = make_series(tmp_path, steps=(0, 1))
    (series / "step1" / "model.safetensors").unlink()
    (series / "step1" / "pytorch_model.bin").write_text(POINTER)
    assert "pytorch_model.bin is a Git LFS pointer" in planned(series)[1]


@pytest.mark.parametrize(
    ("name", "dtype", "quantised"),
    [
        ("model.layers.0.mlp.up_proj.weight", "I8", True),
        ("model.layers.0.mlp.up_proj.weight", "F8_E4M3", True),
        ("model.layers.0.mlp.up_proj.qweight", "I32", True),
        ("model.layers.0.mlp.up_proj.weight_scale", "F32", True),
        ("model.layers.0.mlp.up_proj.weight.absmax", "F32", True),
        ("model.layers.0.mlp.up_proj.weight", "BF16", False),
        ("bert.embeddings.position_ids", "I64", False),
        ("transformer.h.0.attn.bias", "BOOL", False),
    ],
)
def test_quantised_tensors_are_known_by_name_and_dtype(
    name: str, dtype: str, quantised: bool
) -> None:
    headers = {name: TensorHeader((4, 4), dtype)}
    if not quantised:
        check_tensors(Path("step0"), headers)
        return
    with pytest.raises(WeightsError, match="quantised weights, which are not supported"):
        check_tensors(Path("step0"), headers)


def write_config(folder: Path, **fields: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 640} | fields))
    return folder


@pytest.mark.parametrize("model_type", ["bart", "t5", "mbart", "pegasus", "m2m_100"])
def test_an_encoder_and_a_decoder_are_refused_by_the_config(
    tmp_path: Path, model_type: str
) -> None:
    """Whether the config says so or leaves it to transformers."""
    named = write_config(tmp_path / "a", model_type=model_type, is_encoder_decoder=True)
    with pytest.raises(SuiteError, match="encoder–decoder model"):
        ModelConfig.read(named)
    unnamed = write_config(tmp_path / "b", model_type=model_type)
    with pytest.raises(SuiteError, match="encoder–decoder model"):
        check_fields(unnamed)


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "gpt_neox", "roberta", "llama"])
def test_other_models_are_no_encoder_and_decoder(tmp_path: Path, model_type: str) -> None:
    folder = write_config(tmp_path, model_type=model_type, is_encoder_decoder=False)
    ModelConfig.read(folder)
    check_fields(write_config(tmp_path, model_type=model_type))


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_deberta_s_published_head_is_not_read(tmp_path: Path, model_type: str) -> None:
    write_config(tmp_path, model_type=model_type)
    tensors = {
        "deberta.embeddings.word_embeddings.weight": torch.zeros(640, 8),
        "lm_predictions.lm_head.dense.weight": torch.zeros(8, 8),
        "lm_predictions.lm_head.bias": torch.zeros(640),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"lm_predictions\.lm_head\.\*, which transformers"):
        check_architecture(tmp_path, ModelConfig.read(tmp_path), "masked")
    write_config(tmp_path, model_type=model_type, legacy=False)
    check_architecture(tmp_path, ModelConfig.read(tmp_path), "masked")


def test_a_head_of_another_library_is_named(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, seed=1, architecture="gpt_neox")
    held = load_file(folder / "model.safetensors")
    held["unembedding.weight"] = held.pop("embed_out.weight")
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"output layer under the name unembedding\.\*"):
        check_architecture(folder, ModelConfig.read(folder), "causal")


@pytest.mark.parametrize(
    "architecture",
    [
        *("gpt_neox", "gpt2", "llama_tied", "bloom", "mamba"),
        *("bert", "roberta", "xmod", "distilbert", "mobilebert"),
    ],
)
def test_ordinary_checkpoints_pass(tmp_path: Path, architecture: str) -> None:
    folder = make_checkpoint(tmp_path, seed=1, architecture=architecture)  # type: ignore[arg-type]
    config = ModelConfig.read(folder)
    task = config.task
    assert task is not None
    check_architecture(folder, config, task)


@pytest.mark.parametrize("model_type", ["openai-gpt", "ctrl", "prophetnet"])
def test_models_that_no_engine_takes_are_refused_by_name(tmp_path: Path, model_type: str) -> None:
    folder = write_config(tmp_path, model_type=model_type, architectures=["OwnLMHeadModel"])
    with pytest.raises(SuiteError, match=f"OwnLMHeadModel is not supported: .*'{model_type}'"):
        check_architecture(folder, ModelConfig.read(folder), "causal")


def test_vllm_is_not_chosen_for_a_head_with_a_bias_that_it_cannot_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = {"GPTNeoXForCausalLM": "transformers", "GPT2LMHeadModel": "gpt2"}
    monkeypatch.setattr("logitbank.engine.backends.vllm.refusals.known_classes", lambda: classes)
    folder = make_checkpoint(tmp_path, seed=1)
    tokenized = [tokenize(PROMPTS, Tokenizer.load(folder))]
    case = (EngineStart("vllm"), "causal", tokenized, ModelConfig.read(folder))
    assert fitting_engine(*case, auto=True)[0] == "vllm"
    engine, notes = fitting_engine(*case, head_bias=True, auto=True)
    assert engine == "transformers"
    assert "the bias of the LM head of 'gpt_neox' models" in notes[0]
    with pytest.raises(UsageError, match="bias of the LM head.*--engine transformers"):
        fitting_engine(*case, head_bias=True, auto=False)


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("xglm", {"badwordsids": [[3]], "newlinemode": "s"}),
        ("xlm", {"max_vocab": -1, "same_enc_dec": True, "share_inout_emb": True}),
        ("flaubert", {"lg_sampling_factor": -1, "mlm_steps": [["fr", None]], "word_pred": 0.15}),
        ("gpt2", {"no_repeat_ngram_size": 3, "early_stopping": True, "min_length": 5}),
    ],
)
def test_fields_of_training_and_generation_are_harmless(
    model_type: str, fields: dict[str, object]
) -> None:
    assert unread_fields({"model_type": model_type} | fields) == []
