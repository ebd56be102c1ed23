"""Checkpoints with the shapes of known models and random weights, on a real tokenizer."""

import json
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

DATA = Path(os.environ.get("LOGITBANK_DATA", "../shared/data"))


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a GPT-NeoX model with Pythia's 50,304 outputs, or of BERT with its 30,522."""

    width: int
    layers: int
    heads: int


SHAPES = {
    "14m": Shape(128, 6, 4),
    "70m": Shape(512, 6, 8),
    "160m": Shape(768, 12, 12),
    "410m": Shape(1024, 24, 16),
    "1b": Shape(2048, 16, 8),
    "toy": Shape(128, 2, 4),
    "tiny": Shape(8, 1, 1),
    "bert-base": Shape(768, 12, 12),
    "bert-toy": Shape(128, 2, 4),
}


def series(folder: Path, shape: str, checkpoints: int, *, vocab: int = 50_304) -> Path:
    """A folder of `checkpoints` random models `step0`, `step1`, …, made once.

    `vocab` is the number of outputs of a GPT-NeoX model.
    """
    whole = folder / (f"{shape}-{checkpoints}" + (f"-{vocab}" if vocab != 50_304 else ""))
    if whole.exists():
        return whole
    from logitbank.engine.demo.causal import no_progress_bars

    part = folder / f".{whole.name}"
    shutil.rmtree(part, ignore_errors=True)
    save = _save_bert if shape.startswith("bert") else partial(_save, vocab=vocab)
    with no_progress_bars():
        for step in range(checkpoints):
            save(part / f"step{step}", SHAPES[shape], seed=step)
    part.rename(whole)
    return whole


def _save(folder: Path, shape: Shape, *, seed: int, vocab: int) -> None:
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    config = GPTNeoXConfig(
        vocab_size=vocab,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        rotary_pct=0.25,
        max_position_embeddings=2048,
        use_parallel_residual=True,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(seed)
    model = GPTNeoXForCausalLM(config)
    (model.half() if shape.width > 1024 else model).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(DATA / "tokenizers" / "pythia" / "20B_tokenizer.json"),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    tokenizer.save_pretrained(folder)


def _save_bert(folder: Path, shape: Shape, *, seed: int) -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
    )
    torch.manual_seed(seed)
    BertForMaskedLM(config).save_pretrained(folder)
    shutil.copy(DATA / "tokenizers" / "bert-base-uncased" / "vocab.txt", folder)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
