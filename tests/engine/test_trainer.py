"""A training by transformers' own Trainer, followed from outside and from a callback within."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from logitbank.engine import follow
from logitbank.engine.callback import BankCallback
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.suites import complete
from logitbank.engine.workers.events import Summary
from logitbank.store import Bank, verify
from tests.support.checkpoints import VOCAB, make_checkpoint
from tests.support.preloaded import Preloaded

pytest.importorskip("accelerate")  # Trainer needs it
pytestmark = pytest.mark.filterwarnings("ignore")  # Trainer's, and those of what it imports

OPTIONS = (Option("male", " male"), Option("female", " female"))
TEXTS = (" the nurse said", " the doctor said he was", " the clerk")
PROMPTS = PromptSet("mine", tuple(Prompt(t, t, OPTIONS, "male") for t in TEXTS))
pytestmark = pytest.mark.whole

TOLERANCE = 1e-4
"""Of logits, as between two engines; the same engine in the same batches gives the same bits."""


class Trained(NamedTuple):
    """What two trainings left, of which one was watched in both ways."""

    folder: Path
    callback: BankCallback
    followed: Summary
    losses: list[list[tuple[float, float]]]
    weights: list[dict[str, torch.Tensor]]


def train(start: Path, output: Path, *callbacks: BankCallback) -> tuple[Any, Any]:
    """Four steps with dropout, of which every second is saved: what was logged, and the weights."""
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        default_data_collator,
        set_seed,
    )

    set_seed(0)
    rows = torch.randint(0, VOCAB, (16, 12), generator=torch.Generator().manual_seed(7))
    arguments = TrainingArguments(
        output_dir=str(output),
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        per_device_train_batch_size=4,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(start),
        arguments,
        data_collator=default_data_collator,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        processing_class=AutoTokenizer.from_pretrained(start),
        callbacks=[*callbacks],
    )
    trainer.train()
    logged = [(e["loss"], e["grad_norm"]) for e in trainer.state.log_history if "loss" in e]
    return logged, trainer.model.state_dict()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Iterator[Trained]:
    tmp_path = tmp_path_factory.mktemp("trained")
    start, out = make_checkpoint(tmp_path / "start", seed=1, architecture="gpt2"), tmp_path / "out"
    callback = BankCallback(
        tmp_path / "called.zarr", prompts=PROMPTS, dtype="float32", canary_every=0
    )
    asked: dict[str, Any] = {"prompts": PROMPTS, "dtype": "float32", "canary_every": 0}
    with (
        preloaded.workers("transformers"),
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1) as pool,
    ):
        patch.setattr(follow, "LOOK_S", 0.1)
        patch.setattr(complete, "SETTLE_S", 0.3)
        following = pool.submit(
            extract, tmp_path / "followed.zarr", follow=out, engine="transformers", **asked
        )
        with_it = train(start, out, callback)
        without = train(start, tmp_path / "plain")
        extract(tmp_path / "extracted.zarr", suite=str(out), engine="transformers", **asked)
        losses, weights = zip(with_it, without, strict=True)
        yield Trained(tmp_path, callback, following.result(60), [*losses], [*weights])


def test_a_training_is_the_same_to_the_bit_with_the_callback(trained: Trained) -> None:
    with_it, without = trained.losses
    assert len(with_it) == 4
    assert with_it == without
    ours, plain = trained.weights
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


@pytest.mark.parametrize("name", ["called", "followed"])
def test_what_is_banked_while_it_trains_is_what_extract_gives(trained: Trained, name: str) -> None:
    bank, later = (Bank.open(trained.folder / f"{each}.zarr") for each in (name, "extracted"))
    assert not verify(bank)
    assert [str(d.checkpoint) for d in bank.deposits()] == ["out step 2", "out step 4"]
    for ours, theirs in zip(bank.deposits(), later.deposits(), strict=True):
        assert ours.checkpoint == theirs.checkpoint
        assert ours.spec.provenance["weights"] == theirs.spec.provenance["weights"]
        np.testing.assert_allclose(ours.logprobs(), theirs.logprobs(), rtol=0, atol=TOLERANCE)
    columns = ("step", "prompt_id", "option", "rank", "logit")
    ours, theirs = (
        each.scan("mine").select(columns).sort(columns[:3]).collect() for each in (bank, later)
    )
    assert ours.drop("logit").equals(theirs.drop("logit"))  # ranks too
    np.testing.assert_allclose(ours["logit"], theirs["logit"], rtol=0, atol=TOLERANCE)
    assert len(ours) == 2 * len(TEXTS) * len(OPTIONS)


def test_both_say_what_they_did(trained: Trained) -> None:
    assert [c.step for c in trained.followed.done] == [2, 4]
    assert trained.followed.notes == ["the training ended at step 4"]
    assert [c.step for c in trained.callback.summary.done] == [2, 4]
    assert (trained.callback.summary.exit_code, trained.callback.summary.rows) == (0, 6)
    for name, occasion in ("called", "callback"), ("followed", "follow"), ("extracted", None):
        for deposit in Bank.open(trained.folder / f"{name}.zarr").deposits():
            assert deposit.spec.provenance.get("occasion") == occasion


def test_one_engine_is_loaded_for_all_saves(trained: Trained) -> None:
    for name in ("called", "followed"):
        logs = sorted((trained.folder / f"{name}.zarr" / "runs").glob("*.jsonl"))
        ends = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
        assert sum("load" in end["spent"] for end in ends) == 1
        assert sum(len(end["done"]) for end in ends) == 2
