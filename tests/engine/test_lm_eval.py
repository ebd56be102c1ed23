"""Tasks of lm-evaluation-harness from a bank against its own model class on the same checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logitbank
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.lm_eval_tasks import write_public_tasks, write_tasks
from tests.support.paths import PUBLIC as DATA
from tests.support.tokenizers import Kind, tiny_tokenizer

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore"),  # the harness's, and those of what it imports
]
NAMES = ("weighted", "inputs", "words", "rolling", "python")
PUBLIC = ("bbq_age", "island")
SHOTS = (2, 5)
NATS = 2e-5


class Case(NamedTuple):
    """A checkpoint, its bank, and the folder of tasks."""

    checkpoint: Path
    bank: Path
    tasks: Path

    def evaluate(self, lm: Any, names: list[str], **settings: Any) -> dict[str, Any]:
        """Results and samples of the harness."""
        import lm_eval
        from lm_eval.tasks import TaskManager

        manager = TaskManager(include_path=str(self.tasks), include_defaults=False)
        found: dict[str, Any] = lm_eval.simple_evaluate(
            lm, tasks=names, task_manager=manager, bootstrap_iters=10, **settings
        )
        return found

    @property
    def model(self) -> Any:
        """The harness's own model."""
        from lm_eval.models.huggingface import HFLM

        return HFLM(str(self.checkpoint), device="cpu", dtype="float32", batch_size=8)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tasks(tmp_path_factory.mktemp("tasks"))
    if (DATA / "bbq").is_dir():
        write_public_tasks(folder)
    return folder


@pytest.fixture(
    scope="module",
    params=[
        ("gpt_neox", "neox", "transformers"),
        ("llama_tied", "llama-slow", "transformers"),
        pytest.param(("gpt_neox", "neox", "vllm"), marks=pytest.mark.vllm),
        pytest.param(("llama_tied", "llama-slow", "vllm"), marks=pytest.mark.vllm),
    ],
    ids="-".join,
)
def case(
    request: pytest.FixtureRequest, tasks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    architecture: Architecture
    kind: Kind
    architecture, kind, engine = request.param
    folder = tmp_path_factory.mktemp("case")
    step = make_checkpoint(folder / "m" / "step1", seed=1, architecture=architecture, vocab=1024)
    tiny_tokenizer(kind, step)
    names = [*NAMES, *(name for name in PUBLIC if (tasks / f"{name}.yaml").is_file())]
    prompts = [f"lm-eval:{name}:include={tasks}" for name in names]
    prompts += [f"lm-eval:jobs:num_fewshot={shots},include={tasks}" for shots in SHOTS]
    bank = folder / "b.zarr"
    summary = logitbank.extract(
        bank, suites=str(step.parent), prompts=prompts, engine=engine, keep="options"
    )
    assert summary.complete, summary.failed
    return Case(step, bank, tasks)


def test_every_sum_flag_and_metric_is_that_of_the_harness(case: Case) -> None:
    from logitbank.harness import BankLM

    names = [*NAMES, *(name for name in PUBLIC if (case.tasks / f"{name}.yaml").is_file())]
    runs = [(names, {}), *((["jobs"], {"num_fewshot": shots}) for shots in SHOTS)]
    ours, theirs = BankLM(case.bank), case.model
    for chosen, settings in runs:
        one, other = (case.evaluate(lm, chosen, **settings) for lm in (ours, theirs))
        assert one["samples"].keys() == other["samples"].keys()
        for task, samples in other["samples"].items():
            for sample, own in zip(samples, one["samples"][task], strict=True):
                assert own["arguments"] == sample["arguments"]
                assert_same(own["filtered_resps"], sample["filtered_resps"], task)
        assert one["results"].keys() == other["results"].keys()
        for task, values in other["results"].items():
            found = one["results"][task]
            texts = {name for name, value in values.items() if isinstance(value, str | dict)}
            assert {name: found.pop(name) for name in texts} == {n: values.pop(n) for n in texts}
            assert found == pytest.approx(values, rel=1e-5, nan_ok=True), task


def assert_same(ours: list[Any], theirs: list[Any], task: str) -> None:
    """Sums of log-probabilities within `NATS`, or float32 rounding of long ones; equal flags."""
    for own, other in zip(ours, theirs, strict=True):
        if not isinstance(other, tuple):
            own, other = (own, None), (other, None)
        assert own[0] == pytest.approx(other[0], abs=NATS, rel=1e-6), task
        assert own[1] == other[1], task
