"""Banks of hidden states, filled by real engines: they answer as banks of full float32 rows do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from logitbank.engine.backends.protocol import Loaded, Sink, Tokens
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.errors import HeadError, KeepLevelError, UsageError
from logitbank.store import Bank, Operation, OutputHead, repair, shrink, verify
from logitbank.store.format.schema import Query
from logitbank.store.heads.stored import StoredHead
from tests.support.checkpoints import LANGUAGES, VOCAB, Architecture, make_checkpoint
from tests.support.fakes import FakeBackend, InProcess
from tests.support.scored_prompts import next_sentence

OPTIONS = (Option("he", " he"), Option("she", " she"))
TEXTS = ("the nurse said", "the nurse said that", "the doctor", "a clerk was busy because")
CAUSAL = PromptSet("mine", tuple(Prompt(text, text, OPTIONS) for text in TEXTS))
MASKED = PromptSet(
    "mine",
    tuple(
        Prompt(text, f"{text} [MASK] was tired", (Option("he", "he"), Option("she", "she")))
        for text in TEXTS
    ),
)
PAIRS = PromptSet(
    "pairs", tuple(next_sentence(text, text, "she was busy", {"label": text}) for text in TEXTS)
)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real worker, with whatever engine it opens."""
    monkeypatch.setattr(InProcess, "backend", None)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)


def fill(bank: Path, folder: Path, **options: Any) -> Bank:
    arguments = {"prompts": CAUSAL, "engine": "transformers", "canary_every": 0} | options
    summary = extract(bank, suites=str(folder), **arguments)
    assert summary.complete, summary.failed
    return Bank.open(bank)


def scores(bank: Bank) -> pl.DataFrame:
    parts = [deposit.scores().collect() for deposit in bank.deposits()]
    return pl.concat(parts)


@pytest.mark.parametrize(
    ("architecture", "prompts", "options", "after"),
    [
        ("gpt_neox", CAUSAL, {}, ()),
        ("gpt2", CAUSAL, {}, ()),  # tied
        ("llama_tied", CAUSAL, {"compute_dtype": "bfloat16"}, ()),
        ("bloom", CAUSAL, {}, ()),  # one context at a time
        ("gemma2", CAUSAL, {}, (Operation("soft_cap", 30.0),)),
        ("cohere", CAUSAL, {"deterministic": True}, (Operation("scale", 0.25),)),
        ("granite", CAUSAL, {}, (Operation("scale", 0.5),)),
        ("bert", MASKED, {}, ()),
        ("roberta", MASKED, {}, ()),
        ("xmod", MASKED, {"language": LANGUAGES[0]}, ()),
        ("bert_pretraining", [MASKED, PAIRS], {}, ()),
    ],
)
def test_states_answer_as_full_rows_do(
    tmp_path: Path,
    architecture: Architecture,
    prompts: Any,
    options: dict[str, Any],
    after: tuple[Operation, ...],
) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1, architecture=architecture).parent
    options = {"prompts": prompts} | options
    full = fill(tmp_path / "full.zarr", folder, dtype="float32", **options)
    hidden = fill(tmp_path / "hidden.zarr", folder, keep="hidden", **options)
    assert scores(hidden).equals(scores(full)), "to the last bit"
    for ours, theirs in zip(hidden.deposits(), full.deposits(), strict=True):
        assert (str(ours.layout.keep), ours.layout.dtype, ours.layout.width) == (
            "hidden",
            "float32",
            64,
        )
        np.testing.assert_allclose(ours.logprobs(), theirs.logprobs(), rtol=0, atol=2e-5)
        (digest,) = ours.spec.heads.values()
        assert StoredHead.open(hidden.path, digest).read().after == after
    assert verify(hidden.path) == ()


def test_the_same_extraction_writes_a_head_again_that_a_repair_removed(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1, architecture="gpt_neox").parent
    bank = fill(tmp_path / "b.zarr", folder, keep="hidden")
    (deposit,) = bank.deposits()
    before = deposit.logprobs()
    (digest,) = deposit.spec.heads.values()
    weight = bank.path / "heads" / digest / "weight/c/0/0"
    weight.write_bytes(weight.read_bytes()[:-1])
    assert repair(bank, verify(bank)).removed == (f"heads/{digest}",)
    fill(bank.path, folder, keep="hidden")
    assert verify(bank.path) == ()
    np.testing.assert_array_equal(bank.deposits()[0].logprobs(), before)


