"""A bank keeps what the tokens of a tokenizer say, and takes and gives tokens by it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet, merge, shrink, verify
from logitbank.store.format import index
from logitbank.store.share.selection import chosen
from logitbank.store.tables.token_texts import tokens_files
from tests.support.small_banks import (
    QUERY_SET,
    TEXTS,
    TOKENIZER,
    logits,
    new_bank,
    prompt_table,
    token_table,
)

CHECKPOINT = CheckpointId("m", step=0)
OTHER = "0f" * 32


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    bank = new_bank(tmp_path / "b")
    bank.add_tokens(TOKENIZER, token_table())
    bank.deposit(logits(), checkpoint=CHECKPOINT, query_set=QUERY_SET.name)
    return bank


def without_tokens(path: Path) -> Bank:
    bank = new_bank(path)
    bank.deposit(logits(), checkpoint=CHECKPOINT, query_set=QUERY_SET.name)
    return bank


def test_tokens_are_kept_once_per_tokenizer(bank: Bank) -> None:
    other = token_table().with_columns(text=pl.lit("another"))
    bank.add_tokens(TOKENIZER, other)
    assert [file.name for file in tokens_files(bank.path)] == [TOKENIZER]
    assert bank.tokens().equals(token_table())
    bank.add_tokens(OTHER, other)
    assert bank.tokens(OTHER)["text"].to_list() == ["another"] * 6
    assert bank.tokens().equals(token_table())
    bank.add_query_set(QuerySet(OTHER, (Query((1,), 0),)))
    with pytest.raises(UsageError, match=f"2 tokenizers.* {OTHER}, "):
        bank.tokens()
    assert bank.tokens("parity").equals(token_table())
    with pytest.raises(AbsentError, match="'jobs'.* parity"):
        bank.tokens("jobs")


def test_a_bank_without_token_texts_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="has no queries yet"):
        Bank.create(tmp_path / "empty").tokens()
    bank = without_tokens(tmp_path / "b")
    for asked in (
        bank.tokens,
        lambda: bank.deposits()[0].logprobs(tokens=[" yes"]),
    ):
        with pytest.raises(AbsentError, match="5e5e5e5e5e5e.*extract"):
            asked()
    assert bank.sql("SELECT DISTINCT token_text FROM scores").collect().rows() == [(None,)]
    assert bank.deposits()[0].logprobs([0], [1]).shape == (1, 1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (token_table().drop("is_text"), "is_text"),
        (token_table().cast({"token": pl.Int64}), "token"),
        (token_table().head(0), "a row"),
        (token_table().with_columns(text=pl.lit(None, pl.String)), "a value in every column"),
        (token_table().with_columns(token=pl.lit(3, pl.Int32)), "Token 3"),
    ],
)
def test_a_table_that_is_none_of_tokens_is_refused(
    tmp_path: Path, table: pl.DataFrame, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        new_bank(tmp_path / "b").add_tokens(TOKENIZER, table)


def test_logprobs_accept_token_texts(bank: Bank) -> None:
    (deposit,) = bank.deposits()
    by_text = deposit.logprobs([3, 0], [" no", " yes"])
    np.testing.assert_array_equal(by_text, deposit.logprobs([3, 0], [4, 1]))
    normalised = deposit.logprobs([3], np.array([r"\xc3"]), normalised=True)
    np.testing.assert_array_equal(normalised, deposit.logprobs([3], [5], normalised=True))


def test_a_text_that_is_not_exactly_one_token_is_refused(bank: Bank, tmp_path: Path) -> None:
    (deposit,) = bank.deposits()
    for text, named in (("Yes", "'Yes'.* ' yes'"), ("never", "'never'")):
        with pytest.raises(UsageError, match=named):
            deposit.logprobs(tokens=[" no", text])
    same = without_tokens(tmp_path / "same")
    same.add_tokens(TOKENIZER, token_table().with_columns(text=pl.lit(" yes")))
    with pytest.raises(UsageError, match="0, 1, 2, 3, 4, 5 .*' yes'"):
        same.deposits()[0].logprobs(tokens=[" yes"])


def test_sql_has_the_texts_of_tokens(bank: Bank) -> None:
    counted = bank.sql("SELECT COUNT(*) AS n FROM scores WHERE token_text = ' no'").collect()
    assert counted["n"].to_list() == [10]
    options = bank.sql("SELECT DISTINCT token_text FROM options ORDER BY token_text").collect()
    assert options["token_text"].to_list() == [" no", " yes"]
    assert "token_text" not in bank.sql("SELECT * FROM prompts").collect().columns


def test_classes_of_a_head_have_no_text(bank: Bank) -> None:
    pairs = QuerySet(TOKENIZER, (Query((1, 2), 0, "next_sentence"),))
    bank.add_query_set(pairs)
    bank.add_prompts("pairs", prompt_table(pairs).filter(option="yes"))
    bank.deposit(logits(queries=1, vocab=2), checkpoint=CHECKPOINT, query_set=pairs.name)
    query = "SELECT DISTINCT token_text FROM scores WHERE prompt_set = 'pairs'"
    assert bank.sql(query).collect().rows() == [(None,)]


def test_texts_go_where_their_query_sets_go(bank: Bank, tmp_path: Path) -> None:
    bank.add_tokens(OTHER, token_table())  # of no query set
    pushed = [path for path in chosen(bank.path, prompts=["parity"]) if path.startswith("tokens/")]
    assert len(pushed) == 2
    assert all(index.is_object(path) and TOKENIZER in path for path in pushed)
    merge(tmp_path / "all", without_tokens(tmp_path / "old").path, bank.path)
    shrink(bank.path, tmp_path / "small", keep="options")
    for copy in ("all", "small"):
        assert Bank.open(tmp_path / copy).tokens(TOKENIZER)["text"].to_list() == list(TEXTS)
        assert verify(tmp_path / copy) == ()
    others = without_tokens(tmp_path / "others")
    others.add_tokens(TOKENIZER, token_table().with_columns(text=pl.lit("x")))
    assert merge(bank.path, others.path).tables == 0
    assert bank.tokens(TOKENIZER).equals(token_table())


def test_texts_of_another_name_are_named(bank: Bank) -> None:
    (table,) = bank.path.glob("tokens/*.parquet")
    other = table.with_name(f"{TOKENIZER}-{'0' * 12}.parquet")
    table.rename(other)
    beside = table.with_name(f"{table.name}.sha256")
    text = beside.read_text().replace(table.name, other.name)
    beside.rename(other.with_name(f"{other.name}.sha256")).write_text(text)
    (damage,) = verify(bank)
    assert "its content has the digest" in damage.detail
