"""What people see: help, one line for what is wrong, exit codes, and tables in every format."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
import typer.main
from rich.console import Console

import logitbank
from logitbank.cli import output as show
from logitbank.cli.main import app
from logitbank.cli.screen.extract import print_summary
from logitbank.engine.plan.plan import Plan
from logitbank.engine.workers.events import CheckpointFailed, Summary
from logitbank.store import Bank, CheckpointId
from logitbank.store.share.push import push
from tests.support import small_banks
from tests.support.command import Call


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    path = tmp_path / "small.zarr"
    bank = small_banks.new_bank(path)
    for step in (0, 8):
        bank.deposit(
            small_banks.logits(step),
            checkpoint=CheckpointId("org/model", step=step),
            query_set=small_banks.QUERY_SET.name,
            vocab_entries=small_banks.VOCAB,
            provenance={"engine": "elsewhere"},
        )
    return path


def commands(group: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        yield " ".join((*path, name)), command


def test_every_command_and_parameter_has_help() -> None:
    found = dict(commands())
    assert {"extract", "info", "verify", "demo", "prompts check", "analyze fairness"} <= set(found)
    for name, command in found.items():
        assert command.help, name  # type: ignore[attr-defined]
        for parameter in command.params:  # type: ignore[attr-defined]
            assert parameter.help, f"{name} {parameter.name}"


def test_version_is_the_packages(call: Call) -> None:
    assert call("--version") == (0, logitbank.__version__ + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'; see `logitbank --help`"),
        (["prompts", "a_folder"], "a_folder is no command, and stands after one: logitbank prom"),
        (["analyze", "a_folder"], "a_folder is a folder but no bank"),
        (["analyze", "no/where"], "there is no bank at no/where"),
        (["analyze", "fairness", "b", "--colors", "a=b"], "--colors is about saved charts"),
        (["info", "--nothing"], "No such option: --nothing"),
        (["extract", "b", "--prompts", "x"], "Missing option '--suite'"),
        (["info", "nowhere"], "there is no bank at nowhere; check the path"),
        (["analyze", "fairness", "nowhere"], "there is no bank at nowhere"),
        (["info", "a_file"], "a_file is a file, and a bank is a folder"),
        (["info", "a_folder"], "a_folder is a folder but no bank: it has no zarr.json"),
        (["prompts", "show", "nothing"], "'nothing' is neither a known prompt set"),
        (["prompts", "show", "n.jsonl"], "prompt file n.jsonl is not there"),
        (["prompts", "show", "winobias:orders=0"], "orders '0' is neither a number from 1"),
        (["prompts", "check", "empty.jsonl"], "prompt file empty.jsonl is empty"),
        (["prompts", "check", "odd.jsonl"], "answer 'z' is not among the options 'x', 'y'"),
        (
            ["extract", "b", "--prompts", "p.jsonl", "q.jsonl", "--suite", "s"],
            "--prompts takes one value at a time; write --prompts p.jsonl --prompts q.jsonl; see",
        ),
        (["describe", "b", "--title", "Two", "words"], "unexpected extra argument"),
        (
            ["extract", "b", "--suite", "s", "--prompts", "p.jsonl", "--engine", "foo"],
            "'foo' is not one of 'auto', 'vllm', 'transformers'",
        ),
        (
            ["extract", "b", "--suite", "s", "--prompts", "x.jsonl", "--keep", "half"],
            "keep level 'half' is unknown",
        ),
        (
            ["extract", "b", "--suite", "./a_folder", "--prompts", "good.jsonl"],
            "no checkpoint in a_folder",
        ),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "a_folder" / "sub").mkdir(parents=True)
    (tmp_path / "empty.jsonl").touch()
    prompt = {"text": "t", "options": ["x", "y"]}
    (tmp_path / "good.jsonl").write_text(json.dumps(prompt))
    (tmp_path / "odd.jsonl").write_text(json.dumps(prompt | {"answer": "z"}))
    code, out, error = call(*arguments)
    assert (code, out) == (2, "")
    assert error.startswith("logitbank: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_bank_of_another_format_version_is_refused(call: Call, bank: Path) -> None:
    metadata = json.loads((bank / "zarr.json").read_text())
    metadata["attributes"]["logitbank"]["format"] = 9
    (bank / "zarr.json").write_text(json.dumps(metadata))
    code, _, error = call("info", bank)
    assert code == 2
    assert re.fullmatch(r"logitbank: .* is a bank of format 9; .* reads format 1.*\n", error)


@pytest.mark.parametrize(
    ("raised", "ends", "message"),
    [
        (KeyboardInterrupt(), 3, "interrupted; the same command goes on from there"),
        (OSError(30, "Read-only file system", "/x/b"), 1, "/x/b: Read-only file system; check"),
    ],
)
def test_what_stops_a_command_from_outside_is_one_line_with_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, call: Call, raised: BaseException, ends: int, message: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(Bank, "open", stopped)
    code, _, error = call("info", "b")
    assert code == ends
    assert error.startswith(f"logitbank: {message}")
    assert error.count("\n") == 1


def test_what_was_dropped_of_a_bank_that_was_pushed_is_to_be_run_again(
    call: Call, bank: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    push(bank, copy)
    shard = next(copy.rglob("logprobs/c/0/0"))
    shard.write_bytes(shard.read_bytes()[:-5])
    code, out, _ = call("verify", copy, "--repair")
    assert code == 1, "its index lists more than there is"
    assert "index.json.gz still lists what was dropped: the same `logitbank extract` runs it" in out
    assert "still damaged" not in out
    assert "another copy" not in out


def test_verify_tells_what_nothing_vouches_for_and_exits_0(call: Call, bank: Path) -> None:
    commit = next(bank.rglob("commits/seal.json"))
    commit.unlink()
    code, out, _ = call("verify", bank)
    assert code == 0
    assert f"{bank} is whole\n" in out
    left = commit.parents[1].relative_to(bank) / "logprobs/c/0/0"
    assert f"not committed, or the commit is missing: {left} and " in out
    assert "the same `logitbank extract` writes it again" in out


def test_prompts_are_shown_as_they_would_be_scored(tmp_path: Path, call: Call) -> None:
    text = "A :cat: says [bold]no[/bold] \x1b[31m" + "wide " * 60
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"text": text, "options": [" a", " b"], "answer": "a"}))
    code, out, _ = call("prompts", "show", path)
    assert code == 0
    assert text.replace("\x1b", "\\x1b") in out.splitlines()
    assert "   → ' a' (a)" in out.splitlines()


def printed(print_it: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> str:
    print_it()
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_a_terminal_shows_how_many_rows_of_a_table_are_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    frame = pl.DataFrame({"n": range(50), "x": [None, *[1 / 3] * 49]})
    text = printed(lambda: show.print_table(frame), capsys)
    assert "– " in text
    assert "0.3333" in text
    assert " 39  " in text
    assert " 40  " not in text
    assert "… 10 more rows" in text


def test_a_pipe_gets_every_row_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"n": range(1000), "x": [1 / 3, None] * 500, "s": ["[a]\nb", "日"] * 500})
    lines = printed(lambda: show.print_table(frame, title="gap"), capsys).splitlines()
    assert lines[:4] == [
        "gap",
        "   n       x  s     ",
        "   0  0.3333  [a]\\nb",
        "   1       –  日    ",
    ]
    assert [line.split()[0] for line in lines[2:]] == [str(n) for n in range(1000)]


def test_a_narrow_terminal_cuts_no_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(show, "out", Console(highlight=False, width=25))
    frame = pl.DataFrame({"step": [1], "engine": ["transformers"], "bytes": [123456]})
    text = re.sub(r"\x1b\[\d*m", "", printed(lambda: show.print_table(frame), capsys))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 25
    cells = {"".join(line.split()) for line in lines}
    assert cells == {"stepenginebytes", "1transform123456", "ers"}


def test_a_name_forges_no_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "=m\u202e\n|x"
    frame = pl.DataFrame({"model": [name], "a\nb": [1]})
    shown = [["model", "a\\nb"], ["=m\\u202e\\n|x", "1"]]
    assert (
        list(map(str.split, printed(lambda: show.print_table(frame), capsys).splitlines())) == shown
    )
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    monkeypatch.setattr(show, "out", Console(file=screen, highlight=False, width=80))
    show.print_table(frame)
    text = re.sub(r"\x1b\[\d*m", "", screen.getvalue())
    assert list(map(str.split, text.splitlines())) == shown


def test_what_a_bank_holds_cannot_move_the_cursor_or_style_the_terminal() -> None:
    assert show.clean("a\x1b[2Jb\x9bc[red]") == "a\\x1b[2Jb\\x9bc\\[red]"
    assert show.clean("line\nline\ttab") == "line\nline\ttab"


TRICKS = ("a\x1b[2Jb", "\x9b31m", "\u202egpj.exe", "\u2066x\u2069", "\u200f", "\u200b", "\ufeff")
SHOWN = (
    *("a\\x1b[2Jb", "\\x9b31m", "\\u202egpj.exe", "\\u2066x\\u2069"),
    *("\\u200f", "\\u200b", "\\ufeff"),
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_names_and_texts_of_strangers_do_nothing_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(show, "out", Console(file=screen, force_terminal=False, width=400))
    show.print_frame(pl.DataFrame({name: [name] for name in TRICKS}), form)
    printed = screen.getvalue()
    assert [c for c in printed if not (c.isprintable() or c == "\n")] == []
    assert all(text in printed for text in SHOWN) or form == "json"


def test_joiners_that_scripts_are_written_with_stay() -> None:
    assert show.clean("\u0646\u200c\u0647 \u0915\u200d") == "\u0646\u200c\u0647 \u0915\u200d"


def test_csv_in_a_pipe_has_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_frame(pl.DataFrame({"text": ["\u202ea\x1b"]}), "csv")
    assert capsys.readouterr().out == "text\n\u202ea\x1b\n"


def test_a_summary_ends_with_the_log_of_the_last_failure_and_what_to_do_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (CheckpointId("m", step=step) for step in (1, 2))
    summary = Summary(Plan((), checkpoints=2, queries=1, prompts=1))
    summary.failed = [
        CheckpointFailed(first, "m step 1: it died", log_tail=("Segmentation fault",)),
        CheckpointFailed(second, "m step 2: no weights"),
    ]
    text = printed(lambda: print_summary(summary, bank="b.zarr", dry_run=False), capsys)
    first_line, log, *_, last = text.splitlines()
    assert "b.zarr.log about m step 1" in first_line
    assert log == "  Segmentation fault"
    assert "Run the same command to retry" in last


def test_help_is_plain_in_a_narrow_pipe_and_loads_no_engine() -> None:
    code = (
        "import sys, atexit; from logitbank.cli.main import run; sys.argv = ['logitbank', "
        "'extract', '--help']; atexit.register(lambda: print([m for m in "
        "('torch', 'transformers', 'vllm', 'polars') if m in sys.modules])); run()"
    )
    environment = os.environ | {"COLUMNS": "60", "NO_COLOR": "1"}
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        environment.pop(name, None)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 60
    assert result.stdout.splitlines()[-1] == "[]"


def test_an_interrupted_command_ends_without_taking_python_apart() -> None:
    """What is registered for Python's end does not run, and what was printed is not lost."""
    code = (
        "import atexit, sys; from logitbank.cli import main; atexit.register(print, 'apart');"
        "sys.stdout.write('said'); main.app = lambda **_: {}; main.main()"
    )
    ended = {
        code_of_typer: subprocess.run(
            [sys.executable, "-c", code.format(code_of_typer)], capture_output=True, text=True
        )
        for code_of_typer in (130, 3, 1)
    }
    assert {c: r.returncode for c, r in ended.items()} == {130: 3, 3: 3, 1: 1}
    assert {c: r.stdout for c, r in ended.items()} == {130: "said", 3: "said", 1: "saidapart\n"}
    assert ended[130].stderr == "logitbank: interrupted; the same command goes on from there\n"


def test_an_output_that_cannot_be_written_is_named_as_it_was_asked_for(
    call: Call, bank: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    code, _, error = call("analyze", "options", bank, "--out", file)
    assert (code, error) == (
        1,
        f"logitbank: {file}: a file is there, where a folder is needed; choose another name\n",
    )
    code, _, error = call("query", bank, "SELECT 1 AS a FROM scores", "--out", "/proc/a.csv")
    assert code == 1
    assert "/proc/a.csv" in error
    assert ".part" not in error
