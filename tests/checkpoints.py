"""Tiny checkpoints of real architectures, made with seeded random weights.

Weights are drawn wide (0.5 instead of 0.02), so that distributions are peaked and a stale tensor
moves logits by whole units.
"""

import json
from pathlib import Path
from typing import Literal

Architecture = Literal["gpt_neox", "gpt_neox_tied", "gpt2", "llama_tied"]
ARCHITECTURES: tuple[Architecture, ...] = ("gpt_neox", "gpt_neox_tied", "gpt2", "llama_tied")
VOCAB = 640
WORDS = [
    "the",
    "a",
    "nurse",
    "doctor",
    "clerk",
    "mechanic",
    "he",
    "she",
    "him",
    "her",
    "said",
    "thanked",
    "because",
    "was",
    "tired",
    "busy",
    "and",
    "argued",
    "with",
    "helped",
    "male",
    "female",
    "not",
    "specified",
    "Question",
    "What",
    "is",
    "gender",
    "of",
    "Options",
    "Answer",
]


def make_checkpoint(
    folder: Path, *, seed: int, architecture: Architecture = "gpt_neox", vocab: int = VOCAB
) -> Path:
    """Save one random checkpoint with a tokenizer in the Hugging Face layout."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(_config(architecture, vocab))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.5 if "embed" in name or "wte" in name else 0.12)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def make_series(
    folder: Path, *, steps: tuple[int, ...], architecture: Architecture = "gpt_neox"
) -> Path:
    """`folder/step{N}` for every step, each with its own weights."""
    for step in steps:
        make_checkpoint(folder / f"step{step}", seed=step + 1, architecture=architecture)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A real byte-level BPE tokenizer in which each of WORDS is one token after a space."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" " + " ".join(WORDS)] * 50, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    )


def _config(architecture: Architecture, vocab: int) -> object:
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig

    if architecture.startswith("gpt_neox"):
        return GPTNeoXConfig(
            vocab_size=vocab,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            max_position_embeddings=256,
            tie_word_embeddings=architecture.endswith("tied"),
        )
    if architecture == "gpt2":
        return GPT2Config(vocab_size=vocab, n_positions=256, n_embd=64, n_layer=2, n_head=2)
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=128,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
