"""Benchmarks save each figure as it is measured, and the page shows the latest."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import gpu
from bench.figures import Figure, markdown, saved
from bench.one_run import whole_run
from tests.support.paths import ROOT


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
    assert [each["name"] for each in json.loads(file.read_text())["figures"]] == ["first"]


def test_a_case_that_fails_on_a_gpu_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def run(suite: Path, bank: Path, count: int, **options: Any) -> dict[str, Any]:
        runs.append(options["compute_dtype"])
        if options["compute_dtype"] == "bfloat16":
            raise RuntimeError("loading …\nCUDA error: out of luck")
        checkpoints = [{"seconds": 0.5, "tokens": 1000}] * 3
        return {"seconds": 3.0, "spent": {"score": 0.4}, "checkpoints": checkpoints}

    monkeypatch.setattr(gpu, "whole_run", run)
    monkeypatch.setattr(gpu, "series", lambda *_: tmp_path)
    monkeypatch.setattr(gpu, "agreement", lambda *arguments: iter([Figure(arguments[-1], 0, "")]))
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Card 9")
    figures = [*gpu.gpu_figures(tmp_path)]
    failed = [figure for figure in figures if figure.met is False]
    assert {figure.detail for figure in failed} == {"CUDA error: out of luck"}
    assert len(failed) == runs.count("bfloat16") == 2
    assert len([f for f in figures if f.name.endswith(": a checkpoint")]) == 2


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


def test_the_page_has_the_saved_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page == markdown(saved(ROOT / "bench" / "results"))
