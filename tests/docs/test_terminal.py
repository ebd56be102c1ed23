"""Every command in a pseudo-terminal: its screen as text, and the commands that it names."""

import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.golden import banks
from tests.support import terminal
from tests.support.command import Call, every_command
from tests.support.docs_run import with_named
from tests.support.docs_setups import Tools, demo
from tests.support.preloaded import Preloaded

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
READING = (
    "analyze demo/toy.zarr",
    "analyze fairness demo/toy.zarr --table gap",
    "analyze options demo/toy.zarr --prompts toy-winobias --out results",
    "compare demo/toy.zarr --match toy-neox=toy-neox --table checkpoints",
    "export demo/toy.zarr scores.csv --prompts toy-winobias",
    "extract --help",
    "info demo/toy.zarr",
    "info demo/toy.zarr --provenance",
    "info nowhere",
    "query demo/toy.zarr 'SELECT step, AVG(logprob) AS logprob FROM scores GROUP BY step'",
    "report demo/toy.zarr --bootstrap 20",
    "show demo/toy.zarr --prompts toy-winobias",
    "show demo/toy.zarr --prompt demo-pro-43-referred --order 2 --top-tokens 3",
    "suites",
    "verify demo/toy.zarr",
)
"""Commands about the demo's bank, which they leave as it is."""
WRITING = (
    "describe a.zarr --license CC-BY-4.0 --citation 'Nobody, 2026'",
    "merge both.zarr a.zarr",
    "merge both.zarr b.zarr",
    "shrink a.zarr small.zarr --keep topk:3",
    "push a.zarr public",
    "pull public copy.zarr --steps 0,last",
    "verify damaged.zarr --repair",
    "prompts check jobs.jsonl --tokenizer series/step0",
    "prompts show jobs.jsonl --top 1",
    "extract bank.zarr --suite nothing --prompts nothing",
    "debias train debias.zarr --prompts unqover-gender --k 6 --out f.safetensors",
    "debias compare debias.zarr --filter f.safetensors",
    "debias apply debias.zarr --filter f.safetensors --out filtered.zarr",
)
"""Commands that are run in this order. The second merge is refused."""
ELSEWHERE = {"demo", "fetch", "debias erase"}
"""Commands that train, load from the Hub, or need states, and print as others do."""
TABLES = ("analyze", "compare", "info", "prompts", "query", "show", "suites")
"""Commands that print tables, which have another width on another terminal."""


def walk(preloaded: Preloaded) -> Call:
    """A `call` that looks at the screen of each command, and runs the commands that it names."""

    def called(*arguments: object) -> tuple[int, str, str]:
        if arguments[0] in TABLES:
            terminal.assert_clean(arguments, terminal.run(preloaded, *arguments, columns=120)[1])
        code, screen = terminal.run(preloaded, *arguments, columns=80)
        terminal.assert_clean(arguments, screen)
        return code, "\n".join(screen.text()), ""

    return with_named(called)


def test_every_command_is_on_a_terminal() -> None:
    """Families of metrics print as those that are there."""
    leaves = {" ".join(w[1:]) for w, each in every_command() if not hasattr(each, "commands")}
    lines = [*READING, *WRITING]
    there = {name for name in leaves if any(line.startswith(f"{name} ") for line in lines)}
    absent = leaves - there - {"suites"} - ELSEWHERE
    assert {name.split()[0] for name in absent} == {"analyze"}


@pytest.mark.whole
@pytest.mark.parametrize("line", READING)
def test_tables_errors_and_bars_on_a_terminal(
    line: str, tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo()
    walk(preloaded)(*shlex.split(line))


@pytest.mark.whole
def test_commands_that_write_on_a_terminal(
    tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in (banks.damaged, banks.two_banks, banks.checkpoints, banks.debias):
        make(tmp_path)
    call = walk(preloaded)
    codes = {line: call(*shlex.split(line))[0] for line in WRITING}
    assert [line for line, code in codes.items() if code] == [
        "merge both.zarr b.zarr",
        "extract bank.zarr --suite nothing --prompts nothing",
    ]


@pytest.mark.whole
def test_ctrl_c_on_a_terminal_is_the_documented_message_and_the_run_resumes(
    tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pressed when the screen says that the engine starts; after that nothing is random."""
    monkeypatch.chdir(tmp_path)
    prompts = "\n".join(
        f'{{"text": "The nurse saw {i}", "options": [" male", " female"]}}' for i in range(20)
    )
    Path("p.jsonl").write_text(prompts)
    words = ("extract", "b.zarr", "--suite", "checkpoints", "--prompts", "p.jsonl")
    words += ("--engine", "transformers")
    left: list[bytes] = []

    def press(screen: terminal.Screen) -> bytes:
        return left.pop() if left and "starting the engine" in "\n".join(screen.text()) else b""

    with ExitStack() as ends:
        Tools(preloaded, monkeypatch, ends).checkpoints("checkpoints", 0, 1000, 2000)
        for times in (1, 2):
            left.append(times * terminal.CTRL_C)
            code, screen = terminal.run(preloaded, *words, columns=80, press=press)
            assert (code, left) == (3, []), screen.text()
            terminal.assert_clean(words, screen)
            assert "Run the same command to resume." in " ".join(screen.text())
        code, screen = terminal.run(preloaded, *words, columns=80)
        assert code == 0
        terminal.assert_clean(words, screen)
        assert "3 of 3 checkpoints done" in " ".join(screen.text())
