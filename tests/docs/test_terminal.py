"""Commands that the pages and the outputs name, in a pseudo-terminal: their screens as text."""

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support import terminal
from tests.support.command import every_command
from tests.support.docs_pages import PAGES, fences
from tests.support.docs_run import parse, read_page
from tests.support.docs_setups import Tools, demo
from tests.support.preloaded import Preloaded

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TABLES = ("analyze", "compare", "info", "prompts", "query", "show", "suites", "verify")
"""Commands that print tables, which have another width on another terminal, and write no bank."""
HELP = [words[1:] for words, _ in every_command()]


def named(screen: terminal.Screen) -> Iterator[list[str]]:
    """Complete commands that a screen names: lines of their own, and those in backticks."""
    text = "\n".join(screen.text())
    found = re.findall(r"^(?:Next:)?\s*(logitbank (?:.*\\\n)*.*)$", text, re.M)
    found += re.findall(r"`(logitbank [^`]*)`", text.replace("\n", " "))
    for line in found:
        words = shlex.split(line.replace("\\\n", " "))[1:]
        if any(re.fullmatch("[A-Z]+|…", word) for word in words):
            continue
        try:
            parse(words)
        except (AssertionError, typer.TyperException):
            continue  # a name of a command in a sentence
        yield words


def walk() -> Any:
    """A `call` that looks at the screen of each command, and runs the commands that it names."""
    seen: set[tuple[str, ...]] = set()

    def called(*arguments: object) -> tuple[int, str, str]:
        if arguments[0] in TABLES:
            terminal.assert_clean(arguments, terminal.run(*arguments, columns=120)[1])
        code, screen = terminal.run(*arguments, columns=80)
        terminal.assert_clean(arguments, screen)
        for words in named(screen):
            if tuple(words) not in seen and words != [*map(str, arguments)]:
                seen.add(tuple(words))
                assert called(*words)[0] == 0, words
        return code, "\n".join(screen.text()), ""

    return called


def pages() -> Iterator[Any]:
    for page in PAGES:
        if any(fence.language == "console" for fence in fences(page)):
            yield pytest.param(page, id=page.name)


@pytest.mark.whole
@pytest.mark.parametrize("page", [*pages()])
def test_the_commands_of_a_page_on_a_terminal(
    page: Path,
    tmp_path: Path,
    preloaded: Preloaded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    read_page(page, walk(), preloaded, monkeypatch, capsys, compared=False)


@pytest.mark.parametrize(
    "line",
    [
        "analyze fairness demo/toy.zarr --table gap",
        "compare demo/toy.zarr --match toy-neox=toy-neox --table checkpoints",
        "info demo/toy.zarr",
        "show demo/toy.zarr --prompts toy-winobias",
        "info nowhere",
        "extract b --suite nothing --prompts nothing",
        "verify demo/toy.zarr",
    ],
)
def test_tables_errors_and_bars_on_a_terminal(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo()
    walk()(*shlex.split(line))


@pytest.mark.whole
@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_help_on_a_terminal(words: tuple[str, ...]) -> None:
    for columns in (80, 120):
        code, screen = terminal.run(*words, "--help", columns=columns)
        assert code == 0
        terminal.assert_clean(words, screen)


@pytest.mark.whole
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_on_a_terminal_is_the_documented_message_and_the_run_resumes(
    times: int, tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pressed when the screen says that the engine starts; after that nothing is random."""
    monkeypatch.chdir(tmp_path)
    prompts = "\n".join(
        f'{{"text": "The nurse saw {i}", "options": [" male", " female"]}}' for i in range(20)
    )
    Path("p.jsonl").write_text(prompts)
    words = ("extract", "b.zarr", "--suite", "checkpoints", "--prompts", "p.jsonl")
    words += ("--engine", "transformers")
    pressed = []

    def press(screen: terminal.Screen) -> bytes:
        if pressed or "starting the engine" not in "\n".join(screen.text()):
            return b""
        pressed.append(True)
        return times * terminal.CTRL_C

    with ExitStack() as ends:
        Tools(preloaded, monkeypatch, ends).checkpoints("checkpoints", 0, 1000, 2000)
        code, screen = terminal.run(*words, columns=80, press=press)
        assert code == 3, screen.text()
        terminal.assert_clean(words, screen)
        assert "Run the same command to resume." in " ".join(screen.text())
        code, screen = terminal.run(*words, columns=80)
        assert code == 0
        terminal.assert_clean(words, screen)
        assert "3 of 3 checkpoints done" in " ".join(screen.text())
