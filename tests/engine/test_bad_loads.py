"""Weights that an engine loads wrongly are refused, by their sums or by the reference check."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from logitbank.engine.backends.plain_logits import evaluate
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.weights.masked import MASKED_FAMILIES
from logitbank.store.format.schema import Query
from tests.support.bad_loads import NAMES, Asked, refusals, sound_refusals
from tests.support.checkpoints import (
    ARCHITECTURES,
    LANGUAGES,
    MASK_ID,
    MASKED_ARCHITECTURES,
    VOCAB,
    Architecture,
    make_checkpoint,
    make_series,
)
from tests.support.preloaded import Preloaded, require_vllm

LONGEST = 64


def settings(engine: EngineName, architecture: Architecture) -> EngineSettings:
    task = "masked" if architecture in MASKED_ARCHITECTURES else "causal"
    return EngineSettings(engine, task, max_batch_tokens=96, max_sequences=8, max_length=LONGEST)


def asked(folder: Path, architecture: Architecture, *, seed: int = 0) -> Asked:
    """Sequences of one token, of a few, and of more than a block of a prefix cache."""
    draw, queries = np.random.default_rng(seed), []
    for size in (1, 5, 21, LONGEST):
        ids = draw.integers(5, VOCAB - 40, size)
        place, head, language = size - 1, "next_token", ""
        if architecture in MASKED_ARCHITECTURES:
            place, head = size // 2, "mask"
            ids[place] = MASK_ID
            language = LANGUAGES[0] if architecture == "xmod" else ""
        queries.append(Query(tuple(map(int, ids)), place, head, language=language))
    return Asked(queries, evaluate(folder, queries, settings("transformers", architecture)))


@pytest.mark.parametrize("architecture", NAMES)
@pytest.mark.parametrize(
    "engine",
    ["transformers", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.whole])],
)
def test_bad_loads_are_refused_by_the_name_of_their_checkpoint(
    engine: EngineName, architecture: Architecture, tmp_path: Path, preloaded: Preloaded
) -> None:
    series = make_series(tmp_path / "toy", steps=(0, 1), architecture=architecture)
    folders = sorted(series.iterdir())
    arguments = (
        settings(engine, architecture),
        architecture,
        folders,
        asked(folders[1], architecture),
    )
    if engine == "vllm":
        require_vllm()
        found = preloaded.run("vllm", tmp_path, "tests.support.bad_loads:refusals", *arguments)
    else:
        found = refusals(*arguments)
    assert len(found) > 22
    refused = {name for name, message in found.items() if message.startswith("toy step 1")}
    assert found.keys() - refused == {"sound", "sound again"}
    assert {found["sound"], found["sound again"]} == {""}


IN_VLLM = (*ARCHITECTURES, "gemma2", *MASKED_FAMILIES)


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "architecture"),
    [
        *(("transformers", each) for each in get_args(Architecture)),
        *(pytest.param("vllm", each, marks=pytest.mark.vllm) for each in IN_VLLM),
    ],
)
def test_sound_loads_are_not_refused(
    engine: EngineName, architecture: Architecture, tmp_path: Path, preloaded: Preloaded
) -> None:
    """Fourteen of each architecture, nearly 400 together, by one engine each."""
    folders = [
        make_checkpoint(tmp_path / f"step{seed}", seed=seed, architecture=architecture)
        for seed in range(14)
    ]
    answers = [asked(folder, architecture, seed=seed) for seed, folder in enumerate(folders)]
    arguments = (settings(engine, architecture), folders, answers)
    if engine == "vllm":
        require_vllm()
        found = preloaded.run(
            "vllm", tmp_path, "tests.support.bad_loads:sound_refusals", *arguments
        )
    else:
        found = sound_refusals(*arguments)
    assert found == [""] * 14
