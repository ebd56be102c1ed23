"""Real tokenizers of the public data, put together as checkpoints have them."""

import json
from pathlib import Path
from typing import Literal

import pytest

from logitbank.engine.tokenizers.tokenizer import Tokenizer
from tests.support.checkpoints import WORDS, write_masked_tokenizer
from tests.support.paths import PUBLIC as DATA

_MASK = {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}
_CONFIGS: dict[str, dict[str, object]] = {
    "bert-base-uncased": {"tokenizer_class": "BertTokenizer", "do_lower_case": True},
    "roberta-base": {"tokenizer_class": "RobertaTokenizer", "mask_token": _MASK},
    "pythia": {"tokenizer_class": "PreTrainedTokenizerFast"},
}


def real_tokenizer(name: str, folder: Path) -> Tokenizer:
    """The tokenizer of this name, whose files are put into `folder`."""
    source = DATA / "tokenizers" / name
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        at = "tokenizer.json" if file.name == "20B_tokenizer.json" else file.name
        (folder / at).write_bytes(file.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(_CONFIGS[name]))
    return Tokenizer.load(folder)


def entries(folder: Path) -> dict[str, int]:
    """The vocabulary of BERT or RoBERTa, read from the released files."""
    if (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text().splitlines()
        return {entry: i for i, entry in enumerate(lines)}
    found: dict[str, int] = json.loads((folder / "vocab.json").read_text())
    return found


Kind = Literal["llama", "llama-slow", "gemma", "gpt2", "neox", "bert", "roberta"]
_LETTERS = [*map(chr, range(33, 127)), "\n", "▁"]


def tiny_tokenizer(kind: Kind, folder: Path) -> Path:
    """The files of a small tokenizer that splits, joins and begins texts as this family does."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    folder.mkdir(parents=True, exist_ok=True)
    if kind == "bert":
        write_masked_tokenizer(folder)
        return folder
    begin, end, unknown = "<s>", "</s>", "<unk>"
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if kind in ("gpt2", "neox", "roberta"):
        begin = end = unknown = "<|endoftext|>" if kind != "roberta" else "<s>"
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
    else:
        backend = Backend(models.BPE(unk_token=unknown, byte_fallback=True, fuse_unk=True))
        letters = _LETTERS
        parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence(parts)
        marks = [normalizers.Replace(" ", "▁")]
        if kind != "gemma":
            marks.insert(0, normalizers.Prepend("▁"))
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # to learn words
    special = list(dict.fromkeys([unknown, begin, end, "</s>"]))
    fallback = [] if letters is not _LETTERS else [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=1_000, special_tokens=[*special, *fallback], initial_alphabet=letters,
        show_progress=False,
    )  # fmt: skip
    backend.train_from_iterator([" " + " ".join([*WORDS, *"ABCD"])] * 50, trainer)
    if letters is _LETTERS:
        backend.pre_tokenizer = None
        backend.normalizer = normalizers.Sequence(marks)
    if kind in ("llama", "llama-slow", "gemma"):
        tokens = [(begin, backend.token_to_id(begin))]
        backend.post_processor = processors.TemplateProcessing(f"{begin} $A", None, tokens)
    if kind == "roberta":
        around = (("</s>", backend.token_to_id("</s>")), (begin, backend.token_to_id(begin)))
        backend.post_processor = processors.RobertaProcessing(*around, add_prefix_space=False)
    if kind == "llama-slow":
        config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": False}
    backend.save(str(folder / "tokenizer.json"))
    named = {"bos_token": begin, "eos_token": end, "unk_token": unknown}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | named))
    return folder
