"""Benchmarks save each figure as it is measured, and the page shows the latest."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import base, gpu
from bench.distances import distances
from bench.figures import Figure, markdown, saved
from bench.gpu_kernels import attention_error
from bench.models import series
from bench.offline import in_turn
from bench.one_run import one_run, whole_run
from bench.rows import rows
from bench.workload import workload
from logitbank.engine.backends.precision import precision_environment
from logitbank.store.format.grid import Grid
from tests.support.paths import PUBLIC, ROOT
from tests.support.preloaded import Preloaded, require_vllm


def test_figures_measured_before_an_error_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: Path) -> Iterator[Figure]:
        yield Figure("first", 1.5, "s")
        raise RuntimeError("no more")

    monkeypatch.setattr(bench, "public_data", lambda: tmp_path)
    monkeypatch.setitem(bench.BENCHMARKS, "breaks", breaks)
    with pytest.raises(RuntimeError, match="no more"):
        bench.main(["breaks"], tmp_path / "out")
    (file,) = (tmp_path / "out").iterdir()
    assert "breaks" in file.name, "so parts that begin at once have files of their own"
    assert [each["name"] for each in json.loads(file.read_text())["figures"]] == ["first"]


def test_a_case_that_fails_on_a_gpu_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def run(suite: Path, bank: Path, count: int, **options: Any) -> dict[str, Any]:
        runs.append(options["compute_dtype"])
        bank.mkdir()
        if options["compute_dtype"] == "bfloat16":
            raise RuntimeError("loading …\nCUDA error: out of luck")
        done = {"seconds": 0.5, "tokens": 1000, "spent": {"score": 0.4}}
        steps = 3 * options["workers"]
        checkpoints = [done | {"at": 2.0 * i} for i in range(steps)]
        return {"seconds": 3.0, "rows": steps * 11_369, "checkpoints": checkpoints}

    monkeypatch.setattr(gpu, "whole_run", run)
    monkeypatch.setattr(gpu, "series", lambda *_: tmp_path)
    monkeypatch.setattr(gpu, "run_nvidia_smi", lambda *_: "1000\n70000\n")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Card 9")
    figures = [*gpu.on_a_gpu(gpu.speed_of_transformers, tmp_path)]
    assert not [*tmp_path.iterdir()], "all parts leave more than a disk may have"
    assert all(figure.name.startswith("GPU (Card 9): ") for figure in figures)
    failed = [figure for figure in figures if figure.met is False]
    assert {figure.detail for figure in failed} == {"CUDA error: out of luck"}
    assert len(failed) == runs.count("bfloat16") == 2
    (first, *_) = others = [f for f in figures if f.name.endswith(": a checkpoint")]
    assert len(others) == 6, "float32, tf32, hidden states, options, and two with two workers"
    assert len([f for f in others if "2 workers on one card" in f.name]) == 2
    assert (first.value, first.target, first.met) == (2.0, "≤ 2 s", True)
    assert first.detail.endswith("score 0.40 s; at most 73.4 GB used on the card")


def test_a_run_of_fewer_contexts_than_it_says_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"seconds": 3.0, "rows": 3 * 7563, "checkpoints": []}
    monkeypatch.setattr(gpu, "whole_run", lambda *_, **__: few)
    monkeypatch.setattr(gpu, "series", lambda *_: tmp_path)
    figures = [*gpu.speed_of_transformers(tmp_path)]
    assert {f.detail for f in figures if "2 workers" not in f.name} == {
        "22,689 rows were run, not 3 × 11,369."
    }
    assert len({f.detail for f in figures}) == 2


def test_rows_are_written_and_read_by_three_libraries(tmp_path: Path) -> None:
    figures = [*rows(tmp_path, rounds=1, grid=Grid(300, 5000, "float16", 256))]
    who = ["logitbank", "Zarr", "zarrs"]
    assert [figure.name.rpartition(": ")[2] for figure in figures] == [*who, *who[:2], *who[:2]]
    assert all(figure.value > 0 for figure in figures)


def test_distances_are_compared_with_reading_the_rows(tmp_path: Path) -> None:
    (figure,) = distances(tmp_path, rounds=1, contexts=130, vocab=300)
    assert figure.value > 0
    assert "6 checkpoints × 130 full rows" in figure.name


public = pytest.mark.skipif(
    not (PUBLIC / "winobias").exists(), reason="the public data are not here"
)


@public
def test_attention_is_compiled_as_in_workers_and_models_leave_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in precision_environment("float32"):
        monkeypatch.setenv(name, "tf32")
    assert wrong([*attention_error("attention")]) == []
    assert os.environ["TRITON_F32_DEFAULT"] == "ieee"
    emptied: list[int] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: emptied.append(1))
    series(tmp_path, "tiny", 2)
    assert len(emptied) == 2


@public
def test_five_orders_of_all_sentences_are_all_prompts() -> None:
    every = workload(gpu.SENTENCES, "five_orders").prompts
    assert len(every) == 15_840
    assert len({prompt.id for prompt in every}) == 3168
    some = workload(3000, "five_orders").prompts
    assert len(some) == 15_000, "also of those that begin again at the first"
    with pytest.raises(ValueError, match="WinoBias has 3,168 sentences, not 3,169"):
        workload(3169, "five_orders")


prompts_of_a_run = cache(workload)


def in_this_process(suite: Path, bank: Path, count: int, **options: Any) -> dict[str, Any]:
    """`whole_run` without another process, which would read WinoBias once more."""
    for name in ("environment", "timeout_s"):
        options.pop(name, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.one_run.workload", prompts_of_a_run)
        return one_run({"suites": str(suite), "bank": str(bank), "count": count, **options})


def wrong(figures: list[Figure]) -> list[str]:
    """Missed targets, but those of speed: a test may run on any machine."""
    return [f.line() for f in figures if f.met is False and f.unit not in ("s", "×")]


@public
@pytest.mark.whole
@pytest.mark.parametrize("part", [name for name in gpu.PARTS if name != "gpu-vllm"])
@pytest.mark.usefixtures("quick_workers")
def test_every_part_for_a_gpu_runs_on_a_cpu(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "whole_run", in_this_process)
    figures = [*gpu.PARTS[part](tmp_path, gpu.TINY)]
    assert figures
    assert wrong(figures) == []
    assert all(figure.value >= 0 for figure in figures)


@public
@pytest.mark.whole
@pytest.mark.vllm
def test_the_part_for_vllm_runs_on_a_cpu(
    tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one case with states and one with two workers: the part of transformers has each."""
    require_vllm()
    monkeypatch.setattr(gpu, "whole_run", in_this_process)
    every, chosen = gpu._speed_cases, ("hidden rows", "full rows, 2 workers on one card")

    def some(part: gpu.Part, engine: str, target: float | None) -> dict[str, gpu.Case]:
        cases = every(part, engine, target).items()
        return {name: case for name, case in cases if name.endswith(chosen)}

    monkeypatch.setattr(gpu, "_speed_cases", some)
    with preloaded.workers("vllm"):
        figures = [*gpu.speed_of_vllm(tmp_path, replace(gpu.TINY, engines=("vllm",)))]
    assert wrong(figures) == []
    assert [sum(part in figure.name for figure in figures) for part in chosen] == [1, 1]


