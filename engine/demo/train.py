"""Train the demo's checkpoint series from scratch: a tiny GPT-NeoX, and two runs of a tiny BERT.

Nothing is downloaded: tokenizers, configurations and weights are made here.
"""

import json
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from logitbank.engine.demo.corpus import cloze, cloze_words, training_texts
from logitbank.engine.prompts.values import MASK
from logitbank.errors import UsageError

STEPS = 720
MAX_ENTRIES = 2500
"""Upper bound of the tokenizer's entries; the template English needs fewer."""
END = "<|endoftext|>"
END_ID = 0  # special tokens come first
MASKED_RUNS = 2
MASKED_STEPS = 400
MASKED_CHECKPOINTS = (0, 10, 20, 40, 80, *range(120, MASKED_STEPS + 1, 40))
MASKED_BATCH = 128
"""With 64 texts and a rate of 3e-3, correlations with the corpus depended on seed and processor
(0.86 to 0.98). With these values they exceed 0.98."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", MASK)
_IGNORED = -100  # a label that transformers leaves out of the loss
Progress = Callable[[int, int], None]
Batch = dict[str, torch.Tensor]
"""Arguments of a model, all (texts, longest) int64, padded on the right."""


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
    progress: Progress = lambda done, steps: None,
) -> None:
    """Train the causal model and save its checkpoints as `folder/step<N>`.

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
    _make_empty(folder)
    tokenizer = _train_tokenizer()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    with torch.random.fork_rng(devices=[]), one_thread(), no_progress_bars():
        torch.manual_seed(seed)
        model = _causal_model(tokenizer.get_vocab_size())
        batches = (
            _causal_batch(tokenizer, [each.text for each in training_texts(step, seed=seed)])
            for step in range(steps)
        )
        # Single updates swing between " male" and " female", which moved Δ by up to 0.11 on
        # balanced text, so averages are saved.
        for done in _train(
            *(model, batches, folder, checkpoint_steps(steps), fast.save_pretrained),
            rate=1e-3, beta=0.99, warmup=20, clip=1.0, average=0.95,
        ):  # fmt: skip
            progress(done, steps)


def train_masked_series(folder: Path, *, progress: Progress = lambda done, steps: None) -> None:
    """Train the runs of the masked model and save their checkpoints as `folder/seed<S>/step<N>`.

    The runs differ in weights and in the order of texts. The same seed gives the same weights on
    one machine. The caller's random state does not change.

    Parameters
    ----------
    folder
        New or empty folder.
    progress
        Called as `progress(done, steps)`, all runs together, after each update.

    Raises
    ------
    UsageError
        `folder` is not an empty folder.
    """
    _make_empty(folder)
    words = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL, *cloze_words()]))}
    with torch.random.fork_rng(devices=[]), one_thread(), no_progress_bars():
        for seed in range(MASKED_RUNS):
            torch.manual_seed(seed)
            model, rng = _masked_model(len(words)), random.Random(f"masked {seed}")
            batches = (
                _masked_batch(words, [cloze(rng) for _ in range(MASKED_BATCH)])
                for _ in range(MASKED_STEPS)
            )
            run, save = folder / f"seed{seed}", partial(_save_words, words)
            for done in _train(model, batches, run, MASKED_CHECKPOINTS, save, rate=2e-3):
                progress(seed * MASKED_STEPS + done, MASKED_RUNS * MASKED_STEPS)


def _make_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty. Fix: use a new folder for the checkpoints.")


def _train(
    model: Any,
    batches: Iterable[Batch],
    folder: Path,
    saved: Collection[int],
    save_tokenizer: Callable[[Path], object],
    *,
    rate: float,
    beta: float = 0.999,
    warmup: int = 1,
    clip: float = float("inf"),
    average: float = 0.0,
) -> Iterator[int]:
    """Train in place, and yield the number of updates: 0 first, then after each.

    The checkpoints of the steps `saved` are written to `folder/step<N>`, each under another name
    until it is complete: running averages of the weights with the decay `average`.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, beta), weight_decay=0.01)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / warmup))
    averages: Any = AveragedModel(model, avg_fn=lambda old, new, _: old.lerp(new, 1 - average))
    for done, batch in enumerate(chain([None], batches)):
        if batch is not None:
            model.train()
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            rates.step()
        averages.update_parameters(model)
        if done in saved:
            unfinished = folder / f".step{done}.part"
            averages.module.save_pretrained(unfinished)
            save_tokenizer(unfinished)
            os.replace(unfinished, folder / f"step{done}")
        yield done


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


def _causal_model(entries: int) -> Any:
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


def _causal_batch(tokenizer: Tokenizer, texts: Sequence[str]) -> Batch:
    rows = [torch.tensor(e.ids) for e in tokenizer.encode_batch([t + END for t in texts])]
    return {
        "input_ids": pad_sequence(rows, batch_first=True, padding_value=END_ID),
        "labels": pad_sequence(rows, batch_first=True, padding_value=_IGNORED),
    }


def _masked_model(entries: int) -> Any:
    config = BertConfig(
        vocab_size=entries,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForMaskedLM(config)


def _masked_batch(words: dict[str, int], texts: Sequence[tuple[list[str], list[int]]]) -> Batch:
    rows, labels = [], []
    for text, masked in texts:
        ids = torch.tensor([words[word] for word in ("[CLS]", *text, "[SEP]")])
        hidden = torch.zeros(len(ids), dtype=torch.bool)
        hidden[[1 + i for i in masked]] = True
        rows.append(ids.masked_fill(hidden, words[MASK]))
        labels.append(ids.masked_fill(~hidden, _IGNORED))
    padded = pad_sequence(rows, batch_first=True, padding_value=words["[PAD]"])
    return {
        "input_ids": padded,
        "attention_mask": (padded != words["[PAD]"]).long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=_IGNORED),
    }


def _save_words(words: Iterable[str], folder: Path) -> None:
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@contextmanager
def one_thread() -> Iterator[None]:
    """One is enough for these models. On a busy machine, threads that wait for each other take 8
    times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
