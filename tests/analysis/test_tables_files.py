"""Tables of results as files: full precision, and nothing half-written."""

import json
import math
from dataclasses import dataclass

import polars as pl
import pytest

from logitbank.analysis.results.files import write_tables
from logitbank.analysis.results.tables import Result, json_rows
from logitbank.errors import UsageError

VALUES = [0.1 + 0.2, 1e-300, -1 / 3]


@dataclass(frozen=True)
class Two(Result):
    gap: pl.DataFrame
    name: str
    other: pl.DataFrame


def result(values=VALUES):
    table = pl.DataFrame({"delta": values})
    return Two(table, "no table", table)


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_tables_are_written_at_full_precision(tmp_path, format):
    paths = write_tables(result(), tmp_path / "out", format)
    assert [path.stem for path in paths] == ["gap", "other"]
    path = tmp_path / "out" / f"gap.{format}"
    if format == "json":
        values = [row["delta"] for row in json.loads(path.read_text())]
    else:
        read = pl.read_csv if format == "csv" else pl.read_parquet
        values = read(path)["delta"].to_list()
    assert values == VALUES


def test_a_failed_write_leaves_the_old_table_and_nothing_else(tmp_path, monkeypatch):
    write_tables(result(), tmp_path)
    names, old = sorted(tmp_path.iterdir()), (tmp_path / "gap.csv").read_text()
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            write_tables(result([1.0]), tmp_path)
    assert sorted(tmp_path.iterdir()) == names
    assert (tmp_path / "gap.csv").read_text() == old


def test_json_tells_infinities_from_nan():
    table = pl.DataFrame({"x": [math.inf, -math.inf, math.nan, 0.1, None], "n": [1, 2, 3, 4, 5]})
    rows = [{"x": x, "n": n + 1} for n, x in enumerate(["Infinity", "-Infinity", None, 0.1, None])]
    assert json_rows(table) == rows


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="format 'xlsx'"):
        write_tables(result(), tmp_path, "xlsx")
