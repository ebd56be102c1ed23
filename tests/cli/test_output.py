"""Tables and texts as people and programs get them."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from logitbank.analysis.finding import Finding
from logitbank.analysis.results.files import table_bytes
from logitbank.analysis.results.latex import latex
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.cli import output
from logitbank.errors import UsageError
from logitbank.store.share.push import push
from tests.analysis.test_options import parity
from tests.support import small_banks
from tests.support.command import Call

TABLE = pl.DataFrame({"name_of": ["a&b", "x"], "gap": [-0.25, None], "n": [1, -2]})
HOSTILE = {
    "a\x1b[2Jb": "a\\x1b[2Jb",
    "\x9b31m": "\\x9b31m",
    "\u202egpj.exe": "\\u202egpj.exe",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "\u200f": "\\u200f",
    "\u200b": "\\u200b",
    "\ufeff": "\\ufeff",
    "[red]": "[red]",
    "a\n|b": "a\\n|b",
}
"""Names and texts that could change a terminal or forge a line, and how they are printed."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parity(tmp_path_factory.mktemp("formats") / "b.zarr").path


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(output, "out", Console(file=screen, highlight=False, width=width))
    return screen


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[\d*m", "", text).splitlines()


def test_a_terminal_gets_the_first_rows_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch, 60)
    output.print_table(pl.DataFrame({"n": range(50), "x": [None, *[1 / 3] * 49]}))
    rows = [line.split() for line in plain(screen.getvalue())]
    assert rows[1:3] == [["0", "–"], ["1", "0.3333"]]
    assert rows[40] == ["39", "0.3333"]
    assert len(rows) == 41


def test_a_narrow_terminal_cuts_no_value_and_counts_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = on_a_terminal(monkeypatch, 33)
    frame = pl.DataFrame({"step": [1], "text": ["a word " * 4], "bytes": [123456], "n": [12345]})
    output.print_table(frame, hidden=2)
    lines = plain(screen.getvalue())
    assert max(map(len, lines)) <= 33
    assert [line.split() for line in lines] == [
        ["step", "text", "bytes"],
        ["1", "a", "word", "a", "word", "a", "123456"],
        ["word", "a", "word"],
    ]
    assert "3 more columns" in capsys.readouterr().err


@dataclass(frozen=True)
class NoTables(Result):
    """A result of no tables."""


