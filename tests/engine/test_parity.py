"""Both engines against plain transformers in float32: the same suite for each."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.hf.packs import packed_positions
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.backends.vllm.memory import cached_tokens
from logitbank.engine.weights.masked import MASKED_FAMILIES
from logitbank.store.format.schema import Query
from tests.support.checkpoints import (
    ARCHITECTURES,
    LANGUAGES,
    MASK_ID,
    MASKED_ARCHITECTURES,
    VOCAB,
    make_series,
)
from tests.support.engine_driver import engine_in_calls, reference
from tests.support.preloaded import Preloaded, require_vllm

TOLERANCE = 1e-3
LogitsOf = Callable[[EngineSettings, list[Path], list[Query]], list[np.ndarray]]
CallsOf = Callable[
    [EngineSettings, list[Path], list[Query], int], list[tuple[np.ndarray, list[int]]]
]


def with_engines(architectures: Sequence[str], *, whole: Collection[str] = ()) -> list[Any]:
    """Each architecture with either engine; vLLM has some of them in `make whole` alone."""
    in_vllm = [
        pytest.param(name, "vllm", marks=[pytest.mark.vllm, *[pytest.mark.whole] * (name in whole)])
        for name in architectures
    ]
    return [*((name, "transformers") for name in architectures), *in_vllm]


def queries() -> list[Query]:
    """Short, one token, repeated beginnings longer than a cache block, longer than a chunk, and one
    that goes on after its position."""
    rng = np.random.default_rng(0)
    begin = tuple(int(t) for t in rng.integers(1, 600, 70))
    lengths = [1, 2, 7, 31, 32, 33, 64, 65, 129, 200, 255]
    drawn = [tuple(int(t) for t in rng.integers(1, 600, n)) for n in lengths]
    shared = [(*begin, *(int(t) for t in rng.integers(1, 600, n))) for n in (1, 5, 40, 100)]
    whole = [Query(ids, len(ids) - 1) for ids in (*drawn, *shared, begin)]
    return [*whole, Query(begin, 40)]


def pairs() -> list[Query]:
    """For a next-sentence head: pairs of one token each to as long as the model takes."""
    rng = np.random.default_rng(2)
    return [
        Query(
            tuple(int(t) for t in rng.integers(5, 500, length)),
            0,
            "next_sentence",
            (0,) * first + (1,) * (length - first),
        )
        for length, first in ((2, 1), (12, 4), (12, 11), (60, 30), (128, 9))
    ]


def masked_queries(*, segments: bool = False, languages: tuple[str, ...] = ("",)) -> list[Query]:
    """Masks at either end and several in a sequence; short ones and as long as the model takes."""
    rng = np.random.default_rng(1)
    found = []
    for at, length in enumerate((3, 4, 7, 12, 12, 60, 128)):
        ids = [int(t) for t in rng.integers(5, 500, length)]
        masks = sorted({0, length // 2, length - 1} if at % 2 else {1})
        for position in masks:
            ids[position] = MASK_ID
        second = (0,) * (length // 2) + (1,) * (length - length // 2) if segments and at > 2 else ()
        language = languages[at % len(languages)]
        found += [Query(tuple(ids), p, "mask", second, language) for p in reversed(masks)]
    return found


class Case(NamedTuple):
    """Checkpoints in the order they are swapped in, and what plain transformers makes of them."""

    folders: list[Path]
    queries: list[Query]
    expected: list[np.ndarray]
    one_matrix: bool = True
    """The head is one matrix, as MobileBERT's is not."""


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    tmp = tmp_path_factory.mktemp(request.param)
    series = make_series(tmp / "series", steps=(0, 1, 2), architecture=request.param)
    folders = [series / f"step{step}" for step in (0, 1, 2, 0)]
    asked = queries()
    expected = reference(folders, asked)
    assert np.abs(expected[0] - expected[1]).max() > 1, "the checkpoints must differ"
    return Case(folders, asked, expected)


@pytest.fixture(scope="module")
def masked_case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    tmp = tmp_path_factory.mktemp(request.param)
    series = make_series(tmp / "series", steps=(0, 1), architecture=request.param)
    folders = [series / f"step{step}" for step in (0, 1, 0)]
    asked = masked_queries(
        segments=request.param == "bert_pretraining",
        languages=LANGUAGES if request.param == "xmod" else ("",),
    )
    if request.param == "bert_pretraining":
        asked = [query for two in zip_longest(asked, pairs()) for query in two if query]
    expected = reference(folders, asked)
    assert np.nanmax(np.abs(expected[0] - expected[1])) > 1, "the checkpoints must differ"
    return Case(folders, asked, expected, request.param != "mobilebert")


@pytest.fixture
def in_calls(engine: EngineName, preloaded: Preloaded, tmp_path: Path) -> CallsOf:
    """What the engine makes; vLLM patches transformers where it runs, so it is apart."""
    if engine == "transformers":
        return engine_in_calls
    require_vllm()
    return partial(preloaded.run, engine, tmp_path, "tests.support.engine_driver:engine_in_calls")


@pytest.fixture
def logits_of(in_calls: CallsOf) -> LogitsOf:
    return lambda *asked: [logits for logits, _ in in_calls(*asked, 1)]


