"""The next-sentence head, from text to StereoSet's inter-sentence scores."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from logitbank.analysis.frames.candidates import read_candidates
from logitbank.analysis.frames.reader import Scores
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store import Bank, verify
from tests.support.checkpoints import make_series, write_masked_tokenizer
from tests.support.row_scores import scores_of
from tests.support.scored_prompts import continuation, next_sentence

pytestmark = [pytest.mark.usefixtures("quick_workers"), pytest.mark.numerical]

LABELS = ("stereotype", "anti-stereotype", "unrelated")
INTER = PromptSet(
    "stereoset-inter",
    tuple(
        next_sentence(
            f"c{i}",
            "the nurse was tired",
            sentence,
            {
                "example": "e",
                "target": "nurse",
                "domain": "gender",
                "label": label,
            },
        )
        for i, (label, sentence) in enumerate(
            zip(LABELS, ("she was busy", "he was busy", "the mechanic helped"), strict=True)
        )
    ),
)
MASKED = PromptSet("mine", (Prompt("p", "[MASK] was tired.", (Option("he", "he"),)),))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretraining") / "tiny"
    return make_series(folder, steps=(0, 1), architecture="bert_pretraining")


def test_a_pair_is_one_query_with_two_classes(tmp_path: Path) -> None:
    write_masked_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    found = tokenize(INTER, tokenizer)
    query = found.queries[0]
    assert tokenizer.decode(query.ids) == "[CLS] the nurse was tired [SEP] she was busy [SEP]"
    assert query.segments == (0,) * 6 + (1,) * 4
    assert (query.position, query.head) == (0, "next_sentence")
    rows = found.table.filter(prompt_id="c0").select("piece", "token", "option", "score_kind")
    assert rows.rows() == [(0, 0, "next", "nsp"), (0, 1, "other", "nsp")]


def test_one_run_fills_both_heads_with_what_plain_transformers_gives(
    tmp_path: Path, suite: Path
) -> None:
    from transformers import AutoTokenizer, BertForPreTraining

    summary = extract(
        tmp_path / "b.zarr",
        suites=str(suite),
        prompts=[INTER, MASKED],
        engine="transformers",
        canary_every=1,
    )
    assert summary.complete, summary.failed
    bank = Bank.open(tmp_path / "b.zarr")
    assert verify(bank) == ()
    assert sorted({d.layout.vocab for d in bank.deposits()}) == [2, 640]
    tokenizer = AutoTokenizer.from_pretrained(suite / "step1")
    model = BertForPreTraining.from_pretrained(suite / "step1").eval()
    (scores,) = read_candidates(Scores([bank], ("stereoset-inter",), steps=[1]))
    scores = scores.sort("candidate")
    for prompt, row in zip(INTER.prompts, scores.iter_rows(named=True), strict=True):
        inputs = tokenizer(prompt.parts["context"], prompt.parts["sentence"], return_tensors="pt")
        with torch.inference_mode():
            logits = model(**inputs).seq_relationship_logits[0].double()
        assert row["value"] == pytest.approx(logits.softmax(0)[0].item(), abs=1e-5)
        assert row["task"] == "intersentence"
    again = extract(
        tmp_path / "b.zarr", suites=str(suite), prompts=[INTER, MASKED], engine="transformers"
    )
    assert again.plan.rows == 0


def test_prompts_for_a_head_that_the_model_lacks_are_skipped_and_said_so(tmp_path: Path) -> None:
    suite = make_series(tmp_path / "tiny", steps=(0,), architecture="bert")
    bank = tmp_path / "b.zarr"
    summary = extract(bank, suites=str(suite), prompts=[INTER, MASKED], engine="transformers")
    assert summary.complete
    assert summary.notes == [
        "stereoset-inter is skipped: the model (BertForMaskedLM) has no next-sentence head"
    ]
    assert Bank.open(bank).prompt_sets == ["mine"]
    with pytest.raises(PromptError, match="'stereoset-inter' .*no next-sentence head"):
        extract(bank, suites=str(suite), prompts=INTER, engine="transformers")


def test_one_prompt_set_is_for_one_head() -> None:
    with pytest.raises(
        PromptError, match="'s': prompt 'a' and prompt 'b' are scored in different ways"
    ):
        PromptSet("s", (next_sentence("a", "x", "y"), continuation("b", "x", " y")))


def test_nearly_certain_candidates_are_told_apart_by_their_logits() -> None:
    """In float32 both logits minus their logsumexp are the same; the gap of the logits is not."""
    gaps = np.array([16.0, 16.5])
    logit = np.stack([gaps / 2, -gaps / 2], axis=1).astype(np.float32).ravel()
    logsumexp = np.repeat(np.logaddexp(gaps / 2, -gaps / 2).astype(np.float32), 2)
    frame = pl.DataFrame(
        {
            "prompt_id": ["a", "a", "b", "b"],
            "option": ["next", "other"] * 2,
            "logit": logit,
            "logprob": logit - logsumexp,
        }
    ).with_columns(
        model=pl.lit("m"), run=pl.lit("main"), run_seed=None, step=0, piece=0,
        example=pl.col("prompt_id"), target=pl.lit("nurse"), domain=pl.lit("gender"),
        label=pl.lit("stereotype"), score_kind=pl.lit("nsp"),
    )  # fmt: skip
    assert frame.filter(option="next")["logprob"].to_list() == [0.0, 0.0]
    (scores,) = read_candidates(scores_of(frame))
    values = scores.sort("candidate")["value"].to_numpy()
    np.testing.assert_allclose(1 - values, 1 / (1 + np.exp(gaps)), rtol=1e-8)
    assert values[0] < values[1]
