"""Provenance of results; titles, licenses and citations of banks."""

import json
from pathlib import Path

import pytest

from logitbank.cli.screen import bank as screen
from logitbank.store import Bank, CheckpointId, describe, verify
from logitbank.store.read.provenance import provenance_table
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    rewrite,
)


def made(path: Path, steps: int = 3) -> Bank:
    bank = new_bank(path)
    for step in range(steps):
        bank.deposit(
            logits(step),
            checkpoint=CheckpointId("org/model", step=step * 10),
            query_set=QUERY_SET.name,
            provenance={
                "weights": f"{step:02x}" * 32,
                "engine": "vllm",
                "source": {"repo": "org/model", "revision": f"step{step * 10}"},
                "trust_remote_code": False,
                "host": "ada" if step else "bob",
            },
        )
    return bank


def printed(bank: Bank, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    screen.print_provenance(bank, form)
    return capsys.readouterr().out


def test_equal_values_are_one_row(tmp_path: Path) -> None:
    table = provenance_table(made(tmp_path / "b").deposits())
    columns = ["field", "value", "deposits", "first_step", "last_step"]
    rows = table.select(columns).rows()
    assert table["model"].unique().to_list() == ["org/model"]
    assert ("engine", "vllm", 3, 0, 20) in rows
    assert ("trust_remote_code", "false", 3, 0, 20) in rows
    assert ("tokenizer", TOKENIZER, 3, 0, 20) in rows
    assert ("host", "bob", 1, 0, 0) in rows
    assert ("host", "ada", 2, 10, 20) in rows
    assert ("source.revision", "step10", 1, 10, 10) in rows
    assert len(rows) == 1 + 1 + 1 + 3 + 2 + 3 + 1  # the last: source.repo


def test_many_values_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = made(tmp_path / "b", steps=6)
    text = printed(bank, "table", capsys)
    assert "license: CC0-1.0" in text
    assert "6 different values" in text
    assert "050505" not in text
    assert "050505" in printed(bank, "csv", capsys)


def test_hostile_texts_are_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = Bank.create(tmp_path / "b", citation="one\ntwo")
    path = bank.path / "zarr.json"
    sources = [{"title": "\x1b]0;x\x07", "models": ["m"]}, {"models": [3]}, 7]
    fields = {"sources": sources, "license": {"not": "text"}, "title": "\x1b[2Jevil [red]"}
    rewrite(path, lambda document: document["attributes"]["logitbank"].update(fields))
    screen.print_bank(Bank.open(bank.path), "table", checkpoints=False)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"title: \x1b[2Jevil [red]" in text
    assert "license:" not in text
    assert "Not stored: license." in text
    assert text.count("from:") == 1


def test_describe_keeps_other_fields(tmp_path: Path) -> None:
    bank = made(tmp_path / "b")
    before = bank.path / "zarr.json"
    mine = json.loads(before.read_text())
    mine["attributes"]["other tool"] = {"kept": True}
    before.write_text(json.dumps(mine))
    described = describe(bank.path, license="CC-BY-4.0", citation="Ada 2026")
    own = described.attributes
    assert (own["title"], own["license"], own["citation"]) == ("small", "CC-BY-4.0", "Ada 2026")
    assert json.loads(before.read_text())["attributes"]["other tool"] == {"kept": True}
    assert verify(described) == ()
    assert describe(bank.path, title="").attributes["title"] == ""
    assert not list(bank.path.glob(".*"))
