"""Options of several tokens against lm-evaluation-harness, example by example."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import logitbank
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.engine import Option, Prompt, PromptSet
from tests.support.paths import PUBLIC as DATA

TOKENIZER = DATA / "tokenizers" / "pythia" / "20B_tokenizer.json"
pytestmark = [
    pytest.mark.whole,
    pytest.mark.usefixtures("quick_workers"),
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
    listed = tuple(Option(f"o{i}", text) for i, text in enumerate(OPTIONS))
    prompts = tuple(Prompt(f"p{i}", text, listed, f"o{i % 4}") for i, text in enumerate(texts))
    bank = tmp_path / "b.zarr"
    asked = PromptSet("mine", prompts, whole_options=True)
    summary = logitbank.extract(
        bank, suites=str(checkpoint.parent), prompts=asked, engine="transformers", keep="options"
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


def test_pairs_are_the_harness_s(checkpoint: Path, tmp_path: Path) -> None:
    """Pairs of sentences as options without a context."""
    import lm_eval
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    pairs = [[f"{subject} {VERBS[0]} it", f"{subject} it {VERBS[0]}"] for subject in SUBJECTS]
    rows = [
        {"sentence": sentence, "pair": i, "side": side}
        for i, pair in enumerate(pairs)
        for side, sentence in zip(("good", "bad"), pair, strict=True)
    ]
    path, bank = tmp_path / "verbs.jsonl", tmp_path / "b.zarr"
    path.write_text("\n".join(map(json.dumps, rows)))
    summary = logitbank.extract(
        bank,
        suites=str(checkpoint.parent),
        prompts=str(path),
        engine="transformers",
        keep="options",
    )
    assert summary.complete, summary.failed
    data = {"text": [""] * len(pairs), "choices": pairs, "label": [0] * len(pairs)}
    config = {
        "task": "verbs", "test_split": "test", "output_type": "multiple_choice",
        "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}", "doc_to_target": "label",
        "target_delimiter": "", "metric_list": [{"metric": "acc"}],
        "custom_dataset": lambda **_: {"test": Dataset.from_dict(data)},
    }  # fmt: skip
    found = lm_eval.simple_evaluate(
        HFLM(str(checkpoint), device="cpu", dtype="float32", batch_size=4),
        tasks=[ConfigurableTask(config=config)],
        task_manager=TaskManager(include_defaults=False), bootstrap_iters=0,
    )  # fmt: skip
    samples = sorted(found["samples"]["verbs"], key=lambda sample: sample["doc_id"])
    sums = np.array([[r[0] for r in sample["filtered_resps"]] for sample in samples])
    (row,) = logitbank.pairs(bank, prompts="verbs").result.pairs.filter(group="all").to_dicts()
    assert row["score"] == pytest.approx(100 * found["results"]["verbs"]["acc,none"])
    differences = np.abs(sums[:, 0] - sums[:, 1])
    assert row["likelihood_diff"] == pytest.approx(differences.mean(), abs=4e-3)
