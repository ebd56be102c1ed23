"""Train the demo's masked series: two runs of a tiny BERT on a corpus of known pronoun ratios.

Every text is a sentence such as "she works as a nurse." The share of "he" is fixed for each
occupation, so that the learnt ratios can be compared with the truth. Nothing is downloaded:
vocabulary, configuration and weights are made here.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from logitbank.engine.demo.causal import make_empty, no_progress_bars
from logitbank.engine.demo.corpus import FEMALE_OCCUPATIONS, MALE_OCCUPATIONS
from logitbank.engine.prompts.known.professions import TEMPLATES, pronoun_prompts
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import MASK

RUNS = 2
STEPS = 400
CHECKPOINTS = (0, 10, 20, 40, 80, *range(120, STEPS + 1, 40))
LEARNING_RATE = 2e-3
BATCH = 128
"""With 64 texts and a rate of 3e-3, correlations with the corpus depended on seed and processor
(0.86 to 0.98). With these values they exceed 0.98."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", MASK)
MASKED_NOUNS = 0.2
"""Share of the texts whose occupation is also masked, for the pronoun prior."""
_IGNORED = -100  # label that the loss leaves out


def occupations() -> dict[str, float]:
    """Each occupation with its article, and the share of "he" in the corpus: 0.1 to 0.9."""
    names = [*FEMALE_OCCUPATIONS, *MALE_OCCUPATIONS]
    last = len(names) - 1
    return {
        f"{'an' if name[0] in 'aeiou' else 'a'} {name}": 0.1 + 0.8 * i / last
        for i, name in enumerate(names)
    }


def masked_demo_prompts() -> PromptSet:
    """The prompt set `toy-professions`: both verbs before every occupation, and the priors."""
    return pronoun_prompts("toy-professions", tuple(occupations()))


def train_masked_series(
    folder: Path, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Train the runs and save their checkpoints as `folder/seed<S>/step<N>`.

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
    make_empty(folder)
    words = _vocabulary()
    with torch.random.fork_rng(devices=[]), no_progress_bars():
        for seed in range(RUNS):
            torch.manual_seed(seed)
            model = _new_model(len(words))
            for done in _updates(model, words, random.Random(f"masked {seed}")):
                if done in CHECKPOINTS:
                    _save(model, words, folder / f"seed{seed}" / f"step{done}")
                if progress is not None:
                    progress(seed * STEPS + done, RUNS * STEPS)


def _vocabulary() -> dict[str, int]:
    sentences = [
        t.replace(MASK, "he she").format(o) for t in TEMPLATES.values() for o in occupations()
    ]
    words = [word for s in sentences for word in s.replace(".", " .").split()]
    return {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL, *words]))}


def _new_model(entries: int) -> Any:
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


def _updates(model: Any, words: dict[str, int], rng: random.Random) -> Iterator[int]:
    """Train in place, and yield the number of updates: 0 first, then after each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    shares = tuple(occupations().items())
    model.train()
    yield 0
    for step in range(STEPS):
        ids, labels, attended = _batch(shares, words, rng)
        model(input_ids=ids, attention_mask=attended, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step + 1


def _batch(
    shares: tuple[tuple[str, float], ...], words: dict[str, int], rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, labels and attention, all (BATCH, longest) int64, padded on the right."""
    rows, labels = [], []
    for _ in range(BATCH):
        occupation, share = rng.choice(shares)
        template = rng.choice(tuple(TEMPLATES.values()))
        pronoun = "he" if rng.random() < share else "she"
        text = template.replace(MASK, pronoun).format(occupation).replace(".", " .")
        ids = [words[word] for word in ("[CLS]", *text.split(), "[SEP]")]
        hidden = {1} | ({len(ids) - 3} if rng.random() < MASKED_NOUNS else set())
        rows.append([words[MASK] if i in hidden else t for i, t in enumerate(ids)])
        labels.append([t if i in hidden else _IGNORED for i, t in enumerate(ids)])
    width = max(map(len, rows))
    padded = torch.tensor([row + [words["[PAD]"]] * (width - len(row)) for row in rows])
    targets = torch.tensor([row + [_IGNORED] * (width - len(row)) for row in labels])
    return padded, targets, (padded != words["[PAD]"]).long()


def _save(model: Any, words: dict[str, int], folder: Path) -> None:
    """Write to another name, then rename."""
    unfinished = folder.with_name(f".{folder.name}.part")
    model.save_pretrained(unfinished)
    (unfinished / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (unfinished / "tokenizer_config.json").write_text(json.dumps(settings))
    os.replace(unfinished, folder)
