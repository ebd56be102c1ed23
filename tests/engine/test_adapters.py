"""Adapters as runs of one base: both engines against PEFT, swaps of what differs, and a bank."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.hf import backend as hf
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.extract import extract
from logitbank.engine.suites.suites import Base, LocalSource, Suite, resolve_suite
from logitbank.errors import LogitbankError, SuiteError, WeightsError
from logitbank.store import Bank
from logitbank.store.format.schema import Query
from tests.support.adapters import random_adapter
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.engine_driver import engine, reference
from tests.support.preloaded import Preloaded, require_vllm

TOLERANCE = 1e-3
A: dict[str, dict[str, tuple[int, int]]] = {
    "mistral": {
        "model.layers.0.self_attn.q_proj": (128, 64),
        "model.layers.1.mlp.down_proj": (64, 128),
    },
    "gpt2": {
        "transformer.h.0.attn.c_attn": (192, 64),
        "transformer.h.1.attn.c_proj": (64, 64),
    },
    "gpt_neox": {
        "gpt_neox.layers.0.attention.query_key_value": (192, 64),
        "gpt_neox.layers.1.attention.dense": (64, 64),
    },
}
"""Modules that adapters change, by architecture, with their outputs and inputs."""
B = {
    "mistral": {"model.layers.0.self_attn.v_proj": (64, 64)},
    "gpt2": {"transformer.h.0.mlp.c_fc": (256, 64)},
    "gpt_neox": {"gpt_neox.layers.0.attention.query_key_value": (192, 64)},
}


class Family(NamedTuple):
    base: Path
    a: Path
    b: Path

    def settings(self, engine: EngineName = "transformers", **more: Any) -> EngineSettings:
        return EngineSettings(engine, base=self.base, max_length=64, **more)


def make_family(folder: Path, architecture: Architecture) -> Family:
    base = make_checkpoint(folder / "tiny", seed=3, architecture=architecture)
    fields = {"fan_in_fan_out": architecture == "gpt2"}
    adapters = folder / "adapters"
    a = random_adapter(adapters / "lora-a", base, A[architecture], seed=1, r=4, **fields)
    b = random_adapter(
        adapters / "lora-b", base, B[architecture], seed=2, use_rslora=True, **fields
    )
    return Family(base, a, b)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return make_family(tmp_path_factory.mktemp("family"), "mistral")


def queries() -> list[Query]:
    rng = np.random.default_rng(5)
    drawn = [tuple(int(t) for t in rng.integers(1, 600, n)) for n in (1, 3, 9, 30, 60)]
    return [Query(ids, len(ids) - 1) for ids in drawn]


def of_peft(base: Path, adapter: Path) -> np.ndarray:
    """Logits of the base with PEFT's own layers around it, nothing merged."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model = peft.PeftModel.from_pretrained(plain, adapter).eval()
    with torch.inference_mode():
        rows = [model(input_ids=torch.tensor([q.ids])).logits[0, -1].numpy() for q in queries()]
    return np.stack(rows)


@pytest.mark.parametrize(
    ("architecture", "engine_name"),
    [
        *((name, "transformers") for name in A),
        pytest.param("mistral", "vllm", marks=pytest.mark.vllm),  # fuses q, k and v
        pytest.param("gpt2", "vllm", marks=[pytest.mark.vllm, pytest.mark.long]),
    ],
)
def test_adapters_give_the_logits_of_peft(
    architecture: Architecture, engine_name: EngineName, tmp_path: Path, preloaded: Preloaded
) -> None:
    base, a, b = family = make_family(tmp_path, architecture)
    of_a, of_b = of_peft(base, a), of_peft(base, b)
    (alone,) = reference([base], queries())
    assert min(np.abs(of_a - alone).max(), np.abs(of_b - alone).max()) > 0.5, "they must differ"
    asked = (family.settings(engine_name), [a, b, base, a], queries())
    if engine_name == "vllm":
        require_vllm()
        module = "tests.support.engine_driver:engine"
        found = preloaded.run("vllm", tmp_path, module, *asked)
    else:
        found = engine(*asked)
    for rows, expected in zip(found, (of_a, of_b, alone, of_a), strict=True):
        np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE)


