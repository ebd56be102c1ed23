import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import (
    AbsentError,
    BankError,
    BankFormatError,
    DamagedError,
    KeepLevelError,
    UsageError,
)
from logitbank.store import Bank, CheckpointId, Keep, Layout, Query, QuerySet, verify
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.tables import query_tables
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    TOKENIZER,
    VOCAB,
    block_data,
    logits,
    new_bank,
    prompt_table,
    resign_table,
    rewrite,
    spec,
)

STEP0 = CheckpointId("org/model", step=0)


def rewrite_json(path: Path, **own: object) -> None:
    rewrite(path, lambda metadata: metadata["attributes"]["logitbank"].update(own))


def test_bank_keeps_its_attributes(tmp_path: Path) -> None:
    Bank.create(tmp_path / "b", title="Tides", licence="CC-BY-4.0", citation="none")
    attributes = Bank.open(tmp_path / "b").attributes
    assert attributes["format"] == 1
    assert attributes["title"] == "Tides"
    assert attributes["licence"] == "CC-BY-4.0"
    assert attributes["citation"] == "none"


def test_create_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is there already; open it with Bank.open"):
        Bank.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kept", [0, 100, 290])
def test_bank_whose_zarr_json_was_cut_short_is_called_damaged(tmp_path: Path, kept: int) -> None:
    root = new_bank(tmp_path / "b").path / "zarr.json"
    assert root.stat().st_size > 290
    root.write_bytes(root.read_bytes()[:kept])
    with pytest.raises(
        DamagedError, match=r"the zarr.json of .*/b is damaged, .*; take that file from another"
    ):
        Bank.open(tmp_path / "b")


def test_open_without_a_bank(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="there is no bank at .*nowhere; check the path"):
        Bank.open(tmp_path / "nowhere")
    with pytest.raises(BankFormatError, match="is a folder but no bank"):
        Bank.open(tmp_path)


