"""Tasks of lm-evaluation-harness from a bank against its own model class on the same checkpoint.

Also prompts of our own forms: options of several tokens, pairs and last words are scored as the
harness scores them.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import logitbank
from logitbank.engine import Option, Prompt, PromptSet
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.learning import learn
from tests.support.lm_eval_tasks import write_public_tasks, write_tasks
from tests.support.paths import PUBLIC as DATA
from tests.support.preloaded import Preloaded
from tests.support.tokenizers import tiny_tokenizer

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore"),  # the harness's, and those of what it imports
]
NAMES = ("weighted", "inputs", "words", "rolling", "python")
PUBLIC = ("bbq_age", "island")
SHOTS = (2, 5)
NATS = 2e-5


class Model(NamedTuple):
    """A checkpoint, and what the harness's own model class computes with it."""

    folder: Path
    theirs: dict[str, dict[str, Any]]
    """Results and samples, by number of examples, or `default`."""


class Case(NamedTuple):
    """A bank and the folder of tasks, with the harness's results of the bank's checkpoint."""

    bank: Path
    tasks: Path
    names: list[str]
    theirs: dict[str, dict[str, Any]]

    def rows(self, name: str) -> list[dict[str, Any]]:
        lines = (self.tasks / f"{name}-test.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def evaluate(lm: Any, tasks: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """What the harness computes with a model."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    runs = {"default": (names, {})}
    runs |= {f"{shots}": (["jobs"], {"num_fewshot": shots}) for shots in SHOTS}  # type: ignore[dict-item]
    return {
        name: lm_eval.simple_evaluate(
            lm, tasks=[*chosen], task_manager=manager, bootstrap_iters=10, **settings
        )
        for name, (chosen, settings) in runs.items()
    }


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tasks(tmp_path_factory.mktemp("tasks"))
    if (DATA / "bbq").is_dir():
        write_public_tasks(folder)
    return folder


@pytest.fixture(scope="module")
def names(tasks: Path) -> list[str]:
    return [*NAMES, *(name for name in PUBLIC if (tasks / f"{name}.yaml").is_file())]


@pytest.fixture(scope="module")
def model(
    tasks: Path, names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Architecture, str], Model]:
    """A model of an architecture and a tokenizer, which both engines run."""
    from lm_eval.models.huggingface import HFLM

    @cache
    def made(architecture: Architecture, kind: str) -> Model:
        folder = tmp_path_factory.mktemp("m")
        step = make_checkpoint(folder / "step1", seed=1, architecture=architecture, vocab=1024)
        tiny_tokenizer(kind, step)
        words = [json.loads(line)["text"].rpartition(" ") for line in
                 (tasks / "words-test.jsonl").read_text().splitlines()]  # fmt: skip
        learn(step, [(context, " " + word) for context, _, word in words[::2]], steps=20)
        theirs = HFLM(str(step), device="cpu", dtype="float32", batch_size=8)
        return Model(folder, evaluate(theirs, tasks, names))

    return made


@pytest.fixture(
    scope="module",
    params=[
        ("gpt_neox", "neox", "transformers"),
        pytest.param(("gpt_neox", "neox", "vllm"), marks=pytest.mark.vllm),
        ("llama_tied", "llama-slow", "transformers"),
        pytest.param(("llama_tied", "llama-slow", "vllm"), marks=pytest.mark.vllm),
    ],
    ids="-".join,
)
def case(
    request: pytest.FixtureRequest,
    tasks: Path,
    names: list[str],
    model: Callable[[Architecture, str], Model],
    tmp_path_factory: pytest.TempPathFactory,
    preloaded: Preloaded,
) -> Case:
    architecture, kind, engine = request.param
    folder, theirs = model(architecture, kind)
    prompts: list[Any] = [f"lm-eval:{name}:include={tasks}" for name in names]
    prompts += [f"lm-eval:jobs:num_fewshot={shots},include={tasks}" for shots in SHOTS]
    made = Case(tmp_path_factory.mktemp("case") / "b.zarr", tasks, names, theirs)
    with preloaded.workers(engine):
        summary = logitbank.extract(
            made.bank,
            suites=str(folder),
            prompts=[*prompts, *own_prompts(made)],
            engine=engine,
            keep="options",
        )
    assert summary.complete, summary.failed
    return made


