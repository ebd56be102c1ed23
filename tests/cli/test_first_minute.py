"""What somebody meets who has just installed it: wrong calls, odd terminals, pipes, no home."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from logitbank.analysis.families.fairness import FAMILY as OF_FAIRNESS
from logitbank.analysis.families.fluctuation import FAMILY as OF_FLUCTUATION
from logitbank.analysis.frames.banks import choose_prompts
from logitbank.cli.plain import encode_anything
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank
from tests.support import small_banks
from tests.support.command import Call
from tests.support.evaluation_banks import add_lambada
from tests.support.paths import ROOT

PAIRED = {"sentence_id": "s", "paired": True}
SENTENCES = {"verb": "is", "occupation": "dean", "prior": False}


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank with a query set, and no prompts yet."""
    bank = Bank.create(tmp_path / "b.zarr")
    bank.add_query_set(small_banks.QUERY_SET)
    return bank


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inof"], "No such command 'inof'; did you mean 'info'? see `logitbank --help`"),
        (["analyze", "fairnes"], "'fairnes'; did you mean 'fairness'"),
        (["info", "--fromat", "csv"], "No such option: --fromat; did you mean --format? see `log"),
        (["info"], "Missing argument 'bank'; see `logitbank info --help`"),
        (["info", "b", "--format", "xml"], "'--format': 'xml' is not one of 'table', 'csv', 'js"),
    ],
)
def test_a_mistyped_call_is_answered_with_what_was_meant(
    call: Call, arguments: list[str], message: str
) -> None:
    code, out, error = call(*arguments)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["analyze"], ["prompts"], ["debias"]])
def test_without_arguments_the_help_is_shown_and_the_call_was_wrong(
    call: Call, arguments: list[str]
) -> None:
    code, out, error = call(*arguments)
    assert (code, error) == (2, "")
    assert f"Usage: {' '.join(['logitbank', *arguments])} [OPTIONS] COMMAND" in out


FAIRNESS: Any = {"known": "winobias", "family_prompts": OF_FAIRNESS.prompts}
FLUCTUATION: Any = {"known": "professions", "family_prompts": OF_FLUCTUATION.prompts}


def test_of_several_prompt_sets_the_one_with_the_family_s_columns_is_taken(bank: Bank) -> None:
    bank.add_prompts("mine", small_banks.prompt_table(**PAIRED))
    bank.add_prompts("yours", small_banks.prompt_table(**SENTENCES))
    assert choose_prompts([bank], None, **FAIRNESS) == "mine"
    assert choose_prompts([bank], None, **FLUCTUATION) == "yours"
    assert choose_prompts([bank], "yours", **FAIRNESS) == "yours"
    bank.add_prompts("winobias", small_banks.prompt_table())
    assert choose_prompts([bank], None, **FAIRNESS) == "winobias"


def test_prompt_sets_are_not_guessed_among(bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'winobias' is not in .* Available: none\."):
        choose_prompts([bank], None, **FAIRNESS)
    for name in ("mine", "yours"):
        bank.add_prompts(name, small_banks.prompt_table(**PAIRED))
    with pytest.raises(UsageError, match=r"Available: mine, yours\. Name one with --prompts"):
        choose_prompts([bank], None, **FLUCTUATION)
    with pytest.raises(UsageError, match=r"Available: mine, yours\. Name one with --prompts"):
        choose_prompts([bank], None, **FAIRNESS)
    other = small_banks.new_bank(tmp_path / "other")
    with pytest.raises(UsageError, match=r"'x' is not in .*b.zarr, .*other\. Available: mine, par"):
        choose_prompts([bank, other], "x", **FAIRNESS)


@pytest.mark.parametrize(
    "family",
    [
        *("fairness", "fluctuation", "stereoset", "lambada", "stereotype"),
        *("pairs", "tradeoff", "unqover"),
    ],
)
def test_prompts_that_no_bank_has_are_a_wrong_call(call: Call, tmp_path: Path, family: str) -> None:
    small_banks.new_bank(tmp_path / "b")
    code, out, error = call("analyze", family, tmp_path / "b", *asked(family))
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'b'}" in error
    assert "parity" in error, "it says what there is"
    assert error.count("\n") == 1


