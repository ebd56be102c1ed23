"""Who made what from what, as tables and on paper; titles, licences and citations."""

import json
from pathlib import Path

import pytest

from logitbank.cli import output as show
from logitbank.cli.screen import bank as show_bank
from logitbank.engine.extract import extract
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, describe, verify
from tests.support.checkpoints import VOCAB
from tests.support.fakes import FakeBackend, InProcess, questions, write_series
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    rewrite,
    spec,
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
    show_bank.print_provenance(bank, form)
    return capsys.readouterr().out


def test_equal_values_are_one_row(tmp_path: Path) -> None:
    table = made(tmp_path / "b").provenance()
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


def test_engines_of_blocks_are_told_where_they_differ(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for engine, block in (("vllm", 0), ("transformers", 2)):
        with bank.begin(spec(engine=engine)) as writer:
            writer.write(block, block_data(writer.layout, block))
    values = dict(bank.provenance().select("field", "value").iter_rows())
    assert values["engines of blocks"] == "transformers, vllm"
    (deposit,) = show_bank.provenance_document(bank.path, bank.attributes, bank.deposits())[
        "deposits"
    ]
    assert deposit["engines"] == ["transformers", "vllm"]


def test_json_has_everything_by_deposit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank = made(tmp_path / "b")
    told = json.loads(printed(bank, "json", capsys))
    assert (told["title"], told["licence"], told["format"]) == ("small", "CC0-1.0", 1)
    assert told["query_sets"] == {QUERY_SET.name: {"queries": 10, "tokenizer": TOKENIZER}}
    assert list(told["prompts"]) == ["parity"]
    assert [d["provenance"]["source"]["revision"] for d in told["deposits"]] == [
        "step0", "step10", "step20"
    ]  # fmt: skip
    assert told["sources"] == []


def test_on_paper_many_values_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = made(tmp_path / "b", steps=6)
    text = printed(bank, "table", capsys)
    assert "licence: CC0-1.0" in text
    assert f"{QUERY_SET.name}: 10 queries, tokenizer {TOKENIZER}" in text
    assert "prompts: parity" in text
    assert "6 different values; --format csv prints them" in text
    assert "050505" not in text
    assert "050505" in printed(bank, "csv", capsys)


def test_texts_of_strangers_are_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = Bank.create(tmp_path / "b", citation="one\ntwo")
    path = bank.path / "zarr.json"
    sources = [{"title": "\x1b]0;x\x07", "models": ["m"]}, {"models": [3]}, 7]
    fields = {"sources": sources, "licence": {"not": "text"}, "title": "\x1b[2Jevil [red]"}
    rewrite(path, lambda told: told["attributes"]["logitbank"].update(fields))
    show_bank.print_bank(Bank.open(bank.path), "table")
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"title: \x1b[2Jevil [red]" in text
    assert "licence" not in text
    assert text.count("from:") == 1
    assert show.clean("\x1b") == r"\x1b"


def test_describe_sets_what_is_named(tmp_path: Path) -> None:
    bank = made(tmp_path / "b")
    before = bank.path / "zarr.json"
    mine = json.loads(before.read_text())
    mine["attributes"]["other tool"] = {"kept": True}
    before.write_text(json.dumps(mine))
    described = describe(bank.path, licence="CC-BY-4.0", citation="Ada 2026")
    own = described.attributes
    assert (own["title"], own["licence"], own["citation"]) == ("small", "CC-BY-4.0", "Ada 2026")
    assert json.loads(before.read_text())["attributes"]["other tool"] == {"kept": True}
    assert verify(described) == ()
    assert describe(bank.path, title="").attributes["title"] == ""
    assert not list(bank.path.glob(".*"))


def test_extract_describes_a_new_bank_and_not_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    series = write_series(tmp_path / "tiny", "step0")
    path = tmp_path / "b"

    def go(**about: str) -> None:
        extract(
            path,
            suite=str(series),
            prompts=questions(" the nurse said"),
            engine="transformers",
            canary_every=0,
            **about,  # type: ignore[arg-type]
        )

    go(licence="CC-BY-4.0", citation="Ada 2026")
    attributes = Bank.open(path).attributes
    told = [attributes[name] for name in ("title", "licence", "citation")]
    assert told == ["", "CC-BY-4.0", "Ada 2026"]
    go(licence="CC-BY-4.0")  # the same again, or without
    go()
    message = "is there, with licence 'CC-BY-4.0'; leave out licence, or change it with `logitbank"
    with pytest.raises(UsageError, match=message):
        go(licence="CC0-1.0")
