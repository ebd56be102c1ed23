"""Run the blocks of one page in order, as a reader would, and compare the outputs."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
import typer.main

import logitbank
from logitbank.cli.main import app
from tests.support.command import Call
from tests.support.docs_pages import ROOT, Command, Fence, commands, fences, matches
from tests.support.docs_setups import SETUPS, Tools
from tests.support.preloaded import Preloaded

RUN_BY_BASH = {"cat", "cp", "head", "ls", "mkdir"}


def read_page(
    page: Path,
    call: Call,
    preloaded: Preloaded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run the blocks of a page in this folder, with the servers and files that it needs."""
    with ExitStack() as ends:
        prepare = SETUPS.get(page.name)
        replaced = prepare(Tools(preloaded, monkeypatch, ends)) if prepare else {}
        reader = PageRun(with_named(call), monkeypatch, capsys, replaced)
        for fence in fences(page):
            reader.run(fence)


def with_named(call: Call) -> Call:
    """A `call` that also runs the commands that an output names, which succeed."""
    seen: set[tuple[str, ...]] = set()

    def called(*arguments: object) -> tuple[int, str, str]:
        result = call(*arguments)
        for words in named_commands("".join(result[1:])):
            if tuple(words) not in seen and words != [*map(str, arguments)]:
                seen.add(tuple(words))
                assert called(*words)[0] == 0, words
        return result

    return called


def named_commands(text: str) -> Iterator[list[str]]:
    """Complete commands that an output names: lines of their own, and those in backticks."""
    lines = re.findall(r"^(?:Next:)?\s*(logitbank (?:.*\\\n)*.*)$", text, re.M)
    lines += re.findall(r"`(logitbank [^`]*)`", text.replace("\n", " "))
    for line in lines:
        words = shlex.split(line.replace("\\\n", " "))[1:]
        if any(re.fullmatch("[A-Z]+|…", word) for word in words):
            continue
        try:
            parse(words)
        except (AssertionError, typer.TyperException):
            continue  # a name of a command in a sentence
        yield words


class PageRun:
    """The state of a reader: a folder, environment variables and Python's names."""

    def __init__(
        self,
        call: Call,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        replaced: Mapping[str, str],
    ) -> None:
        self._call, self._monkeypatch, self._capsys = call, monkeypatch, capsys
        self._replaced = replaced
        self._names: dict[str, Any] = {"__name__": "page"}
        self._printed: str | None = None

    def run(self, fence: Fence) -> None:
        text = fence.text
        for in_page, in_test in self._replaced.items():
            text = text.replace(in_page, in_test)
        printed, self._printed = self._printed, None
        if Path(fence.name).suffix:
            Path(fence.name).write_text(text)
        elif fence.language == "text":
            if printed is not None and not fence.name:
                assert_shown(fence, text, printed)
        elif fence.language == "console":
            self._console(fence, text)
        elif fence.language == "bash":
            check_script(text)
        elif fence.language == "python":
            self._python(fence, text)
        elif fence.language == "sql":
            assert isinstance(logitbank.open("demo/toy.zarr").sql(text).collect(), pl.DataFrame)
        else:
            assert fence.language in ("json", "r"), f"line {fence.line}: not tested"
            assert fence.language == "json" or fence.parsed_only

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
        program, *rest = command.words
        if program == "logitbank":
            return self._call(*rest)
        if program == "export":
            for setting in rest:
                self._monkeypatch.setenv(*setting.split("=", 1))
            return 0, "", ""
        assert program in RUN_BY_BASH, f"{program} cannot be run here; mark it as parsed only"
        done = subprocess.run(command.words, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def _python(self, fence: Fence, text: str) -> None:
        code = compile("\n" * fence.line + text, "the page", "exec")
        if not fence.parsed_only:
            exec(code, self._names)
            self._printed = self._capsys.readouterr().out


def assert_shown(fence: Fence, shown: str, *printed: str) -> None:
    """One of the streams, or both in either order, is what the page shows."""
    possible = [*printed, "".join(printed), "".join(printed[::-1])]
    same = any(matches(shown, found) for found in possible)
    assert same, f"line {fence.line} shows\n{shown}\nbut the output is\n" + "".join(printed)


def check_script(text: str) -> None:
    """Check the syntax of a shell script, and its calls of logitbank."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for command in commands("$ " + "\n$ ".join(re.sub(r"\\\n", " ", text).splitlines())):
        if "logitbank" in command.words:
            called = command.words[command.words.index("logitbank") :]
            check_words(called[:-1] if called[-1] == "&" else called)


def check_words(words: list[str]) -> None:
    """Check the options and values of logitbank, extras of pip, and targets of make."""
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *rest = words
    if program == "logitbank":
        parse(rest)
    elif program == "make":
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in rest)
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"\[([\w,-]+)\]", " ".join(rest)):
            assert set(extras.split(",")) <= project["optional-dependencies"].keys(), extras


def parse(words: list[str]) -> None:
    """Let the command's own parser read the words; it refuses what is invalid."""
    command: Any = typer.main.get_command(app)
    settings, rest = command.context_settings, list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if rest and "all" in getattr(command, "commands", {}):
        command = command.commands["all"]  # `analyze BANK` is `analyze all BANK`
    assert not hasattr(command, "commands"), f"{words} is not a complete command"
    name = " ".join(["logitbank", *words[: len(words) - len(rest)]])
    command.make_context(name, rest, **settings)
