"""Packed contexts give the logits of each alone: of every architecture, shape of tree and dtype."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.hf.packs import packed_positions
from logitbank.store import Query
from tests.support.checkpoints import LONGEST, PACKED_ARCHITECTURES, Architecture, make_checkpoint
from tests.support.engine_driver import reference
from tests.support.packed_driver import loaded, scored, scored_alone, tree

CHAIN = tuple(range(20, 20 + LONGEST))


def full_queries(*contexts: tuple[int, ...]) -> list[Query]:
    return [Query(ids, len(ids) - 1) for ids in contexts]


SHAPES = {
    "a tree of one node": full_queries((7,)),
    "depth 1": full_queries((7,), (8,), (600,)),
    "a single chain": full_queries(CHAIN[:60]),
    "two chains that share nothing": full_queries(CHAIN[:60], CHAIN[100:170]),
    "every beginning of a chain": full_queries(*(CHAIN[:n] for n in range(1, 40))),
    "every position of a chain": [Query(CHAIN[:40], n) for n in range(40)],
    "the longest, apart in the last token": full_queries(CHAIN, (*CHAIN[:-1], 5), (*CHAIN[:-1], 6)),
    "the longest, apart in the first token": full_queries(CHAIN, (5, *CHAIN[1:])),
    "of all kinds": tree(),
}


class Case(NamedTuple):
    backend: TransformersBackend
    expected: dict[str, np.ndarray]
    """By plain transformers, of each shape."""


@pytest.fixture(scope="module", params=PACKED_ARCHITECTURES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp(request.param) / "step0"
    make_checkpoint(folder, seed=1, architecture=request.param)
    backend, note = loaded(folder)
    assert note == ""
    assert backend.describe()["packed"] == 256
    queries = [query for shape in SHAPES.values() for query in shape]
    [rows] = reference([folder], queries)
    parts = np.split(rows, np.cumsum([len(shape) for shape in SHAPES.values()])[:-1])
    return Case(backend, dict(zip(SHAPES, parts, strict=True)))


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_contexts_give_the_logits_of_each_alone(shape: str, case: Case) -> None:
    queries = SHAPES[shape]
    rows, run = scored(case.backend, queries)
    np.testing.assert_allclose(rows, case.expected[shape], atol=1e-4)
    assert run == packed_positions(leaf_contexts(queries), most=4096)


@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_packing_rounds_to_bfloat16_as_running_alone_does(
    architecture: Architecture, tmp_path: Path
) -> None:
    """Both are compared with float32, on weights that bfloat16 has: what is left is rounding.

    Packing changes the order of sums only, so its errors are others of the same size. Their mean
    squares are of 24 contexts of 640 logits: the ten ratios are 0.96 to 1.04.
    """
    folder = make_checkpoint(tmp_path / "drawn", seed=1, architecture=architecture)
    rounded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    rounded.save_pretrained(folder)
    backend, note = loaded(folder, dtype="bfloat16")
    assert note == ""
    [exact] = reference([folder], tree())
    rows, _ = scored(backend, tree())
    error, alone = (
        np.sqrt(np.square(found - exact).mean()) for found in (rows, scored_alone(backend, tree()))
    )
    assert 0 < error < 1.15 * alone


def test_soft_caps_hold_in_packed_contexts(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="gemma2")
    config = json.loads((folder / "config.json").read_text())
    capped = {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 4.0}
    [uncapped] = reference([folder], tree())
    (folder / "config.json").write_text(json.dumps(config | capped))
    [expected] = reference([folder], tree())
    assert np.abs(4 * np.tanh(uncapped / 4) - expected).max() > 0.1, "attention is capped, too"
    backend, note = loaded(folder)
    assert note == ""
    np.testing.assert_allclose(scored(backend, tree())[0], expected, atol=1e-4)
