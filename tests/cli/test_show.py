"""`logitbank show` as people and programs see it."""

import csv
import io
import shlex
from math import log, nan
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.cli.screen.show import MOST_BARS, sparkline
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read.provenance import provenance_table
from tests.support.command import Call
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    TOKENIZER,
    block_data,
    fill,
    logits,
    new_bank,
    spec,
)


def put(bank: Bank, step: int | None, *pairs: tuple[float, float], model: str = "toy") -> None:
    """Weights of yes and no for the first queries; the four other tokens weigh 1 each."""
    values = np.zeros((QUERIES, 6), np.float32)
    for row, (yes, no) in enumerate(pairs):
        values[row, 1], values[row, 4] = log(yes), log(no)
    bank.deposit(
        values, checkpoint=CheckpointId(model, step=step), query_set=QUERY_SET.name, keep="topk:6"
    )


@pytest.fixture
def parity(tmp_path: Path) -> Path:
    """p0 goes to yes and back to half, p1 to no, p2 nearly as far as p0; the others stay."""
    bank = new_bank(tmp_path / "b")
    put(bank, 0, (1, 1), (1, 1), (1, 1))
    put(bank, 8, (9, 1), (1, 3), (4, 1))
    put(bank, None, (1, 1), (1, 3), (4, 1))
    return tmp_path / "b"


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_prompts_with_the_largest_change_are_listed(call: Call, parity: Path) -> None:
    code, out, error = call("show", parity, "--top", 2)
    assert (code, error) == (0, "")
    assert words(out)[4:6] == [
        ["p0", "yes", "0.4", "0.5", "0", "0.9", "8", "Is", "0", "even?"],
        ["p2", "yes", "0.3", "0.5", "0", "0.8", "8", "Is", "2", "even?"],
    ]
    assert call("show", parity)[1].count("even?") == 10
    command = shlex.split(out.splitlines()[-1])
    assert command[1:] == ["show", str(parity), "--prompts", "parity", "--prompt", "p0"]
    assert call(*command[1:])[0] == 0
    code, out, _ = call("show", parity, "--steps", "0,8", "--prompts", "parity", "--top", 1)
    assert code == 0
    assert words(out)[4] == ["p0", "yes", "0.4", "0.5", "0", "0.9", "8", "Is", "0", "even?"]


def test_a_release_has_its_name_in_tables_for_people(call: Call, tmp_path: Path) -> None:
    """`info` counts a release among the checkpoints; it is the last one."""
    bank = new_bank(tmp_path / "b")
    put(bank, 0, (1, 1))
    put(bank, None, (9, 1))
    row = call("show", bank.path, "--top", 1)[1].splitlines()[4].split()
    assert row[:7] == ["p0", "yes", "0.4", "0.5", "0", "0.9", "release"]
    assert call("info", bank.path)[1].splitlines()[-1].split()[:5] == [
        "toy",
        "main",
        "2",
        "0",
        "release",
    ]
    assert "\ntoy,main,2,0,," in call("info", bank.path, "--format", "csv")[1]
    first_and_last = provenance_table(bank.deposits()).select("first_step", "last_step").row(0)
    assert first_and_last == (0, None)


