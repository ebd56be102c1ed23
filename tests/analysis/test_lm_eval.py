"""Tasks of lm-evaluation-harness from banks of random logits: tables, files and errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy import stats

import logitbank
from logitbank import harness
from logitbank.analysis.families.lm_eval import metric
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.harness import read_harness
from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.registry import prompt_set, prompt_sets
from logitbank.errors import AbsentError, UsageError
from logitbank.harness import BankLM
from logitbank.store import Bank
from tests.support.evaluation_banks import add_winobias
from tests.support.lm_eval_banks import harness_bank
from tests.support.lm_eval_tasks import DOCUMENTS

pytestmark = pytest.mark.filterwarnings("ignore")  # those of what the harness imports
STEPS = (0, 8)
RUNS = ("seed1", "seed2", "seed3")
NAMES = ("weighted", "jobs:num_fewshot=2", "words", "rolling:limit=3", "python", "inputs:limit=20")


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return harness_bank(tmp_path_factory.mktemp("harness"), NAMES, steps=STEPS, runs=RUNS)


@pytest.fixture(scope="module")
def tasks(bank: Bank) -> Path:
    return bank.path.parent / "tasks"


@pytest.fixture(scope="module")
def study(bank: Bank, tasks: Path) -> Any:
    return logitbank.lm_eval(bank, include=str(tasks), bootstrap=20)


def simple(bank: Bank, tasks: Path, names: list[str], step: int, **settings: Any) -> dict[str, Any]:
    """What the harness gives for one checkpoint of run a."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found: dict[str, Any] = lm_eval.simple_evaluate(
        BankLM(bank, run="seed1", step=step), tasks=names, task_manager=manager, bootstrap_iters=20,
        **settings,
    )  # fmt: skip
    return found


def test_every_value_and_error_is_that_of_simple_evaluate(
    bank: Bank, tasks: Path, study: Any
) -> None:
    table = study.result.lm_eval.filter(run="seed1", step=8)
    calls = [
        (["weighted", "words", "python"], {}, "{}"),
        (["rolling"], {"limit": 3}, "{}:limit=3"),
        (["jobs"], {"num_fewshot": 2}, "{}:num_fewshot=2"),
        (["inputs"], {"limit": 20}, "{}:limit=20"),
    ]
    names = {"jobs": "weighted/jobs", "info": "weighted/info"}
    seen = 0
    for chosen, settings, form in calls:
        results = simple(bank, tasks, chosen, 8, **settings)["results"]
        for task, values in results.items():
            own = form.format(names.get(task, task) if form == "{}" else task)
            rows = table.filter(task=own)
            theirs = {key: float("nan") if value == "N/A" else value
                      for key, value in values.items() if "," in key}  # fmt: skip
            ours = {}
            for row in rows.fill_null(float("nan")).iter_rows(named=True):
                ours[f"{row['metric']},{row['filter']}"] = row["value"]
                ours[f"{row['metric']}_stderr,{row['filter']}"] = row["stderr"]
                assert row["documents"] == values["sample_len"]
            assert ours == pytest.approx(theirs, rel=1e-12, abs=0, nan_ok=True), own
            seen += len(theirs)
    assert seen > 30


def test_changes_are_over_the_documents_of_both_checkpoints(
    bank: Bank, tasks: Path, study: Any
) -> None:
    first, last = (
        [
            sample["acc"]
            for sample in simple(bank, tasks, ["inputs"], step, limit=20)["samples"]["inputs"]
        ]
        for step in STEPS
    )
    (row,) = study.result.lm_eval.filter(
        run="seed1", step=8, task="inputs:limit=20", metric="acc"
    ).to_dicts()
    changes = pl.Series(last) - pl.Series(first)
    assert row["value"] == pytest.approx(sum(last) / 20)
    assert row["from_baseline"] == pytest.approx(changes.mean())
    assert (row["baseline_step"], row["common"], row["documents"]) == (0, 20, 20)
    centre = changes.sum() / 22  # Bonett and Price 2012: one more item for each direction
    half = 1.959964 * (((changes**2).sum() + 2) / 22 - centre**2) ** 0.5 / 22**0.5
    assert row["from_baseline_high"] == pytest.approx(centre + half, rel=1e-5)
    interval = stats.binomtest(int(sum(last)), 20).proportion_ci(method="wilson")
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), rel=1e-5)


def test_chance_is_that_of_guessing_one_of_the_choices(study: Any) -> None:
    table = study.result.lm_eval.filter(pl.col("chance").is_not_null())
    rows = dict(table.select(pl.format("{} {}", "task", "metric"), "chance").iter_rows())
    assert rows["inputs:limit=20 acc"] == 0.5
    assert rows["weighted/info acc_mutual_info"] == pytest.approx(1 / 3)
    assert rows["weighted/jobs acc_norm"] == pytest.approx((3 / 2 + 3 / 3 + 2 / 4) / 8)
    assert not any(name.startswith(("python", "words", "weighted ")) for name in rows)


