"""States of layers, against plain transformers: hidden states through the final norm and the head
by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from logitbank.cli.screen.run import _levels
from logitbank.engine.backends.hf.lens import Lens
from logitbank.engine.extract import extract
from logitbank.engine.plan.layers import layers_of
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.workers.events import Planned
from logitbank.errors import KeepLevelError, UsageError
from logitbank.store import Bank, Deposit, verify
from tests.engine.test_hidden import CAUSAL, MASKED, PAIRS, _in_this_process, fill, scores
from tests.support.checkpoints import LANGUAGES, Architecture, make_checkpoint
from tests.support.command import Call

__all__ = ["_in_this_process"]
TINY = ModelConfig(300, None, ("gpt2", 64, 12, 4, 300), "gpt2")
Head = Any


def checkpoint(path: Path, architecture: Architecture) -> Path:
    return make_checkpoint(path / "tiny" / "step0", seed=1, architecture=architecture)


def model_of(folder: Path, kind: Any) -> Any:
    return kind.from_pretrained(folder, attn_implementation="eager").eval().float()


def tails(model: Any, architecture: Architecture) -> Head:
    """From the last block's output to logits, written out by hand for each architecture."""
    if architecture == "gpt_neox":
        return lambda x: model.lm_head(model.gpt_neox.final_layer_norm(x))
    if architecture == "gpt2":
        return lambda x: model.lm_head(model.transformer.ln_f(x))
    if architecture == "gemma2":
        return lambda x: 30 * torch.tanh(model.lm_head(model.model.norm(x)) / 30)
    if architecture == "llama_tied":
        return lambda x: model.lm_head(model.model.norm(x))
    if architecture == "bloom":
        return lambda x: model.lm_head(model.transformer.ln_f(x))
    if architecture == "bert":
        return lambda x: model.cls.predictions.decoder(model.cls.predictions.transform(x))
    return model.lm_head  # RoBERTa's and X-MOD's: dense, GELU, norm and decoder


def by_hand(
    deposit: Deposit, bank: Bank, folder: Path, architecture: Architecture, **inputs: Any
) -> NDArray[np.float64]:
    """Log-probabilities (layers, q, v) of every layer, with hidden states as transformers tells
    them; but for the last, which comes from a hook, as transformers tells that after the norm."""
    masked = architecture in ("bert", "roberta", "xmod")
    kind = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    model = model_of(folder, kind)
    tail, found = tails(model, architecture), []
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    blocks = next(each for each in lists if len(each) == model.config.num_hidden_layers)
    last: list[torch.Tensor] = []
    blocks[-1].register_forward_hook(
        lambda *args: last.append(args[2] if isinstance(args[2], torch.Tensor) else args[2][0])
    )
    for query in bank.query_set(deposit.query_set).queries:
        last.clear()
        with torch.inference_mode():
            made = model(torch.tensor([query.ids]), output_hidden_states=True, **inputs)
            states = [*made.hidden_states[:-1], last[0]]
            logits = torch.stack([tail(s[0, query.position]).double() for s in states])
        found.append(torch.log_softmax(logits, dim=-1).numpy())
    return np.stack(found, axis=1)


@pytest.mark.parametrize(
    "architecture", ["gpt_neox", "gpt2", "llama_tied", "gemma2", "bloom", "bert", "roberta", "xmod"]
)
def test_every_layer_is_that_of_transformers(tmp_path: Path, architecture: Architecture) -> None:
    folder = checkpoint(tmp_path, architecture)
    masked = architecture in ("bert", "roberta", "xmod")
    options: dict[str, Any] = {"prompts": MASKED if masked else CAUSAL}
    inputs: dict[str, Any] = {}
    if architecture == "xmod":
        options["language"], inputs["lang_ids"] = LANGUAGES[0], torch.tensor([0])
    bank = fill(tmp_path / "b", folder.parent, keep="hidden", layers="all", **options)
    plain = fill(tmp_path / "p", folder.parent, keep="hidden", **options)
    (deposit,), (before,) = bank.deposits(), plain.deposits()
    expected = by_hand(deposit, bank, folder, architecture, **inputs)
    assert deposit.layers == tuple(range(len(expected)))
    for layer, values in enumerate(expected):
        np.testing.assert_allclose(deposit.lens(layer), values, rtol=0, atol=5e-5)
    np.testing.assert_allclose(deposit.lens(deposit.layers[-1]), deposit.logprobs(), atol=5e-5)
    np.testing.assert_array_equal(deposit.hidden(), before.hidden())
    assert scores(bank).equals(scores(plain)), "to the last bit"
    assert deposit.spec.provenance["model_layers"] == deposit.layers[-1]
    assert verify(bank) == ()


