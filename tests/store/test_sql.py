"""Queries of a bank in SQL, against the same asked of its frames."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.results.csv_text import without_formulas
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId, Filter
from tests.support.command import Call
from tests.support.small_banks import QUERY_SET, logits, new_bank, prompt_table


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    made = new_bank(tmp_path / "b")
    made.add_prompts("other", prompt_table(topic="health").head(4))
    for step in (0, 8):
        checkpoint = CheckpointId("org/model", step=step)
        made.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name, keep="topk:4")
    return made


def test_the_tables_have_what_a_bank_has(bank: Bank) -> None:
    frames = {name: frame.collect() for name, frame in bank.frames().items()}
    assert list(frames) == ["checkpoints", "prompts", "options", "scores"]
    assert frames["checkpoints"]["step"].to_list() == [0, 8]
    assert frames["prompts"].select("prompt_set").unique().sort("prompt_set").rows() == [
        ("other",), ("parity",),
    ]  # fmt: skip
    assert len(frames["prompts"]) == 10 + 2
    assert frames["prompts"].filter(prompt_set="parity")["topic"].null_count() == 10
    assert len(frames["options"]) == 24
    assert len(frames["scores"]) == 48


def test_a_query_gives_what_numpy_gives(bank: Bank) -> None:
    found = bank.sql(
        "SELECT step, AVG(logprob) AS mean FROM scores"
        " WHERE prompt_set = 'parity' AND option = 'yes' GROUP BY step ORDER BY step"
    ).collect()
    for step, mean in found.iter_rows():
        values = logits(step).astype(np.float64)
        want = values[:, 1] - np.log(np.exp(values).sum(axis=1))
        assert mean == pytest.approx(want.mean(), abs=1e-6)


def test_tables_join(bank: Bank) -> None:
    found = bank.sql(
        "SELECT p.text, s.step, s.rank FROM scores s JOIN prompts p"
        " ON s.prompt_set = p.prompt_set AND s.prompt_id = p.prompt_id"
        " WHERE p.topic = 'health' AND s.option = 'no' ORDER BY p.text, s.step"
    ).collect()
    assert found.select("text", "step").rows() == [
        ("Is 0 even?", 0), ("Is 0 even?", 8), ("Is 1 even?", 0), ("Is 1 even?", 8),
    ]  # fmt: skip
    assert found["rank"][0] == 1 + (logits(0)[0] > logits(0)[0, 4]).sum()


def test_a_view_answers_too(bank: Bank) -> None:
    view = bank.filtered(Filter.identity(3), name="same")
    query = "SELECT model, AVG(logprob) AS mean FROM scores GROUP BY model"
    (ours,), (theirs,) = (b.sql(query).collect().rows() for b in (view, bank))
    assert ours[0] == "same"
    assert ours[1] == pytest.approx(theirs[1], abs=1e-6)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM scores", r"the query cannot be answered .*scores has model, run"),
        (
            "SELECT * FROM nowhere",
            r"the query cannot be answered .*nowhere.*tables are checkpoints, prompts",
        ),
        ("SELECT stp FROM scores", r"find column \"stp\"\); did you mean step\? scores has model"),
        (
            'SELECT step FROM scores WHERE option = "female"',
            r"\); text is written in single quotes, 'female'; scores has model, ",
        ),
        ("SELECT text FROM scores", r"\); text is a column of prompts; scores has model, "),
        ("SHOW TABLES", 'FROM checkpoints"; tables are checkpoints, prompts, options, scores$'),
        ("SELECT COLUMNS('(') FROM scores", r"^the query cannot be answered .*; scores has model"),
        ("SELEC 1", "'SELEC 1' is no query: a bank is only read; write a SELECT"),
        ("DROP TABLE scores", "'DROP TABLE scores' is no query: a bank is only read"),
        ("  ", "'' is no query"),
    ],
)
def test_a_query_that_is_none_says_what_there_is(bank: Bank, query: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bank.sql(query)


def test_a_bank_without_prompts_says_so(tmp_path: Path) -> None:
    with pytest.raises(BankError, match=r"e has no prompts yet; run `logitbank extract`"):
        Bank.create(tmp_path / "e").sql("SELECT 1")


def test_the_command_prints_and_writes(bank: Bank, call: Call, tmp_path: Path) -> None:
    query = "SELECT step, option, COUNT(*) AS n FROM scores GROUP BY step, option"
    code, out, error = call("query", bank.path, query, "--format", "json")
    assert (code, error) == (0, "")
    assert {(row["step"], row["option"], row["n"]) for row in json.loads(out)} == {
        (step, option, 12) for step in (0, 8) for option in ("yes", "no")
    }
    for name, read in (("r.csv", pl.read_csv), ("r.parquet", pl.read_parquet),
                       ("r.jsonl", pl.read_ndjson)):  # fmt: skip
        code, out, error = call("query", bank.path, query, "--out", tmp_path / name)
        assert (code, out) == (0, "")
        assert read(tmp_path / name)["n"].to_list() == [12] * 4
    code, _, error = call("query", bank.path, query, "--out", tmp_path / "r.csv")
    assert code == 2
    assert "r.csv is there already; choose another name or remove it" in error
    code, _, error = call("query", bank.path, query, "--out", tmp_path / "r.txt")
    assert code == 2
    assert "r.txt ends in none of .csv, .parquet, .jsonl" in error
    assert not list(tmp_path.glob(".*"))


def test_a_pipe_gets_every_row_and_a_terminal_forty(
    bank: Bank, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT a.row FROM options a, options b"
    code, out, error = call("query", bank.path, query)
    assert (code, error, len(out.splitlines())) == (0, "", 1 + 24 * 24)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, error = call("query", bank.path, query)
    assert (code, len(out.splitlines())) == (0, 1 + 40)
    assert "40 rows" in error


def test_filters_of_every_kind_give_what_the_whole_table_gives(bank: Bank) -> None:
    whole = bank.frames()["scores"].collect()
    context = pl.SQLContext({"scores": whole}, eager=True)
    for condition in (
        "option = 'yes' AND step IN (0, 8)", "NOT (option = 'yes')", "prompt_id LIKE 'p1%'",
        "step BETWEEN 1 AND 9 AND (rank = 1 OR option = 'no')",
        "token = 4 AND prompt_set = 'other'",
        "model = 'org/model' AND run = 'main' AND step <> 0", "order_seed IS NULL AND logprob < -1",
    ):  # fmt: skip
        query = f"SELECT prompt_id, step, option, rank FROM scores WHERE {condition}"
        query += " ORDER BY prompt_set, prompt_id, step, option"
        found = bank.sql(query).collect()
        assert found.equals(context.execute(query)), condition
        assert len(found), condition
    limited = bank.sql("SELECT * FROM scores LIMIT 5").collect()
    assert len(limited) == 5


READING = (
    "SELECT * FROM read_csv('{}')",
    "select * from READ_CSV ('{}')",
    "SELECT * FROM \"read_csv\"('{}')",
    "SELECT * FROM read_csv/* */('{}')",
    "SELECT * FROM read_csv -- here\n ('{}')",
    "WITH f AS (SELECT * FROM read_csv('{}')) SELECT * FROM f",
    "SELECT step FROM checkpoints WHERE step IN (SELECT step FROM read_csv('{}'))",
    "SELECT * FROM checkpoints, read_csv('{}')",
    "SELECT * FROM read_parquet('{}')",
    "SELECT * FROM read_json('{}')",
    "SELECT * FROM read_ndjson('{}')",
    "SELECT * FROM read_ipc('{}')",
    "SELECT * FROM scan_avro('{}')",
)


@pytest.mark.parametrize("query", READING)
def test_a_query_reads_no_files(bank: Bank, tmp_path: Path, query: str) -> None:
    """Not even to find out their columns: nothing is there, and that is not what is said."""
    with pytest.raises(
        UsageError, match=r"the query names (?i:read|scan)_\w+, which reads files and URL"
    ):
        bank.sql(query.format(tmp_path / "nothing"))


def test_a_column_or_text_that_looks_like_reading_is_no_reading(bank: Bank) -> None:
    query = "SELECT step AS read_time, 'read_more' AS text FROM checkpoints ORDER BY (read_time)"
    assert bank.sql(query).collect().rows() == [(0, "read_more"), (8, "read_more")]


FORMULAS = ("=1+1", "+1", "-1", "@x", "\tx", "\rx", "'=x", "a=1", "", None)
HARMLESS = ("'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "''=x", "a=1", "", None)


def test_text_that_a_spreadsheet_would_run_is_text_in_csv(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    rows = {"text": FORMULAS, "=name": range(-3, 7)}
    query = 'SELECT "step" AS "=step", \'=1\' AS x, -step AS n FROM checkpoints ORDER BY step'
    assert call("query", bank.path, query, "--format", "csv")[1] == (
        "'=step,x,n\n0,'=1,0\n8,'=1,-8\n"
    )
    assert call("query", bank.path, query, "--out", tmp_path / "x.csv")[0] == 0
    assert (tmp_path / "x.csv").read_text() == "'=step,x,n\n0,'=1,0\n8,'=1,-8\n"
    assert call("query", bank.path, query, "--out", tmp_path / "x.parquet")[0] == 0
    assert pl.read_parquet(tmp_path / "x.parquet").rows() == [(0, "=1", 0), (8, "=1", -8)]
    written = without_formulas(pl.LazyFrame(rows)).collect()
    assert written["text"].to_list() == list(HARMLESS)
    assert written["'=name"].to_list() == list(range(-3, 7))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST(option AS INT) AS x FROM scores",
        "SELECT STRPTIME(option, '%Y') AS x FROM scores",
        "SELECT option FROM scores WHERE option REGEXP '('",
        "SELECT ARRAY_AGG(step) AS x FROM checkpoints",
    ],
)
@pytest.mark.parametrize("to_file", [False, True])
def test_a_query_that_fails_while_it_runs_is_a_wrong_call(
    bank: Bank, call: Call, tmp_path: Path, query: str, to_file: bool
) -> None:
    words = ("--out", tmp_path / "x.csv") if to_file else ("--format", "csv")
    code, out, error = call("query", bank.path, query, *words)
    assert (code, out) == (2, "")
    assert error.startswith("logitbank: the query cannot be answered (")
    assert "verify" not in error


def test_no_result_is_written_into_a_bank(bank: Bank, call: Call) -> None:
    before = set(bank.path.rglob("*"))
    for words in (
        ("query", bank.path, "SELECT step FROM checkpoints", "--out", bank.path / "x.csv"),
        ("report", bank.path, "--out", bank.path / "prompts" / "x.html"),
    ):
        code, _, error = call(*words)
        assert code == 2
        assert "holds data that results must not be mixed with; choose another place" in error
    assert set(bank.path.rglob("*")) == before


def test_a_deposit_that_lost_its_attributes_is_damage_and_not_absent(
    bank: Bank, call: Call
) -> None:
    (gone,) = bank.path.glob("*/main/8/*/zarr.json")
    gone.unlink()
    for words in (
        ("info", bank.path),
        ("query", bank.path, "SELECT * FROM scores"),
        ("merge", bank.path.with_name("m"), bank.path),
        ("push", bank.path, bank.path.with_name("p")),
    ):
        code, _, error = call(*words)
        assert code == 1
        assert f"{gone.parent} has commits and no zarr.json" in error
