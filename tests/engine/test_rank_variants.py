"""Adapters and quantised checkpoints on a model that two processes hold together."""

import sys
from pathlib import Path

import numpy as np
import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.extract import extract
from logitbank.store import Bank, verify
from tests.engine.test_adapters import make_family, of_peft, queries
from tests.support.adapters import random_adapter
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.engine_driver import reference
from tests.support.marks import long
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.quantised import quantised_checkpoint
from tests.support.run_driver import questions

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.whole,
    pytest.mark.skipif(sys.platform != "linux", reason="vLLM's processes"),
]
TOLERANCE = 1e-3


def assert_two_ranks_give(
    expected: list[np.ndarray],
    preloaded: Preloaded,
    tmp_path: Path,
    folders: list[Path],
    **others: object,
) -> None:
    require_vllm()
    settings = EngineSettings(
        "vllm", tensor_parallel_size=2, max_length=64, max_batch_tokens=64, **others
    )
    with preloaded.workers("vllm"):
        function = "tests.support.engine_driver:engine"
        found = preloaded.run("vllm", tmp_path, function, settings, folders, queries())
    for rows, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(rows, exact, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("architecture", ["gpt_neox", long("mistral"), long("gpt2")])
def test_two_ranks_give_the_logits_of_peft(
    architecture: Architecture, tmp_path: Path, preloaded: Preloaded
) -> None:
    base, a, b = make_family(tmp_path, architecture)
    of_a, of_b = of_peft(base, a), of_peft(base, b)
    (alone,) = reference([base], queries())
    assert min(np.abs(of_a - alone).max(), np.abs(of_b - alone).max()) > 0.5, "they must differ"
    folders, expected = [a, b, base, a], [of_a, of_b, alone, of_a]
    assert_two_ranks_give(expected, preloaded, tmp_path, folders, base=base)


def test_two_ranks_run_an_adapter_of_a_tied_base(tmp_path: Path, preloaded: Preloaded) -> None:
    base = make_checkpoint(tmp_path / "tiny", seed=4, architecture="llama_tied")
    modules = {
        "model.layers.0.self_attn.q_proj": (64, 64),
        "model.layers.0.self_attn.k_proj": (32, 64),  # of one head, which both ranks hold
        "model.layers.1.mlp.down_proj": (64, 128),
    }
    adapter = random_adapter(tmp_path / "a", base, modules, seed=1)
    expected = [of_peft(base, adapter), *reference([base], queries())]
    assert_two_ranks_give(expected, preloaded, tmp_path, [adapter, base], base=base)


@pytest.mark.parametrize(
    "method",
    ["gptq-8-act-order", long("awq"), long("fp8"), "fp8-blocks", long("ct-packed")],
)
def test_two_ranks_run_quantised_checkpoints_as_the_numbers_that_they_stand_for(
    method: str, tmp_path: Path, preloaded: Preloaded
) -> None:
    plain = make_checkpoint(tmp_path / "tiny", seed=3, architecture="mistral")
    packed, whole = quantised_checkpoint(plain, tmp_path, method)
    expected = reference([whole, plain], queries())
    assert np.abs(expected[0] - expected[1]).max() > 10 * TOLERANCE
    assert_two_ranks_give(expected, preloaded, tmp_path, [packed, plain])


def test_two_ranks_run_an_adapter_of_a_quantised_base(tmp_path: Path, preloaded: Preloaded) -> None:
    plain = make_checkpoint(tmp_path / "tiny", seed=3, architecture="mistral")
    packed, whole = quantised_checkpoint(plain, tmp_path, "gptq")
    module = {"model.layers.0.mlp.down_proj": (64, 128)}
    adapter = random_adapter(tmp_path / "a", whole, module, seed=1)
    expected = [of_peft(whole, adapter), *reference([whole], queries())]
    assert_two_ranks_give(expected, preloaded, tmp_path, [adapter, packed], base=packed)


def test_the_bank_of_adapters_on_two_ranks_is_that_of_one(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    require_vllm()
    family, banks = make_family(tmp_path, "mistral"), []
    for ranks in (1, 2):
        path = tmp_path / f"{ranks}.zarr"
        with preloaded.workers("vllm"):
            summary = extract(
                path,
                suite=family.a.parent,
                base=family.base,
                prompts=questions(),
                engine="vllm",
                dtype="float32",
                canary_every=1,
                tensor_parallel_size=ranks,
            )
        assert summary.complete, summary.failed
        assert not verify(Bank.open(path))
        banks.append({d.checkpoint: d for d in Bank.open(path).deposits()})
    one, two = banks
    assert one.keys() == two.keys()
    assert {str(checkpoint.run) for checkpoint in one} == {"main", "lora-a", "lora-b"}
    for checkpoint, deposit in one.items():
        np.testing.assert_allclose(deposit.logprobs(), two[checkpoint].logprobs(), atol=1e-4)
        assert two[checkpoint].spec.provenance["tensor_parallel_size"] == 2
        made, other = deposit.spec.provenance, two[checkpoint].spec.provenance
        for name in ("weights", "config", "adapter"):
            assert made.get(name) == other.get(name)