@pytest.mark.vllm
def test_vllm_s_attention_takes_the_arguments_of_the_benchmark(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    """Its kernel runs on GPUs only, so its signature is compared."""
    require_vllm()
    case = "tests.docs.test_bench:attention_of_vllm"
    names, shapes = preloaded.run("vllm", tmp_path, case)
    assert names == []
    assert shapes == [(6, 16, 2, 32)] * 2, "two sequences of 38 tokens take three blocks each"


def attention_of_vllm() -> tuple[list[str], list[tuple[int, ...]]]:
    """Arguments that vLLM's function does not have, and shapes of keys and values."""
    import inspect

    import torch
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    from bench.gpu_kernels import attention_arguments

    arguments = attention_arguments(*torch.zeros(3, 2, 38, 2, 32))
    parameters = inspect.signature(unified_attention).parameters
    required = {n for n, p in parameters.items() if p.default is p.empty}
    wrong = [*(arguments.keys() - parameters.keys()), *(required - arguments.keys())]
    return wrong, [tuple(arguments[name].shape) for name in ("k", "v")]


def test_a_run_that_fails_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-suite"):
        whole_run(tmp_path / "no-such-suite", tmp_path / "b.zarr", 2, engine="transformers")


def test_the_page_shows_the_latest_figure_and_whether_a_gpu_was_used() -> None:
    def page(*figures: Figure) -> str:
        runs = [{"figures": [asdict(each)], "hardware": {"cpu": "x"}} for each in figures]
        return markdown([run | {"time": f"2026-01-0{day}"} for day, run in enumerate(runs, 1)])

    old, new, card = Figure("a", 1, "s"), Figure("a", 2, "s"), Figure("GPU (H100): b", 3, "s")
    assert "| a | 2 s |" in page(old, new)
    assert "| a | 1 s |" not in page(old, new)
    assert "No figure was measured on a GPU" in page(old)
    assert "No figure was measured on a GPU" not in page(old, card)


def test_the_last_release_is_measured_in_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier revision, which is a repository of its own here, with other code."""
    root, git = tmp_path / "root", ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for name in ("api", "engine"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text(f"where = {name!r}")
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    subprocess.run([*git, "add", "."], cwd=root, check=True)
    subprocess.run([*git, "commit", "-qm", "first"], cwd=root, check=True)
    monkeypatch.setattr(base, "ROOT", root)
    assert base.last_release() == ""
    subprocess.run([*git, "tag", "v1"], cwd=root, check=True)
    assert base.last_release() == "v1"
    code = "import logitbank, logitbank.engine as e; print(len(getattr(e, 'where', '')))"
    command = [sys.executable, "-c", code]
    with base.checked_out("v1", tmp_path) as earlier:
        _, none = in_turn(command, None, 0)
        assert none is None
        for turn in (0, 1):
            own, other = in_turn(command, earlier, turn)
            assert other is not None
            assert (own[1], other[1]) == (0, len("engine")), "each its own package"
    assert not earlier.folder.exists()
    with pytest.raises(SystemExit, match="--base 'v2' cannot be checked out"):
        with base.checked_out("v2", tmp_path):
            pass
    figure = Figure("a", 2, "s", base=4, revision="v1")
    assert figure.line() == "a: 2 s (v1: 4 s)"
    run = {"figures": [asdict(figure)], "hardware": {"cpu": "x"}, "time": "2026-01-01"}
    assert "| a | 2 s | 4 s (v1) |" in markdown([run])


def test_the_page_has_the_saved_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page == markdown(saved(ROOT / "bench" / "results"))