def test_a_head_of_more_than_one_matrix_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1, architecture="mobilebert").parent
    options: dict[str, Any] = {"engine": "transformers", "canary_every": 0, "keep": "hidden"}
    line = "tiny step 0: the mask logits of MobileBertForMaskedLM are not those of one matrix"
    for dry_run in (True, False):
        with pytest.raises(HeadError) as refused:
            extract(tmp_path / "b", suites=str(folder), prompts=MASKED, dry_run=dry_run, **options)
        assert str(refused.value).startswith(line)
        assert not (tmp_path / "b").exists(), "before anything is written"
    for module in ("plan.prepare", "weights.heads"):
        monkeypatch.setattr(f"logitbank.engine.{module}.is_divided", lambda *_: False)
    summary = extract(tmp_path / "b", suites=str(folder), prompts=MASKED, **options)
    (failure,) = summary.failed
    assert failure.message.startswith(line), "what the model itself shows"
    assert Bank.open(tmp_path / "b").deposits() == []


class WithStates(FakeBackend):
    """States and a head of which the logits come, but for what is added to token 7."""

    def __init__(self, added: float = 0.0) -> None:
        super().__init__(VOCAB)
        draw = np.random.default_rng(0)
        weight = draw.normal(size=(VOCAB, 64)).astype(np.float16)
        self._head, self._added = OutputHead(weight, "float16"), added

    def load(self, folder: Path, **_: object) -> Loaded:
        return Loaded("weights", VOCAB, 0.0, heads={"next_token": self._head})

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        states = np.random.default_rng(1).normal(size=(len(queries), 64)).astype(np.float32)
        logits = self._head.logits(states)
        logits[:, 7] += self._added
        sink(range(len(queries)), torch.from_numpy(logits), torch.from_numpy(states))
        return Tokens(0, 0)


def test_a_block_whose_states_do_not_give_its_logits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1).parent
    options: dict[str, Any] = {"engine": "transformers", "canary_every": 0, "keep": "hidden"}
    monkeypatch.setattr(InProcess, "backend", WithStates(added=0.01))
    summary = extract(tmp_path / "b", suites=str(folder), prompts=CAUSAL, **options)
    assert "of 'mine': the LM head does not give the engine's logits from the hidden state" in (
        summary.failed[0].message
    )
    (deposit,) = Bank.open(tmp_path / "b").deposits()
    assert not deposit.committed()
    monkeypatch.setattr(InProcess, "backend", WithStates())
    assert extract(tmp_path / "b", suites=str(folder), prompts=CAUSAL, **options).complete


def test_levels_are_not_mixed(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1).parent
    fill(tmp_path / "b", folder)
    with pytest.raises(KeepLevelError, match="at keep level full, not hidden"):
        fill(tmp_path / "b", folder, keep="hidden")


def test_states_are_narrower_on_request(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1).parent
    (whole,) = fill(tmp_path / "w", folder, keep="hidden").deposits()
    assert whole.layout.dtype == "float32"
    for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        name = str(dtype).removeprefix("torch.")
        bank = fill(tmp_path / name, folder, keep="hidden", dtype=name)
        (narrow,) = bank.deposits()
        assert narrow.layout.dtype == name
        rounded = torch.from_numpy(whole.hidden()).to(dtype).float()
        np.testing.assert_array_equal(narrow.hidden(), rounded.numpy())
        np.testing.assert_allclose(narrow.logprobs(), whole.logprobs(), rtol=0, atol=tolerance)
        assert verify(bank) == ()
        smaller = tmp_path / f"{name}-of-float32"
        shrink(tmp_path / "w", smaller, dtype=name)  # type: ignore[arg-type]
        (shrunk,) = Bank.open(smaller).deposits()
        np.testing.assert_array_equal(shrunk.hidden(), narrow.hidden())
        assert verify(smaller) == ()
    with pytest.raises(UsageError, match="bfloat16"):
        fill(tmp_path / "y", folder, dtype="bfloat16")
    with pytest.raises(UsageError, match="'states'"):
        fill(tmp_path / "x", folder, keep="states")
