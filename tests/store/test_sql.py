"""SQL queries of a bank, against the same computed from its arrays and frames."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.results.csv_text import without_formulas
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId
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


def test_four_tables(bank: Bank) -> None:
    tables = ("checkpoints", "prompts", "options", "scores")
    checkpoints, prompts, options, scores = (
        bank.sql(f"SELECT * FROM {name}").collect() for name in tables
    )
    assert checkpoints["step"].to_list() == [0, 8]
    assert dict(prompts.group_by("prompt_set").len().iter_rows()) == {"other": 2, "parity": 10}
    assert prompts.filter(prompt_set="parity")["topic"].null_count() == 10
    assert (len(options), len(scores)) == (24, 48)


def test_a_query_agrees_with_numpy(bank: Bank) -> None:
    found = bank.sql(
        "SELECT step, AVG(logprob) AS mean FROM scores"
        " WHERE prompt_set = 'parity' AND option = 'yes' GROUP BY step ORDER BY step"
    ).collect()
    for step, mean in found.iter_rows():
        values = logits(step).astype(np.float64)
        expected = values[:, 1] - np.log(np.exp(values).sum(axis=1))
        assert mean == pytest.approx(expected.mean(), abs=1e-6)


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


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT stp FROM scores", "logsumexp"),
        ("SELECT * FROM nowhere", "checkpoints, prompts, options, scores"),
        ('SELECT step FROM scores WHERE option = "female"', "single quotes"),
        ("SHOW TABLES", "checkpoints, prompts, options, scores"),
        ("SELECT COLUMNS('(') FROM scores", "scores"),
        ("DROP TABLE scores", "DROP TABLE scores"),
        ("SELECT * FROM read_csv('a.csv')", "read_csv"),
        ("  ", "SELECT"),
    ],
)
def test_an_invalid_query_names_tables_or_columns(bank: Bank, query: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        bank.sql(query)


def test_a_bank_without_prompts_has_no_tables(tmp_path: Path) -> None:
    with pytest.raises(BankError):
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
    assert call("query", bank.path, query, "--out", tmp_path / "r.csv")[0] == 2
    assert call("query", bank.path, query, "--out", tmp_path / "r.txt")[0] == 2
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


FORMULAS = ("=1+1", "+1", "-1", "@x", "\tx", "\rx", "'=x", "a=1", "", None)
HARMLESS = ("'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "''=x", "a=1", "", None)


def test_text_that_a_spreadsheet_would_run_is_text_in_csv(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    rows = {"text": FORMULAS, "=name": range(-3, 7)}
    query = 'SELECT "step" AS "=step", \'=1\' AS x, -step AS n FROM checkpoints ORDER BY step'
    expected = "'=step,x,n\n0,'=1,0\n8,'=1,-8\n"
    assert call("query", bank.path, query, "--format", "csv")[1] == expected
    assert call("query", bank.path, query, "--out", tmp_path / "x.csv")[0] == 0
    assert (tmp_path / "x.csv").read_text() == expected
    assert call("query", bank.path, query, "--out", tmp_path / "x.parquet")[0] == 0
    assert pl.read_parquet(tmp_path / "x.parquet").rows() == [(0, "=1", 0), (8, "=1", -8)]
    written = without_formulas(pl.LazyFrame(rows)).collect()
    assert written["text"].to_list() == list(HARMLESS)
    assert written["'=name"].to_list() == list(range(-3, 7))


@pytest.mark.parametrize("query", ["SELECT CAST(option AS INT) AS x FROM scores",
                                   "SELECT ARRAY_AGG(step) AS x FROM checkpoints"])  # fmt: skip
@pytest.mark.parametrize("to_file", [False, True])
def test_a_query_that_fails_while_it_runs_is_a_wrong_call(
    bank: Bank, call: Call, tmp_path: Path, query: str, to_file: bool
) -> None:
    words = ("--out", tmp_path / "x.csv") if to_file else ("--format", "csv")
    code, out, error = call("query", bank.path, query, *words)
    assert (code, out) == (2, "")
    assert "verify" not in error


def test_no_result_is_written_into_a_bank(bank: Bank, call: Call) -> None:
    before = set(bank.path.rglob("*"))
    for words in (
        ("query", bank.path, "SELECT step FROM checkpoints", "--out", bank.path / "x.csv"),
        ("report", bank.path, "--out", bank.path / "prompts" / "x.html"),
    ):
        assert call(*words)[0] == 2
    assert set(bank.path.rglob("*")) == before


def test_a_deposit_without_attributes_is_damage(bank: Bank, call: Call) -> None:
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
        assert str(gone.parent) in error


CHAINS = {
    "additions": lambda n: "SELECT row" + " + 1" * n + " FROM scores",
    "conditions": lambda n: "SELECT row FROM scores WHERE row = 1" + " AND row = 1" * n,
    "texts": lambda n: "SELECT option" + " || 'x'" * n + " FROM scores",
    "unions": lambda n: "SELECT row FROM scores" + " UNION ALL SELECT row FROM scores" * n,
    "cases": lambda n: "SELECT CASE" + " WHEN row = 1 THEN 2" * n + " END FROM scores",
}


@pytest.mark.parametrize("kind", CHAINS)
def test_long_chains_of_operators_are_refused(bank: Bank, kind: str) -> None:
    """Polars nests them: 20,000 additions ended the process."""
    for count in (500, 20_000):
        with pytest.raises(UsageError, match=r"has [0-9,]+ operators. The maximum is 400"):
            bank.sql(CHAINS[kind](count))


def test_operators_in_texts_and_long_lists_are_not_counted(bank: Bank) -> None:
    numbers = ", ".join(map(str, range(5_000)))
    signs = "+" * 1_000 + " AND" * 1_000
    query = f"SELECT * FROM scores WHERE token IN ({numbers}) AND option <> '{signs}' -- {signs}"
    assert bank.sql(query).collect().height == bank.sql("SELECT * FROM scores").collect().height