def test_findings_begin_with_the_largest_change_and_charts_have_a_line_of_chance(
    study: Any,
) -> None:
    table = study.result.lm_eval.filter("is_main")
    assert set(study.charts) == {f"lm_eval-{name}" for name in map(_quoted, set(table["task"]))}
    first = study.findings[0]
    assert first.figure == next(iter(study.charts))
    (dashed,) = [
        chart.to_dict() for name, chart in study.charts.items() if name.endswith("limit%3D20")
    ]
    assert "strokeDash" in json.dumps(dashed)
    assert "Dashed: chance (50.0%)" in dashed["usermeta"]["caption"]
    assert "runs" in study.run_tables


def _quoted(name: str) -> str:
    from logitbank.store.format.schema import folder_name

    return folder_name(name)


def test_result_files_are_those_of_the_harness(bank: Bank, tasks: Path, tmp_path: Path) -> None:
    from lm_eval.utils import get_results_filenames, make_table

    sets = ["lm-eval:weighted/jobs", "lm-eval:weighted/info"]
    study = logitbank.lm_eval(
        bank, prompts=sets, include=str(tasks), bootstrap=20, save_results=str(tmp_path)
    )
    folder = tmp_path / "toy-seed1-step8"
    assert len([*tmp_path.iterdir()]) == 6
    (results,) = get_results_filenames([str(path) for path in folder.iterdir()])
    document = json.loads(Path(results).read_text())
    theirs = simple(bank, tasks, ["weighted"], 8)
    for key in ("results", "groups", "versions", "n-shot", "n-samples", "higher_is_better"):
        assert document[key] == json.loads(json.dumps(theirs[key])), key
    assert make_table(document, "groups") == make_table(theirs, "groups")
    lines = (folder / Path(results).name.replace("results_", "samples_jobs_")).with_suffix(".jsonl")
    samples = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [each["doc_hash"] for each in samples] == [
        each["doc_hash"] for each in theirs["samples"]["jobs"]
    ]
    back = read_harness(sorted(tmp_path.rglob("*.json")), task="jobs").filter(metric="acc")
    own = study.result.lm_eval.filter(task="weighted/jobs", metric="acc")
    keys = ["model", "run", "step", "value", "stderr"]
    assert back.select(keys).rows() == own.select(keys).rows()