def own_prompts(case: Case) -> list[PromptSet]:
    """The documents of `jobs` with options, and the pairs of `island`.

    The harness puts a space before each sentence of BLiMP, its delimiter of continuations.
    """
    jobs = [
        Prompt(
            str(i),
            f"Question: What is {row['name']}?\nAnswer:",
            tuple(Option(str(j), f" {text}") for j, text in enumerate(row["choices"])),
            str(row["label"]),
        )
        for i, row in enumerate(case.rows("jobs"))
    ]
    sets = [PromptSet("mine", tuple(jobs), whole_options=True)]
    if "island" in case.names:
        from logitbank.engine.prompts.scoring import sentence_tokens

        pairs = [
            Prompt(
                f"{i}-{side}", " " + row[f"sentence_{side}"], scored=sentence_tokens,
                columns={"pair": i, "side": side},
            )
            for i, row in enumerate(case.rows("island")) for side in ("good", "bad")
        ]  # fmt: skip
        sets.append(PromptSet("pairs", tuple(pairs)))
    return sets


def test_every_sum_flag_and_metric_is_that_of_the_harness(case: Case) -> None:
    from logitbank.harness import BankLM

    ours = evaluate(BankLM(case.bank), case.tasks, case.names)
    for run, theirs in case.theirs.items():
        assert ours[run]["samples"].keys() == theirs["samples"].keys()
        for task, samples in theirs["samples"].items():
            for sample, own in zip(samples, ours[run]["samples"][task], strict=True):
                assert own["arguments"] == sample["arguments"]
                assert_same(own["filtered_resps"], sample["filtered_resps"], task)
        assert ours[run]["results"].keys() == theirs["results"].keys()
        for task, values in theirs["results"].items():
            numbers, texts = split(values)
            own_numbers, own_texts = split(ours[run]["results"][task])
            assert own_texts == texts
            assert own_numbers == pytest.approx(numbers, rel=1e-4, abs=1e-7, nan_ok=True), task


def split(values: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    numbers = {key: value for key, value in values.items() if not isinstance(value, str | dict)}
    return numbers, {key: value for key, value in values.items() if key not in numbers}


def assert_same(ours: list[Any], theirs: list[Any], task: str) -> None:
    """Sums of log-probabilities within `NATS`, or float32 rounding of long ones; equal flags."""
    for own, other in zip(ours, theirs, strict=True):
        if not isinstance(other, tuple):
            own, other = (own, None), (other, None)
        assert own[0] == pytest.approx(other[0], abs=NATS, rel=1e-6), task
        assert own[1] == other[1], task


def test_options_of_several_tokens_are_compared_as_by_the_harness(case: Case) -> None:
    samples = case.theirs["default"]["samples"]["jobs"]
    scan = logitbank.open(case.bank).scan("mine", whole_options=True)
    rows = scan.select("prompt_id", "option", "logprob").collect().sort("prompt_id", "option")
    theirs = [
        (sample["doc_id"], j, resp[0])
        for sample in samples
        for j, resp in enumerate(sample["filtered_resps"])
    ]
    ours = [(int(prompt), int(option), sum_) for prompt, option, sum_ in rows.iter_rows()]
    assert [each[:2] for each in sorted(ours)] == [each[:2] for each in theirs]
    np.testing.assert_allclose(
        [each[2] for each in sorted(ours)], [each[2] for each in theirs], atol=NATS
    )
    values = case.theirs["default"]["results"]["jobs"]
    for score, metric in (("sum", "acc"), ("character", "acc_norm")):
        study = logitbank.options(case.bank, prompts="mine", score=score)  # type: ignore[arg-type]
        assert study.tables["answers"]["accuracy"].item() == pytest.approx(values[f"{metric},none"])


def test_last_words_are_right_as_by_the_harness(case: Case) -> None:
    tables = logitbank.lambada(case.bank, prompts="lm-eval:words").tables
    (row,) = tables["lambada"].to_dicts()
    values = case.theirs["default"]["results"]["words"]
    assert row["acc"] == values["acc,none"]
    assert 0 < row["acc"] < 1
    assert row["perplexity"] == pytest.approx(values["perplexity,none"], rel=1e-5)
    error = tables["measures"].filter(measure="acc")["stderr"].item()
    assert error == pytest.approx(values["acc_stderr,none"])


def test_pairs_are_preferred_as_by_the_harness(case: Case) -> None:
    if "island" not in case.names:
        pytest.skip(f"{DATA} lacks blimp/")
    samples = case.theirs["default"]["samples"]["island"]
    sums = np.array([[resp[0] for resp in sample["filtered_resps"]] for sample in samples])
    study = logitbank.pairs(case.bank, prompts="pairs")
    (row,) = study.tables["pairs"].to_dicts()
    values = case.theirs["default"]["results"]["island"]
    assert row["score"] == pytest.approx(100 * values["acc,none"])
    assert row["likelihood_diff"] == pytest.approx(np.abs(sums[:, 0] - sums[:, 1]).mean(), abs=4e-5)
