"""Files in llama.cpp's format: run as the numbers that they stand for, or refused with a reason."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.torch import load_file

from logitbank import compare, extract
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.gguf import numbers, written
from logitbank.engine.gguf.numbers import numbers_cache, numbers_of
from logitbank.engine.suites.folders import scan_growing
from logitbank.engine.suites.sources import LocalSource
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.weights import weight_files
from logitbank.engine.workers.events import Summary
from logitbank.errors import DiskSpaceError, MissingExtraError, SuiteError, WeightsError
from logitbank.store import Bank
from logitbank.store.format.schema import Query
from tests.support.checkpoints import make_checkpoint
from tests.support.engine_driver import engine, reference
from tests.support.gguf_files import write_gguf
from tests.support.preloaded import Preloaded, require_vllm

pytestmark = pytest.mark.filterwarnings("ignore")  # those of what transformers imports
QUERIES = [Query((5, 9, 100, 33, 7), 4), Query((8,), 0)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("gguf") / "tiny", seed=3, architecture="mistral")


class Read(NamedTuple):
    file: Path
    folder: Path
    told: list[str]


@pytest.fixture(scope="module")
def read(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A file, and the folder of its numbers, in a cache of this module."""
    scratch, told = tmp_path_factory.mktemp("read"), []
    file = write_gguf(scratch / "packed", plain) / "model.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(scratch))
        return Read(file, numbers_of(file, told.append), told)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def their_logits(file: Path, folder: Path) -> np.ndarray:
    """What transformers computes of a GGUF file, saved by itself."""
    from transformers import AutoModelForCausalLM, GgufConfig

    AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(folder)
    return reference([folder], QUERIES)[0]


def test_the_numbers_are_those_that_transformers_computes_with(
    read: Read, plain: Path, tmp_path: Path
) -> None:
    (rows,) = engine(EngineSettings("transformers", max_length=64), [read.folder], QUERIES)
    np.testing.assert_allclose(rows, their_logits(read.file, tmp_path), rtol=0, atol=1e-4)
    original, found = (load_file(f / "model.safetensors") for f in (plain, read.folder))
    assert found.keys() == original.keys()
    for name, tensor in found.items():
        step = original[name].abs().max() / 127  # of Q8_0: at most half a step of its block's
        assert float((tensor - original[name]).abs().max()) <= step / 2 * 1.01
    assert read.told == [
        f"{read.file}: the numbers that it stands for are written once, at most 722 kB, to"
        f" {read.folder}"
    ]


@pytest.mark.vllm
@pytest.mark.whole
def test_vllm_runs_the_same_numbers(read: Read, tmp_path: Path, preloaded: Preloaded) -> None:
    require_vllm()
    expected = their_logits(read.file, tmp_path / "theirs")
    settings = EngineSettings("vllm", max_length=64)
    call = ("tests.support.engine_driver:engine", settings, [read.folder], QUERIES)
    (rows,) = preloaded.run("vllm", tmp_path, *call)
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-3)


def test_the_tokenizer_is_that_of_the_file(read: Read, plain: Path) -> None:
    texts = ("the nurse said he", " because she was tired", "x1y22 ?!\n\nWhat<|endoftext|>")
    own, theirs = Tokenizer.load(read.folder), Tokenizer.load(plain)
    assert [own.encode(text) for text in texts] == [theirs.encode(text) for text in texts]


def test_what_the_file_says_of_its_tokenizer_is_done(plain: Path, tmp_path: Path) -> None:
    """With Llama 3's splits, a word of the vocabulary is one token though no merges make it."""
    made = json.loads((plain / "tokenizer.json").read_text())
    words = made["model"]["vocab"]
    made["model"]["merges"] = [m for m in made["model"]["merges"] if not {*"Ġh"} & {*"".join(m)}]
    source = shutil.copytree(plain, tmp_path / "plain")
    (source / "tokenizer.json").write_text(json.dumps(made))
    begin, he = words["<|endoftext|>"], words["Ġhe"]
    ids = {"llama-bpe": [begin, he], "gpt-2": [words["Ġ"], words["h"], words["e"]]}
    said = {"tokenizer.ggml.bos_token_id": begin}
    for split, expected in ids.items():
        file = write_gguf(tmp_path / split, source, tokenizer=split, keys=said) / "model.gguf"
        tokenizer = Tokenizer.load(fill(file, tmp_path / f"of-{split}"))
        assert tokenizer.encode(" he", add_special_tokens=True) == expected
    said["tokenizer.ggml.add_bos_token"] = True
    file = write_gguf(tmp_path / "said", source, keys=said) / "model.gguf"
    tokenizer = Tokenizer.load(fill(file, tmp_path / "of-said"))
    assert tokenizer.encode(" he", add_special_tokens=True) == [begin, *ids["gpt-2"]]


