"""Run the blocks of one page of docs/ in order, as a reader would, and compare what comes out."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer.main

import logitbank
from logitbank.cli.main import app
from logitbank.engine import doing
from tests.support.command import Call
from tests.support.docs_pages import ROOT, Command, Fence, commands, matches, script_lines

RUN_BY_BASH = {"cat", "cp", "head", "ls", "mkdir"}
OTHERS = {
    *("export", "source", "ssh", "scp", "tmux", "nvidia-smi", "df", "git", "cd", "python3", "ray"),
    *("sbatch", "squeue", "srun", "sudo", "rsync", "sleep", "sha256sum", "uv", "cp"),
    "head=$SLURMD_NODENAME",
}
"""What blocks that are parsed only may call beside logitbank, pip and make."""


class PageRun:
    """The state of a reader at work: a folder, environment variables and Python's names."""

    def __init__(
        self,
        call: Call,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        replaced: Mapping[str, str],
    ) -> None:
        self._call, self._monkeypatch, self._capsys = call, monkeypatch, capsys
        # A machine that does other work may take longer than a page tells of.
        monkeypatch.setattr(doing, "FIRST_S", 3600.0)
        self._replaced = replaced
        self._names: dict[str, Any] = {"__name__": "page"}
        self._printed: str | None = None

    def run(self, fence: Fence) -> None:
        text = fence.text
        for theirs, ours in self._replaced.items():
            text = text.replace(theirs, ours)
        if fence.name and Path(fence.name).suffix:
            Path(fence.name).write_text(text)
            return
        if fence.language == "text":
            if self._printed is not None and fence.follows:
                assert_shown(fence, text, self._printed)
            self._printed = None
            return
        self._printed = None
        if fence.language == "console":
            self._console(fence, text)
        elif fence.language == "bash":
            check_script(text)
        elif fence.language == "python":
            self._python(fence, text)
        elif fence.language == "sql":
            assert isinstance(logitbank.open("demo/toy.zarr").sql(text).collect(), pl.DataFrame)
        elif fence.language == "r":
            assert fence.parsed_only, "R is not at hand"
        else:
            assert fence.language == "json", f"nobody tests a block of {fence.language!r}"

    def _console(self, fence: Fence, text: str) -> None:
        typed = commands(text)
        for command in typed:
            if fence.parsed_only:
                check_words(command.words)
                continue
            code, *printed = self._ran(command)
            expected = fence.exit_code if command is typed[-1] else 0
            assert code == expected, f"line {fence.line}: {command.words} gave {code}: {printed}"
            if command.shown:
                assert_shown(fence, "\n".join(command.shown), *printed)

    def _ran(self, command: Command) -> tuple[int, str, str]:
        words = list(command.words)
        with pytest.MonkeyPatch.context() as only_here:
            while words and (setting := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
                only_here.setenv(setting[1], setting[2])
                words.pop(0)
            if words[0] == "logitbank":
                return self._call(*words[1:])
        if words[0] == "export":
            for setting in words[1:]:
                self._monkeypatch.setenv(*setting.split("=", 1))
            return 0, "", ""
        if words[0] == "cd":
            self._monkeypatch.chdir(words[1])
            return 0, "", ""
        assert words[0] in RUN_BY_BASH, f"{words} cannot be run here; mark it as parsed only"
        done = subprocess.run(words, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def _python(self, fence: Fence, text: str) -> None:
        code = compile("\n" * fence.line + text, "the page", "exec")
        if not fence.parsed_only:
            exec(code, self._names)
            self._printed = self._capsys.readouterr().out


def assert_shown(fence: Fence, shown: str, *printed: str) -> None:
    """One of the streams, or both in either order, is what the page shows."""
    possible = [*printed, *("".join(p) for p in (printed, printed[::-1]) if len(printed) > 1)]
    same = any(matches(shown, found, numbers_differ=fence.numbers_differ) for found in possible)
    assert same, f"line {fence.line} shows\n{shown}\nand this came out\n" + "".join(printed)


def check_script(text: str) -> None:
    """A script of the shell: its syntax, and the calls of logitbank in it."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for words in script_lines(text):
        if "logitbank" in words:
            called = words[words.index("logitbank") :]
            check_words(called[:-1] if called[-1] == "&" else called)


def check_words(words: list[str]) -> None:
    """The command takes these options and values; pip's extras and make's targets are there."""
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *rest = words
    if program == "logitbank":
        parse(rest)
    elif program == "make":
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in rest)
    elif program in {"pip", "pip3"}:
        _check_extras(" ".join(rest))
    else:
        assert program in OTHERS, f"{program} is in no list of programs that pages may call"


def parse(words: list[str]) -> None:
    """Give the words to the command's own parser, which refuses what does not fit."""
    command, rest = resolved(words)
    command.make_context(" ".join(["logitbank", *words[: len(words) - len(rest)]]), rest)


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and its arguments; `analyze BANK` is `analyze all BANK`."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if rest and "all" in getattr(command, "commands", {}):
        command = command.commands["all"]
    assert not hasattr(command, "commands"), f"{words} is no whole command"
    return command, rest


def _check_extras(words: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for listed in re.findall(r"\[([\w,]+)\]", words):
        assert set(listed.split(",")) <= extras.keys(), listed
