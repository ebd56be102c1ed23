"""Tiny checkpoints of real architectures, made with seeded random weights.

Weights are drawn wide (0.5 instead of 0.02), so that distributions are peaked and a stale tensor
moves logits by whole units.
"""

import json
from pathlib import Path
from typing import Literal

Architecture = Literal[
    *("gpt_neox", "gpt_neox_tied", "gpt2", "llama_tied"),
    *("olmo", "olmo2", "qwen2", "qwen3", "mistral", "gemma2", "bloom", "mamba"),
    *("cohere", "granite", "gpt_neo"),
    *("bert", "bert_pretraining", "roberta", "xmod", "distilbert", "mobilebert"),
]
ARCHITECTURES: tuple[Architecture, ...] = ("gpt_neox", "gpt_neox_tied", "gpt2", "llama_tied")
MASKED_ARCHITECTURES: tuple[Architecture, ...] = (
    *("bert", "bert_pretraining", "roberta", "xmod", "distilbert", "mobilebert"),
)
PACKED_ARCHITECTURES: tuple[Architecture, ...] = (
    *ARCHITECTURES,
    *("olmo", "olmo2", "qwen2", "qwen3", "mistral", "gemma2"),
)
"""Those whose contexts the transformers engine packs."""
VOCAB = 640
LONGEST = 256
"""Tokens of the longest context of a causal one."""
AFTER_HEAD = {
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 2.0},
}
"""What these architectures do to their logits, set so that it shows."""
MASK_ID = 4
LANGUAGES = ("de_CH", "fr_CH")
"""Adapters of the X-MOD checkpoints."""
_TEXT = (
    "the a nurse doctor clerk mechanic he she him her said thanked because was tired busy and "
    "argued with helped male female not specified Question What is gender of Options Answer"
)
WORDS = _TEXT.split()


def make_checkpoint(
    folder: Path, *, seed: int, architecture: Architecture = "gpt_neox", vocab: int = VOCAB
) -> Path:
    """Save one random checkpoint with a tokenizer in the Hugging Face layout."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForPreTraining
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    masked = architecture in MASKED_ARCHITECTURES
    kind = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    if architecture == "bert_pretraining":
        kind = AutoModelForPreTraining
    model = kind.from_config(_config(architecture, vocab))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.5 if "embed" in name or "wte" in name else 0.12)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    if masked:
        write_masked_tokenizer(folder)
    else:
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


def write_masked_tokenizer(folder: Path) -> None:
    """A WordPiece tokenizer as BERT's, in which each of WORDS is one token."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert special.index("[MASK]") == MASK_ID
    letters = [*"abcdefghijklmnopqrstuvwxyz.,?'"]
    pieces = [*special, *letters, *(f"##{x}" for x in letters), *map(str.lower, WORDS)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )


def _config(architecture: Architecture, vocab: int) -> object:
    from transformers import AutoConfig, GPT2Config, GPTNeoConfig, GPTNeoXConfig, LlamaConfig

    if architecture in MASKED_ARCHITECTURES:
        return _masked_config(architecture, vocab)
    if architecture.startswith("gpt_neox"):
        return GPTNeoXConfig(
            vocab_size=vocab,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            max_position_embeddings=LONGEST,
            tie_word_embeddings=architecture.endswith("tied"),
        )
    if architecture == "gpt2":
        return GPT2Config(vocab_size=vocab, n_positions=LONGEST, n_embd=64, n_layer=2, n_head=2)
    if architecture == "gpt_neo":  # its windows count places of a row, not positions
        return GPTNeoConfig(
            vocab_size=vocab,
            hidden_size=64,
            num_layers=2,
            num_heads=2,
            attention_types=[[["global", "local"], 1]],
            window_size=LONGEST,
            max_position_embeddings=2 * LONGEST,
        )
    if architecture in ("bloom", "mamba"):
        heads = {"n_head": 2} if architecture == "bloom" else {}
        return AutoConfig.for_model(
            architecture, vocab_size=vocab, hidden_size=64, num_hidden_layers=2, **heads
        )
    if architecture in (*PACKED_ARCHITECTURES, *AFTER_HEAD) and architecture != "llama_tied":
        return AutoConfig.for_model(
            architecture,
            **AFTER_HEAD.get(architecture, {}),
            vocab_size=vocab,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=128,
            max_position_embeddings=LONGEST,
        )
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=128,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
    )


def _masked_config(architecture: Architecture, vocab: int) -> object:
    from transformers import (
        BertConfig,
        DistilBertConfig,
        MobileBertConfig,
        RobertaConfig,
        XmodConfig,
    )

    if architecture == "distilbert":
        return DistilBertConfig(
            vocab_size=vocab, dim=64, n_layers=2, n_heads=2, hidden_dim=128, pad_token_id=0
        )
    sizes = {
        "vocab_size": vocab,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 128,
    }
    if architecture == "mobilebert":  # padding changes its logits
        small = {"embedding_size": 32, "intra_bottleneck_size": 32, "num_feedforward_networks": 1}
        return MobileBertConfig(**sizes, **small)
    if architecture.startswith("bert"):
        return BertConfig(**sizes, tie_word_embeddings=architecture == "bert")
    offset = sizes | {"max_position_embeddings": 130, "type_vocab_size": 1, "pad_token_id": 1}
    if architecture == "roberta":
        return RobertaConfig(**offset)
    return XmodConfig(**offset, languages=list(LANGUAGES), adapter_reduction_factor=2)
