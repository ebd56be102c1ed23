"""Large tables of prompts, and values that count as equal: stored, compared, read again."""

import hashlib
import json
from pathlib import Path

import polars as pl
import pytest

from logitbank.store import Bank, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.tables import table_files
from logitbank.store.tables.prompt_checks import changed_prompt
from logitbank.store.tables.prompt_tables import option_tokens
from logitbank.store.tables.table_files import content_digest
from tests.support.small_banks import new_bank, prompt_table

OWN = list(PROMPTS_SCHEMA)


def wide(names: list[str]) -> pl.DataFrame:
    """Two rows per prompt, as `prompt_table`; a further column counts rows from its number."""
    rows = pl.int_range(pl.len())
    return prompt_table().with_columns((rows + at).alias(name) for at, name in enumerate(names))


def test_later_tables_complete_thousands_of_columns(tmp_path: Path) -> None:
    """One group_by for all: a window per column takes minutes. Names may contain its mark."""
    bank = new_bank(tmp_path / "b")
    early, late = [f"a{at}" for at in range(2_000)], [f"b{at}" for at in range(2_000)]
    bank.add_prompts("wide", wide([*early, "a1'", "both"]))
    later = wide([*late]).with_columns(both=pl.int_range(pl.len()) + len(early) + 1)
    others = later.with_columns(option=pl.lit("x") + pl.col("option"), token=pl.col("token") + 2)
    bank.add_prompts("wide", others)
    table = bank.prompts("wide").collect()
    assert {*table.columns} == {*OWN, *early, "a1'", "both", *late}
    assert table.height == 40
    # Rows 0 and 1 are of p0. Rows without a column have the value of the first row with it.
    first = pl.DataFrame({"option": ["yes", "no", "xyes", "xno"]}).join(
        table.filter(prompt_id="p0"), on="option", maintain_order="left"
    )
    assert first["a5"].to_list() == [5, 6, 5, 5]
    assert first["a1'"].to_list() == [2_000, 2_001, 2_000, 2_000]
    assert first["b7"].to_list() == [7, 7, 7, 8]
    assert first["both"].to_list() == [2_001, 2_002, 2_001, 2_002]


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (float("nan"), float("nan"), True),
        (0.0, -0.0, True),
        (None, None, True),
        (1, 1.0, True),
        (1.0, None, False),
        (None, float("nan"), False),
        (1, 1.5, False),
        ("", None, False),
    ],
)
def test_values_are_the_same_whatever_their_kind(before: object, now: object, same: bool) -> None:
    old, new = (prompt_table().with_columns(own=pl.lit(value)) for value in (before, now))
    changed = changed_prompt(new, old)
    assert (changed is None) == same
    assert same or (changed is not None and changed.column == "own")


@pytest.mark.parametrize("at_once", [3, 100])
def test_the_digest_is_that_of_one_json_however_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("logitbank.store.tables.table_files._VALUES", at_once)
    rows = pl.int_range(pl.len())
    table = prompt_table(name='"ü,]').with_columns(
        (rows / 3).alias("ä"),
        (rows % 2 == 0).alias("even"),
        pl.when(rows > 3).then(pl.lit("ö\n")).alias("n"),
    )
    for each in (table, table.clear(), pl.DataFrame()):
        columns = [[c.name, str(c.dtype), c.to_list()] for c in each.get_columns()]
        text = json.dumps(columns, separators=(",", ":"), ensure_ascii=False)
        assert content_digest(each) == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_thousand_options_of_each_of_many_prompts_are_read_again(tmp_path: Path) -> None:
    """Eleven rows a byte: no more than what the bank has written itself."""
    bank, prompts, options = Bank.create(tmp_path / "b"), 300, 1_000
    queries = QuerySet("toy", tuple(Query((row, 7), 1) for row in range(prompts)))
    asked, option = pl.int_range(prompts), pl.int_range(options)
    rows = pl.select(row=asked.cast(pl.Int32)).join(
        pl.select(token=option.cast(pl.Int32)), how="cross"
    )
    table = rows.with_columns(
        prompt_id=pl.format("p{}", "row"),
        order_seed=pl.lit(None, pl.Int32),
        piece=pl.lit(0, pl.Int32),
        text=pl.format("Text {}", "row"),
        answer=pl.lit(None, pl.String),
        option=pl.format("o{}", "token"),
        continuation=pl.format("o{}", "token"),
        is_answer=pl.lit(None, pl.Boolean),
        query_set=pl.lit(bank.add_query_set(queries)),
    ).select(OWN)
    digest = bank.add_prompts("many", table)
    (file,) = bank.path.glob("prompts/*.parquet")
    assert table.height / file.stat().st_size > 4, "else this tests nothing"
    assert bank.add_prompts("many", table) == digest
    assert bank.prompts("many").collect().height == prompts * options
    assert option_tokens(bank.path, queries.name).of(7).tolist() == [*range(options)]


def test_long_texts_are_compared_and_written_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = prompt_table()
    before = new_bank(tmp_path / "a").add_prompts("long", table)
    monkeypatch.setattr(table_files, "GROUP_BYTES", 100)
    bank = new_bank(tmp_path / "b")
    assert bank.add_prompts("long", table) == before
    assert bank.prompts("long").collect().equals(table)
    assert changed_prompt(table, table) is None
    first = pl.col("prompt_id") == table["prompt_id"][0]
    changed = table.with_columns(text=pl.when(first).then(pl.lit("other")).otherwise("text"))
    found = changed_prompt(changed, table)
    assert found is not None
    assert (found.prompt, found.column) == (table["prompt_id"][0], "text")