# Gemma 2's class in vLLM has no head: it multiplies by the embedding.
@pytest.mark.parametrize(
    ("case", "engine"),
    with_engines((*ARCHITECTURES, "gemma2"), whole=("gpt_neox_tied", "gpt2", "gemma2")),
    indirect=["case"],
)
def test_swapped_checkpoints_give_the_logits_of_plain_transformers(
    case: Case, engine: EngineName, logits_of: LogitsOf
) -> None:
    # 96 tokens a step: the longer sequences are prefilled in chunks, whose last rows alone count.
    settings = EngineSettings(
        engine, hidden=True, max_batch_tokens=96, max_sequences=8, max_length=256
    )
    assert_same(case, logits_of(settings, case.folders, case.queries))


@pytest.fixture(scope="module")
def every_position(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    tmp = tmp_path_factory.mktemp(f"positions-{request.param}")
    series = make_series(tmp / "series", steps=(0, 1), architecture=request.param)
    folders = [series / f"step{step}" for step in (0, 1, 0)]
    sequences = [q.ids for q in queries() if len(q.ids) in (1, 7, 33, 75, 110, 129, 255)]
    asked = [Query(ids, i) for ids in sequences for i in range(0, len(ids), 1 + len(ids) // 9)]
    contexts = [Query(sequences[-1][:n], n - 1) for n in (75, 76, 77, 90)]
    return Case(folders, [*asked, *contexts], reference(folders, [*asked, *contexts]))


# vLLM has the one class itself, and runs the other through transformers.
@pytest.mark.parametrize(
    ("every_position", "engine"),
    with_engines(("gpt_neox", "gpt2"), whole=("gpt2",)),
    indirect=["every_position"],
)
def test_every_position_of_a_sequence_comes_from_one_pass(
    every_position: Case, engine: EngineName, in_calls: CallsOf
) -> None:
    settings = EngineSettings(
        engine,
        hidden=True,
        max_batch_tokens=96,
        max_sequences=8,
        max_length=256,
    )
    case = every_position
    # What the first call has run is cached for the second, which asks at other positions of it.
    made = in_calls(settings, case.folders, case.queries, 2)
    assert_same(case, [logits for logits, _ in made])
    first = [*leaf_contexts(case.queries[::2])]
    expected = cached_tokens(first, 32) if engine == "vllm" else packed_positions(first, most=96)
    assert [run[0] for _, run in made] == [expected] * len(case.folders), "as it is estimated"


@pytest.mark.vllm
@pytest.mark.whole
def test_recurrent_models_have_no_prefix_cache_and_keep_the_settings_of_their_class(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    require_vllm()
    folder = make_series(tmp_path / "tiny", steps=(0,), architecture="mamba") / "step0"
    settings = EngineSettings("vllm", max_length=128)
    driver = "tests.support.engine_driver:vllm_settings_of_class"
    assert preloaded.run("vllm", tmp_path, driver, folder, settings) == (False, True)


@pytest.mark.parametrize(
    ("masked_case", "engine"),
    [
        *((name, "transformers") for name in MASKED_ARCHITECTURES),
        *(
            pytest.param(name, "vllm", marks=pytest.mark.vllm)
            for name in MASKED_ARCHITECTURES
            if name in MASKED_FAMILIES
        ),
    ],
    indirect=["masked_case"],
)
def test_masks_of_swapped_checkpoints_give_the_logits_of_plain_transformers(
    masked_case: Case, engine: EngineName, logits_of: LogitsOf
) -> None:
    case = masked_case
    settings = EngineSettings(
        engine,
        "masked",
        next_sentence=any(query.head == "next_sentence" for query in case.queries),
        hidden=case.one_matrix,
        max_batch_tokens=160,
        max_sequences=8,
        max_length=128,
    )
    assert_same(case, logits_of(settings, case.folders, case.queries))


@pytest.mark.vllm
@pytest.mark.whole
def test_a_swap_in_low_precision_gives_what_the_checkpoint_gives_by_itself(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    require_vllm()
    make_series(tmp_path / "tiny", steps=(0, 1), architecture="bert_pretraining")
    first, second = (tmp_path / "tiny" / f"step{step}" for step in (0, 1))
    settings = EngineSettings(
        "vllm",
        "masked",
        compute_dtype="bfloat16",
        max_length=128,
        max_batch_tokens=160,
        max_sequences=8,
    )

    def logits(*folders: Path) -> list[np.ndarray]:
        module, asked = "tests.support.engine_driver:engine", masked_queries()
        return preloaded.run("vllm", tmp_path, module, settings, [*folders], asked)  # type: ignore[no-any-return]

    swapped, (alone,) = logits(first, second, first), logits(second)
    np.testing.assert_array_equal(swapped[0], swapped[2])
    np.testing.assert_allclose(swapped[1], alone, rtol=0, atol=1e-4)
    assert np.abs(swapped[0] - swapped[1]).max() > 1


def assert_same(case: Case, logits: list[np.ndarray]) -> None:
    for want, got in zip(case.expected, logits, strict=True):
        assert got.shape == (len(case.queries), VOCAB)
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)
        assert_same_ranks(want, got)


def assert_same_ranks(want: np.ndarray, got: np.ndarray) -> None:
    """Ranks are equal but for entries whose logits lie closer than the two engines do."""
    margin = 2 * np.nanmax(np.abs(want - got))
    whole = ~np.isnan(want).any(axis=1)
    for a, b in zip(want[whole], got[whole], strict=True):
        for token in range(0, VOCAB, 37):
            least = 1 + np.count_nonzero(a > a[token] + margin)
            most = np.count_nonzero(a > a[token] - margin)
            assert least <= 1 + np.count_nonzero(b > b[token]) <= max(most, least)
