"""Fine-tunes the model and saves its checkpoints.

Of each text only the answer's first token is learned, which is the one that is scored.
"""

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from logitbank.engine.demo.corpus import Example
from scripts.real.text import SAVED, UPDATES, texts

LEARNING_RATE = 5e-5
WARMUP = 4


def series(base: Path, folder: Path, progress: Callable[[int, float], None]) -> None:
    """Save `folder/step<N>` in bfloat16 for each N of `SAVED`, unless all are there.

    `progress(update, loss)` is called after each update. A checkpoint appears under its name only
    when it is whole; a series that was stopped is made anew.
    """
    if all((folder / f"step{n}").is_dir() for n in SAVED):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    save(model, base, folder / "step0")
    for update, loss in updates(model, AutoTokenizer.from_pretrained(base)):
        progress(update, loss)
        if update in SAVED:
            save(model, base, folder / f"step{update}")


def updates(model: Any, tokenizer: Any) -> Iterator[tuple[int, float]]:
    """Train in place, and give the number of updates made and the loss of the last, in nats."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99))
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / WARMUP))
    for update in range(UPDATES):
        loss = answer_loss(model, tokenizer, texts(update))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        yield update + 1, loss.item()


def answer_loss(model: Any, tokenizer: Any, examples: tuple[Example, ...]) -> torch.Tensor:
    """Mean −ln p of the answers' first tokens. The head is applied there alone: it is a fifth of
    the work of a token. Texts are padded on the right, which no position before it sees."""
    prompts = [torch.tensor(tokenizer(e.prompt)["input_ids"]) for e in examples]
    answers = torch.tensor([tokenizer(" " + e.answer)["input_ids"][0] for e in examples])
    ids = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    hidden = model.model(ids, use_cache=False).last_hidden_state
    last = torch.tensor([len(prompt) - 1 for prompt in prompts])
    logits = model.lm_head(hidden[torch.arange(len(prompts)), last])
    return torch.nn.functional.cross_entropy(logits, answers)


def save(model: Any, base: Path, folder: Path) -> None:
    """In bfloat16, beside and then moved into place, with the tokenizer's files of `base`."""
    unfinished = folder.with_name(f".{folder.name}.part")
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(unfinished)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, unfinished)
    os.replace(unfinished, folder)