def test_layers_come_to_a_next_sentence_head_by_its_pooler(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "bert_pretraining")
    options: dict[str, Any] = {"prompts": [MASKED, PAIRS], "keep": "hidden", "layers": "-1,1"}
    bank = fill(tmp_path / "b", folder.parent, **options)
    model = model_of(folder, transformers.AutoModelForPreTraining)
    (deposit,) = (d for d in bank.deposits() if "next_sentence" in d.spec.heads)
    last = model.config.num_hidden_layers
    assert deposit.layers == (1, last)
    for row, query in enumerate(bank.query_set(deposit.query_set).queries):
        inputs = {"token_type_ids": torch.tensor([query.segments])} if query.segments else {}
        with torch.inference_mode():
            ids = torch.tensor([query.ids])
            states = model(ids, output_hidden_states=True, **inputs).hidden_states
            pooled = [model.bert.pooler(states[layer]) for layer in (1, last)]
            logits = [model.cls.seq_relationship(p)[0].double() for p in pooled]
        for layer, values in zip((1, last), logits, strict=True):
            expected = torch.log_softmax(values, dim=-1).numpy()
            np.testing.assert_allclose(deposit.lens(layer, [row])[0], expected, atol=5e-5)


def test_chosen_layers_are_those_of_all(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt_neox").parent
    every = fill(tmp_path / "all", folder, keep="hidden", layers="all").deposits()[0]
    for n, options in enumerate(
        (
            {"layers": "-1,0"},
            {"layers": "0,2", "deterministic": True},
            {"layers": "0,2", "keep": "auto", "dtype": "float16"},
        )
    ):
        (some,) = fill(tmp_path / str(n), folder, **({"keep": "hidden"} | options)).deposits()
        assert some.layers == (0, every.layers[-1])
        for layer in some.layers:
            loose = 0.02 if "dtype" in options else 5e-5
            np.testing.assert_allclose(some.lens(layer), every.lens(layer), rtol=0, atol=loose)
    assert some.layout.dtype == "float16"


def test_a_run_goes_on_with_its_layers_and_no_others(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt_neox").parent
    fill(tmp_path / "b", folder, keep="hidden", layers="0,2")
    with pytest.raises(KeepLevelError, match="is in the bank with --layers 0,2, not all"):
        fill(tmp_path / "b", folder, keep="hidden", layers="all")
    with pytest.raises(KeepLevelError, match="use --layers 0,2 or a new bank"):
        fill(tmp_path / "b", folder, keep="hidden")
    fill(tmp_path / "b", folder, keep="hidden", layers="0,-1")
    more = replace(CAUSAL, name="more", prompts=CAUSAL.prompts[:1])
    bank = fill(tmp_path / "b", folder, keep="hidden", layers="0,2", prompts=[CAUSAL, more])
    assert [deposit.layers for deposit in bank.deposits()] == [(0, 2)]


def test_lower_levels_of_a_bank_with_layers_need_no_layers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt_neox").parent
    fill(tmp_path / "b", folder, keep="hidden", layers="2")
    bank = fill(tmp_path / "b", folder, keep="options", dtype="float32")
    assert bank.deposits()[0].layers == (2,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "full"}, "--layers keeps states beside those of --keep hidden, and not at"),
        ({"keep": "topk:4"}, "not at level topk:4; give --keep hidden with it"),
        ({"layers": "3"}, r"the model has 2 layers, so 3 is none; use 0, .* to 2, or -1"),
        ({"layers": "-4"}, "the model has 2 layers, so -4 is none"),
        ({"layers": "some"}, "--layers 'some' names no layers; use all, or a list"),
        ({"layers": "1,"}, "--layers '1,' names no layers"),
        (
            {"engine": "vllm"},
            "vLLM does not hand over what comes out of layers, .*; use --engine transf",
        ),
    ],
)
def test_layers_that_cannot_be_had_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    folder = checkpoint(tmp_path, "gpt_neox").parent
    with pytest.raises(UsageError, match=message):
        fill(tmp_path / "b", folder, **({"keep": "hidden", "layers": "all"} | options))
    assert not (tmp_path / "b").exists() or not Bank.open(tmp_path / "b").deposits()


