"""Heads of masked models in low precision on vLLM: cast once, and anew for each checkpoint."""

from pathlib import Path

import numpy as np
import pytest

from logitbank.engine.backends.protocol import EngineSettings
from tests.engine.test_parity import masked_queries
from tests.support.checkpoints import make_series
from tests.support.preloaded import Preloaded, require_vllm

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize(
    ("dtype", "cast", "tied"), [("float32", 0, True), ("bfloat16", 8, True), ("float16", 8, False)]
)
def test_a_head_casts_its_matrices_once_for_each_checkpoint(
    dtype: str, cast: int, tied: bool, tmp_path: Path, preloaded: Preloaded
) -> None:
    require_vllm()
    module = "tests.support.masked_heads:swapped_head"
    found, expected, made = preloaded.run("vllm", tmp_path, module, dtype, tied)
    assert made == 2 * cast, "two layers of two heads, a weight and a bias each"
    for rows, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(rows, exact, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found[0], found[6]), "the checkpoints must differ"


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
        module = "tests.support.engine_driver:engine"
        found: list[np.ndarray] = preloaded.run(
            "vllm", tmp_path, module, settings, [*folders], masked_queries()
        )
        return found

    swapped, (alone,) = logits(first, second, first), logits(second)
    np.testing.assert_array_equal(swapped[0], swapped[2])
    np.testing.assert_allclose(swapped[1], alone, rtol=0, atol=1e-4)
    assert np.abs(swapped[0] - swapped[1]).max() > 1