def test_a_table_without_a_choice_of_columns_has_them_all_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The family names columns of some tables; of others, as many as fit are shown."""
    frame = pl.DataFrame({"x": [0.5], "step": [8], "model": ["m"], "y": [2]})
    study = Study(result=NoTables(), findings=(), run_tables={"runs": frame})
    screen = on_a_terminal(monkeypatch, 60)
    output.print_study(study, table="runs", form="table")
    header, row = (line.split() for line in plain(screen.getvalue()))
    assert header == ["model", "step", "x", "y"]
    assert row == ["m", "8", "0.5", "2"]
    screen = on_a_terminal(monkeypatch, 60)
    output.print_study(replace(study, screen={"runs": ("y",)}), table="runs", form="table")
    assert plain(screen.getvalue())[0].split() == ["model", "step", "y"]


def test_a_command_on_a_terminal_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["logitbank", "show", "a b", "--prompts", "x", "--prompt", "it's", "--order", "2"]
    screen = on_a_terminal(monkeypatch, 30)
    monkeypatch.setattr(output, "out", Console(file=screen, force_terminal=True, width=30))
    output.print_command(words, before="Next:  ")
    lines = plain(screen.getvalue())
    assert max(map(len, lines)) <= 30
    assert len(lines) > 2
    pasted = "\n".join(lines).removeprefix("Next:  ")
    printed = subprocess.run(
        ["bash", "-c", f"logitbank() {{ printf '%s\\n' \"$@\"; }}\n{pasted}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout.splitlines() == words[1:]


def test_a_pipe_gets_every_row_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"n": range(1000), "x": [1 / 3, None] * 500, "s": ["[a]\nb", "日"] * 500})
    output.print_table(frame)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["   n       x  s     ", "   0  0.3333  [a]\\nb", "   1       –  日    "]
    assert [line.split()[0] for line in lines[1:]] == [str(n) for n in range(1000)]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_hostile_names_and_texts_do_nothing_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    screen = on_a_terminal(monkeypatch, 400)
    monkeypatch.setattr(output, "out", Console(file=screen, force_terminal=False, width=400))
    output.print_frame(pl.DataFrame({name: [name] for name in HOSTILE}), form)
    printed = screen.getvalue()
    assert [c for c in printed if not (c.isprintable() or c == "\n")] == []
    if form == "table":
        assert len(printed.splitlines()) == 2
        assert all(text in printed for text in HOSTILE.values())


def test_lines_keep_line_breaks_and_the_joiners_of_scripts() -> None:
    assert output.one_line("a\n\tb\x1b") == "a\\n\\tb\\x1b"
    assert "a\n\tb\x1b".translate(output.CONTROL) == "a\n\tb\\x1b"
    assert output.one_line("\u0646\u200c\u0647 \u0915\u200d") == "\u0646\u200c\u0647 \u0915\u200d"


def test_csv_in_a_pipe_has_the_original_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_frame(pl.DataFrame({"text": ["\u202ea\x1b"]}), "csv")
    assert capsys.readouterr().out == "text\n\u202ea\x1b\n"


def test_prompts_are_shown_as_they_are_scored(tmp_path: Path, call: Call) -> None:
    text = "A :cat: says [bold]no[/bold] \x1b[31m" + "wide " * 60
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"text": text, "options": [" a", " b"], "answer": "a"}))
    code, out, _ = call("prompts", "show", path)
    assert code == 0
    assert text.replace("\x1b", "\\x1b") in out.splitlines()
    assert "   → ' a' (a)" in out.splitlines()


def test_characters_that_a_stream_cannot_encode_are_escaped(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", stream)
    assert call("info", "bänk")[0] == 2
    stream.flush()
    assert b"b\\xe4nk" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_csv_has_empty_cells_for_what_is_no_number() -> None:
    table = pl.DataFrame({"x": [float("nan"), 0.5, None], "n": [1, 2, 3]})
    assert table_bytes(table, "csv") == b"x,n\n,1\n0.5,2\n,3\n"


def test_jsonl_has_a_record_on_each_line() -> None:
    lines = table_bytes(TABLE, "jsonl").decode().splitlines()
    assert lines == [
        '{"name_of": "a&b", "gap": -0.25, "n": 1}',
        '{"name_of": "x", "gap": null, "n": -2}',
    ]


def test_latex_is_compiled(tmp_path: Path) -> None:
    odd = {"odd": [r"~^\\#$%_{}<>", ""], "p": [1e-9, 1.0], "whole": [float("inf"), 0.0]}
    table = TABLE.with_columns(**{k: pl.Series(v) for k, v in odd.items()}, run=pl.lit("a\nb"))
    told, _, text = latex(table).partition("\n")
    assert told == "% The same in every row: run = a b"
    assert text.splitlines()[4] == (
        r"a\&b & $-0.25$ & 1 & \textasciitilde{}\textasciicircum{}\textbackslash{}\textbackslash{}"
        r"\#\$\%\_\{\}\textless{}\textgreater{} & $1 \times 10^{-9}$ & $\infty$ \\"
    )
    assert " -- " in text.splitlines()[5]
    if shutil.which("pdflatex"):
        page = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + text
        (tmp_path / "t.tex").write_text(page + r"\end{document}")
        subprocess.run(
            ["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True
        )


def test_findings_as_json_have_no_nan(bank: Path, call: Call) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    code, out, _ = call("analyze", bank, "--format", "json")
    assert code == 0
    (study,) = json.loads(out, parse_constant=refuse).values()
    assert study["findings"][0]["sentence"]
    number = Finding(text="x", value=0.5, low=float("nan"), high=float("nan"), n="1 prompt")
    assert number.as_dict()["low"] is None


def test_parquet_is_written_to_a_pipe_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", stdout)
    output.print_frame(TABLE, "parquet")
    assert pl.read_parquet(stdout.buffer.getvalue()).equals(TABLE)  # type: ignore[attr-defined]
    monkeypatch.setattr(stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match=r"FILE\.parquet"):
        output.print_frame(TABLE, "parquet")


@pytest.mark.parametrize("limit", [0, 2])
def test_a_query_is_written_to_a_file(bank: Path, limit: int, tmp_path: Path, call: Call) -> None:
    sql = f"SELECT step, option FROM scores ORDER BY step, option LIMIT {limit}"
    assert call("query", bank, sql, "--out", tmp_path / "a.jsonl")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(rows) == limit
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_empty_table_has_a_note_on_stderr(call: Call, tmp_path: Path) -> None:
    path = small_banks.new_bank(tmp_path / "b").path
    code, out, error = call("query", path, "SELECT step FROM checkpoints")
    assert (code, out.split(), error) == (0, ["step"], "No rows.\n")
    assert call("query", path, "SELECT step FROM checkpoints", "--format", "csv")[2] == ""
    code, _, error = call("info", path)
    assert code == 0
    assert "logitbank extract" in error


def test_repair_of_a_published_bank_names_the_next_command(call: Call, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    push(parity(tmp_path / "b.zarr").path, copy)
    shard = next(copy.rglob("logprobs/c/0/0"))
    shard.write_bytes(shard.read_bytes()[:-5])
    code, out, _ = call("verify", copy, "--repair")
    assert code == 1, "the index lists more than there is"
    assert "removed: " in out
    assert "logitbank extract" in out
    assert "still damaged" not in out


def test_verify_counts_incomplete_deposits_and_exits_0(call: Call, tmp_path: Path) -> None:
    bank = parity(tmp_path / "b.zarr").path
    next(bank.rglob("commits/seal.json")).unlink()
    code, out, _ = call("verify", bank)
    assert code == 0
    assert "1 incomplete deposit. See `logitbank info --checkpoints" in out
