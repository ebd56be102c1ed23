"""A folder that fills with checkpoints as a training's does, for engines that read no weights."""

import json
from pathlib import Path

from safetensors.numpy import save_file

from tests.support.checkpoints import VOCAB, write_tokenizer


def save_checkpoint(folder: Path, step: int, *, max_steps: int = 0, **config: object) -> Path:
    """`folder/checkpoint-{step}` as `Trainer` leaves it; without `max_steps`, not to its end."""
    path = folder / f"checkpoint-{step}"
    write_tokenizer(path)
    sizes = {"model_type": "gpt_neox", "vocab_size": VOCAB, "max_position_embeddings": 64}
    (path / "config.json").write_text(json.dumps(sizes | config))
    save_file({}, path / "model.safetensors")
    (path / "optimizer.pt").touch()
    if max_steps:
        write_state(path, step, max_steps)
    return path


def write_state(path: Path, step: int, max_steps: int) -> None:
    """What `Trainer` notes with a checkpoint, last of all."""
    state = {"global_step": step, "max_steps": max_steps}
    (path / "trainer_state.json").write_text(json.dumps(state))
