"""A tidy file of scores, against the logits that a bank was made of."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.results.files import table_bytes
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId
from tests.support.command import Call
from tests.support.paths import ROOT
from tests.support.small_banks import QUERY_SET, logits, new_bank, prompt_table


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    made = new_bank(tmp_path / "b.zarr")
    made.add_prompts("topics", prompt_table(topic="health"))
    for step in (0, 8, None):
        made.deposit(
            logits(step or 3), checkpoint=CheckpointId("org/model", step=step),
            query_set=QUERY_SET.name, keep="options",
        )  # fmt: skip
    return made


def test_rows_are_the_scores_of_options(bank: Bank, tmp_path: Path, call: Call) -> None:
    for name, read in (("t.csv", pl.read_csv), ("t.parquet", pl.read_parquet)):
        code, _, error = call("export", bank.path, tmp_path / name, "--prompts", "topics")
        assert (code, str(tmp_path / name) in error) == (0, True), error
        rows = read(tmp_path / name)
        assert rows.columns == [
            "model", "run", "step", "prompt_id", "order_seed", "option", "is_answer", "logprob",
            "rank", "option_probability", "answer", "topic",
        ]  # fmt: skip
        assert len(rows) == 3 * len(QUERY_SET) * 2
        values = logits(8).astype(np.float64)
        logprobs = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
        yes = rows.filter(step=8, option="yes")
        assert yes["prompt_id"].to_list() == [f"p{row}" for row in range(len(QUERY_SET))]
        assert yes["logprob"].to_list() == pytest.approx(logprobs[:, 1].tolist(), abs=1e-6)
        assert yes["rank"].to_list() == (1 + (values > values[:, 1:2]).sum(axis=1)).tolist()
        both = np.exp(logprobs[:, [1, 4]])
        share = (both[:, 0] / both.sum(axis=1)).tolist()
        assert yes["option_probability"].to_list() == pytest.approx(share, abs=1e-6)
        assert rows["topic"].unique().to_list() == ["health"]
        assert (
            rows.filter("is_answer").select(pl.col("option") == pl.col("answer")).to_series().all()
        )


def test_a_prompt_set_must_be_named_and_a_file_be_new(bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several prompt sets: parity, topics"):
        logitbank.export(bank, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"t.csv is there already"):
        logitbank.export(bank, tmp_path / "t.csv", prompts="topics")
    with pytest.raises(UsageError, match=r"t.xlsx ends in none of"):
        logitbank.export(bank, tmp_path / "t.xlsx", prompts="topics")


def test_rows_have_the_text_of_their_prompt_if_asked(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    code, _, error = call("export", bank.path, tmp_path / "t.csv", "--prompts", "topics", "--text")
    assert code == 0, error
    rows = pl.read_csv(tmp_path / "t.csv")
    assert rows.columns[4:7] == ["order_seed", "text", "option"]
    number = rows["prompt_id"].str.strip_prefix("p")
    assert (rows["text"] == "Is " + number + " even?").all()


def test_the_documented_call_of_pandas_keeps_every_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    labels = ["NA", "None", "nan", "null", "N/A", "TRUE", "01", "1", "1e5", "a,b;c", 'say "hi"']
    table = pl.DataFrame({"prompt_id": "007", "option": labels, "answer": labels, "logprob": -1.5})
    (tmp_path / "all_scores.csv").write_bytes(table_bytes(table, "csv"))
    page = (ROOT / "docs" / "excel-pandas-r.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["scores"].to_dict("list") == table.to_dict(as_series=False)