def test_a_bank_of_a_gguf_file_names_it_and_is_compared(
    read: Read, plain: Path, tmp_path: Path, preloaded: Preloaded
) -> None:
    prompts, file = tmp_path / "p.jsonl", tmp_path / "q8" / "model.gguf"
    line = '{"id": "a", "text": "the nurse said", "options": [" he", " she"], "answer": " he"}'
    prompts.write_text(line + "\n")
    file.parent.mkdir()
    for path in (read.file, plain / "tokenizer.json", plain / "tokenizer_config.json"):
        shutil.copy(path, file.parent)
    notes: list[str] = []

    def run(bank: str, suite: Path, **options: Any) -> Summary:
        return extract(
            tmp_path / bank,
            suite=suite,
            model="tiny",
            prompts=str(prompts),
            engine="transformers",
            dtype="float32",
            on_event=lambda event: notes.append(str(event)),
            **options,
        )

    run("q8.zarr", file, dry_run=True)
    assert sum("written once" in note for note in notes) == 1
    with preloaded.workers("transformers"):
        for bank, suite in (("base.zarr", plain), ("q8.zarr", file)):
            summary = run(bank, suite)
            assert len(summary.done) == 1, [f.message for f in summary.failed]
    assert sum("written once" in note for note in notes) == 1, "it was there"
    (folder,) = numbers_cache().iterdir()
    (deposit,) = Bank.open(tmp_path / "q8.zarr").deposits()
    assert deposit.spec.provenance["quantization"] == {
        "method": "gguf",
        "bits": 19.18,
        "types": {"F32": 7, "Q8_0": 14},
        "tensors": 14,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "tokenizer": "beside",
    }
    (row,) = compare(tmp_path / "base.zarr", tmp_path / "q8.zarr").result.logits.to_dicts()
    assert not row["same_weights"]
    ids = list(Bank.open(tmp_path / "base.zarr").query_set(deposit.spec.query_set).queries)
    one, other = reference([plain, folder], ids)
    assert row["max_logit_difference"] == pytest.approx(np.abs(one - other).max(), abs=1e-3)


