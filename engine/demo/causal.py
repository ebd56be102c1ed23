"""Train the demo's checkpoint series: a tiny GPT-NeoX, from scratch, on generated text.

Nothing is downloaded: tokenizer, configuration and weights are made here.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.optim.swa_utils import AveragedModel
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from logitbank.engine.demo.corpus import training_texts
from logitbank.errors import UsageError

STEPS = 720
MAX_ENTRIES = 2500
"""Upper bound of the tokenizer's entries; the template English needs fewer."""
END = "<|endoftext|>"
END_ID = 0  # special tokens come first
LEARNING_RATE = 1e-3
WARMUP_STEPS = 20
AVERAGE_DECAY = 0.95
"""Saved weights are running averages: single updates swing between " male" and " female", which
moved Δ by up to 0.11 on balanced text."""
_IGNORED = -100  # a label that transformers leaves out of the loss


def checkpoint_steps(steps: int = STEPS) -> tuple[int, ...]:
    """Steps that are saved: 0, the powers of 2 to 128, every 40th from 160, and the last.

    >>> checkpoint_steps(200)
    (0, 1, 2, 4, 8, 16, 32, 64, 128, 160, 200)
    """
    planned = {0, *(2**k for k in range(8)), *range(160, steps + 1, 40), steps}
    return tuple(sorted(step for step in planned if step <= steps))


def train_series(
    folder: Path,
    *,
    seed: int = 0,
    steps: int = STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train the demo model and save its checkpoints as `folder/step<N>`.

    The taught answers change after `SWITCH_STEP` updates of the corpus. A checkpoint appears under
    its name only when it is complete. The same seed gives the same weights on one machine. The
    caller's random state does not change.

    Parameters
    ----------
    folder
        New or empty folder.
    seed
        Seeds the weights and the training text; the tokenizer is the same for all seeds.
    steps
        Updates to make, 16 texts each.
    progress
        Called as `progress(done, steps)` before the first and after each update.

    Raises
    ------
    UsageError
        `steps` is negative, or `folder` is not an empty folder.
    """
    if steps < 0:
        raise UsageError(f"steps is {steps}: use 0 or more training steps.")
    make_empty(folder)
    tokenizer = _train_tokenizer()
    saved = checkpoint_steps(steps)
    with torch.random.fork_rng(devices=[]), no_progress_bars():
        torch.manual_seed(seed)
        model = _new_model(tokenizer.get_vocab_size())
        average = AveragedModel(model, avg_fn=lambda old, new, _: old.lerp(new, 1 - AVERAGE_DECAY))
        for done in _updates(model, tokenizer, seed=seed, steps=steps):
            average.update_parameters(model)
            if done in saved:
                _save(average.module, tokenizer, folder / f"step{done}")
            if progress is not None:
                progress(done, steps)


def make_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Fix: use a new folder for the checkpoints.")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty. Fix: use a new folder for the checkpoints.")


def _train_tokenizer() -> Tokenizer:
    """Byte-level BPE of the texts of seed 0, so that all seeds share their queries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MAX_ENTRIES,
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (example.text for step in range(80) for example in training_texts(step))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _new_model(entries: int) -> Any:
    """Random weights; the outputs are padded to a multiple of 128, as Pythia's are."""
    config = GPTNeoXConfig(
        vocab_size=-(-(entries + 1) // 128) * 128,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
        use_parallel_residual=True,
        tie_word_embeddings=False,
        initializer_range=0.01,  # 0.02 leaves a Δ of up to 0.1 in untrained weights
        bos_token_id=END_ID,
        eos_token_id=END_ID,
        use_cache=False,
    )
    return GPTNeoXForCausalLM(config)


def _updates(model: Any, tokenizer: Tokenizer, *, seed: int, steps: int) -> Iterator[int]:
    """Train in place, and yield the number of updates: 0 first, then after each."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.01
    )
    warmup = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARMUP_STEPS)
    )
    yield 0
    for step in range(steps):
        ids, labels = _batch(tokenizer, [e.text for e in training_texts(step, seed=seed)])
        model.train()
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        yield step + 1


def _batch(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels, both (texts, longest), int64, padded on the right: no text sees padding."""
    rows = [torch.tensor(e.ids) for e in tokenizer.encode_batch([t + END for t in texts])]
    pad = torch.nn.utils.rnn.pad_sequence
    return (
        pad(rows, batch_first=True, padding_value=END_ID),
        pad(rows, batch_first=True, padding_value=_IGNORED),
    )


def _save(model: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Write to another name, then rename."""
    unfinished = folder.with_name(f".{folder.name}.part")
    model.save_pretrained(unfinished)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    fast.save_pretrained(unfinished)
    os.replace(unfinished, folder)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
