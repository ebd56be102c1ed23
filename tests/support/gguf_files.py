"""A checkpoint as a file of llama.cpp."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file


def write_gguf(
    folder: Path,
    plain: Path,
    *,
    architecture: str = "llama",
    packed: bool = True,
    tokenizer: str = "gpt-2",
    keys: Mapping[str, str | int | float] | None = None,
    left_out: str = "",
    more: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """A checkpoint as llama.cpp has it: its names, rows of q and k in its order, blocks of Q8_0.

    `packed` or in float32; with the tokenizer, told to split in that way; with these keys and
    tensors too, and without one.
    """
    gguf = pytest.importorskip("gguf")
    config = json.loads((plain / "config.json").read_text())
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), architecture)
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
    for name, value in (keys or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        add[bool] = writer.add_bool
        add[type(value)](name, value)
    if tokenizer:
        _add_tokenizer(writer, plain, tokenizer, config["vocab_size"])
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
        if name == left_out:
            continue
        if module in others:
            writer.add_tensor(f"{others[module]}.weight", values)
            continue
        layer, _, end = module.removeprefix("model.layers.").partition(".")
        if end in ("self_attn.q_proj", "self_attn.k_proj"):
            count = heads if "q" in end[-6:] else pairs
            halves = values.reshape(count, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        stored = f"blk.{layer}.{ends[end]}.weight"
        if values.ndim == 1 or not packed:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(values, eight), raw_dtype=eight)
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


def _add_tokenizer(writer: Any, plain: Path, split: str, vocab: int) -> None:
    made = json.loads((plain / "tokenizer.json").read_text())
    words = dict(made["model"]["vocab"]) | {t["content"]: t["id"] for t in made["added_tokens"]}
    special = {t["content"] for t in made["added_tokens"]}
    tokens = sorted(words, key=lambda word: words[word])
    tokens += [f"[PAD{number}]" for number in range(len(tokens), vocab)]
    merges = [each if isinstance(each, str) else " ".join(each) for each in made["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    unused = range(len(words), vocab)
    kinds = [5 if i in unused else 3 if t in special else 1 for i, t in enumerate(tokens)]
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(words["<|endoftext|>"])
