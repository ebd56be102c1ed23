"""Checkpoints with the shapes of known models and random weights, on a real tokenizer."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

DATA = Path(os.environ.get("LOGITBANK_DATA", "../shared/data"))
TOKENIZER = DATA / "tokenizers" / "pythia" / "20B_tokenizer.json"


def public_data() -> Path:
    """The folder of prompt sets and tokenizers, or an error that names it."""
    for path in (DATA / "winobias", TOKENIZER):
        if not path.exists():
            sys.exit(f"{path.resolve()} is not there; set LOGITBANK_DATA to the folder of the data")
    return DATA


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a GPT-NeoX model with Pythia's 50,304 outputs."""

    width: int
    layers: int
    heads: int


SHAPES = {
    "70m": Shape(512, 6, 8),
    "160m": Shape(768, 12, 12),
    "1b": Shape(2048, 16, 8),
    "6.9b": Shape(4096, 32, 32),
    "toy": Shape(128, 2, 4),
    "tiny": Shape(8, 1, 1),
    "least": Shape(32, 1, 1),
}


def series(folder: Path, shape: str, checkpoints: int) -> Path:
    """A folder of `checkpoints` random models `step0`, `step1`, …, made once."""
    whole = folder / f"{shape}-{checkpoints}"
    if whole.exists():
        return whole
    from logitbank.engine.demo.train import no_progress_bars

    part = folder / f".{whole.name}"
    shutil.rmtree(part, ignore_errors=True)
    with no_progress_bars():
        for step in range(checkpoints):
            _save(part / f"step{step}", SHAPES[shape], seed=step)
    part.rename(whole)
    return whole


def _save(folder: Path, shape: Shape, *, seed: int) -> None:
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    config = GPTNeoXConfig(
        vocab_size=50_304,
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
    large = shape.width > 1024
    with torch.device("cuda" if large and torch.cuda.is_available() else "cpu"):
        model = GPTNeoXForCausalLM(config)
    (model.half().cpu() if large else model).save_pretrained(folder)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # of 27 GB for 6.9b, which a worker would miss
    public_data()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    tokenizer.save_pretrained(folder)
