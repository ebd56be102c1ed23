"""A tokenizer that transformers read once is read again without it, with the same ids."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.tokenizers import tokenizer as loading
from logitbank.engine.tokenizers.remembered import Remembered, recall, remember
from logitbank.engine.tokenizers.tokenizer import Tokenizer, files_digest
from tests.support.checkpoints import make_checkpoint, write_tokenizer
from tests.support.marks import long
from tests.support.paths import ROOT
from tests.support.tokenizers import real_tokenizer

TEXTS = ["The nurse's 12 GPUs", " he she", "né 中🙂\n\n  x", "<|endoftext|>[MASK]<mask>", ""]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokenizers"


def both(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """As transformers makes it, and as it is read again."""
    made = Tokenizer(loading._read(folder))
    Tokenizer.load(folder)
    again = Tokenizer.load(folder)
    assert isinstance(again._backend, Remembered)
    return made, again


def assert_same(made: Tokenizer, again: Tokenizer) -> None:
    for flag in (None, True, False):
        ids = made.encode_many(TEXTS, add_special_tokens=flag)
        assert again.encode_many(TEXTS, add_special_tokens=flag) == ids
    for text in ids:
        assert again.decode(text) == made.decode(text)
        assert again.pieces(text) == made.pieces(text)
    assert again.encode_pair("He ran.", " She too") == made.encode_pair("He ran.", " She too")
    for name in ("digest", "entries", "mask_id", "mask_token", "begin_id", "special_ids"):
        assert getattr(again, name) == getattr(made, name), name
    assert again.vocabulary().equals(made.vocabulary())


@pytest.mark.whole
@pytest.mark.parametrize("name", ["pythia", "bert-base-uncased", long("roberta-base")])
def test_real_tokenizers_are_the_same_when_read_again(name: str, tmp_path: Path) -> None:
    real_tokenizer(name, tmp_path / "t")
    assert_same(*both(tmp_path / "t"))


def test_what_a_class_makes_anew_is_kept_as_it_made_it(tmp_path: Path) -> None:
    """GPT-2's class leaves aside how the file splits digits; so must what is kept of it."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate([*letters, "12", "<|endoftext|>"])}
    backend = Backend(models.BPE(vocab, [("1", "2")]))
    split = [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(split)
    folder = tmp_path / "t"
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    made, again = both(folder)
    assert_same(made, again)
    assert len(backend.encode("12").ids) == 2
    assert again.encode("12") == [vocab["12"]]


def test_other_files_and_another_folder_are_read_by_transformers(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "a")
    Tokenizer.load(tmp_path / "a")
    files = files_digest(tmp_path / "a")
    assert recall(tmp_path / "a", files) is not None
    assert recall(tmp_path / "b", files) is None
    config = tmp_path / "a" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "add_prefix_space": True}))
    assert recall(tmp_path / "a", files_digest(tmp_path / "a")) is None


def test_damage_in_the_cache_is_no_tokenizer(tmp_path: Path, cache: Path) -> None:
    write_tokenizer(tmp_path / "a")
    first = Tokenizer.load(tmp_path / "a")
    (kept,) = cache.glob("*.json")
    good = kept.read_text()
    for bad in (good[:100], good.replace("nurse", "nurze"), "[]", "{}"):
        kept.write_text(bad)
        assert recall(tmp_path / "a", files_digest(tmp_path / "a")) is None
        assert Tokenizer.load(tmp_path / "a").digest == first.digest
        assert kept.read_text() == good


def test_nothing_is_kept_of_a_class_that_encodes_in_its_own_way(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path / "a")
    made: Any = loading._read(tmp_path / "a")

    class Own(type(made)):  # type: ignore[misc]
        def decode(self, *arguments: Any, **options: Any) -> str:
            return str(super().decode(*arguments, **options)).upper()

    made.__class__ = Own
    remember(tmp_path / "a", "files", made)
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, cache: Path) -> None:
    write_tokenizer(tmp_path / "a")
    cache.parent.write_text("a file where the folder would be")
    assert Tokenizer.load(tmp_path / "a").encode(" he")
    assert recall(tmp_path / "a", files_digest(tmp_path / "a")) is None


PLAN = """
import sys
import logitbank
from logitbank import Option, Prompt, PromptSet
prompts = PromptSet("p", (Prompt("a", "he ran", (Option("x", " he"), Option("y", " she")), "x"),))
plans = []
logitbank.extract(sys.argv[1], suite=sys.argv[2], prompts=prompts, dry_run=True,
                  engine="transformers", on_event=plans.append)
assert any(type(event).__name__ == "Planned" for event in plans)
print(*(name for name in ("torch", "transformers", "vllm") if name in sys.modules))
"""


def test_planning_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "series" / "step1", seed=1)
    Tokenizer.load(tmp_path / "series" / "step1")
    command = [sys.executable, "-c", PLAN, str(tmp_path / "b"), str(tmp_path / "series")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
