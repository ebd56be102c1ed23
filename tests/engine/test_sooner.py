"""`--engine auto` takes the engine that has less to run, says so, and is overruled by name."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.backends.contexts import LeafContext, leaf_contexts
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.plan import engine_choice
from logitbank.engine.plan.engine_choice import (
    PACKED,
    cached_tokens,
    cheaper_engine,
    packed_positions,
)
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import UsageError
from logitbank.store import Query
from tests.support.checkpoints import PACKED_ARCHITECTURES, make_checkpoint, make_series
from tests.support.preloaded import require_vllm
from tests.support.resolved import make_plan
from tests.support.run_driver import questions

VLLM = EngineSettings("vllm")
STEM = tuple(range(40))
SHARED = [Query((*STEM, n), 40) for n in range(100, 120)]
APART = [Query(tuple(range(n, n + 41)), 40) for n in range(100, 120)]


def leaves(queries: list[Query]) -> list[LeafContext]:
    return [*leaf_contexts(queries)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return ModelConfig.read(make_checkpoint(tmp_path_factory.mktemp("sooner") / "step0", seed=1))


def test_the_architectures_that_are_tested_are_those_that_are_chosen(tmp_path: Path) -> None:
    types = {
        ModelConfig.read(make_checkpoint(tmp_path / name, seed=1, architecture=name)).model_type
        for name in PACKED_ARCHITECTURES
    }
    assert types == set(PACKED)


def test_shared_beginnings_decide(config: ModelConfig) -> None:
    chosen, (note,) = cheaper_engine(VLLM, leaves(SHARED), config, gpu=False)
    assert chosen == replace(VLLM, engine="transformers")
    # 40 and 20 ends; the first prompt whole, and 9 tokens beyond a block of 32 of the 19 others.
    assert "60 instead of 212 token positions" in note
    assert cheaper_engine(VLLM, leaves(APART), config, gpu=False) == (VLLM, ())


@pytest.mark.parametrize("dtype", ["tf32", "bfloat16", "float16"])
def test_shared_beginnings_decide_in_every_dtype(config: ModelConfig, dtype: ComputeDtype) -> None:
    """On a GPU vLLM's kernels are as fast as torch's in each, so positions count."""
    settings = replace(VLLM, compute_dtype=dtype)
    chosen, (note,) = cheaper_engine(settings, leaves(SHARED), config, gpu=True)
    assert chosen == replace(settings, engine="transformers")
    # 41 tokens of the first, and 9 of the 19 others after two shared blocks of 16.
    assert "60 instead of 212 token positions" in note
    assert cheaper_engine(settings, leaves(APART), config, gpu=True) == (settings, ())


def test_a_long_beginning_is_counted_in_every_row_that_it_stands_in(config: ModelConfig) -> None:
    stem = tuple(range(1000, 1400))
    shots = [Query((*stem, *(n,) * 20), 419) for n in range(50)]
    assert packed_positions(leaves(shots), most=4096) == 3 * 400 + 50 * 20
    assert cheaper_engine(VLLM, leaves(shots), config, gpu=False) == (VLLM, ()), (
        "blocks share as much"
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(VLLM, deterministic=True),
        replace(VLLM, task="masked"),
        EngineSettings("transformers"),
    ],
)
def test_what_packing_does_not_help_stays_as_it_is(
    config: ModelConfig, other: EngineSettings
) -> None:
    assert cheaper_engine(other, leaves(SHARED), config, gpu=False) == (other, ())
    unknown = replace(config, model_type="mamba")
    assert cheaper_engine(VLLM, leaves(SHARED), unknown, gpu=False) == (VLLM, ())


def test_on_a_gpu_vllm_shares_smaller_blocks(config: ModelConfig) -> None:
    """Of 20 + n tokens, the first 16 are a block there, and not on a CPU, where 32 are."""
    beginning = (1,) * 20
    contexts = leaves([Query((*beginning, n, n), 21) for n in range(2, 9)])
    chosen, (note,) = cheaper_engine(VLLM, contexts, config, gpu=True)
    assert chosen.engine == "transformers"
    assert "34 instead of 58" in note, "20 + 7 × 2, and 22 + 6 × 6"
    _, (note,) = cheaper_engine(VLLM, contexts, config, gpu=False)
    assert "instead of 154" in note, "7 × 22"


@given(
    st.lists(
        st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple), min_size=1, max_size=30
    ),
    st.integers(1, 4),
)
def test_work_is_counted_as_by_hand(texts: list[tuple[int, ...]], block: int) -> None:
    queries = [Query(ids, len(ids) - 1) for ids in texts]
    prefixes = {ids[:n] for ids in texts for n in range(1, len(ids) + 1)}
    assert packed_positions(leaves(queries), most=4096) == len(prefixes)
    run, known = 0, set()
    for ids in (t for t in set(texts) if not any(t == o[: len(t)] != o for o in texts)):
        blocks = [ids[: n * block] for n in range(1, (len(ids) - 1) // block + 1)]
        run += len(ids) - block * sum(start in known for start in blocks)
        known.update(blocks)
    assert cached_tokens(leaves(queries), block) == run


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
