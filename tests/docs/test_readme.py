"""What the README shows is there: its Python runs, its commands and options exist."""

import re
import shlex
from pathlib import Path

import pytest

from bench.figures import markdown, saved
from logitbank import CheckpointId
from logitbank.store import open_bank
from tests.support.docs_run import resolved
from tests.support.docs_setups import demo_bank
from tests.support.paths import ROOT

README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def commands() -> list[list[str]]:
    text = "\n".join(blocks("console"))
    return [
        shlex.split(line, comments=True)[1:]
        for line in re.findall(r"^\$ (logitbank .*)", text, re.MULTILINE)
    ]


def test_python_runs_on_the_demo_s_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    demo_bank()
    (code,) = blocks("python")
    exec(compile(code, README.name, "exec"), {})
    printed = capsys.readouterr().out
    assert "720" in printed
    assert "not specified" in printed
    last = open_bank("demo/toy.zarr").deposits_of("toy-winobias")[-1]
    assert last.checkpoint == CheckpointId("toy-neox", step=720)
    assert printed.rstrip().endswith(str(last.logprobs([0], [" male"])))


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_and_their_options_exist(words: list[str]) -> None:
    command, rest = resolved(words)
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_the_page_of_benchmarks_is_what_the_saved_results_say() -> None:
    root = README.parent
    page = (root / "docs" / "benchmarks.md").read_text()
    assert page == markdown(saved(root / "bench" / "results"))