def asked(family: str) -> list[str]:
    return [] if family in ("stereotype", "tradeoff") else ["--prompts", "nothing"]


def test_what_is_absent_is_both_a_wrong_call_and_a_matter_of_the_bank(tmp_path: Path) -> None:
    bank = small_banks.new_bank(tmp_path / "b")
    bank.deposit(
        small_banks.logits(),
        checkpoint=small_banks.spec().checkpoint,
        query_set=small_banks.QUERY_SET.name,
    )
    with pytest.raises(AbsentError, match="no deposit has model x; the bank has org/model") as got:
        bank.scan("parity", models="x")
    assert isinstance(got.value, BankError)
    assert isinstance(got.value, UsageError)
    assert got.value.exit_code == 2


def on_a_terminal(*arguments: object, columns: int = 60, **variables: str) -> str:
    """What `logitbank` writes to a terminal of so many columns, both streams together."""
    main, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    code = "from logitbank.cli.main import run; run()"
    odd = ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in odd}
    environment |= {"TERM": "xterm-256color", **variables}
    words = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(words, stdout=end, stderr=end, env=environment) as process:
        os.close(end)
        written = b""
        with suppress(OSError):  # Linux's answer when the other end is closed
            while part := os.read(main, 65536):
                written += part
    os.close(main)
    assert process.returncode in (0, 2)
    return written.decode().replace("\r\n", "\n")


def test_sentences_are_wrapped_between_words_on_a_terminal(tmp_path: Path) -> None:
    nowhere = tmp_path / ("a-long-name-" * 8)
    said = on_a_terminal("info", nowhere)
    assert f"{nowhere};\n" in said, "a path stays in one piece"
    *_, last = said.splitlines()
    assert len(last) <= 60
    assert " ".join(said.split()).endswith("check the path, or make one with `logitbank extract`")
    path = small_banks.new_bank(nowhere).path
    merged = on_a_terminal("merge", tmp_path / "m", path).splitlines()
    assert merged[-1] in "0 deposits and 2 tables added, 0 bytes copied; it keeps no deposit"
    assert len(merged[-1]) < 60
    assert all(len(line) <= 60 for line in merged if "/" not in line)


def test_a_dumb_terminal_and_a_pipe_get_no_escapes_and_no_color_leaves_no_colours(
    tmp_path: Path,
) -> None:
    """https://no-color.org is about colours alone: headings may be bold."""
    path = small_banks.new_bank(tmp_path / "b").path
    bold, escape = "\x1b[1m", "\x1b"
    assert bold in on_a_terminal("info", path, columns=120)
    plain = on_a_terminal("info", path, columns=120, NO_COLOR="1")
    assert set(re.findall(r"\x1b\[[\d;]*m", plain)) == {bold, "\x1b[0m"}
    assert escape not in on_a_terminal("info", path, columns=120, TERM="dumb")