def test_only_what_differs_is_swapped_and_digests_are_those_of_a_fresh_load(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, a, b = family
    order = [base, a, b, base, b, a]
    fresh = {
        each: open_backend(each, family.settings()).load(each, checkpoint="c").weights
        for each in family
    }
    assert len(set(fresh.values())) == 3
    backend = open_backend(base, family.settings())
    backend.load(base, checkpoint="c")
    monkeypatch.setattr(hf, "read_model", lambda *_: pytest.fail("the base is loaded again"))
    for each in order:
        assert backend.load(each, checkpoint="c").weights == fresh[each]


@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.up_proj.weight"]
)
def test_a_swap_of_what_differs_is_proved_over_all_parameters(family: Family, name: str) -> None:
    backend: Any = open_backend(family.base, family.settings())
    backend.load(family.a, checkpoint="c")
    parameter = backend._model.get_parameter(name)
    with torch.no_grad():
        parameter[0, 0] += 1
    if "down_proj" in name:  # sent again, as lora-a changes it
        backend.load(family.b, checkpoint="c")
        return
    with pytest.raises(WeightsError, match="c: after the swap the engine's weights are not those"):
        backend.load(family.b, checkpoint="c")
    # What was refused is not built upon: the next load sends all of it.
    backend.load(family.b, checkpoint="c")


def test_adapters_of_a_tied_base_keep_embedding_and_head_one(tmp_path: Path) -> None:
    base = make_checkpoint(tmp_path / "tiny", seed=4, architecture="llama_tied")
    module = {"model.layers.0.self_attn.q_proj": (64, 64)}
    adapter = random_adapter(tmp_path / "a", base, module, seed=1)
    settings = EngineSettings("transformers", base=base, max_length=64)
    expected = of_peft(base, adapter)
    for rows in engine(settings, [base, adapter], queries())[1:]:
        np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE)


