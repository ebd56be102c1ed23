"""Log-probabilities of joined texts and options against plain transformers in its own process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import logitbank
from logitbank.analysis.prompts.scores import prompt_scores
from tests.support.checkpoints import LONGEST, make_checkpoint
from tests.support.tokenizers import Kind, tiny_tokenizer

PLAIN = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
for text, option in json.loads(sys.argv[2]):
    begin = tokenizer("a")["input_ids"][:1] if sys.argv[3] == "begins" else []
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    both = tokenizer(text + option, add_special_tokens=False)["input_ids"]
    assert both[: len(plain)] == plain
    ids = torch.tensor([begin + both])
    with torch.inference_mode():
        rows = model(ids).logits[0].double().log_softmax(-1)
    start = len(begin) + len(plain)
    print(sum(rows[at - 1, ids[0, at]].item() for at in range(start, ids.shape[1])))
"""
ROWS = {
    "bert": [
        {"text": "the nurse said that", "options": [" he", " she", " he was tired"]},
        {"text": "the clerk (", "options": ["he", "she"]},
    ],
    "llama": [
        {"text": "Question: What is the gender of the nurse? Answer: (", "options": ["A", "B"]},
        {"text": "Answer:\n", "options": ["A", "B"]},
        {"text": "Answer:", "options": [" A", " B"]},
    ],
}


@pytest.mark.parametrize("kind", ROWS)
def test_sums_are_those_of_plain_transformers(kind: Kind, tmp_path: Path) -> None:
    """A GPT-2 with BERT's tokenizer, which ends texts, and a Llama with a word mark and `<s>`."""
    folder = tmp_path / "suite" / "step1"
    make_checkpoint(folder, seed=1, architecture="gpt2" if kind == "bert" else "llama_tied")
    (folder / "tokenizer.json").unlink()
    tiny_tokenizer(kind, folder)
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, ROWS[kind])))
    words = "The nurse said that she was"
    (tmp_path / "lambada").mkdir()
    passage = tmp_path / "lambada" / "lambada_test_openai.jsonl"
    passage.write_text(json.dumps({"text": f"{words} tired"}) + "\n")
    (tmp_path / "pairs.jsonl").write_text('{"pair": ["the nurse", "the clerk"]}\n')
    assert len(words) < LONGEST
    bank = tmp_path / "b.zarr"
    summary = logitbank.extract(
        bank,
        suite=str(folder.parent),
        prompts=[str(tmp_path / "mine.jsonl"), str(tmp_path / "pairs.jsonl"), "lambada"],
        data=tmp_path,
        engine="transformers",
        keep="options",
    )
    assert summary.complete, summary.failed
    rows = ROWS[kind]
    asked = [(row["text"], option) for row in rows for option in row["options"]]
    before = "" if kind == "bert" else "<s>"
    expected = plain(folder, [*asked, (words, " tired")], "begins")
    (scores,) = prompt_scores(logitbank.open(bank), "mine")
    assert scores.logprob.ravel().tolist() == pytest.approx(expected[:-1], abs=1e-4)
    (scores,) = prompt_scores(logitbank.open(bank), "lambada")
    assert scores.logprob.ravel().tolist() == pytest.approx(expected[-1:], abs=1e-4)
    pairs = [(before, "the nurse"), (before, "the clerk")]
    if kind == "bert":  # the task follows the model: each token after those before it
        pairs = [("[CLS]", " the nurse"), ("[CLS]", " the clerk")]
    (scores,) = prompt_scores(logitbank.open(bank), "pairs")
    expected = plain(folder, pairs, "nothing")
    assert scores.logprob.ravel().tolist() == pytest.approx(expected, abs=1e-4)
    (deposit, *_) = logitbank.open(bank).deposits()
    begun = "[CLS]" if kind == "bert" else "<s>"
    assert deposit.spec.provenance["special_tokens"] == dict.fromkeys(
        ("mine", "pairs", "lambada"), begun
    )


def plain(folder: Path, pairs: list[tuple[str, str]], begins: str) -> list[float]:
    command = [sys.executable, "-W", "ignore", "-c", PLAIN, str(folder), json.dumps(pairs), begins]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]
