"""Options of several tokens against lm-evaluation-harness, example by example."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import logitbank
from logitbank.analysis.prompts.scores import prompt_scores
from tests.support.paths import PUBLIC as DATA

TOKENIZER = DATA / "tokenizers" / "pythia" / "20B_tokenizer.json"
pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore"),  # the harness's, and those of what it imports
]
SUBJECTS = ("The nurse", "A clerk who was late", "The mechanic, as we know,", "Nobody")
VERBS = ("said that", "wrote a letter because", "went home and")
OPTIONS = (
    " she was very tired of it all", " it rained", " the manager had asked for naïve answers 😀",
    " he wanted to see the others again before the evening",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not TOKENIZER.is_file():
        pytest.skip(f"{DATA} lacks tokenizers/pythia/")
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    folder = tmp_path_factory.mktemp("series") / "step1"
    config = GPTNeoXConfig(
        vocab_size=50304, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=512, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPTNeoXTokenizer"}')
    return folder


def test_sums_and_accuracies_are_the_harness_s(checkpoint: Path, tmp_path: Path) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    texts = [f"{subject} {verb}" for subject in SUBJECTS for verb in VERBS]
    listed = tuple(logitbank.Option(f"o{i}", text) for i, text in enumerate(OPTIONS))
    prompts = tuple(
        logitbank.Prompt(f"p{i}", text, listed, f"o{i % 4}") for i, text in enumerate(texts)
    )
    bank = tmp_path / "b.zarr"
    asked = logitbank.PromptSet("mine", prompts, whole_options=True)
    summary = logitbank.extract(
        bank, suite=str(checkpoint.parent), prompts=asked, engine="transformers", keep="options"
    )
    assert summary.complete, summary.failed

    model = HFLM(str(checkpoint), device="cpu", dtype="float32", batch_size=4)
    requests = [Instance("loglikelihood", {}, (t, o), 0) for t in texts for o in OPTIONS]
    found = model.loglikelihood(requests, disable_tqdm=True)
    theirs = np.array([sum for sum, _ in found]).reshape(len(texts), len(OPTIONS))
    (scores,) = prompt_scores(logitbank.open(bank), "mine")
    np.testing.assert_allclose(scores.logprob.reshape(theirs.shape), theirs, atol=2e-3)

    sizes = {
        "sum": np.ones(4),
        "character": np.array([len(o) - 1 for o in OPTIONS]),  # without the delimiter
        "byte": np.array([len(o.encode()) - 1 for o in OPTIONS]),
    }
    right = np.arange(len(texts)) % 4
    for score, size in sizes.items():
        expected = ((theirs / size).argmax(axis=1) == right).mean()
        study = logitbank.options(bank, score=score)  # type: ignore[arg-type]
        assert study.result.answers["accuracy"].item() == pytest.approx(expected)


def test_information_and_pairs_are_the_harness_s(checkpoint: Path, tmp_path: Path) -> None:
    """Its task with mutual information, whose condition is an empty text after the first token; and
    pairs as options without a context."""
    import lm_eval
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    options = dict(zip("abcd", OPTIONS, strict=True))
    texts = [f"{subject} {verb}" for subject in SUBJECTS for verb in VERBS]
    asked = [
        {"text": text, "options": options, "answer": "abcd"[i % 4], "condition": "empty"}
        for i, text in enumerate(texts)
    ]
    pairs = [[f"{subject} {VERBS[0]} it", f"{subject} it {VERBS[0]}"] for subject in SUBJECTS]
    listed = {
        "mine": [*asked, {"id": "empty", "text": "<|endoftext|>", "options": options}],
        "verbs": [{"pair": pair} for pair in pairs],
    }
    for name, rows in listed.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    bank = tmp_path / "b.zarr"
    files = [str(tmp_path / f"{name}.jsonl") for name in listed]
    summary = logitbank.extract(
        bank, suite=str(checkpoint.parent), prompts=files, engine="transformers", keep="options"
    )
    assert summary.complete, summary.failed

    def task(name: str, metric: str, data: dict[str, list[object]]) -> ConfigurableTask:
        config = {
            "task": name, "test_split": "test", "output_type": "multiple_choice",
            "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}", "doc_to_target": "label",
            "target_delimiter": "", "metric_list": [{"metric": metric}],
            "custom_dataset": lambda **_: {"test": Dataset.from_dict(data)},
        }  # fmt: skip
        return ConfigurableTask(config=config)

    found = lm_eval.simple_evaluate(
        HFLM(str(checkpoint), device="cpu", dtype="float32", batch_size=4),
        tasks=[
            task("mine", "acc_mutual_info", {
                "text": [*texts], "choices": [list(OPTIONS)] * len(texts),
                "label": [i % 4 for i in range(len(texts))],
            }),
            task("verbs", "acc", {
                "text": [""] * len(pairs), "choices": [*pairs], "label": [0] * len(pairs)
            }),
        ],
        task_manager=TaskManager(include_defaults=False), bootstrap_iters=0,
    )  # fmt: skip
    study = logitbank.options(bank, prompts="mine", score="pmi")
    theirs = found["results"]["mine"]["acc_mutual_info,none"]
    assert study.result.answers["accuracy"].item() == pytest.approx(theirs)
    assert study.result.answers["prompts"].item() == len(texts)
    samples = sorted(found["samples"]["mine"], key=lambda sample: sample["doc_id"])
    sums = np.array([[r[0] for r in sample["filtered_resps"]] for sample in samples])
    information = np.exp(sums[:, :4] - sums[:, 4:]).mean(axis=0)
    shares = study.result.shares.sort("option")
    np.testing.assert_allclose(shares["probability"], information, rtol=1e-2)

    (scores,) = prompt_scores(logitbank.open(bank), "verbs")
    samples = sorted(found["samples"]["verbs"], key=lambda sample: sample["doc_id"])
    sums = np.array([[r[0] for r in sample["filtered_resps"]] for sample in samples])
    np.testing.assert_allclose(scores.logprob.reshape(sums.shape), sums, atol=2e-3)
    answers = logitbank.options(bank, prompts="verbs").result.answers
    assert answers["accuracy"].item() == pytest.approx(found["results"]["verbs"]["acc,none"])