def test_items_of_a_comparison_are_the_documents(
    bank: Bank, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGITBANK_TASKS", str(tasks))
    items = metric.read_items(Scores([bank], ("lm-eval:python",)))
    assert set(items.axes["metric"]) == {"first", "gap"}
    assert set(items.axes["item"]) == {str(i) for i in range(10)}
    found = logitbank.compare(
        bank, match={"seed1": "seed2"}, prompts="lm-eval:python"
    ).result.metrics
    assert set(found["group"]) >= {"python, first", "further, python, gap"}


def test_a_task_of_the_bank_is_a_performance(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGITBANK_TASKS", str(tasks))
    own = harness_bank(tmp_path / "more", ["inputs"], steps=(0, 8))
    add_winobias(own, steps=(0, 8), skew_from=8)
    name = "lm-eval:inputs"
    found = logitbank.tradeoff(own, performance=[name]).result
    values = logitbank.lm_eval(own).result.lm_eval["value"].to_list()
    assert found.tradeoff["performance"].to_list() == values
    assert found.settings["metric"] == "lm-eval:inputs accuracy"
    logitbank.lm_eval(own, bootstrap=0, save_results=str(tmp_path / "results"))
    files = logitbank.tradeoff(own, performance=[str(tmp_path / "results")]).result
    same = ["model", "run", "step", "performance", "delta"]
    assert files.tradeoff.select(same).equals(found.tradeoff.select(same))
    assert files.settings["metric"] == "inputs accuracy"
    with pytest.raises(UsageError, match="one task of the banks, or result files"):
        logitbank.tradeoff(own, performance=[name, "results"])


def test_a_partial_task_is_excluded_and_its_group_too(
    bank: Bank, tasks: Path, tmp_path: Path
) -> None:
    """Requests of one task are missing at one checkpoint."""
    own = harness_bank(tmp_path / "part", ["weighted"], steps=(0, 8), part={"info": 8})
    study = logitbank.lm_eval(own, include=str(tasks), bootstrap=0)
    rows = study.result.lm_eval.filter("is_main")
    assert set(rows.filter(step=0)["task"]) == {"weighted", "weighted/jobs", "weighted/info"}
    assert set(rows.filter(step=8)["task"]) == {"weighted/jobs"}
    assert any("weighted/info" in note and "missing" in note.lower() for note in study.missing)


def test_a_request_that_the_bank_lacks_is_named(bank: Bank, tasks: Path) -> None:
    with pytest.raises(AbsentError, match=r"request .*' was tired'.* of task 'jobs' .*logitbank "
                       r"extract .*--prompts lm-eval:jobs"):  # fmt: skip
        simple(bank, tasks, ["jobs"], 0, num_fewshot=1)
    with pytest.raises(UsageError, match="'free' generates text"):
        simple(bank, tasks, ["free"], 0)
    with pytest.raises(AbsentError, match="several values of run. Name one: seed1, seed2, seed3"):
        BankLM(bank, step=0)
    with pytest.raises(AbsentError, match="no checkpoint with step 5"):
        BankLM(bank, step=5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lm-eval:free:include={tasks}", r"generate text \(generate_until\): free.*another task"),
        ("lm-eval:mixed:include={tasks}", "free.*Extract the other tasks: --prompts lm-eval:jobs$"),
        ("lm-eval:jops:include={tasks}", r"'jops' \(did you mean jobs\?\)\.$"),
        ("lm-eval:jobs:include=nowhere", "Folder nowhere"),
        ("lm-eval:jobs:num_fewshot=x,include={tasks}", "num_fewshot=x is invalid"),
        ("lm-eval:jobs:shots=2", "no option 'shots'.*num_fewshot"),
        ("lm-eval:jobs:first_token=true,include={tasks}", "scores every token"),
    ],
)
def test_names_and_options_that_a_set_cannot_have_are_refused(
    spec: str, message: str, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.tasks import TaskManager

    def own_index(folder: str) -> TaskManager:  # that of the harness takes seconds to read
        return TaskManager(include_path=folder, include_defaults=False)

    monkeypatch.setattr(harness, "_whole_index", own_index)
    with pytest.raises(UsageError, match=message):
        prompt_sets(spec.format(tasks=tasks), data=None)


def test_prompts_are_the_distinct_requests_and_are_counted(tasks: Path) -> None:
    spec = f"lm-eval:info:include={tasks}"
    made = prompt_set(spec)
    assert {prompt.columns["task_version"] for prompt in made.prompts} == {"3.0"}
    requests = [(p.parts["context"], p.parts["target"]) for p in made.prompts]
    assert len({*requests}) == len(requests)
    lines = prompts_check(spec).lines
    documents = sum(2 + i % 3 == 3 for i in range(DOCUMENTS))
    assert f"lm-eval:info: {documents} documents, {6 * documents} requests" in lines[1]
    assert len(prompts_check(f"lm-eval:weighted:include={tasks}").lines) == 6


def test_another_configuration_is_noted(bank: Bank, tasks: Path, tmp_path: Path) -> None:
    import shutil

    other = shutil.copytree(tasks, tmp_path / "tasks")
    config = json.loads((other / "words.yaml").read_text())
    config["metric_list"].pop()  # a new question to old requests
    (other / "words.yaml").write_text(json.dumps(config))
    study = logitbank.lm_eval(bank, prompts=["lm-eval:words"], include=str(other), bootstrap=0)
    (note,) = (each for each in study.missing if "configurations" in each)
    assert note.endswith("at extraction: words. The bank has all their requests.")
    assert set(study.result.lm_eval["metric"]) == {"perplexity"}


def test_tasks_of_a_group_are_loaded_once_for_all_its_sets(
    bank: Bank, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison reads one prompt set after the other."""
    from lm_eval.tasks import TaskManager

    loads = []
    load = TaskManager.load

    def counted(self: TaskManager, names: list[str]) -> Any:
        loads.append(names)
        return load(self, names)

    monkeypatch.setattr(TaskManager, "load", counted)
    metric._tasks.cache_clear()
    monkeypatch.setenv("LOGITBANK_TASKS", str(tasks))
    for name in ("lm-eval:weighted/jobs", "lm-eval:weighted/info", "lm-eval:weighted/jobs"):
        assert len(metric.read_items(Scores([bank], (name,))).axes)
    assert loads == [["weighted"]]


def test_without_the_harness_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['lm_eval'] = None; sys.modules['lm_eval.api.model'] = None\n"
        "sys.argv = ['logitbank', 'prompts', 'check', 'lm-eval:arc_easy']\n"
        "from logitbank.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("Fix: pip install 'logitbank[lm-eval]'")
    assert done.stderr.count("\n") == 1
