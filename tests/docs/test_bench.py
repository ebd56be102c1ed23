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


def test_what_was_measured_before_an_error_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: Path) -> Iterator[Figure]:
        yield Figure("first", 1.5, "s")
        raise RuntimeError("no more")

    monkeypatch.setitem(bench.BENCHMARKS, "breaks", breaks)
    with pytest.raises(RuntimeError, match="no more"):
        bench.main(["breaks"], tmp_path / "out")
    (file,) = (tmp_path / "out").iterdir()
    assert [each["name"] for each in json.loads(file.read_text())["figures"]] == ["first"]


def test_a_case_that_fails_on_a_card_costs_no_other_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card is played, and so are the runs: of bfloat16 none comes to its end."""
    asked: list[tuple[str, str]] = []

    def run(suite: Path, bank: Path, count: int, **options: Any) -> dict[str, Any]:
        asked.append((options["engine"], options.get("compute_dtype", "float32")))
        if options.get("compute_dtype") == "bfloat16":
            raise RuntimeError("loading …\nCUDA error: out of luck")
        done = {"loaded": 1.0, "done": 2.0, "seconds": 0.5, "tokens": 1000}
        return {"seconds": 3.0, "spent": {"score": 0.4}, "checkpoints": [done] * 3}

    monkeypatch.setattr(gpu, "whole_run", run)
    monkeypatch.setattr(gpu, "series", lambda *_: tmp_path)
    monkeypatch.setattr(gpu, "agreement", lambda *_, **named: iter([Figure(named["name"], 0, "")]))
    monkeypatch.setattr(gpu, "DATA", tmp_path)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Card 9")
    found = [*gpu.gpu_figures(tmp_path)]
    failed = [figure for figure in found if figure.met is False]
    assert {figure.detail for figure in failed} == {"CUDA error: out of luck"}
    assert failed[0].name == "Card 9, speed, 1b, transformers, bfloat16, full: done"
    assert len([dtype for _, dtype in asked if dtype == "bfloat16"]) == len(failed) > 3
    engines = [engine for engine, _ in asked]
    assert engines == sorted(engines), "one engine after the other"
    assert len([f for f in found if "a checkpoint" in f.name]) == len(asked) - len(failed) > 3


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-suite"):
        whole_run(tmp_path / "no-such-suite", tmp_path / "b.zarr", 2, engine="transformers")


def test_without_the_driver_s_program_nothing_is_said_of_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with gpu.samples(tmp_path / "log.csv") as card:
        pass
    assert card() == []


def test_the_page_says_whether_a_card_was_met_and_which_cases_failed_last() -> None:
    def page(*figures: Figure) -> str:
        hardware = {"cpu": "x", "gpu": "NVIDIA H100, 81559 MiB, 580.1"}
        runs = [{"figures": [asdict(each)], "hardware": hardware} for each in figures]
        return markdown([run | {"time": f"2026-01-0{day}"} for day, run in enumerate(runs, 1)])

    alone = "No figure was measured on a GPU"
    failed, done = (Figure("H100, speed: done", n, "of 1", "1", bool(n)) for n in (0, 1))
    assert alone in page(Figure("of a processor, beside a card", 1, "s"))
    assert alone in page(failed)
    assert "speed: done" in page(done, failed)
    assert alone not in page(done, failed)
    assert alone not in page(failed, done)
    assert "speed: done" not in page(failed, done)


def test_the_page_has_the_saved_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page == markdown(saved(ROOT / "bench" / "results"))