def llama3(folder: Path) -> Path:
    """A checkpoint with Llama 3's rotary frequencies."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=640,
        max_position_embeddings=256,
        rope_parameters=scaling | {"rope_theta": 10000.0},
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_rotary_frequencies_of_llama_3_are_read(plain: Path, tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(llama3(tmp_path / "plain"))
    shutil.copy(plain / "tokenizer.json", tmp_path / "plain")
    frequencies = model.model.rotary_emb.inv_freq.numpy()
    factors = (10000.0 ** (-np.arange(16) / 16) / frequencies).astype(np.float32)
    assert factors.max() == pytest.approx(32, rel=1e-5)
    assert factors.min() == pytest.approx(1, rel=1e-5)
    more = {"rope_freqs.weight": factors}
    sources = {"packed": False, "more": more}
    file = write_gguf(tmp_path / "packed", tmp_path / "plain", **sources) / "model.gguf"
    folder = fill(file, tmp_path / "numbers")
    far = [Query((*range(5, 245),), 239)]
    one, other = reference([tmp_path / "plain", folder], far)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)

    shutil.rmtree(tmp_path / "packed")
    more["rope_freqs.weight"] = factors**1.1
    file = write_gguf(tmp_path / "packed", tmp_path / "plain", **sources) / "model.gguf"
    with pytest.raises(WeightsError, match=r"otherwise than Llama 3 does"):
        fill(file, tmp_path / "other")


def test_halves_are_kept_as_halves_and_a_tokenizer_beside_is_taken(
    plain: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    halves = shutil.copytree(plain, tmp_path / "halves")
    tensors = load_file(plain / "model.safetensors")
    rounded = {name: tensor.bfloat16().float() for name, tensor in tensors.items()}
    save_file(rounded, halves / "model.safetensors")
    file = write_gguf(tmp_path / "packed", halves, packed=False, tokenizer="") / "model.gguf"
    folder = fill(file, tmp_path / "numbers", tokenizer=plain)
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor.float(), rounded[name])
    assert (folder / "tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()
    assert json.loads((folder / "gguf.json").read_text())["tokenizer"] == "beside"


def fill(file: Path, folder: Path, tokenizer: Path | None = None) -> Path:
    """What the process does, in this one."""
    folder.mkdir()
    written.write(file, folder, "0" * 64, tokenizer, lambda **_: None)
    return folder


EXTRA = {"blk.0.more.weight": np.ones((2, 2), np.float32)}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "part": ({"keys": {"split.count": 2}}, r"one of 2 parts; join them with .*--merge"),
    "adapter": ({"keys": {"general.type": "adapter"}}, "holds a adapter of architecture 'llama'"),
    "unknown": ({"architecture": "rwkv7"}, "architecture 'rwkv7', which transformers does not"),
    "missing": ({"left_out": "model.norm.weight"}, "lacks model.norm.weight of the Llama"),
    "more": ({"more": EXTRA}, r"holds 180,\d{3} numbers, not 180,\d{3} of the LlamaForCausalLM"),
    "yarn": ({"keys": {"llama.rope.scaling.type": "yarn"}}, "says llama.rope.scaling.type = yarn"),
    "window": ({"keys": {"llama.attention.sliding_window": 4}}, "sliding_window = 4, and .* none"),
    "split": ({"tokenizer": "smollm"}, "'smollm', that .*; put the model's tokenizer.json beside"),
    "ends": ({"keys": {"tokenizer.ggml.add_eos_token": True}}, "says that texts end with a token"),
    "mute": ({"tokenizer": ""}, "holds no tokenizer .*; put the model's tokenizer.json beside"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_transformers_would_run_as_another_model_is_refused(
    what: str, plain: Path, tmp_path: Path
) -> None:
    made, message = REFUSED[what]
    file = write_gguf(tmp_path / "packed", plain, **made) / "model.gguf"
    with pytest.raises(WeightsError, match=message):
        fill(file, tmp_path / "numbers")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda content: content[:-4096],
    "shorter": lambda content: content[:1000],
    "header": lambda content: content[:9],
    "noise": lambda content: content[:4] + bytes(range(256)) * 64,
    "counts": lambda content: content[:8] + b"\xff" * 16 + content[24:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told(damage: str, read: Read, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(DAMAGES[damage](read.file.read_bytes()))
    with pytest.raises(WeightsError, match=r"is truncated or damaged .*; fetch it again"):
        fill(file, tmp_path / "numbers")


def test_what_the_process_refuses_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + b"no")
    with pytest.raises(WeightsError, match=r"model\.gguf is truncated or damaged \(6 bytes"):
        numbers_of(file)
    assert [*numbers_cache().iterdir()] == []
    file.write_bytes(b"PK")
    with pytest.raises(WeightsError, match=r"model\.gguf does not begin as a GGUF file does"):
        numbers_of(file)


def test_the_process_ends_with_who_started_it(read: Read, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "logitbank.engine.gguf.written", str(read.file), str(tmp_path)]
    ended = subprocess.run([*call, "", ""], stdin=subprocess.DEVNULL, capture_output=True)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert not (tmp_path / "config.json").exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    left = numbers_cache() / f"{hashlib.sha256(b'GGUF').hexdigest()}.partial" / "model.safetensors"
    left.parent.mkdir(parents=True)
    left.touch()
    with pytest.raises(WeightsError, match="its header goes on beyond its end"):
        numbers_of(file)
    assert [*numbers_cache().iterdir()] == []


def test_a_process_that_dies_is_told(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers.sys, "executable", "/bin/false")
    with pytest.raises(WeightsError, match=r"the process that did ended with 1 \(without a word"):
        numbers_of(read.file)


def test_a_cache_that_cannot_be_written_is_told(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SuiteError, match=r"cannot be written \(Not a dir.*; set XDG_CACHE_HOME"):
        numbers_of(read.file)


def test_a_full_disk_is_told_before_and_while_it_is_written(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written, "_halve", full)
    with pytest.raises(DiskSpaceError, match=r"stands for 722 kB .* is full; .*XDG_CACHE_HOME"):
        fill(read.file, tmp_path / "one")
    monkeypatch.setattr(written.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(DiskSpaceError, match=r"stands for 722 kB .* has 1 kB free; .*XDG_CACHE"):
        fill(read.file, tmp_path / "other")


def test_packages_that_are_missing_are_named(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(written.sys.modules, "accelerate", None)
    with pytest.raises(
        MissingExtraError, match=r"accelerate is not .*`pip install \"logitbank\[gguf"
    ):
        fill(read.file, tmp_path / "numbers")


def test_files_are_checkpoints_as_folders_are(tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"step{step}").mkdir()
        (tmp_path / f"step{step}" / "q4.gguf").write_bytes(b"GGUF%d" % step)
    suite = resolve_suite(str(tmp_path))
    paths = [checkpoint.source.path for checkpoint in suite.checkpoints]
    assert paths == [tmp_path / "step10" / "q4.gguf", tmp_path / "step20" / "q4.gguf"]
    assert [str(c.id) for c in suite.checkpoints] == [f"{tmp_path.name} step {n}" for n in (10, 20)]
    for spec in (tmp_path / "step10", tmp_path / "step10" / "q4.gguf"):
        (alone,) = resolve_suite(str(spec)).checkpoints
        assert alone.source.path == paths[0]
    assert (alone.id.model, alone.id.step) == ("q4", None)
    one, other = (LocalSource(path).describe() for path in paths)
    assert one["folder"] == other["folder"] == "q4.gguf"
    assert one["sample"] != other["sample"], "so that another file under the same name is refused"


def test_several_files_in_a_folder_are_told(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(SuiteError, match=r"holds 2 GGUF files, a\.gguf and b\.gguf; give one"):
        resolve_suite(str(tmp_path))


def test_other_ways_than_a_suite_name_it(tmp_path: Path) -> None:
    (tmp_path / "step1").mkdir()
    (tmp_path / "model.gguf").touch()
    (tmp_path / "step1" / "model.gguf").touch()
    with pytest.raises(SuiteError, match=r"GGUF file, which no training saves; use --suite"):
        scan_growing(tmp_path)
    with pytest.raises(WeightsError, match=r"GGUF file, which is read as a checkpoint of --suite"):
        weight_files(tmp_path)
