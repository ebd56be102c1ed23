"""Masked prompts, from text to bank: positions, adapters, shared parameters, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.masked import MASKED_FAMILIES, masked_weights
from logitbank.errors import LogitbankError, PromptError, UsageError, WeightsError
from logitbank.store import Bank
from tests.support.checkpoints import MASK_ID, make_checkpoint, make_series, write_masked_tokenizer
from tests.support.checkpoints import write_tokenizer as write_causal_tokenizer
from tests.support.preloaded import require_vllm

pytestmark = [pytest.mark.usefixtures("quick_workers"), pytest.mark.numerical]

BERT = MASKED_FAMILIES["bert"]
HE_SHE = (Option("he", "He"), Option("she", "She"))
PROMPTS = PromptSet(
    "mine",
    (
        Prompt("plain", "[MASK] was tired.", HE_SHE),
        Prompt("first", "[MASK] was a [MASK].", HE_SHE),
        Prompt("second", "[MASK] was a [MASK].", (Option("nurse", "nurse"),), mask=1),
        Prompt("end", "the nurse said [MASK]", HE_SHE),
    ),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_masked_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked") / "tiny"
    return make_series(folder, steps=(0, 1), architecture="bert")


# Prompts


def test_a_query_is_the_mask_that_the_prompt_names(tokenizer: Tokenizer) -> None:
    found = tokenize(PROMPTS, tokenizer)
    asked = {p: found.queries[q] for p, q in found.table.select("prompt_id", "query").rows()}
    assert [asked[p.id].position for p in PROMPTS.prompts] == [1, 1, 4, 4]
    assert asked["first"].ids == asked["second"].ids
    assert all(q.ids[q.position] == MASK_ID for q in found.queries)
    assert len(found.queries) == 4
    assert found.warnings == ()


def test_a_mask_that_the_text_does_not_have_is_refused() -> None:
    with pytest.raises(PromptError, match=r"mask 1 .* 1 \[MASK\]"):
        Prompt("p", "[MASK] was", HE_SHE, mask=1)
    with pytest.raises(PromptError, match=r"mask 0 .* 0 \[MASK\]"):
        Prompt("p", "He was", HE_SHE, mask=0)


def test_an_option_of_several_pieces_is_named(tokenizer: Tokenizer) -> None:
    prompts = PromptSet(
        "p", (Prompt("p", "[MASK] was", (Option("zz", "zzq"),)),), whole_options=True
    )
    with pytest.raises(PromptError, match=r'"zzq"\) has 3 tokens \("z", "##z", "##q"\)'):
        tokenize(prompts, tokenizer)


def test_an_option_that_is_another_token_in_its_place_is_warned_of(tmp_path: Path) -> None:
    write_causal_tokenizer(tmp_path)  # byte-level: a word after a space is another entry
    config = '{"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "<|endoftext|>"}'
    (tmp_path / "tokenizer_config.json").write_text(config)
    options = (Option("she", "s"),)
    prompts = PromptSet("p", (Prompt("p", "said [MASK]h", options),))
    (warning,) = tokenize(prompts, Tokenizer.load(tmp_path)).warnings
    assert "is another token in the text" in warning


# Weights under several names


def named(**tensors: list[float]) -> list[tuple[str, torch.Tensor]]:
    return [(name.replace("__", "."), torch.tensor(values)) for name, values in tensors.items()]


def test_unused_heads_and_second_names_are_left_out() -> None:
    weights = named(
        bert__embeddings__word_embeddings__weight=[1.0],
        bert__embeddings__LayerNorm__gamma=[2.0],
        bert__pooler__dense__weight=[3.0],
        cls__predictions__bias=[4.0],
        cls__predictions__decoder__bias=[4.0],
        cls__predictions__decoder__weight=[1.0],
        cls__seq_relationship__weight=[5.0],
    )
    assert [name for name, _ in masked_weights(iter(weights), BERT, tied=True)] == [
        "body.embeddings.word_embeddings.weight",
        "body.embeddings.LayerNorm.weight",
        "head.bias",
    ]


@pytest.mark.parametrize(
    "other", ["cls__predictions__decoder__bias", "cls__predictions__decoder__weight"]
)
def test_a_shared_parameter_with_two_values_is_refused(other: str) -> None:
    weights = named(
        bert__embeddings__word_embeddings__weight=[1.0],
        cls__predictions__bias=[4.0],
        **{other: [9.0]},
    )
    for order in (weights, weights[::-1]):
        with pytest.raises(WeightsError, match="of which it should be a second name"):
            list(masked_weights(iter(order), BERT, tied=True))


# From checkpoints to a bank


def go(bank: Path, suite: Path, **options: Any) -> Bank:
    options = {"engine": "transformers", "dtype": "float32", "canary_every": 1} | options
    summary = extract(bank, suites=str(suite), prompts=PROMPTS, **options)
    assert summary.complete, summary.failed
    return Bank.open(bank)


def expected(folder: Path, tokenizer: Tokenizer, **inputs: Any) -> np.ndarray:
    """Log-probabilities (queries, v) by plain transformers, in the order of `tokenize`."""
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    rows = []
    with torch.inference_mode():
        for query in tokenize(PROMPTS, tokenizer).queries:
            logits = model(torch.tensor([query.ids]), **inputs).logits[0, query.position]
            rows.append(logits.double().log_softmax(0).numpy())
    return np.stack(rows)


def banked(bank: Bank, step: int | None, tokenizer: Tokenizer) -> np.ndarray:
    (deposit,) = [d for d in bank.deposits() if d.checkpoint.step == step]
    stored = bank.query_set(deposit.query_set).queries
    rows = [stored.index(q) for q in tokenize(PROMPTS, tokenizer).queries]
    return deposit.logprobs()[rows]


def test_the_bank_has_the_masks_of_every_checkpoint(
    tmp_path: Path, bert: Path, tokenizer: Tokenizer
) -> None:
    """With vLLM: tests/engine/test_demo_masked.py."""
    bank = go(tmp_path / "b.zarr", bert)
    for step in (0, 1):
        want = expected(bert / f"step{step}", tokenizer)
        np.testing.assert_allclose(banked(bank, step, tokenizer), want, atol=1e-4)
    scores = bank.scan("mine").filter(step=1, prompt_id="plain").collect()
    assert scores["option"].sort().to_list() == ["he", "she"]
    p = np.exp(expected(bert / "step1", tokenizer)[0])
    by_token = dict(scores.select("token", pl.col("logprob").exp()).rows())
    assert by_token == pytest.approx({t: p[t] for t in by_token}, abs=1e-5)
    differences = [d.spec.provenance["canary_difference"] for d in bank.deposits()]
    assert all(isinstance(d, float) and d < 1e-3 for d in differences)


def test_language_adapters_of_another_checkpoint_are_used_and_recorded(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """SwissBERT with X-MOD's English: the reference is assembled by hand."""
    from safetensors.torch import load_file, save_file

    swiss = make_checkpoint(tmp_path / "swiss" / "step0", seed=1, architecture="xmod")
    other = make_checkpoint(tmp_path / "other" / "step0", seed=2, architecture="xmod")
    config = (other / "config.json").read_text().replace("fr_CH", "en_XX")
    (other / "config.json").write_text(config)
    theirs = load_file(other / "model.safetensors")
    renamed = {k.replace("fr_CH", "en_XX"): v for k, v in theirs.items()}
    save_file(renamed, other / "model.safetensors", metadata={"format": "pt"})
    bank = go(
        tmp_path / "b.zarr",
        swiss.parent,
        language="en_XX",
        adapter_from=str(other),
        engine="auto",
    )
    (deposit,) = bank.deposits()
    source = deposit.spec.provenance["adapter_from"]
    assert isinstance(source, dict)
    assert source["folder"] == "step0"
    assert deposit.spec.provenance["adapter_languages"] == ["en_XX"]
    assert bank.prompt_sets == ["mine@en_XX"]
    assert deposit.spec.provenance["engine"] == "transformers"

    # The checkpoint's own language goes into the same bank: its weights are the same.
    extract(
        bank.path,
        suites=str(swiss.parent),
        prompts=PROMPTS,
        engine="transformers",
        dtype="float32",
        language="de_CH",
        adapter_from=str(other),
    )
    german = next(d for d in bank.deposits() if d.query_set != deposit.query_set)
    assert german.sealed
    assert "adapter_from" not in german.spec.provenance
    mixed = load_file(swiss / "model.safetensors")
    mixed |= {k.replace("en_XX", "fr_CH"): v for k, v in renamed.items() if ".en_XX." in k}
    save_file(mixed, swiss / "model.safetensors", metadata={"format": "pt"})
    want = expected(swiss, tokenizer, lang_ids=torch.tensor([1]))
    stored = bank.query_set(deposit.query_set).queries
    assert {q.language for q in stored} == {"en_XX"}
    by_content = {(q.ids, q.position): i for i, q in enumerate(stored)}
    rows = [by_content[q.ids, q.position] for q in tokenize(PROMPTS, tokenizer).queries]
    np.testing.assert_allclose(deposit.logprobs()[rows], want, atol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "options", "error", "message"),
    [
        ("xmod", {}, PromptError, "de_CH, fr_CH.*--language"),
        ("xmod", {"language": "en_XX"}, PromptError, "'en_XX'.*--adapter-from"),
        ("xmod", {"language": "de_CH", "engine": "vllm"}, UsageError, "--engine transformers"),
        ("bert", {"language": "de_CH"}, PromptError, "no language adapters"),
        ("gpt_neox", {}, PromptError, "this model predicts next tokens"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_anything_runs(
    tmp_path: Path,
    architecture: Any,
    options: dict[str, Any],
    error: type[LogitbankError],
    message: str,
) -> None:
    if options.get("engine") == "vllm":
        require_vllm()
    folder = make_checkpoint(tmp_path / "m" / "step0", seed=1, architecture=architecture)
    with pytest.raises(error, match=message):
        go(tmp_path / "b.zarr", folder.parent, **options)
    assert not (tmp_path / "b.zarr").exists()


def test_a_prompt_without_its_mask_is_refused_for_a_masked_model(
    tmp_path: Path, bert: Path
) -> None:
    spaced = (Option("he", " he"), Option("she", " she"))
    prompts = PromptSet("mine", (Prompt("p", "the nurse was", spaced),))
    with pytest.raises(
        PromptError, match="'p' of 'mine' is for a causal model, but this is a masked model"
    ):
        extract(tmp_path / "b", suites=str(bert), prompts=prompts, engine="transformers")
    both = PromptSet("mine", (*prompts.prompts, Prompt("q", "[MASK] was", HE_SHE)))
    with pytest.raises(PromptError, match=r"'q' of 'mine' has a \[MASK\] and prompt 'p' of"):
        extract(tmp_path / "b", suites=str(bert), prompts=both, engine="transformers")


def test_a_swapped_checkpoint_whose_tied_head_has_other_values_is_refused(tmp_path: Path) -> None:
    """transformers loads the head of a first checkpoint untied in that case."""
    folders = []
    for step, other in ((0, 0), (1, 1)):
        folder = make_checkpoint(tmp_path / f"step{step}", seed=step, architecture="bert")
        weights = load_file(folder / "model.safetensors")
        head = weights["bert.embeddings.word_embeddings.weight"] + other
        weights["cls.predictions.decoder.weight"] = head
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        folders.append(folder)
    settings = EngineSettings("transformers", "masked", max_length=16)
    backend = TransformersBackend(folders[0], settings)
    backend.load(folders[0], checkpoint="step0")
    with pytest.raises(WeightsError, match="cls.predictions.decoder.weight"):
        backend.load(folders[1], checkpoint="step1")
