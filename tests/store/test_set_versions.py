"""A prompt set is its file at the last extraction: what left the file leaves the set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, QuerySet, merge, shrink, verify
from logitbank.store.share.push import pull, push
from logitbank.store.tables import prompt_tables
from logitbank.store.tables.prompt_tables import SetChange, current_tables, set_change
from logitbank.store.tables.prompt_tables import write_set as write_file
from tests.support.small_banks import QUERY_SET, fill, new_bank, prompt_table, spec

OTHER = QuerySet("7a" * 32, QUERY_SET.queries)
"""The same queries of another tokenizer."""


def content(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(prompt_tables.CONTENT).unique()


def write_set(bank: Bank, table: pl.DataFrame) -> None:
    """The set after an extraction of a file with these prompts."""
    write_file(bank.path, "own", table, content(table))


def ids(bank: Bank, name: str = "own") -> set[str]:
    return {*bank.prompts(name).collect()["prompt_id"]}


def test_prompts_that_left_the_file_leave_the_set(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    write_set(bank, prompt_table())
    fewer = prompt_table().filter(~pl.col("prompt_id").is_in(["p0", "p3"]))
    change = set_change(bank.path, "own", content(fewer))
    assert change == SetChange("own", removed=2, added=0, options_removed=0)
    assert str(change) == "own changed: 2 prompts removed. Their results stay in the bank."
    write_set(bank, fewer)
    assert ids(bank) == {f"p{i}" for i in range(10)} - {"p0", "p3"}
    assert "table_revision" not in bank.prompts("own").collect_schema()
    assert verify(bank.path) == ()
    write_set(bank, prompt_table())  # they come back
    assert ids(bank) == {f"p{i}" for i in range(10)}
    write_set(bank, fewer)
    assert len(ids(bank)) == 8
    assert current_tables(bank.path, "own")[0] == 2


def test_renamed_options_replace_the_old_ones(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    without = prompt_table().with_columns(
        answer=pl.lit(None, pl.String), is_answer=pl.lit(None, pl.Boolean)
    )
    write_set(bank, without)
    renamed = without.with_columns(option=pl.lit("new ") + pl.col("option"))
    change = set_change(bank.path, "own", content(renamed))
    assert change is not None
    assert (change.removed, change.added, change.options_removed) == (0, 0, 20)
    assert "20 options of prompts removed or renamed" in str(change)
    with pytest.raises(UsageError, match="with the same token"):
        bank.add_prompts("own", renamed)
    write_set(bank, renamed)
    assert {*bank.prompts("own").collect()["option"]} == {"new yes", "new no"}


def test_prompts_of_another_tokenizer_follow_the_file(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER)
    write_set(bank, prompt_table())
    write_set(bank, prompt_table(OTHER))
    assert current_tables(bank.path, "own")[0] == 0
    write_set(bank, prompt_table(OTHER).head(4))
    rows = bank.prompts("own").group_by("query_set").agg(pl.col("prompt_id").unique().sort())
    assert dict(rows.collect().iter_rows()) == {
        QUERY_SET.name: ["p0", "p1"],
        OTHER.name: ["p0", "p1"],
    }


def test_prompts_that_a_tokenizer_skips_are_not_removed(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER)
    write_set(bank, prompt_table())
    write_file(bank.path, "own", prompt_table(OTHER).head(6), content(prompt_table()))
    assert current_tables(bank.path, "own")[0] == 0
    assert len(ids(bank)) == 10


def test_a_killed_writer_leaves_the_old_set_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = new_bank(tmp_path / "b")
    write_set(bank, prompt_table())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    fewer = prompt_table().head(4)
    with monkeypatch.context() as patch:
        patch.setattr(prompt_tables, "write_table", killed)
        with pytest.raises(KeyboardInterrupt):
            write_set(bank, fewer)
    assert len(ids(bank)) == 10
    write_set(bank, fewer)
    assert ids(bank) == {"p0", "p1"}


@pytest.mark.parametrize("move", ["merge", "push", "pull"])
def test_two_versions_of_a_set_are_not_mixed(tmp_path: Path, move: str) -> None:
    banks = []
    for name in "ab":
        bank = new_bank(tmp_path / name)
        write_set(bank, prompt_table())
        fill(bank, spec(step=ord(name)))
        banks.append(bank)
    digests = []
    for bank, kept in zip(banks, (prompt_table().head(4), prompt_table().tail(4)), strict=True):
        write_set(bank, kept)
        digests.append({f.stem[-12:] for f in bank.path.glob("prompts/*.parquet")})
    one, other = ({*a} - {*b} for a, b in (digests, digests[::-1]))
    here, there = banks[0].path, banks[1].path
    moves: dict[str, Callable[[], object]] = {
        "merge": lambda: merge(tmp_path / "all.zarr", here, there),
        "push": lambda: push(here, there),
        "pull": lambda: pull(here, there),
    }
    with pytest.raises(BankError, match="'own' has two versions") as caught:
        moves[move]()
    assert all(digest in str(caught.value) for digest in (*one, *other))
    assert not (tmp_path / "all.zarr").exists()
    assert len(ids(banks[1])) == 2


def changed(column: str, value: object) -> pl.DataFrame:
    """The table with another value of a column in the rows of one prompt."""
    table = prompt_table(topic="a", weight=0.5)
    return table.with_columns(
        pl.when(pl.col("prompt_id") == "p3").then(pl.lit(value)).otherwise(column).alias(column)
    )


CHANGES = {
    "answer": lambda: changed("answer", "no").with_columns(
        is_answer=pl.col("answer") == pl.col("option")
    ),
    "no answer": lambda: changed("answer", None),
    "text": lambda: changed("text", "Is 3 odd?"),
    "continuation": lambda: changed("continuation", " Yes"),
    "topic": lambda: changed("topic", "b"),
    "weight": lambda: changed("weight", 0.25),
    "answer of another tokenizer": lambda: changed("answer", "no").with_columns(
        query_set=pl.lit(OTHER.name), is_answer=pl.col("answer") == pl.col("option")
    ),
}


@pytest.mark.parametrize("move", ["merge", "push", "pull", "shrink", "add", "extract"])
def test_a_prompt_has_one_content_in_every_bank_that_gets_it(tmp_path: Path, move: str) -> None:
    """Same ids and options, another answer, text or column: nothing is copied."""
    before = prompt_table(topic="a", weight=0.5)
    for number, (name, change) in enumerate(CHANGES.items()):
        one, other = (new_bank(tmp_path / f"{number}{which}") for which in "ab")
        for bank, table, step in ((one, before, 0), (other, change(), 1)):
            bank.add_query_set(OTHER)
            bank.add_prompts("own", table)
            fill(bank, spec(step))
        there, here = one.path, other.path
        moves: dict[str, Callable[[], object]] = {
            "merge": lambda there=there, here=here: merge(there, here),  # type: ignore[misc]
            "push": lambda there=there, here=here: push(here, there),  # type: ignore[misc]
            "pull": lambda there=there, here=here: pull(here, there),  # type: ignore[misc]
            "shrink": lambda there=there, here=here: shrink(here, there, keep="options"),  # type: ignore[misc]
            "add": lambda one=one, change=change: one.add_prompts("own", change()),  # type: ignore[misc]
            "extract": lambda one=one, change=change: write_set(one, change()),  # type: ignore[misc]
        }
        with pytest.raises((BankError, UsageError), match="another|has two versions") as caught:
            moves[move]()
        column = name.removeprefix("no ").partition(" of ")[0]
        assert f"has {column} " in str(caught.value) or f"another '{column}'" in str(caught.value)
        if move in ("merge", "push", "pull"):  # which bank has which version
            for bank in (one, other):
                (file,) = bank.path.glob("prompts/own-*.parquet")
                assert f"{bank.path}/prompts/{file.name}" in str(caught.value)
        assert one.prompts("own").collect().equals(before), name
        assert [deposit.checkpoint.step for deposit in one.deposits()] == [0]


def test_prompts_columns_and_tokenizers_may_be_added(tmp_path: Path) -> None:
    bank, more = new_bank(tmp_path / "a"), new_bank(tmp_path / "b")
    bank.add_prompts("own", prompt_table(topic="a").head(8))
    more.add_query_set(OTHER)
    more.add_prompts("own", prompt_table(topic="a"))
    more.add_prompts("own", prompt_table(OTHER, topic="a", level=1))
    push(more.path, bank.path)
    assert bank.prompts("own").collect()["level"].unique().to_list() == [1]
    assert len(ids(bank)) == 10
    assert verify(bank.path) == ()


def test_a_copy_follows_its_bank(tmp_path: Path) -> None:
    """A bank that has all tables of a copy may update it, by push and by merge."""
    bank = new_bank(tmp_path / "a")
    write_set(bank, prompt_table())
    fill(bank, spec())
    push(bank.path, tmp_path / "copy")
    write_set(bank, prompt_table().head(4))
    push(bank.path, tmp_path / "copy")
    assert ids(Bank.open(tmp_path / "copy")) == {"p0", "p1"}


def test_of_two_writers_of_different_versions_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = new_bank(tmp_path / "b")
    before, write_table = prompt_table(topic="a", weight=0.5), prompt_tables.write_table

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(prompt_tables, "write_table", write_table)
        bank.add_prompts("own", before)
        write_table(*arguments)

    monkeypatch.setattr(prompt_tables, "write_table", overtaken)
    with pytest.raises(UsageError, match="another 'answer'"):
        bank.add_prompts("own", CHANGES["answer"]())
    assert bank.prompts("own").collect().equals(before)
    assert verify(bank.path) == ()
