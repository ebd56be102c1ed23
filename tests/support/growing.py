"""Checkpoints as a training saves them, for engines that read no weights."""

import json
from pathlib import Path

from safetensors.numpy import save_file

from tests.support.checkpoints import VOCAB, write_tokenizer


def save_checkpoint(folder: Path, step: int) -> Path:
    """`folder/checkpoint-{step}`, whole."""
    path = folder / f"checkpoint-{step}"
    write_tokenizer(path)
    sizes = {"model_type": "gpt_neox", "vocab_size": VOCAB, "max_position_embeddings": 64}
    (path / "config.json").write_text(json.dumps(sizes))
    save_file({}, path / "model.safetensors")
    return path
