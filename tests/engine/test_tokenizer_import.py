"""A tokenizer is read as AutoTokenizer reads it, without torch if its class is known, and the next
time without transformers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.tokenizers.tokenizer import (
    GENERIC_CLASSES,
    GENERIC_MODELS,
    OWN_CLASSES,
    Tokenizer,
)
from tests.support.token_cases import TOKENIZERS
from tests.support.tokenizers import tiny_tokenizer

TEXTS = [
    "The nurse’s elbow",
    " naïve  ＦＩＮＥ ﬁsh\n🙂",
    "",
    "he <s> [MASK]<|endoftext|> she",
    "<s> he [MASK]<|endoftext|>",
    "<s> he said</s>",
    "he said Ψ",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "remembered"


def _small_bytes(folder: Path, token: str) -> None:
    """A byte-level BPE of 1,000 entries; one of 50,000 takes six times as long to compare."""
    tiny_tokenizer("neox", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({token: "<|endoftext|>"}))


FILES: dict[str, Callable[[Path], object]] = {
    **TOKENIZERS,
    "small-byte-bpe": lambda folder: _small_bytes(folder, "eos_token"),
    "small-byte-bpe-bos": lambda folder: _small_bytes(folder, "bos_token"),
}


def _folder(folder: Path, case: str, model: str, name: str) -> Path:
    FILES[case](folder)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(own | {"tokenizer_class": name}))
    (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return folder


OWN_CASES = {
    "GPTNeoXTokenizer": ["small-byte-bpe", "small-byte-bpe-bos"],
    "GPT2Tokenizer": ["small-byte-bpe", "small-byte-bpe-bos"],
    "BertTokenizer": ["wordpiece-uncased", "wordpiece-cased"],
    "RobertaTokenizer": ["byte-bpe-masked"],
    "XLMRobertaTokenizer": ["unigram-tokenizer.json"],
}
"""Files that each class is made for."""
NAMED = [
    *(
        (case, model, name)
        for case in ("small-byte-bpe", "small-byte-bpe-bos", "gemma", "llama-prepend")
        for model in GENERIC_MODELS
        for name in GENERIC_CLASSES
    ),
    *(
        (case, model, name + end)
        for model, name in OWN_CLASSES.items()
        for case in OWN_CASES[name]
        for end in ("", "Fast")
    ),
]
"""Files, model types, and the class that the files name."""


def _once(plain: Any, text: str, each: list[Any]) -> list[Any]:
    """What transformers has for each token, without special tokens that the text has as well."""
    word, whole = plain("nurse", add_special_tokens=False)["input_ids"], plain("nurse")["input_ids"]
    start = next(i for i in range(len(whole)) if whole[i : i + len(word)] == word)
    opening, closing = whole[:start], whole[start + len(word) :]
    kept = [*each]
    if opening and text.startswith(plain.decode(opening)):
        del kept[len(opening) : 2 * len(opening)]
    if closing and text.endswith(plain.decode(closing)):
        del kept[-2 * len(closing) : -len(closing)]
    return kept


def _require_equal(ours: Tokenizer, plain: Any) -> None:
    """Our tokenizer does what the one of transformers does, but has written special tokens once."""
    assert ours._backend.to_str() == plain.backend_tokenizer.to_str()
    for flag in (True, False):
        theirs = plain(TEXTS, add_special_tokens=flag, return_offsets_mapping=True)
        ids, offsets = theirs["input_ids"], theirs["offset_mapping"]
        if flag:
            ids, offsets = (
                [_once(plain, text, each) for text, each in zip(TEXTS, values, strict=True)]
                for values in (ids, offsets)
            )
            assert ours.encode_many(TEXTS) == ids
        assert ours.encode_many(TEXTS, add_special_tokens=flag) == ids
        spans = [ours.encode_with_spans(text, add_special_tokens=flag).spans for text in TEXTS]
        assert spans == offsets
    for first, second in (TEXTS[:2], TEXTS[1:3]):
        both = plain(first, second, return_token_type_ids=True)
        assert ours.encode_pair(first, second) == (both["input_ids"], both["token_type_ids"])
    for ids in plain(TEXTS)["input_ids"]:
        assert ours.decode(ids) == plain.decode(ids, clean_up_tokenization_spaces=False)
    assert ours.entries == len(plain)
    assert ours.begin_id == plain.bos_token_id
    assert (ours.mask_token or None) == plain.mask_token
    assert ours.mask_id == (None if plain.mask_token is None else plain.mask_token_id)
    assert ours.special_ids == {*plain.all_special_ids}
    assert (ours.unknown or (None, None)) == (
        None if plain.unk_token is None else plain.unk_token_id, plain.unk_token
    )  # fmt: skip


def _require_read_twice(folder: Path, cache: Path) -> None:
    """A folder's tokenizer is that of transformers, and is the same when it is remembered."""
    from transformers import AutoTokenizer

    shutil.rmtree(cache, ignore_errors=True)
    plain = AutoTokenizer.from_pretrained(str(folder))
    first = Tokenizer.load(folder)
    assert len([*cache.iterdir()]) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        second = Tokenizer.load(folder)
    for ours in (first, second):
        _require_equal(ours, plain)
    assert (first.identity, first.digest) == (second.identity, second.digest)
    assert first.opening == second.opening


@pytest.mark.parametrize(("case", "model", "name"), NAMED)
def test_the_class_is_what_transformers_chooses(
    case: str, model: str, name: str, tmp_path: Path, cache: Path
) -> None:
    _require_read_twice(_folder(tmp_path / "step0", case, model, name), cache)


@pytest.mark.parametrize("case", TOKENIZERS)
def test_every_kind_is_remembered_as_transformers_reads_it(
    case: str, tmp_path: Path, cache: Path
) -> None:
    model = TOKENIZERS[case](tmp_path / "step0")
    (tmp_path / "step0" / "config.json").write_text(json.dumps({"model_type": model}))
    _require_read_twice(tmp_path / "step0", cache)


@pytest.mark.parametrize("name", [GENERIC_CLASSES[0], "GPTNeoXTokenizerFast"])
def test_no_torch_for_a_tokenizer_whose_class_is_known(name: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "step0", "small-byte-bpe", "gpt_neox", name)
    code = (
        "import sys; from pathlib import Path\n"
        "from logitbank.engine.tokenizers.tokenizer import Tokenizer\n"
        "Tokenizer.load(Path(sys.argv[1])).vocabulary()\n"
        "assert sys.argv[2] not in sys.modules"
    )
    for absent in ("torch", "transformers"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), absent],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
