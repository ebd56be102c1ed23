"""Tokenizers are loaded from a checkpoint's folder, and known by what they do to a text."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models

from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import MissingExtraError, SuiteError
from tests.support.checkpoints import write_tokenizer
from tests.support.tokenizers import real_tokenizer


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_tokenizer(folder)
    return folder


def edited(toy: Path, folder: Path, **changes: object) -> Path:
    """A copy of the toy tokenizer with some parts of its JSON replaced."""
    folder.mkdir()
    content = json.loads((toy / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | changes))
    (folder / "tokenizer_config.json").write_text((toy / "tokenizer_config.json").read_text())
    return folder


def test_pythia_has_the_published_entries_and_ids(tmp_path: Path) -> None:
    pythia = real_tokenizer("pythia", tmp_path)
    assert pythia.entries == 50277
    digest = "123234a92b60de9a5038497cd395a420eba594091b6a91ab91b22d99b8dbeba9"  # banks name it
    assert pythia.digest == digest
    texts = [" male", " female", " not", "male"]
    assert pythia.encode_many(texts) == [[5086], [5343], [417], [30165]]
    assert pythia.decode_each([5086, 417]) == [" male", " not"]
    assert pythia.decode_each([50300]) == [""]  # a padding output


@pytest.mark.parametrize(
    ("model", "entries", "ids"),
    [
        ("bert-base-uncased", 30522, [101, 2002, 2016, 102]),
        ("roberta-base", 50265, [0, 894, 79, 2]),
    ],
)
def test_other_vocabularies_add_their_special_tokens_unless_told_not_to(
    tmp_path: Path, model: str, entries: int, ids: list[int]
) -> None:
    tokenizer = real_tokenizer(model, tmp_path)
    assert tokenizer.entries == entries
    assert tokenizer.encode("He she") == ids
    assert tokenizer.encode("He she", add_special_tokens=True) == ids
    assert tokenizer.encode("He she", add_special_tokens=False) == ids[1:-1]


def test_an_empty_batch_gives_an_empty_list(toy: Path) -> None:
    assert Tokenizer.load(toy).encode_many([]) == []


def test_a_long_text_is_not_truncated(toy: Path, tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    folder = edited(toy, tmp_path / "short", truncation=truncation)
    assert len(Tokenizer.load(folder).encode(" nurse nurse nurse nurse")) == 4


def test_digest_ignores_truncation_padding_and_decoding(toy: Path, tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    same = edited(toy, tmp_path / "same", truncation=truncation, decoder=None)
    assert Tokenizer.load(same).digest == Tokenizer.load(toy).digest
    assert len(Tokenizer.load(toy).digest) == 64


def test_digest_sees_another_normalisation_and_another_vocabulary(
    toy: Path, tmp_path: Path
) -> None:
    lower = edited(toy, tmp_path / "lower", normalizer={"type": "Lowercase"})
    content = json.loads((toy / "tokenizer.json").read_text())["model"]
    a, b = "Ġnurse", "Ġclerk"
    content["vocab"][a], content["vocab"][b] = content["vocab"][b], content["vocab"][a]
    swapped = edited(toy, tmp_path / "swapped", model=content)
    digests = {Tokenizer.load(folder).digest for folder in (toy, lower, swapped)}
    assert len(digests) == 3


def test_a_folder_without_vocabulary_is_an_error_that_names_what_was_looked_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    with pytest.raises(SuiteError, match=r"no tokenizer.*tokenizer\.json, .*vocab"):
        Tokenizer.load(tmp_path)


def test_a_vocabulary_that_its_class_does_not_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_text("not for this class")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(SuiteError, match="has 5 entries, all of them special tokens"):
        Tokenizer.load(tmp_path)


def test_a_broken_tokenizer_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(SuiteError, match=r"cannot be read: [^\n]+$"):
        Tokenizer.load(tmp_path)


def test_code_that_ships_with_a_tokenizer_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    config = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(SuiteError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_without_transformers_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path)
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'logitbank\[engine\]'"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_in_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    with pytest.raises(SuiteError, match=r"is ByT5Tokenizer, .* not supported.*tokenizer\.json"):
        Tokenizer.load(tmp_path)


# What the entries of a vocabulary say


def texts_by_token(table: pl.DataFrame) -> dict[int, tuple[str, bool]]:
    return {token: (text, is_text) for token, text, is_text, _ in table.iter_rows()}


@pytest.mark.parametrize(
    ("name", "entries", "special", "texts", "bytes_alone"),
    [
        ("pythia", 50277, {0: "<|endoftext|>"},
         {5086: " male", 30165: "male", 187: "\n", 50254: " " * 24}, {96: r"\xa1"}),
        ("roberta-base", 50265, {0: "<s>"}, {37: " he"}, {44: r" \xe2\x80"}),
        ("bert-base-uncased", 30522, {103: "[MASK]"}, {2075: "##ing", 2002: "he"}, {}),
    ],
)  # fmt: skip
def test_released_vocabularies(
    name: str,
    entries: int,
    special: dict[int, str],
    texts: dict[int, str],
    bytes_alone: dict[int, str],
    tmp_path: Path,
) -> None:
    tokenizer = real_tokenizer(name, tmp_path / "t")
    table = tokenizer.vocabulary()
    assert table["token"].to_list() == list(range(entries))
    every = texts_by_token(table)
    assert {i: every[i] for i in texts} == {i: (text, True) for i, text in texts.items()}
    assert {i: every[i] for i in bytes_alone} == {i: (t, False) for i, t in bytes_alone.items()}
    marked = dict(table.filter("special").select("token", "text").iter_rows())
    assert special.items() <= marked.items()
    assert not {*texts, *bytes_alone} & {*marked}
    some = table.filter("is_text").gather_every(100)
    assert tokenizer.decode_each(some["token"].to_list()) == some["text"].to_list()


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    ],
    ids=["xlm", "llama"],
)
def test_pieces_of_sentencepiece(decoder: decoders.Decoder, tmp_path: Path) -> None:
    pieces = {"<unk>": 0, "▁he": 1, "he": 2, "<0xC3>": 3, "<0x41>": 4}
    tokenizer = Fast(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    table = Tokenizer.load(tmp_path).vocabulary()
    assert texts_by_token(table) == {
        0: ("<unk>", True), 1: (" he", True), 2: ("he", True), 3: (r"\xc3", False), 4: ("A", True),
        5: ("<s>", True),
    }  # fmt: skip
    assert table.filter("special")["token"].to_list() == [5]