def test_open_refuses_another_format_and_names_both(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    rewrite_json(bank.path / "zarr.json", format=2, written_by="0.7.1")
    message = r"bank of format 2; .* reads format 1: use logitbank >= 0\.7\.1"
    with pytest.raises(BankFormatError, match=message):
        Bank.open(bank.path)


def test_query_sets_come_back_and_are_added_once(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    before = (bank.path / "queries" / f"{QUERY_SET.name}.parquet").stat().st_mtime_ns
    assert bank.add_query_set(QUERY_SET) == QUERY_SET.name
    assert (bank.path / "queries" / f"{QUERY_SET.name}.parquet").stat().st_mtime_ns == before
    assert bank.query_sets() == {QUERY_SET.name: QUERY_SET}
    assert bank.query_set(QUERY_SET.name).tokenizer == TOKENIZER


def test_absent_and_misnamed_query_sets(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(BankError, match=f"q-{'0' * 16} is not in .* has {QUERY_SET.name}"):
        bank.query_set("q-" + "0" * 16)
    with pytest.raises(UsageError, match=r"query set '\.\./x' is no name"):
        bank.query_set("../x")


def test_query_set_with_other_content_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    other = QuerySet(TOKENIZER, (Query((9,), 0),))
    bank.add_query_set(other)
    folder = bank.path / "queries"
    (folder / f"{other.name}.parquet").replace(folder / f"{QUERY_SET.name}.parquet")
    with pytest.raises(DamagedError, match=r"parquet differs from its commit: its SHA-256 is"):
        bank.query_set(QUERY_SET.name)
    resign_table(folder / f"{QUERY_SET.name}.parquet")
    with pytest.raises(DamagedError, match=f"holds the queries of {other.name}"):
        bank.query_set(QUERY_SET.name)


def test_a_query_set_cut_short_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    (path,) = bank.path.glob("queries/*.parquet")
    os.truncate(path, 100)
    uses = (
        lambda: bank.query_set(QUERY_SET.name),
        lambda: bank.option_tokens(QUERY_SET.name),
        lambda: bank.begin(spec()),
        lambda: query_tables.tokenizer_of(bank.path, QUERY_SET.name),
    )
    for use in uses:
        with pytest.raises(DamagedError, match=r"parquet differs from its commit: its SHA.*verify"):
            use()
    resign_table(path)
    for use in uses:
        with pytest.raises(DamagedError, match=r"parquet is no query set \(.*logitbank verify"):
            use()


def test_json_nested_thousands_deep_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.begin(spec()).deposit
    (deposit.path / "zarr.json").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(DamagedError, match=r"zarr.json is not JSON \(.*recursion"):
        bank.deposits()


def test_prompts_are_a_union_of_their_tables(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    more = prompt_table(split="dev").with_columns(order_seed=pl.lit(1, pl.Int32))
    assert bank.add_prompts("parity", prompt_table()) == bank.add_prompts("parity", prompt_table())
    bank.add_prompts("parity", more)
    bank.add_prompts("a/b", more)
    assert bank.prompt_sets == ["a/b", "parity"]
    table = bank.prompts("parity").collect()
    assert table.height == 40
    assert table["split"].value_counts().sort("split").rows() == [(None, 20), ("dev", 20)]


OTHER_QUERIES = QuerySet("other", tuple(Query((row, 7), 1) for row in range(QUERIES)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (prompt_table(text="Odd?"), "prompt 'p0' is in the bank's 'own' with another 'text'; give"),
        (prompt_table(OTHER_QUERIES, text="Odd?"), "prompt 'p0' .* another 'text'; .* other ids"),
        (prompt_table(answer="no"), "another 'answer'"),
        (prompt_table(OTHER_QUERIES, answer="no"), "another 'answer'"),
        (prompt_table().with_columns(token=pl.col("token") + 1), "another 'token'"),
        (prompt_table().with_columns(row=(pl.col("row") + 1) % 10), "another 'row'"),
        (prompt_table(continuation="yes"), "'continuation'; .* or store them under another name"),
        (prompt_table(split="test"), "another 'split'"),
        (prompt_table().with_columns(split=pl.lit(None, pl.String)), "another 'split'"),
        (prompt_table(weight=0.25), "another 'weight'"),
    ],
)
def test_stored_prompts_cannot_change(tmp_path: Path, changed: pl.DataFrame, message: str) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER_QUERIES)
    bank.add_prompts("own", prompt_table(split="dev", weight=1))
    for table in (changed, changed.tail(3)):
        with pytest.raises(UsageError, match=message.replace("'p0'", "'p[08]'")):
            bank.add_prompts("own", table)
    assert bank.prompts("own").collect().height == 20
    bank.add_prompts("changed", changed)


@pytest.mark.parametrize(
    "wider",
    [
        prompt_table().head(4),
        prompt_table(split="dev"),
        prompt_table(weight=1.0),
        prompt_table(OTHER_QUERIES, weight=2),
        prompt_table().with_columns(order_seed=pl.lit(1, pl.Int32), text=pl.lit("Odd?")),
        prompt_table().with_columns(prompt_id="x" + pl.col("prompt_id"), text=pl.lit("Odd?")),
        prompt_table().with_columns(option=pl.lit("x") + pl.col("option")),
    ],
    ids=["rows", "column", "type", "tokenizer", "order", "prompts", "options"],
)
def test_stored_prompts_can_be_added_to(tmp_path: Path, wider: pl.DataFrame) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER_QUERIES)
    bank.add_prompts("own", prompt_table(weight=1))
    bank.add_prompts("own", wider)
    assert bank.prompts("own").filter(prompt_id="p0", option="yes").collect()["weight"][0] == 1


@pytest.mark.parametrize("column", ["topic", "condition", "weight", "split"])
def test_a_column_that_comes_later_is_one_of_prompts_that_are_there(
    tmp_path: Path, column: str
) -> None:
    """Whichever table comes first by its digest, of which these columns make several."""
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("own", prompt_table())
    bank.add_prompts("own", prompt_table(**{column: "x"}).head(2))
    values = bank.prompts("own").select("prompt_id", column).unique().sort("prompt_id").collect()
    assert values.head(2).rows() == [("p0", "x"), ("p1", None)]
    assert bank.prompts("own").collect().height == 20


def test_unknown_prompt_set_lists_the_known(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(BankError, match="prompt set 'x' is not in .*; it has parity"):
        bank.prompts("x")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (prompt_table().drop("text"), r"column 4 must be 'text' \(String\); got 'answer'"),
        (prompt_table().cast({"row": pl.Int64}), r"column 11 must be 'row' \(Int32\).*Int64"),
        (prompt_table(rank=1), "column 'rank' has a reserved name; rename it"),
        (prompt_table(tags=["a"]), "column 'tags' is List.*use text, numbers or booleans"),
        (prompt_table().head(0), "needs at least one row"),
        (pl.concat([prompt_table(), prompt_table().head(1)]), "'prompt_id': 'p0'.* twice"),
        (prompt_table().with_columns(row=pl.lit(10, pl.Int32)), "at row 10, .* rows are 0 to 9"),
        (prompt_table().with_columns(token=pl.lit(-1, pl.Int32)), "token -1"),
        (
            prompt_table().with_columns(token=pl.lit(4, pl.Int32)),
            "prompt 'p0' has options 'no' and 'yes' with the same token 4; use continuations",
        ),
        (
            prompt_table().with_columns(option=pl.lit(None, pl.String)),
            "prompt 'p0' has an option with only some of option, continuation, token",
        ),
        (
            prompt_table().with_columns(text=pl.lit(None, pl.String)),
            "column 'text' holds nulls; give every row a value",
        ),
        (
            prompt_table().with_columns(weight=pl.lit(1).cast(pl.Decimal(5, 2))),
            "column 'weight' is Decimal.*use text, numbers or booleans",
        ),
    ],
)
def test_prompts_that_are_refused(tmp_path: Path, table: pl.DataFrame, message: str) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(UsageError, match=message):
        bank.add_prompts("bad", table)
    assert bank.prompt_sets == ["parity"]


def test_prompts_without_options_or_answers_are_kept(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bare = prompt_table().unique("prompt_id", maintain_order=True)
    nulls = {n: pl.lit(None, PROMPTS_SCHEMA[n]) for n in ("answer", "is_answer")}
    bank.add_prompts("unanswered", prompt_table().with_columns(**nulls))
    nulls |= {n: pl.lit(None, PROMPTS_SCHEMA[n]) for n in ("option", "continuation", "token")}
    bank.add_prompts("bare", bare.with_columns(**nulls))
    assert bank.option_tokens(QUERY_SET.name).of(0).tolist() == [1, 4]
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    assert bank.scan("unanswered").collect().height == 2 * QUERIES
    assert bank.scan("bare").collect().is_empty()
    assert bank.prompts("bare").collect()["text"][0] == "Is 0 even?"


def test_option_tokens_are_the_union_over_prompts(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    other = prompt_table().head(1).with_columns(token=pl.lit(3, pl.Int32))
    bank.add_prompts("other", other)
    options = bank.option_tokens(QUERY_SET.name)
    assert options.of(0).tolist() == [1, 3, 4]
    assert options.of(9).tolist() == [1, 4]


def test_deposited_array_reads_back(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    rows = np.zeros((QUERIES, VOCAB), np.float32)
    rows[:, 4] = np.log(3)  # e^0 × 5 + 3 = 8
    deposit = bank.deposit(rows, checkpoint=STEP0, query_set=QUERY_SET.name)
    assert deposit.sealed
    assert deposit.rows_committed == 10
    np.testing.assert_allclose(deposit.logsumexp(), np.full(10, np.log(8)), rtol=1e-6)
    expected = [np.log(3 / 8), np.log(1 / 8)]
    np.testing.assert_allclose(deposit.logprobs([7, 2], [4, 0]), [expected] * 2, rtol=1e-6)
    option = deposit.scores().filter(kind="option", query=3).sort("token").collect()
    assert option.select("token", "rank", "ties").rows() == [(1, 2, 4), (4, 1, 0)]
    assert option["exact"].all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_of_three_precisions_are_taken(tmp_path: Path, dtype: str) -> None:
    bank = new_bank(tmp_path / "b")
    values = logits().astype(dtype)
    deposit = bank.deposit(values, checkpoint=STEP0, query_set=QUERY_SET.name)
    stored = deposit.logprobs() + deposit.logsumexp()[:, None]
    np.testing.assert_allclose(stored, values.astype(np.float32), atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((9, 6)), r"shape \(10, vocabulary\), one row per query; got \(9, 6\)"),
        (np.zeros(10), r"got \(10,\)"),
        (np.zeros((10, 6), int), "logits are int64; convert them to one of float16"),
        (np.full((10, 6), 1e300), "query row 0: 6 of 6 logits are not finite in float32"),
        (np.where(np.eye(10, 6, -4) > 0, np.nan, 0), "query row 4: 1 of 6 logits are not finite"),
        (np.zeros((10, 4)), "prompts name token 4, but logits have 4 columns"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, values: np.ndarray, message: str) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(UsageError, match=message):
        bank.deposit(values, checkpoint=STEP0, query_set=QUERY_SET.name)


def test_keep_levels_may_be_text(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, keep in enumerate(("full", "topk:2", "options", Keep("topk", 3))):
        made = bank.deposit(
            logits(), checkpoint=CheckpointId("m", step=step), query_set=QUERY_SET.name, keep=keep
        )
        assert str(made.layout.keep) == str(keep)
    with pytest.raises(UsageError, match="'half' is unknown; use full, topk:K or options, K from"):
        bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name, keep="half")


def test_the_same_array_again_changes_nothing(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    values = logits().astype("float16")
    first = bank.deposit(values, checkpoint=STEP0, query_set=QUERY_SET.name)
    before = {p: p.stat().st_mtime_ns for p in first.path.rglob("*") if p.is_file()}
    same = np.asfortranarray(values.astype("float64"))
    bank.deposit(same, checkpoint=STEP0, query_set=QUERY_SET.name)
    assert {p: p.stat().st_mtime_ns for p in first.path.rglob("*") if p.is_file()} == before


def test_another_array_of_the_same_checkpoint_is_refused(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    first = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    expected = first.logprobs()
    message = r"holds other logits \(array digest .*, not .*deposit these as another step"
    with pytest.raises(BankError, match=message):
        bank.deposit(logits(1), checkpoint=STEP0, query_set=QUERY_SET.name)
    np.testing.assert_array_equal(first.logprobs(), expected)


def test_a_deposit_without_a_commit_gives_way_to_another(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    first = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    (first.path / "commits" / "seal.json").unlink()  # as if killed before the first commit
    second = bank.deposit(logits(1), checkpoint=STEP0, query_set=QUERY_SET.name)
    raw = second.logprobs() + second.logsumexp()[:, None]
    np.testing.assert_allclose(raw, logits(1), atol=1e-5)
    with pytest.raises(BankError, match="holds other logits"):
        bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    assert not verify(bank)


def test_a_writer_whose_empty_deposit_gave_way_is_told(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer, bank.begin(spec(weights="cd" * 32)) as other:
        other.write(0, block_data(other.layout, 0))
        for use in (
            lambda: writer.write(0, block_data(writer.layout, 0)),
            lambda: writer.write(1, block_data(writer.layout, 1)),
            writer.seal,
        ):
            with pytest.raises(BankError, match=r"was given other weights .* the same command"):
                use()
    (deposit,) = bank.deposits()
    assert deposit.spec.provenance["weights"] == "cd" * 32
    assert not verify(bank)


def test_an_array_is_named_by_the_documented_digest(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    values = logits()
    tensor = b"float32 [10, 6]\n" + values.astype("<f4").tobytes()
    deposit = bank.deposit(values, checkpoint=STEP0, query_set=QUERY_SET.name)
    assert deposit.spec.provenance["array"] == hashlib.sha256(tensor).hexdigest()
    named = bank.deposit(
        values, checkpoint=CheckpointId("m"), query_set=QUERY_SET.name, provenance={"weights": "w"}
    )
    assert "array" not in named.spec.provenance


def test_a_checkpoint_has_arrays_of_several_query_sets(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    other = bank.add_query_set(QuerySet(TOKENIZER, (Query((1,), 0),)))
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    bank.deposit(logits(queries=1), checkpoint=STEP0, query_set=other)
    assert len(bank.deposits(STEP0)) == 2


def test_deposits_come_in_the_order_of_training(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (None, 16, 128, 2):
        checkpoint = CheckpointId("org/model", step=step)
        bank.begin(replace(spec(), checkpoint=checkpoint))
    assert [d.checkpoint.step for d in bank.deposits()] == [2, 16, 128, None]
    assert [d.checkpoint.step for d in bank.deposits(CheckpointId("org/model", step=2))] == [2]
    assert bank.deposits(CheckpointId("org/other")) == []


def test_layouts_of_too_many_blocks_are_refused() -> None:
    assert Layout(10**6 + 1, 6, "float32", Keep("full"), 2).blocks == 500_001
    message = "1,000,001 queries in blocks of 1 are more than 1,000,000 blocks; use larger blocks"
    with pytest.raises(UsageError, match=message):
        Layout(10**6 + 1, 6, "float32", Keep("full"), 1)


def test_begin_checks_the_spec(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(BankError, match=f"made with tokenizer {TOKENIZER}, not 00"):
        bank.begin(spec(tokenizer="00"))
    other = bank.add_query_set(QuerySet(TOKENIZER, (Query((1,), 0),)))
    asked = spec()
    with pytest.raises(UsageError, match=f"layout is for 10 queries; {other} has 1"):
        bank.begin(type(asked)(asked.checkpoint, other, asked.layout, 6, {}))
    with pytest.raises(UsageError, match="vocab_entries 7 does not fit a head with 6 outputs"):
        bank.begin(type(asked)(asked.checkpoint, asked.query_set, asked.layout, 7, {}))
    with pytest.raises(UsageError, match="a model cannot be called 'prompts'"):
        bank.begin(type(asked)(CheckpointId("prompts"), asked.query_set, asked.layout, 6, {}))
    assert bank.deposits() == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (spec(weights="cd" * 32), f"weights digest {'ab' * 32}, not {'cd' * 32}"),
        (spec(config="12" * 8), "by a version that noted no digest of the config"),
        (spec(dtype="float16"), "has dtype float32, not float16"),
        (spec(compute_dtype="bfloat16"), "has compute_dtype None, not bfloat16"),
        (spec(vocab=7), "has vocab 6, not 7"),
    ],
)
def test_begin_refuses_to_continue_something_else(
    tmp_path: Path, other: object, message: str
) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer:
        writer.write(0, block_data(writer.layout, 0))
    with pytest.raises(BankError, match=message):
        bank.begin(other)  # type: ignore[arg-type]


def test_begin_refuses_a_deposit_that_keeps_less(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec(keep=Keep("topk", 2))) as writer:
        writer.write(0, block_data(writer.layout, 0))
    with pytest.raises(KeepLevelError, match="keeps topk:2, which does not cover full"):
        bank.begin(spec())
    assert bank.begin(spec(keep=Keep("options"))).layout.keep == Keep("topk", 2)


def test_reopened_deposit_keeps_its_blocks(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.begin(spec())
    assert bank.begin(spec(block_rows=2)).layout.block_rows == 4


def test_info_has_a_row_per_deposit(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    assert bank.info().height == 0
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    bank.begin(spec(5))
    rows = bank.info().drop("bytes", "query_set").rows()
    assert rows == [
        ("org/model", "main", 0, 10, 10, 1, True, "full", "float32", "arrays"),
        ("org/model", "main", 5, 10, 0, 3, False, "full", "float32", "test"),
    ]
    assert bank.info()["bytes"].to_list()[0] > 1000


def test_swapped_deposit_is_named(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.begin(spec(0))
    bank.begin(spec(1))
    run = bank.path / "org%2Fmodel" / "main"
    (run / "0").rename(run / "2")
    with pytest.raises(DamagedError, match="main/0/q-.*it was moved or swapped; put it back"):
        bank.deposits()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"keep": "everything"}, "keep is 'everything'"),
        ({"vocab": "6"}, "vocab is '6'"),
        ({"step": -1}, "step is -1; use a whole number from 0"),
        ({"query_set": "../../x"}, "query_set is '../../x'"),
        ({"model": 3}, "model is 3"),
        ({"provenance": []}, r"provenance is \[\]"),
        ({"dtype": "object"}, "dtype is 'object'"),
        ({"queries": 2**31}, "queries is 2147483648"),
        ({"queries": 4 * 10**8, "block_rows": 1}, "400,000,000 queries in blocks of 1 are more"),
    ],
)
def test_attributes_from_strangers_are_checked(
    tmp_path: Path, own: dict[str, object], message: str
) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.begin(spec()).deposit
    rewrite_json(deposit.path / "zarr.json", **own)
    with pytest.raises(
        DamagedError, match=f"does not describe a deposit .*{re.escape(message[:9])}"
    ):
        bank.deposits()


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    secret = tmp_path / "secret"
    (deposit.path / "scores" / "all.parquet").rename(secret)
    (deposit.path / "scores" / "all.parquet").symlink_to(secret)
    with pytest.raises(BankError, match="is a symbolic link"):
        deposit.scores()
    (bank.path / "other").symlink_to(tmp_path)
    with pytest.raises(BankError, match="other is a symbolic link"):
        bank.deposits()


def test_plain_readers_need_no_logitbank(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    xarray = pytest.importorskip("xarray")
    bank = new_bank(tmp_path / "b")
    deposit = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    place = tmp_path / "b" / "org%2Fmodel" / "main" / "0" / QUERY_SET.name
    expected = deposit.logprobs()

    group = zarr.open_group(place, mode="r")
    assert sorted(group) == ["logprobs", "logsumexp"]
    np.testing.assert_array_equal(group["logprobs"][:], expected)
    root = zarr.open_group(tmp_path / "b", mode="r")
    assert root[f"org%2Fmodel/main/0/{QUERY_SET.name}"].attrs["logitbank"]["step"] == 0
    with xarray.open_zarr(place) as dataset:
        assert dataset.logprobs.dims == ("query", "token")
        np.testing.assert_array_equal(dataset.logprobs[3].values, expected[3])
        rounded = deposit.logsumexp().astype(np.float32)
        np.testing.assert_array_equal(dataset.logsumexp.values, rounded)
    scores = pl.read_parquet(place / "scores" / "all.parquet")
    assert scores.height == 30
    assert pl.read_parquet(tmp_path / "b/prompts/*.parquet").height == 20
    assert pl.read_parquet(tmp_path / f"b/queries/{QUERY_SET.name}.parquet").height == 10


def test_checkpoints_are_one_xarray_dataset(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    bank = new_bank(tmp_path / "b")
    deposits = [
        bank.deposit(
            logits(step, vocab=6 + step), checkpoint=CheckpointId("m", step=step),
            query_set=QUERY_SET.name, provenance={"weights": "w"},
        )
        for step in (1, 0)
    ]  # fmt: skip
    bank.begin(spec(7))  # nothing committed: NaN
    dataset = bank.to_xarray(QUERY_SET.name)
    assert dataset.sizes == {"checkpoint": 3, "query": 10, "token": 7}
    assert dataset.step.values.tolist() == [0, 1, 7]
    np.testing.assert_array_equal(dataset.logprobs[1, :, 2], deposits[0].logprobs(None, [2])[:, 0])
    np.testing.assert_array_equal(
        dataset.logprobs.isel(checkpoint=0, query=[9, 1], token=slice(1, 4)),
        deposits[1].logprobs([9, 1], [1, 2, 3]),
    )
    assert dataset.logprobs[0, :, 6].isnull().all()
    assert dataset.logprobs[2].isnull().all()
    assert dataset.logsumexp[2].isnull().all()
    assert not dataset.logprobs[1].isnull().any()
    assert dataset.sel(model="m", run="main", step=1).sizes == {"query": 10, "token": 7}


def test_xarray_view_takes_prompts_of_one_query_set(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    assert bank.to_xarray("parity").identical(bank.to_xarray(QUERY_SET.name))
    other = bank.add_query_set(QuerySet("another tokenizer", QUERY_SET.queries))
    bank.add_prompts("parity", prompt_table().with_columns(query_set=pl.lit(other)))
    bank.deposit(logits(), checkpoint=STEP0, query_set=other)
    with pytest.raises(UsageError, match=f"in 2 query sets; name one of .*{other}"):
        bank.to_xarray("parity")
    with pytest.raises(AbsentError, match="'jobs' is not in"):
        bank.to_xarray("jobs")


def test_xarray_view_names_checkpoints_without_full_rows(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    bank = new_bank(tmp_path / "b")
    bank.begin(spec(7, keep=Keep("options")))
    with pytest.raises(BankError, match="no deposit of q-.* keeps full rows"):
        bank.to_xarray(QUERY_SET.name)
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    dataset = bank.to_xarray("parity")
    assert dataset.sizes["checkpoint"] == 1
    assert dataset.attrs["without_full_rows"] == ["org/model step 7"]