def test_auto_takes_transformers_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.engine.extract.choose_engine", lambda *_, **__: "vllm")
    folder, events = checkpoint(tmp_path, "gpt_neox").parent, []
    options: dict[str, Any] = {"keep": "hidden", "layers": "all", "dry_run": True}
    extract(tmp_path / "b", suite=str(folder), prompts=CAUSAL, on_event=events.append, **options)
    (planned,) = (event for event in events if isinstance(event, Planned))
    assert planned.engine == "transformers"
    assert any("vLLM does not hand over what comes out of layers" in n for n in planned.notes)
    layouts = {deposit.layout.layers for deposit in planned.plan.deposits}
    assert layouts == {(0, 1, 2)}
    lines = _levels(planned.plan)
    assert ["hidden" in line for line in lines] == ["layers included" in line for line in lines]
    assert not any("loses nothing" in line for line in lines), "no other level has layers"


def swapped(model: Any) -> list[torch.nn.Module]:
    return [*reversed(model.gpt_neox.layers)]


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        (lambda _: [], "it has no list of as many blocks as its config has layers"),
        (swapped, "what enters its block 2 is not what came out of block 1"),
        (lambda model: [*model.gpt_neox.layers, torch.nn.Identity()], "of its 3 blocks 2 ran"),
    ],
)
def test_a_model_whose_blocks_are_not_found_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: Any, why: str
) -> None:
    monkeypatch.setattr("logitbank.engine.backends.hf.lens._blocks", blocks)
    folder = checkpoint(tmp_path, "gpt_neox").parent
    options: dict[str, Any] = {"engine": "transformers", "canary_every": 0, "keep": "hidden"}
    summary = extract(tmp_path / "b", suite=str(folder), prompts=CAUSAL, layers="all", **options)
    assert f"{why}; leave out --layers" in summary.failed[0].message


def test_a_lens_that_shows_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Lens._seen
    monkeypatch.setattr(Lens, "_seen", lambda self, *args: seen(self, *args) + 0.01)
    folder = checkpoint(tmp_path, "gpt_neox").parent
    options: dict[str, Any] = {"engine": "transformers", "canary_every": 0, "keep": "hidden"}
    summary = extract(tmp_path / "b", suite=str(folder), prompts=CAUSAL, layers="all", **options)
    (failure,) = summary.failed
    assert "layers of GPTNeoXForCausalLM cannot be seen through its next_token head" in (
        failure.message
    )
    assert "not what its head multiplies: they differ by 0.01" in failure.message
    assert Bank.open(tmp_path / "b").deposits() == []


def test_layers_are_counted_from_the_config() -> None:
    assert layers_of("", TINY) == ()
    assert layers_of("all", TINY) == tuple(range(13))
    assert layers_of("-13, 3,3", TINY) == (0, 3)
    with pytest.raises(UsageError, match="does not say how many layers the model has"):
        layers_of("all", replace(TINY, shape=("x", None, None, None, None)))


def test_the_command_takes_a_negative_layer(tmp_path: Path, call: Call) -> None:
    folder = checkpoint(tmp_path, "gpt_neox").parent
    arguments = ("extract", tmp_path / "b", "--suite", folder, "--prompts", "winobias")
    code, _, error = call(*arguments, "--layers", "-1")
    assert code
    assert "--layers keeps states beside those of --keep hidden" in error
