"""LAMBADA against lm-evaluation-harness on the same checkpoint, example by example."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from logitbank.analysis.families.lambada.metric import lambada_metric
from logitbank.analysis.frames.prompt_sums import greedy_match
from logitbank.analysis.frames.reader import Scores
from logitbank.engine.extract import extract
from logitbank.engine.prompts.known.lambada import lambada as passages
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Prompt
from logitbank.store import Bank
from tests.support.learning import learn
from tests.support.paths import PUBLIC as DATA

TOKENIZER = DATA / "tokenizers" / "pythia" / "20B_tokenizer.json"
pytestmark = [
    pytest.mark.whole,
    pytest.mark.usefixtures("quick_workers"),
    pytest.mark.filterwarnings("ignore"),  # the harness's, and those of what it imports
]


class Both(NamedTuple):
    """What either says about the same passages."""

    ours: Bank
    theirs: dict[str, Any]


@pytest.fixture(scope="module")
def chosen() -> list[Prompt]:
    """Every 25th passage, and the seven whose last word has a line break in it."""
    if not (DATA / "lambada").is_dir() or not TOKENIZER.is_file():
        pytest.skip(f"{DATA} lacks lambada/ or tokenizers/pythia/")
    prompts = passages(DATA).prompts
    return [p for i, p in enumerate(prompts) if i % 25 == 0 or "\n" in (p.parts["target"] or "")]


@pytest.fixture(scope="module")
def checkpoint(chosen: list[Prompt], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-NeoX on Pythia's tokenizer that has learned a third of the words by heart."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    folder = tmp_path_factory.mktemp("series") / "step1"
    config = GPTNeoXConfig(
        vocab_size=50304,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPTNeoXTokenizer"}')
    learn(
        folder, [(p.parts["context"] or "", p.parts["target"] or "") for p in chosen[::3]], steps=25
    )
    return folder


@pytest.fixture(scope="module")
def both(checkpoint: Path, chosen: list[Prompt], tmp_path_factory: pytest.TempPathFactory) -> Both:
    path = tmp_path_factory.mktemp("bank") / "b.zarr"
    summary = extract(
        path,
        suites=str(checkpoint.parent),
        prompts=PromptSet("lambada", tuple(chosen)),
        engine="transformers",
        keep="options",
    )
    assert summary.complete, summary.failed
    return Both(Bank.open(path), harness(checkpoint, [p.text for p in chosen]))


def harness(checkpoint: Path, texts: list[str]) -> dict[str, Any]:
    """Their own definition of the task, on these passages in place of a download."""
    import lm_eval
    import yaml
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    definition = Path(lm_eval.__file__).parent / "tasks" / "lambada" / "lambada_openai.yaml"
    config = yaml.safe_load(definition.read_text())
    config.pop("tag", None)
    rows = {"test": Dataset.from_dict({"text": texts})}
    task = ConfigurableTask(config={**config, "custom_dataset": lambda **_: rows})
    found: dict[str, Any] = lm_eval.simple_evaluate(
        HFLM(str(checkpoint), device="cpu", dtype="float32", batch_size=16),
        tasks=[task],
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
    )
    return found


def words(both: Both) -> pl.DataFrame:
    scores = Scores([both.ours], ("lambada",))
    more = greedy_match()
    return pl.concat(scores.map_prompts(lambda sums: sums.rows, family="lambada", more=more))


def test_every_example_is_right_or_wrong_as_the_harness_says(
    both: Both, chosen: list[Prompt]
) -> None:
    ours = {row["prompt_id"]: row for row in words(both).iter_rows(named=True)}
    theirs = both.theirs["samples"]["lambada_openai"]
    assert len(ours) == len(theirs) == len(chosen) > 200
    for prompt, sample in zip(chosen, theirs, strict=True):
        row = ours[prompt.id]
        ((logprob, greedy),) = sample["filtered_resps"]
        assert sample["arguments"] == [(prompt.parts["context"], prompt.parts["target"])]
        assert row["correct"] == greedy == bool(sample["acc"]), prompt.id
        assert row["logprob"] == pytest.approx(logprob, abs=1e-4, rel=0), prompt.id


def test_words_of_one_token_and_of_several_are_among_the_right_and_the_wrong(both: Both) -> None:
    kinds = words(both).select("correct", several=pl.col("pieces") > 1).unique()
    assert len(kinds) == 4


def test_accuracy_and_perplexity_are_the_harness_s(both: Both) -> None:
    (row,) = lambada_metric(Scores([both.ours], ("lambada",))).lambada.rows(named=True)
    theirs = both.theirs["results"]["lambada_openai"]
    assert row["acc"] == theirs["acc,none"]
    assert 0 < row["acc"] < 1
    assert row["perplexity"] == pytest.approx(theirs["perplexity,none"], rel=1e-4)
    assert row["examples"] == theirs["sample_len"]
