"""Checkpoints made to harm: each is refused with one line, and never with a traceback."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.supported import unread_fields
from logitbank.errors import LogitbankError, SuiteError, WeightsError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from logitbank.engine.tokenizers.tokenizer import Tokenizer  # noqa: E402
from logitbank.engine.weights.weights import stream_weights, weight_files  # noqa: E402


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_bin_files_changed_at_will_are_read_or_refused(tmp_path: Path, is_zip: bool) -> None:
    file = tmp_path / "pytorch_model.bin"
    weights = {"a.weight": torch.zeros(20, 20), "b": torch.ones(3)}
    torch.save(weights, file, _use_new_zipfile_serialization=is_zip)
    sound, rng = file.read_bytes(), random.Random(0)
    messages: list[str] = []
    for _ in range(400):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            at, kind = rng.randrange(min(len(data), 700)), rng.randrange(3)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 30)]
            else:
                data[at:at] = rng.randbytes(5)
        file.write_bytes(data)
        try:
            for _ in stream_weights(tmp_path):
                pass
        except LogitbankError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert not [message for message in messages if "\n" in message]


def config(folder: Path, **fields: object) -> Path:
    text = json.dumps({"model_type": "gpt2", "vocab_size": 27, **fields})
    (folder / "config.json").write_text(text)
    return folder


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [101, 900, 100_000])
def test_deep_json_is_refused(tmp_path: Path, depth: int) -> None:
    text = f'{{"model_type": "gpt2", "vocab_size": 27, "x": {nested(depth)}}}'
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SuiteError, match=r"config\.json is not JSON: "):
        ModelConfig.read(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(nested(100_000))
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(WeightsError, match="is not a weight index"):
        weight_files(tmp_path)


@pytest.mark.parametrize("kind", ["x" * 100_000, ["gpt2"], 7, {"a": 1}])
def test_an_impossible_model_type_is_refused(tmp_path: Path, kind: object) -> None:
    with pytest.raises(SuiteError, match=r"has model_type .{1,60}; a text of at most 100"):
        ModelConfig.read(config(tmp_path, model_type=kind))


@pytest.mark.parametrize("kind", ["../auto", "x" * 10_000, "a/b", "\0", "*"])
def test_a_model_type_that_is_no_folder_name_looks_for_no_file(kind: str) -> None:
    assert unread_fields({"model_type": kind, "some_factor": 3}) == []


def tokenizer(folder: Path, **parts: Any) -> Path:
    vocabulary = {**{chr(97 + i): i for i in range(26)}, "<unk>": 26}
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []}
    content = {"version": "1.0", "added_tokens": [], "model": model, **parts}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return config(folder, bos_token_id=None, eos_token_id=None)


def split(pattern: str) -> dict[str, Any]:
    rule = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return {"pre_tokenizer": {**rule, "invert": False}}


def replace(pattern: str) -> dict[str, Any]:
    return {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": "b"}}


@pytest.mark.parametrize("part", [split, replace])
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "("])
def test_a_hostile_regular_expression_is_one_error(tmp_path: Path, part: Any, pattern: str) -> None:
    folder = tokenizer(tmp_path, **part(pattern))
    with pytest.raises(SuiteError, match=r"The tokenizer in .* (fails at a text|cannot be read)"):
        Tokenizer.load(folder).encode("a" * 40 + "!")
    with pytest.raises(SuiteError, match=r"The tokenizer in .* (fails at a text|cannot be read)"):
        Tokenizer.load(folder).encode_with_spans("a" * 40 + "!")
