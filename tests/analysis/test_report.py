import json
import math

import polars as pl
import pytest

from logitbank.analysis.families.fairness.metric import fairness_metric
from logitbank.analysis.results.files import write_tables
from logitbank.analysis.results.tables import json_rows
from logitbank.errors import UsageError
from tests.support.fairness_cases import random_frame


def result_of(**options):
    frame = random_frame(**{"checkpoints": 6, "sentences": 20, **options})
    return fairness_metric(frame, bootstrap=100)


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_tables_are_written_at_full_precision(tmp_path, format):
    result = result_of(checkpoints=2)
    paths = write_tables(result, tmp_path / "out", format)
    assert [path.stem for path in paths] == list(result.tables())
    path = tmp_path / "out" / f"gap.{format}"
    if format == "json":
        values = [row["delta_nats"] for row in json.loads(path.read_text())]
    else:
        read = pl.read_csv if format == "csv" else pl.read_parquet
        values = read(path)["delta_nats"].to_list()
    assert values == result.gap["delta_nats"].to_list()


def test_a_failed_write_leaves_the_old_table_and_nothing_else(tmp_path, monkeypatch):
    result = result_of(checkpoints=2)
    write_tables(result, tmp_path)
    names, old = sorted(tmp_path.iterdir()), (tmp_path / "gap.csv").read_text()
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            write_tables(result_of(checkpoints=3), tmp_path)
    assert sorted(tmp_path.iterdir()) == names
    assert (tmp_path / "gap.csv").read_text() == old


def test_json_tells_infinities_from_nan():
    table = pl.DataFrame({"x": [math.inf, -math.inf, math.nan, 0.1, None], "n": [1, 2, 3, 4, 5]})
    rows = [{"x": x, "n": n + 1} for n, x in enumerate(["Infinity", "-Infinity", None, 0.1, None])]
    assert json_rows(table) == rows


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="format 'xlsx' is unknown; use one of csv, parquet, jso"):
        write_tables(result_of(checkpoints=1), tmp_path, "xlsx")
