"""Formats that results are printed in, other spellings of options, and what `report` prints."""

import io
import json
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from logitbank.analysis.finding import Finding
from logitbank.analysis.results.files import table_bytes
from logitbank.analysis.results.latex import latex
from logitbank.cli import output as tables
from logitbank.errors import UsageError
from tests.analysis.test_options import parity
from tests.support.command import Call

TABLE = pl.DataFrame({"name_of": ["a&b", "x"], "gap": [-0.25, None], "n": [1, -2]})


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parity(tmp_path_factory.mktemp("formats") / "b.zarr").path


def test_jsonl_has_a_record_on_each_line() -> None:
    lines = table_bytes(TABLE, "jsonl").decode().splitlines()
    assert lines == [
        '{"name_of": "a&b", "gap": -0.25, "n": 1}',
        '{"name_of": "x", "gap": null, "n": -2}',
    ]


def test_latex_is_compiled(tmp_path: Path) -> None:
    table = TABLE.with_columns(odd=pl.lit(r"~^\\#$%_{}<>"), p=pl.lit(1e-9), whole=float("inf"))
    text = latex(table)
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


def test_any_table_is_printed_in_any_format(bank: Path, call: Call) -> None:
    printed = {}
    for form in ("csv", "json", "jsonl", "latex"):
        code, printed[form], error = call("info", bank, "--format", form)
        assert (code, error) == (0, "")
    rows = [json.loads(line) for line in printed["jsonl"].splitlines()]
    assert rows == json.loads(printed["json"])
    assert printed["latex"].startswith(r"\begin{tabular}{l")
    assert len(printed["csv"].splitlines()) == 1 + len(rows)


def test_findings_as_json_have_no_nan(bank: Path, call: Call) -> None:
    def refused(constant: str) -> None:
        raise AssertionError(constant)

    code, out, _ = call("analyze", bank, "--format", "json")
    assert code == 0
    (study,) = json.loads(out, parse_constant=refused).values()
    assert study["findings"][0]["sentence"]
    number = Finding(text="x", value=0.5, low=float("nan"), high=float("nan"), n="1 prompt")
    assert number.as_dict()["low"] is None


def test_parquet_goes_into_a_pipe_and_never_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", stdout)
    tables.print_frame(TABLE, "parquet")
    assert pl.read_parquet(stdout.buffer.getvalue()).equals(TABLE)  # type: ignore[attr-defined]
    monkeypatch.setattr(stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(
        UsageError, match=r"Parquet cannot be printed on a terminal.* > FILE\.parquet"
    ):
        tables.print_frame(TABLE, "parquet")


@pytest.mark.parametrize("limit", [0, 2])
def test_the_answer_of_a_query_is_a_list_in_a_file_named_json(
    bank: Path, limit: int, tmp_path: Path, call: Call
) -> None:
    sql = f"SELECT step, option FROM scores ORDER BY step, option LIMIT {limit}"
    for name in ("a.json", "a.jsonl"):
        assert call("query", bank, sql, "--out", tmp_path / name)[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "a.json").read_text()) == rows
    assert len(rows) == limit
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.jsonl"}


@pytest.mark.parametrize("command", [[], ["analyze", "fairness"]])
def test_h_is_help(command: list[str], call: Call) -> None:
    assert call(*command, "-h") == call(*command, "--help")
    assert call(*command, "-h")[0] == 0


def test_license_is_licence(tmp_path: Path, call: Call) -> None:
    path = parity(tmp_path / "b.zarr").path
    code, out, _ = call("describe", path, "--license", "CC0-1.0")
    assert code == 0
    assert "licence: CC0-1.0" in out
