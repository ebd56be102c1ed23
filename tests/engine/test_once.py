"""Prompts are tokenized once, and anew after any change of what decides their tokens."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine import cache
from logitbank.engine.prompts import tokenize
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.scoring import given_tokens, target_tokens
from logitbank.engine.prompts.tokenize import tokenized_for, tokenized_once
from logitbank.engine.prompts.values import Encoder, Prompt, ScoredToken
from logitbank.engine.tokenizers import tokenizer
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from tests.support.checkpoints import write_masked_tokenizer, write_tokenizer
from tests.support.scored_prompts import continuation

CONFIG = ModelConfig(vocab=100_000, max_length=64, shape=())
ROW = {
    "id": "a", "text": "The nurse said that", "options": [" he", " she"], "answer": " he",
    "order_seed": 1, "note": "x",
}  # fmt: skip
OTHER_ROWS: list[dict[str, object]] = [
    {"id": "b"},
    {"text": "The clerk said that"},
    {"options": [" she", " he"]},
    {"options": {"he": " she", "she": " he"}},
    {"options": [" he", " nurse"]},
    {"answer": " she"},
    {"order_seed": 2},
    {"note": "y"},
    {"note": 1},
    {"more": "x"},
]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often prompts have been tokenized, with an empty cache."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return tokenized_for(*args)

    monkeypatch.setattr(tokenize, "tokenized_for", counted)
    return lambda: len(calls)


def _file(folder: Path, **changes: object) -> str:
    path = folder / "mine.jsonl"
    path.write_text(json.dumps(ROW | changes) + "\n")
    return str(path)


def _folder(path: Path) -> Path:
    path.mkdir()
    write_tokenizer(path)
    return path


def test_the_second_time_gives_what_the_first_gave(
    tmp_path: Path, count: Callable[[], int]
) -> None:
    folder = _folder(tmp_path / "step0")
    sentences = tmp_path / "sentences.jsonl"
    sentences.write_text('{"sentence": "The nurse said that he was here"}\n')
    for spec in (_file(tmp_path), str(sentences)):
        prompts = prompt_set(spec)
        plain = tokenized_for(prompts, Tokenizer.load(folder), CONFIG)
        before = count()
        for _ in range(2):
            known = tokenized_once(prompt_set(spec), Tokenizer.load(folder), CONFIG)
            assert known.table.equals(plain.table)
            assert known.table.schema == plain.table.schema
            assert replace(known, table=plain.table) == plain
        assert count() == before + 1


@pytest.mark.parametrize("changes", OTHER_ROWS, ids=str)
def test_any_change_of_the_file_is_tokenized(
    changes: dict[str, object], tmp_path: Path, count: Callable[[], int]
) -> None:
    loaded = Tokenizer.load(_folder(tmp_path / "step0"))
    tokenized_once(prompt_set(_file(tmp_path)), loaded, CONFIG)
    prompts = prompt_set(_file(tmp_path, **changes))
    known = tokenized_once(prompts, loaded, CONFIG)
    assert count() == 2
    assert known.table.equals(tokenized_for(prompts, loaded, CONFIG).table)


@pytest.mark.parametrize("option", ["add_special_tokens=false", "first_token=true"])
def test_another_option_is_tokenized(option: str, tmp_path: Path, count: Callable[[], int]) -> None:
    loaded = Tokenizer.load(_folder(tmp_path / "step0"))
    for spec in (_file(tmp_path), f"{_file(tmp_path)}:{option}"):
        tokenized_once(prompt_set(spec), loaded, CONFIG)
    assert count() == 2


def test_another_name_or_language_or_config_is_tokenized(
    tmp_path: Path, count: Callable[[], int]
) -> None:
    loaded, prompts = Tokenizer.load(_folder(tmp_path / "step0")), prompt_set(_file(tmp_path))
    tokenized_once(prompts, loaded, CONFIG)
    tokenized_once(replace(prompts, name="other"), loaded, CONFIG)
    tokenized_once(replace(prompts, language="de_DE"), loaded, CONFIG)
    tokenized_once(prompts, loaded, replace(CONFIG, max_length=63))
    tokenized_once(prompts, loaded, None)
    assert count() == 5


def test_another_way_of_scoring_is_tokenized_and_ones_own_each_time(
    tmp_path: Path, count: Callable[[], int]
) -> None:
    """Its code may change, under the same name."""
    loaded = Tokenizer.load(_folder(tmp_path / "step0"))
    one = continuation("a", "The nurse", " said")
    kinds = [
        tokenized_once(PromptSet("s", (prompt,)), loaded, CONFIG).table["score_kind"][0]
        for prompt in (one, replace(one, scored=given_tokens))
    ]
    assert kinds == ["target", "given"]

    def own(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
        yield from target_tokens(prompt, encoder)

    for _ in range(2):
        tokenized_once(PromptSet("s", (replace(one, scored=own),)), loaded, CONFIG)
    assert count() == 4


def _edit(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def test_another_tokenizer_is_tokenized(tmp_path: Path, count: Callable[[], int]) -> None:
    folder, prompts = _folder(tmp_path / "step0"), prompt_set(_file(tmp_path))

    def ids() -> tuple[int, ...]:
        return tokenized_once(prompts, Tokenizer.load(folder), CONFIG).queries[0].ids

    plain = ids()
    before, seen = count(), {plain}
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    a, b = "Ġnurse", "Ġclerk"
    model["vocab"][a], model["vocab"][b] = model["vocab"][b], model["vocab"][a]
    for name, changes in (
        ("tokenizer.json", {"model": model}),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("tokenizer_config.json", {"bos_token": "<other>"}),
        ("special_tokens_map.json", {"unk_token": "<new>"}),
    ):
        _edit(folder, name, **changes)
        seen.add(ids())
        assert count() == (before := before + 1), name
    assert len(seen) == 3  # the vocabulary and its normalisation change ids


def test_another_task_of_a_model_is_tokenized(tmp_path: Path) -> None:
    write_masked_tokenizer(tmp_path)
    masked = Tokenizer.load(tmp_path)
    assert masked.for_task("causal").identity != masked.for_task("masked").identity


@pytest.mark.parametrize("changed", ["files", "package"])
def test_a_tokenizer_is_read_again_if_a_file_or_a_package_changes(
    changed: str, tmp_path: Path, count: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = _folder(tmp_path / "step0"), []
    made = tokenizer._read

    def counted(where: Path) -> Any:
        read.append(where)
        return made(where)

    monkeypatch.setattr(tokenizer, "_read", counted)
    for _ in range(2):
        Tokenizer.load(folder)
    assert len(read) == 1
    if changed == "package":
        monkeypatch.setattr(tokenizer, "version", lambda name: f"{name} 99")
    else:
        (folder / "tokenizer.4.0.0.json").write_text("{}")  # transformers may read it
    Tokenizer.load(folder)
    assert len(read) == 2


@pytest.mark.parametrize("how", ["code", "damage", "age", "folder"])
def test_what_is_not_known_for_certain_is_tokenized(
    how: str, tmp_path: Path, count: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, prompts = Tokenizer.load(_folder(tmp_path / "step0")), prompt_set(_file(tmp_path))
    first = tokenized_once(prompts, loaded, CONFIG)
    for path in (tmp_path / "cache" / "remembered").iterdir():
        if how == "damage":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        if how == "age":
            os.utime(path, (0, 0))
        if how == "folder":
            path.unlink()
            path.mkdir()
    if how == "code":
        monkeypatch.setattr(cache, "_code", lambda: "other")
    again = tokenized_once(prompts, loaded, CONFIG)
    assert count() == 2
    assert again.table.equals(first.table)