def test_weights_of_an_adapter_are_those_of_peft_merged(family: Family, tmp_path: Path) -> None:
    """The whole stream, against a checkpoint that PEFT merged and saved itself."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    from logitbank.engine.weights.variants.checkpoint import checkpoint_weights

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = AutoModelForCausalLM.from_pretrained(family.base, dtype=torch.float32)
        peft.PeftModel.from_pretrained(plain, family.b).merge_and_unload().save_pretrained(tmp_path)
    merged = load_file(tmp_path / "model.safetensors")
    own = dict(checkpoint_weights(family.b, base=family.base, legacy_weights=False).stream())
    assert merged.keys() == own.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-6, atol=1e-7)


# Names


def ids(suite: Suite) -> list[str]:
    return [str(checkpoint.id) for checkpoint in suite.checkpoints]


def empty_adapter(folder: Path, base: Path) -> Path:
    return random_adapter(folder, base, {}, seed=0)


def test_adapters_are_runs_of_the_model_that_their_base_is(family: Family) -> None:
    suite = resolve_suite(str(family.a.parent))
    assert ids(suite) == ["tiny release", "tiny lora-a release", "tiny lora-b release"]
    assert suite.base == family.base.resolve()
    assert suite.notes == (
        f"the base of the adapters is {family.base}, as they name it; --base names another",
    )
    named = resolve_suite(str(family.a.parent), base=Base(LocalSource(family.base), family.base))
    assert (ids(named), named.notes) == (ids(suite), ())
    assert ids(resolve_suite(str(family.a))) == ["tiny release", "tiny lora-a release"]
    assert ids(resolve_suite(str(family.a.parent), model="m"))[1] == "m lora-a release"


def test_saved_steps_of_an_adapter_are_steps_of_its_run(family: Family, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("x/checkpoint-10", "x/checkpoint-20", "seed1/step5", "y"):
        empty_adapter(runs / name, family.base)
    empty_adapter(runs / "x", family.base)
    everything = resolve_suite(str(runs), steps="5,10,20,release")
    expected = ["release", "seed1 step 5", "x step 10", "x step 20", "x release", "y release"]
    assert sorted(ids(everything)) == sorted(f"tiny {name}" for name in expected)
    assert {c.id.run: c.id.run_seed for c in everything.checkpoints}["seed1"] == 1
    # Of a run with steps the release is left out unless it is asked for, as everywhere.
    found = ids(resolve_suite(str(runs / "x")))
    assert sorted(found) == ["tiny release", "tiny x step 10", "tiny x step 20"]


def test_adapters_may_lie_in_their_base(family: Family, tmp_path: Path) -> None:
    base = make_checkpoint(tmp_path / "m", seed=1, architecture="mistral")
    empty_adapter(base / "lora", base)
    assert ids(resolve_suite(str(base))) == ["m release", "m lora release"]


def test_a_base_that_is_a_step_keeps_its_name(family: Family, tmp_path: Path) -> None:
    base = make_checkpoint(tmp_path / "m" / "step7", seed=1, architecture="mistral")
    empty_adapter(tmp_path / "adapters" / "x", tmp_path)
    suite = resolve_suite(str(tmp_path / "adapters"), base=Base(LocalSource(base), base))
    assert sorted(ids(suite)) == ["m step 7", "m x release"]


def test_bases_that_are_not_one_are_refused(family: Family, tmp_path: Path) -> None:
    there = tmp_path / "adapters"
    empty_adapter(there / "x", Path("owner/name"))
    with pytest.raises(SuiteError, match="is an adapter of 'owner/name', which is no folder here"):
        resolve_suite(str(there))
    empty_adapter(there / "x", family.base)
    empty_adapter(there / "y", tmp_path)
    with pytest.raises(SuiteError, match="extract those of each base on their own, or say with"):
        resolve_suite(str(there))
    with pytest.raises(SuiteError, match="is an adapter itself"):
        resolve_suite(str(there), base=Base(LocalSource(family.a), family.a))
    with pytest.raises(SuiteError, match=r"holds no adapter_config\.json; leave it out"):
        resolve_suite(str(family.base), base=Base(LocalSource(family.base), family.base))
    with pytest.raises(SuiteError, match="--base is for a folder of adapters, and 'pythia-14m'"):
        resolve_suite("pythia-14m", base=Base(LocalSource(family.base), family.base))


# In a bank


@pytest.fixture
def quick_workers(preloaded: Preloaded) -> Iterator[None]:
    with preloaded.workers("transformers"):
        yield


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    line = '{"id": "a", "text": "the nurse said", "options": [" he", " she"], "answer": " he"}'
    path.write_text(line + "\n")
    return path


def test_a_bank_has_the_base_and_its_adapters(
    family: Family, prompts: Path, tmp_path: Path, quick_workers: None
) -> None:
    bank = tmp_path / "bank.zarr"
    suite = family.a.parent
    summary = extract(bank, suite=suite, prompts=str(prompts), engine="transformers")
    assert len(summary.done) == 3
    assert not summary.failed
    made = {d.checkpoint.run: d.spec.provenance for d in Bank.open(bank).deposits()}
    assert made.keys() == {"main", "lora-a", "lora-b"}
    assert "adapter" not in made["main"]
    source, adapter = made["lora-b"]["source"], made["lora-b"]["adapter"]
    assert isinstance(source, dict)
    assert isinstance(adapter, dict)
    assert source["base"] == made["main"]["source"]
    assert adapter["base_weights"] == made["main"]["weights"]
    assert len({str(each["weights"]) for each in made.values()} | {str(adapter["weights"])}) == 4
    again = extract(bank, suite=suite, prompts=str(prompts), engine="transformers")
    assert not again.done
    assert again.plan.rows == 0


def test_another_base_under_the_same_name_is_refused(
    family: Family, prompts: Path, tmp_path: Path, quick_workers: None
) -> None:
    bank = tmp_path / "bank.zarr"
    extract(bank, suite=family.a, prompts=str(prompts), engine="transformers")
    other = make_checkpoint(tmp_path / "tiny", seed=9, architecture="mistral")
    with pytest.raises(SuiteError, match="from another source"):
        extract(bank, suite=family.a, base=other, prompts=str(prompts), engine="transformers")


def test_what_cannot_be_run_is_refused_while_planning(
    family: Family, prompts: Path, tmp_path: Path
) -> None:
    there = tmp_path / "adapters"
    random_adapter(there / "fine", family.base, B["mistral"], seed=1)
    random_adapter(there / "other", family.base, B["mistral"], seed=1, use_dora=True)
    for dry_run in (True, False):
        with pytest.raises(LogitbankError, match="use_dora 'True', which is not supported"):
            extract(tmp_path / "b.zarr", suite=there, prompts=str(prompts), dry_run=dry_run)
    assert not (tmp_path / "b.zarr").exists()
    with pytest.raises(SuiteError, match="is an adapter; give the folder of its base with --base"):
        extract(tmp_path / "b.zarr", follow=there, prompts=str(prompts))
    with pytest.raises(SuiteError, match="--base 'x' is neither a folder nor owner/name"):
        extract(tmp_path / "b.zarr", suite=there, base="x", prompts=str(prompts))


def test_an_adapter_that_is_damaged_later_fails_alone(
    family: Family, prompts: Path, tmp_path: Path, quick_workers: None
) -> None:
    there = tmp_path / "adapters"
    for name in ("x", "y"):
        adapter = random_adapter(there / name, family.base, B["mistral"], seed=1)
    file = adapter / "adapter_model.safetensors"
    tensors = {name: tensor * torch.nan for name, tensor in load_file(file).items()}
    save_file(tensors, file)
    summary = extract(tmp_path / "b.zarr", suite=there, prompts=str(prompts), engine="transformers")
    assert [str(c) for c in summary.done] == ["tiny release", "tiny x release"]
    assert [str(f.checkpoint) for f in summary.failed] == ["tiny y release"]