def test_what_the_output_cannot_encode_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, TextIOWrapper(BytesIO(), encoding="ascii"))
    encode_anything()
    print("→ “a” × 3 – é…", file=sys.stderr)
    sys.stderr.flush()
    written = sys.stderr.buffer.getvalue()  # type: ignore[attr-defined]
    assert written == b'-> "a" x 3 - \\xe9...\n'


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = small_banks.new_bank(tmp_path / "b").path
    code = "from logitbank.cli.main import run; run()"
    words = [sys.executable, "-c", code, "query", str(path), "SELECT * FROM prompts, options"]
    with subprocess.Popen(
        [*words, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_empty_result_says_so(call: Call, tmp_path: Path) -> None:
    path = small_banks.new_bank(tmp_path / "b").path
    code, out, error = call("query", path, "SELECT step FROM checkpoints")
    assert (code, out.split(), error) == (0, ["step"], "no rows\n")
    assert call("query", path, "SELECT step FROM checkpoints", "--format", "csv")[2] == ""
    code, _, error = call("info", path)
    assert (code, error.splitlines()[-1]) == (
        0,
        f"{path} has no checkpoint yet; run `logitbank extract`",
    )


def test_a_result_goes_into_a_folder_that_is_there(call: Call, tmp_path: Path) -> None:
    path, out = small_banks.new_bank(tmp_path / "b").path, tmp_path / "no" / "x.csv"
    code, _, error = call("query", path, "SELECT step FROM checkpoints", "--out", out)
    assert (code, error) == (
        2,
        f"logitbank: {out} cannot be written: there is no folder {tmp_path}/no; make it first\n",
    )


@pytest.mark.parametrize("suite", ["./missing/", "pythia-160"])
def test_a_suite_that_is_not_there_is_told_before_prompts_are_fetched(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str
) -> None:
    def fetched(*_: object, **__: object) -> None:
        raise AssertionError("the prompts were made")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logitbank.engine.extract.prompt_sets", fetched)
    code, out, error = call("extract", "b.zarr", "--suite", suite, "--prompts", "winobias")
    assert (code, out) == (2, "")
    assert suite.strip("./") in error
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize("command", [["info"], ["analyze", "fairness"]])
def test_a_cache_that_cannot_be_written_to_is_named_with_the_way_out(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("LOGITBANK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(sys, "platform", "linux")
    code, _, error = call(*command, "https://127.0.0.1:9/bank")
    assert code == 2
    assert f"{tmp_path}/file/logitbank/banks/" in error
    assert "cannot be written (Not a directory)" in error
    assert error.endswith("or set LOGITBANK_CACHE to a folder that can be written\n")


@pytest.mark.whole
def test_figures_are_drawn_without_a_home_and_without_a_warning(tmp_path: Path) -> None:
    bank = tmp_path / "b.zarr"
    add_lambada(Bank.create(bank), {0: 4, 8: 30})
    odd = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in odd}
    (tmp_path / "file").touch()
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from logitbank.cli.main import run; run()"),
            *("analyze", "lambada", bank, "--out", tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        env=environment | {"HOME": str(tmp_path / "file")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"Report: {tmp_path}/out/report.html\n"
    assert len(list((tmp_path / "out" / "charts").glob("*.pdf"))) == 1


def completed(line: str, shell: str) -> list[str]:
    """What a shell is told at a Tab after this line, in the protocol of its script."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    heavy = "('torch', 'transformers', 'vllm', 'polars', 'numpy', 'zarr', 'scipy', 'altair')"
    code = (
        "import atexit, sys; from logitbank.cli.main import run; atexit.register(lambda: print("
        f"[m for m in {heavy} if m in sys.modules], file=sys.stderr)); run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"_LOGITBANK_COMPLETE": f"complete_{shell}", **asked[shell]},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]\n", "no package that takes long to import"
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("logitbank ana", ["analyze"]),
        ("logitbank info b --format ", ["table", "csv", "json"]),
        ("logitbank extract b --suite pythia-160", ["pythia-160m", "pythia-160m-deduped"]),
        ("logitbank extract b --prompts winob", ["winobias"]),
    ],
)
def test_bash_completes_commands_options_suites_and_prompt_sets(
    line: str, offered: list[str]
) -> None:
    found = completed(line, "bash")
    assert [name for name in found if name in offered] == offered
    assert all(name.startswith(line.rpartition(" ")[2]) for name in found)


def test_zsh_and_fish_complete_with_a_line_of_help() -> None:
    (said,) = completed("logitbank ana", "zsh")
    assert '"analyze":"Compute one family of metrics, or all."' in said
    assert completed("logitbank ana", "fish") == ["analyze\tCompute one family of metrics, or all."]


def test_make_help_names_every_target() -> None:
    root = ROOT
    done = subprocess.run(["make", "-C", str(root), "-s", "help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    told = set(re.findall(r"make (\w+)", done.stdout))
    assert told == set(phony[1].split())
    assert "#" not in done.stdout
