"""Files in llama.cpp's format: refused, with what to do, and that done."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.weights import weight_files
from logitbank.errors import SuiteError, WeightsError
from logitbank.store.format.schema import Query
from tests.support.checkpoints import make_checkpoint
from tests.support.engine_driver import engine, reference


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("gguf") / "tiny", seed=3, architecture="mistral")


def write_gguf(folder: Path, plain: Path) -> Path:
    """A checkpoint as llama.cpp has it: its names, rows of q and k in its order, blocks of Q8_0."""
    gguf = pytest.importorskip("gguf")
    config = json.loads((plain / "config.json").read_text())
    folder.mkdir()
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "llama")
    heads, pairs = config["num_attention_heads"], config["num_key_value_heads"]
    for name, value in {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "head_count": heads,
        "head_count_kv": pairs,
        "rope_dimension_count": config["head_dim"],
        "key_length": config["head_dim"],
        "value_length": config["head_dim"],
        "layer_norm_rms_eps": config["rms_norm_eps"],
        "vocab_size": config["vocab_size"],
        "rope_freq_base": 10000.0,
    }.items():
        getattr(writer, f"add_{name}")(value)
    ends = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    others = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    eight = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in load_file(plain / "model.safetensors").items():
        module, values = name.removesuffix(".weight"), tensor.numpy()
        if module in others:
            writer.add_tensor(f"{others[module]}.weight", values)
            continue
        layer, _, end = module.removeprefix("model.layers.").partition(".")
        if end in ("self_attn.q_proj", "self_attn.k_proj"):
            count = heads if "q" in end[-6:] else pairs
            halves = values.reshape(count, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        stored = f"blk.{layer}.{ends[end]}.weight"
        if values.ndim == 1:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(values, eight), raw_dtype=eight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


def test_gguf_is_refused_with_what_to_do(tmp_path: Path, plain: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "model.gguf").write_bytes(b"GGUF")
    for spec in (folder, folder / "model.gguf"):
        with pytest.raises(
            SuiteError, match=r"model\.gguf is a GGUF file, which is not read; save"
        ):
            resolve_suite(str(spec))
    with pytest.raises(WeightsError, match=r"model\.gguf is a GGUF file, which is not read; save"):
        weight_files(folder)


@pytest.mark.filterwarnings("ignore")  # those of what transformers imports
def test_what_a_refused_gguf_is_told_to_do_works(tmp_path: Path, plain: Path) -> None:
    folder = write_gguf(tmp_path / "packed", plain)
    from transformers import AutoModelForCausalLM, GgufConfig

    whole, name = tmp_path / "whole", "model.gguf"
    AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(whole)
    original = load_file(plain / "model.safetensors")
    found = load_file(whole / "model.safetensors")
    assert found.keys() == original.keys()
    for name, tensor in found.items():
        step = original[name].abs().max() / 127  # of Q8_0: at most half a step of its block's
        assert float((tensor - original[name]).abs().max()) <= step / 2 * 1.01
    queries = [Query((5, 9, 100, 33, 7), 4), Query((8,), 0)]
    (rows,) = engine(EngineSettings("transformers", max_length=64), [whole], queries)
    np.testing.assert_allclose(rows, reference([whole], queries)[0], rtol=0, atol=1e-3)