def orders(path: Path) -> Path:
    """One prompt in three orders, with its own columns."""
    bank = Bank.create(path)
    queries = QuerySet(TOKENIZER, tuple(Query((i, 1), 1) for i in range(3)))
    bank.add_query_set(queries)
    rows = [
        ("q", seed, 0, f"order {seed}", None, option, f" {option}", token, None, queries.name, row)
        for row, seed in enumerate((2, 0, 1))
        for option, token in (("a", 0), ("b", 1))
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_prompts("own", table.with_columns(topic=pl.lit("health"), size=pl.lit(3)))
    for step in (0, 8):
        bank.deposit(
            logits(step, queries=3, vocab=4),
            checkpoint=CheckpointId("m", step=step),
            query_set=queries.name,
            keep="options",
        )
    return path


def test_one_order_is_shown_and_the_others_are_named(call: Call, tmp_path: Path) -> None:
    path = orders(tmp_path / "b")
    lines = call("show", path, "--prompt", "q")[1].splitlines()
    assert lines[:5] == [
        "Prompt q of own", "│ order 2", "option order: 2 (others: 0, 1)", "topic: health", "size: 3"
    ]  # fmt: skip
    assert "│ order 0" in call("show", path, "--prompt", "q", "--order", 0)[1]
    assert "--prompts own --prompt q --order" in call("show", path, "--top", 2)[1]
    for options, seeds in (([], {"2", "0", "1"}), (["--order", 1], {"1"})):
        data = call("show", path, "--prompt", "q", *options, "--format", "csv")[1]
        assert {row["order_seed"] for row in csv.DictReader(io.StringIO(data))} == seeds


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--prompt", "p99"], "'p9'"),
        (["--prompt", "p0", "--order", 3], "order 3"),
        (["--order", 3], "--prompt"),
        (["--top-tokens", 2], "--prompt"),
        (["--steps", "x"], "'x'"),
        (["--steps", 7], "8"),
        (["--top", 0], "--top"),
        (["--prompts", "no"], "parity"),
        (["--model", "no"], "toy"),
    ],
)
def test_an_invalid_call_is_one_line(
    call: Call, parity: Path, arguments: list[object], named: str
) -> None:
    code, out, error = call("show", parity, *arguments)
    assert (code, out) == (2, "")
    assert named in error
    assert error.count("\n") == 1


HOSTILE = "\x1b[31mred\x9b2J [bold]x[/bold] :cat: \u202e\n│ forged\ttab"


def test_a_hostile_text_controls_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A foreign writer checks no text.
    monkeypatch.setattr("logitbank.store.tables.prompt_checks.check_text", lambda *_, **__: None)
    bank = Bank.create(tmp_path / "b")
    queries = QuerySet(TOKENIZER, (Query((1, 1), 1),))
    bank.add_query_set(queries)
    rows = [
        ("p [red]", None, 0, HOSTILE, None, HOSTILE + option, HOSTILE, i, None, queries.name, 0)
        for i, option in enumerate("ab")
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_prompts("own", table.with_columns(pl.lit(HOSTILE).alias("col[red]umn")))
    for step in (0, 8):
        bank.deposit(
            logits(step, queries=1, vocab=4),
            checkpoint=CheckpointId("m [red]", step=step),
            query_set=queries.name,
            keep="options",
        )
    for arguments in ([], ["--prompt", "p [red]"]):
        code, out, error = call("show", tmp_path / "b", *arguments)
        assert (code, error) == (0, "")
        assert not {"\x1b", "\x9b", "\u202e"} & set(out)
        assert "\\x1b[31mred\\x9b2J [bold]x[/bold] :cat:" in out
        assert "m [red] main: " in out
        assert not [line for line in out.splitlines() if line.startswith("│ forged")]
    assert "│ │ forged" in call("show", tmp_path / "b", "--prompt", "p [red]")[1]


def test_values_that_are_not_scored_are_blank(call: Call, tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec(4)) as writer:
        writer.write(1, block_data(writer.layout, 1))
    rows = words(call("show", tmp_path / "b", "--prompt", "p0")[1])
    assert ["yes", "–", "–", "–", "–", "–", "–"] in rows
    with bank.begin(spec(8)) as writer:
        writer.write(0, block_data(writer.layout, 0))
    (row,) = [r for r in words(call("show", bank.path, "--prompt", "p0")[1]) if r[:1] == ["yes"]]
    assert row[1] == "–"
    assert row[2] != "–"


def test_bars_are_eighths_of_the_height_and_blanks_are_missing() -> None:
    assert sparkline(np.array([0, 0.124, 0.126, 0.5, nan, 0.99, 1])) == "▁▁▂▅ ██"
    many = sparkline(np.linspace(0, 1, 154))
    assert (len(many), many[0], many[-1]) == (MOST_BARS, "▁", "█")


def test_a_checkpoint_without_the_prompt_has_a_dash(call: Call, tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    fill(bank, spec(0))
    fill(bank, spec(8), blocks=[0])
    code, out, _ = call("show", tmp_path / "b", "--prompt", "p9")
    assert code == 0
    assert out.splitlines()[-1].endswith(" first, – last.")


def test_an_unknown_format_is_named_with_the_known_ones(call: Call, parity: Path) -> None:
    code, _, error = call("show", parity, "--format", "excel")
    assert code == 2
    assert "Invalid value for '--format': 'excel' is not one of 'table', 'csv'" in error
