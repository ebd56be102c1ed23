"""`--engine auto` takes the engine that has less to run, says so, and is overruled by name."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.hf.packs import PACKED, packed_positions
from logitbank.engine.backends.vllm.memory import cached_tokens
from logitbank.engine.plan import engine_choice
from logitbank.engine.plan.engine_choice import cheaper_engine
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import UsageError
from logitbank.store import Query
from tests.support.checkpoints import PACKED_ARCHITECTURES, make_checkpoint, make_series
from tests.support.fakes import questions as texts
from tests.support.preloaded import require_vllm
from tests.support.resolved import make_plan
from tests.support.run_driver import questions

STEM = tuple(range(40))
SHARED = [Query((*STEM, n), 40) for n in range(100, 120)]
APART = [Query(tuple(range(n, n + 41)), 40) for n in range(100, 120)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return ModelConfig.read(make_checkpoint(tmp_path_factory.mktemp("sooner") / "step0", seed=1))


def test_the_architectures_that_are_tested_are_those_that_are_chosen(tmp_path: Path) -> None:
    types = {
        ModelConfig.read(make_checkpoint(tmp_path / name, seed=1, architecture=name)).model_type
        for name in PACKED_ARCHITECTURES
    }
    assert types == set(PACKED)


def sharing(queries: list[Query], config: ModelConfig, *, gpu: bool) -> str:
    most = 8192 if gpu else 4096
    engine, note = cheaper_engine("vllm", queries, config, max_batch_tokens=most, gpu=gpu)
    assert engine == ("transformers" if note else "vllm")
    return note


def test_shared_beginnings_decide(config: ModelConfig) -> None:
    # 40 and 20 ends; the first prompt whole, and 9 tokens beyond a block of 32 of the 19 others.
    assert "60 instead of 212 token positions" in sharing(SHARED, config, gpu=False)
    # 41 tokens of the first, and 9 of the 19 others after two shared blocks of 16.
    assert "60 instead of 212 token positions" in sharing(SHARED, config, gpu=True)
    for gpu in (False, True):
        assert not sharing(APART, config, gpu=gpu)
        assert not sharing(SHARED, replace(config, model_type="mamba"), gpu=gpu)


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({}, "transformers"),
        ({"compute_dtype": "bfloat16"}, "transformers"),
        ({"compute_dtype": "float16"}, "transformers"),
        ({"deterministic": True}, "vllm"),
        ({"engine": "vllm"}, "vllm"),
    ],
)
def test_the_plan_takes_the_engine_that_has_less_to_run(
    changes: dict[str, Any], engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU vLLM's kernels are as fast as torch's in each dtype, so positions count."""
    require_vllm()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # vLLM has deterministic kernels only there
    series = make_series(tmp_path / "neox", steps=(0,))
    stem = " the nurse said he was busy" * 5
    prompts = texts(*(f"{stem}{end}" for end in (" the", " nurse", " said", " he", " was")))
    request = ExtractRequest(suites=resolve_suite(str(series)), prompts=prompts, **changes)
    prepared = make_plan(request, None, series / "step0", gpu=True)
    assert prepared.settings.engine == engine
    noted = any("prefix sharing: " in note for note in prepared.notes)
    assert noted == (engine == "transformers")


def test_settings_of_an_engine_are_made_in_the_plan_alone() -> None:
    root = Path(engine_choice.__file__).parents[1]
    calls = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "EngineSettings"
    ]
    assert calls == ["plan/prepare.py"]
    changed = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"\breplace\(\s*(\w+\.)?(settings|request)\b", path.read_text())
    ]
    assert changed == ["backends/out_of_memory.py"], "smaller batches after a lack of memory"


def test_a_long_beginning_is_counted_in_every_row_that_it_stands_in(config: ModelConfig) -> None:
    stem = tuple(range(1000, 1400))
    shots = [Query((*stem, *(n,) * 20), 419) for n in range(50)]
    assert packed_positions(leaf_contexts(shots), most=4096) == 3 * 400 + 50 * 20
    assert not sharing(shots, config, gpu=False), "blocks share as much"


def test_on_a_gpu_vllm_shares_smaller_blocks(config: ModelConfig) -> None:
    """Of 20 + n tokens, the first 16 are a block there, and not on a CPU, where 32 are."""
    queries = [Query((*(1,) * 20, n, n), 21) for n in range(2, 9)]
    assert "34 instead of 58" in sharing(queries, config, gpu=True), "20 + 7 × 2, and 22 + 6 × 6"
    assert "instead of 154" in sharing(queries, config, gpu=False), "7 × 22"


@given(
    st.lists(
        st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple), min_size=1, max_size=30
    ),
    st.integers(1, 4),
)
def test_work_is_counted_as_by_hand(texts: list[tuple[int, ...]], block: int) -> None:
    queries = [Query(ids, len(ids) - 1) for ids in texts]
    prefixes = {ids[:n] for ids in texts for n in range(1, len(ids) + 1)}
    assert packed_positions(leaf_contexts(queries), most=4096) == len(prefixes)
    run, known = 0, set()
    for ids in (t for t in set(texts) if not any(t == o[: len(t)] != o for o in texts)):
        blocks = [ids[: n * block] for n in range(1, (len(ids) - 1) // block + 1)]
        run += len(ids) - block * sum(start in known for start in blocks)
        known.update(blocks)
    assert cached_tokens(leaf_contexts(queries), block) == run


@pytest.mark.parametrize(
    ("found", "noted"),
    [("5.19.0", False), ("5.24.3", False), ("5.25.0", True), ("6.0.0.dev0", True)],
)
def test_a_release_newer_than_those_tested_is_noted(
    found: str, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": "2.13.0+cpu", "transformers": found}
    monkeypatch.setattr(engine_choice, "version", versions.get)
    notes = engine_choice.version_notes()
    assert [f"transformers {found} is newer" in note for note in notes] == [True] * noted


def test_the_newest_tested_release_is_that_of_make_anywhere() -> None:
    settings = (Path(__file__).parents[2] / "scripts" / "anywhere.py").read_text()
    assert f'"{engine_choice.NEWEST_TESTED["transformers"]}.' in settings


def test_state_space_models_go_to_transformers_because_vllm_changes_their_weights(
    tmp_path: Path,
) -> None:
    require_vllm()
    series = make_series(tmp_path / "mamba", steps=(0,), architecture="mamba")
    request = ExtractRequest(suites=resolve_suite(str(series)), prompts=questions())
    prepared = make_plan(request, None, series / "step0")
    assert prepared.settings.engine == "transformers"
    (note,) = [note for note in prepared.notes if "no swap can be proved" in note]
    assert note.startswith("engine: transformers (vLLM changes weights of 'mamba' models")
    with pytest.raises(UsageError, match="no swap can be proved. Use --engine transformers"):
        make_plan(replace(request, engine="vllm"), None, series / "step0")
