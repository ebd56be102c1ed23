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
from logitbank.store import (
    Bank,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
    verify,
)
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.tables import query_tables
from logitbank.store.tables.prompt_tables import option_tokens
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    TOKENIZER,
    VOCAB,
    block_data,
    fill,
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


def test_create_refuses_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=re.escape("Bank.open")):
        Bank.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kept", [0, 100, 290])
def test_a_truncated_zarr_json_is_damage(tmp_path: Path, kept: int) -> None:
    root = new_bank(tmp_path / "b").path / "zarr.json"
    assert root.stat().st_size > 290
    root.write_bytes(root.read_bytes()[:kept])
    with pytest.raises(DamagedError, match=re.escape("zarr.json")):
        Bank.open(tmp_path / "b")


def test_open_without_a_bank(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(BankFormatError, match=str(path)):
            Bank.open(path)
    bank = Bank.create(tmp_path / "b")
    rewrite_json(bank.path / "zarr.json", format=2, written_by="0.7.1")
    with pytest.raises(BankFormatError, match=r"format 2.* format 1.* 0\.7\.1"):
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
    with pytest.raises(AbsentError, match=f"q-{'0' * 16}.* {QUERY_SET.name}"):
        bank.query_set("q-" + "0" * 16)
    with pytest.raises(UsageError, match=re.escape("../x")):
        bank.query_set("../x")


def test_damaged_query_sets_are_refused(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    other = QuerySet(TOKENIZER, (Query((9,), 0),))
    bank.add_query_set(other)
    path = bank.path / "queries" / f"{QUERY_SET.name}.parquet"
    path.with_name(f"{other.name}.parquet").replace(path)
    with pytest.raises(DamagedError, match="SHA-256"):
        bank.query_set(QUERY_SET.name)
    resign_table(path)
    with pytest.raises(DamagedError, match=other.name):
        bank.query_set(QUERY_SET.name)
    os.truncate(path, 100)
    uses = (
        lambda: bank.query_set(QUERY_SET.name),
        lambda: option_tokens(bank.path, QUERY_SET.name),
        lambda: bank.begin(spec()),
        lambda: query_tables.query_set_tokenizer(bank.path, QUERY_SET.name),
    )
    for fault in ("SHA-256", "is not a query set"):
        for use in uses:
            with pytest.raises(DamagedError, match=fault):
                use()
        resign_table(path)


def test_json_nested_thousands_deep_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.begin(spec()).deposit
    (deposit.path / "zarr.json").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(DamagedError, match="recursion"):
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
    ("changed", "column"),
    [
        (prompt_table(text="Odd?"), "text"),
        (prompt_table(OTHER_QUERIES, text="Odd?"), "text"),
        (prompt_table(answer="no"), "answer"),
        (prompt_table(OTHER_QUERIES, answer="no"), "answer"),
        (prompt_table().with_columns(token=pl.col("token") + 1), "token"),
        (prompt_table().with_columns(row=(pl.col("row") + 1) % 10), "row"),
        (prompt_table(continuation="yes"), "continuation"),
        (prompt_table(split="test"), "split"),
        (prompt_table().with_columns(split=pl.lit(None, pl.String)), "split"),
        (prompt_table(weight=0.25), "weight"),
    ],
)
def test_stored_prompts_cannot_change(tmp_path: Path, changed: pl.DataFrame, column: str) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER_QUERIES)
    bank.add_prompts("own", prompt_table(split="dev", weight=1))
    for table in (changed, changed.tail(3)):
        with pytest.raises(UsageError, match=f"'p[08]'.* 'own' .*'{column}'"):
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
        prompt_table().with_columns(
            option=pl.lit("x") + pl.col("option"), token=pl.col("token") + 2
        ),
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
def test_a_later_column_completes_stored_prompts(tmp_path: Path, column: str) -> None:
    """The digests of these columns put either table first."""
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("own", prompt_table())
    bank.add_prompts("own", prompt_table(**{column: "x"}).head(2))
    values = bank.prompts("own").select("prompt_id", column).unique().sort("prompt_id").collect()
    assert values.head(2).rows() == [("p0", "x"), ("p1", None)]
    assert bank.prompts("own").collect().height == 20


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (prompt_table().drop("text"), "column 4 .*'answer'.* 'text'"),
        (prompt_table().cast({"row": pl.Int64}), "column 11 .*Int64.*Int32"),
        (prompt_table(rank=1), "'rank'"),
        (prompt_table(tags=["a"]), "'tags' is List"),
        (prompt_table().with_columns(weight=pl.lit(1).cast(pl.Decimal(5, 2))), "'weight' is Dec"),
        (prompt_table().head(0), "one row"),
        (pl.concat([prompt_table(), prompt_table().head(1)]), "'p0'"),
        (prompt_table().with_columns(row=pl.lit(10, pl.Int32)), "row 10.* 0 to 9"),
        (prompt_table().with_columns(token=pl.lit(-1, pl.Int32)), "token -1"),
        (prompt_table().with_columns(token=pl.lit(4, pl.Int32)), "'no' and 'yes'.* 4"),
        (prompt_table().with_columns(option=pl.lit(None, pl.String)), "option, continuation"),
        (prompt_table().with_columns(text=pl.lit(None, pl.String)), "'text'"),
    ],
)
def test_invalid_prompts_are_refused(tmp_path: Path, table: pl.DataFrame, named: str) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(UsageError, match=named):
        bank.add_prompts("bad", table)
    assert bank.prompt_sets == ["parity"]


def test_prompts_without_options_or_answers_are_kept(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bare = prompt_table().unique("prompt_id", maintain_order=True)
    nulls = {n: pl.lit(None, PROMPTS_SCHEMA[n]) for n in ("answer", "is_answer")}
    bank.add_prompts("unanswered", prompt_table().with_columns(**nulls))
    nulls |= {n: pl.lit(None, PROMPTS_SCHEMA[n]) for n in ("option", "continuation", "token")}
    bank.add_prompts("bare", bare.with_columns(**nulls))
    assert option_tokens(bank.path, QUERY_SET.name).of(0).tolist() == [1, 4]
    bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    assert bank.scan("unanswered").collect().height == 2 * QUERIES
    assert bank.scan("bare").collect().is_empty()
    assert bank.prompts("bare").collect()["text"][0] == "Is 0 even?"


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


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (np.zeros((9, 6)), r"\(9, 6\).*\(10, vocabulary\)"),
        (np.zeros(10), r"\(10,\)"),
        (np.zeros((10, 6), int), "int64.* float16"),
        (np.full((10, 6), 1e300), "row 0: 6 of 6"),
        (np.where(np.eye(10, 6, -4) > 0, np.nan, 0), "row 4: 1 of 6"),
        (np.zeros((10, 4)), "token 4.* 4 columns"),
    ],
)
def test_invalid_arrays_are_refused(tmp_path: Path, values: np.ndarray, named: str) -> None:
    bank = new_bank(tmp_path / "b")
    with pytest.raises(UsageError, match=named):
        bank.deposit(values, checkpoint=STEP0, query_set=QUERY_SET.name)


def test_keep_levels_may_be_text(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, keep in enumerate(("full", "topk:2", "options", Keep("topk", 3))):
        made = bank.deposit(
            logits(), checkpoint=CheckpointId("m", step=step), query_set=QUERY_SET.name, keep=keep
        )
        assert str(made.layout.keep) == str(keep)
    with pytest.raises(UsageError, match="'half'"):
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
    with pytest.raises(BankError, match="logits"):
        bank.deposit(logits(1), checkpoint=STEP0, query_set=QUERY_SET.name)
    np.testing.assert_array_equal(first.logprobs(), expected)


def test_a_deposit_without_a_commit_is_replaced(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    first = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    (first.path / "commits" / "seal.json").unlink()  # as if killed before the first commit
    second = bank.deposit(logits(1), checkpoint=STEP0, query_set=QUERY_SET.name)
    raw = second.logprobs() + second.logsumexp()[:, None]
    np.testing.assert_allclose(raw, logits(1), atol=1e-5)
    with pytest.raises(BankError, match="logits"):
        bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    assert not verify(bank)


def test_the_writer_of_a_replaced_deposit_is_refused(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer, bank.begin(spec(weights="cd" * 32)) as other:
        other.write(0, block_data(other.layout, 0))
        for use in (
            lambda: writer.write(0, block_data(writer.layout, 0)),
            lambda: writer.write(1, block_data(writer.layout, 1)),
            writer.seal,
        ):
            with pytest.raises(BankError, match="replaced"):
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
    with pytest.raises(UsageError, match="1,000,000 blocks"):
        Layout(10**6 + 1, 6, "float32", Keep("full"), 1)


def test_begin_checks_the_spec(tmp_path: Path) -> None:
    bank, valid = new_bank(tmp_path / "b"), spec()
    other = bank.add_query_set(QuerySet(TOKENIZER, (Query((1,), 0),)))
    for error, changes in (
        (BankError, {"provenance": {"tokenizer": "00"}}),
        (UsageError, {"query_set": other}),
        (UsageError, {"vocab_entries": 7}),
        (UsageError, {"checkpoint": CheckpointId("prompts")}),
    ):
        with pytest.raises(error):
            bank.begin(replace(valid, **changes))
    assert bank.deposits() == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (spec(weights="cd" * 32), "weights"),
        (spec(config="12" * 8), "config"),
        (spec(dtype="float16"), "dtype float32, not float16"),
        (spec(compute_dtype="bfloat16"), "compute_dtype None, not bfloat16"),
        (spec(engine="vllm"), "engine test, not vllm"),
        (spec(vocab=7), "vocab 6, not 7"),
    ],
)
def test_begin_refuses_to_continue_another_deposit(
    tmp_path: Path, other: DepositSpec, named: str
) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer:
        writer.write(0, block_data(writer.layout, 0))
    with pytest.raises(BankError, match=named):
        bank.begin(other)


def test_begin_refuses_a_deposit_that_keeps_less(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = fill(bank, spec(keep=Keep("topk", 2)), blocks=[0])
    with pytest.raises(KeepLevelError, match="topk:2.* full"):
        bank.begin(spec())
    assert bank.begin(spec(keep=Keep("options"), block_rows=2)).layout == deposit.layout


def test_swapped_deposit_is_named(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.begin(spec(0))
    bank.begin(spec(1))
    run = bank.path / "org%2Fmodel" / "main"
    (run / "0").rename(run / "2")
    with pytest.raises(DamagedError, match="main/0/q-.*swapped"):
        bank.deposits()


@pytest.mark.parametrize(
    "attributes",
    [
        {"keep": "everything"},
        {"vocab": "6"},
        {"step": -1},
        {"query_set": "../../x"},
        {"model": 3},
        {"provenance": []},
        {"heads": []},
        {"dtype": "object"},
        {"queries": 2**31},
        {"queries": 4 * 10**8, "block_rows": 1},
    ],
)
def test_hostile_attributes_are_refused(tmp_path: Path, attributes: dict[str, object]) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.begin(spec()).deposit
    rewrite_json(deposit.path / "zarr.json", **attributes)
    with pytest.raises(DamagedError, match="does not describe a deposit"):
        bank.deposits()


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = bank.deposit(logits(), checkpoint=STEP0, query_set=QUERY_SET.name)
    secret = tmp_path / "secret"
    (deposit.path / "scores" / "all.parquet").rename(secret)
    (deposit.path / "scores" / "all.parquet").symlink_to(secret)
    with pytest.raises(BankError, match="symbolic link"):
        deposit.scores()
    (bank.path / "other").symlink_to(tmp_path)
    with pytest.raises(BankError, match="symbolic link"):
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
    # Zarr warns of files that are no nodes, and warnings are errors here.
    tree = dict(bank.group.members(max_depth=None))
    assert [name for name in tree if name.endswith(QUERY_SET.name)] == [
        f"org%2Fmodel/main/0/{QUERY_SET.name}"
    ]
    assert tree[f"org%2Fmodel/main/0/{QUERY_SET.name}/logprobs"].metadata.dimension_names == (
        "query",
        "token",
    )
    assert deposit.group.attrs["logitbank"]["query_set"] == QUERY_SET.name
    np.testing.assert_array_equal(deposit.group["logprobs"][3], expected[3])
    with pytest.raises(ValueError, match="read-only"):
        deposit.group["logsumexp"][0] = 1.0
    scores = pl.read_parquet(place / "scores" / "all.parquet")
    assert scores.height == 30
    assert pl.read_parquet(tmp_path / "b/prompts/*.parquet").height == 20
    assert pl.read_parquet(tmp_path / f"b/queries/{QUERY_SET.name}.parquet").height == 10


def test_checkpoints_are_one_xarray_dataset(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    bank = new_bank(tmp_path / "b")
    bank.begin(spec(7))  # nothing is committed
    with pytest.raises(BankError):
        bank.to_xarray(QUERY_SET.name)
    deposits = [
        bank.deposit(
            logits(step, vocab=6 + step), checkpoint=CheckpointId("m", step=step),
            query_set=QUERY_SET.name, provenance={"weights": "w"},
        )
        for step in (1, 0)
    ]  # fmt: skip
    dataset = bank.to_xarray(QUERY_SET.name)
    assert dataset.attrs["without_full_rows"] == ["org/model step 7"]
    assert dataset.sizes == {"checkpoint": 2, "query": 10, "token": 7}
    assert dataset.step.values.tolist() == [0, 1]
    np.testing.assert_array_equal(dataset.logprobs[1, :, 2], deposits[0].logprobs(None, [2])[:, 0])
    np.testing.assert_array_equal(
        dataset.logprobs.isel(checkpoint=0, query=[9, 1], token=slice(1, 4)),
        deposits[1].logprobs([9, 1], [1, 2, 3]),
    )
    assert dataset.logprobs[0, :, 6].isnull().all()
    assert not dataset.logprobs[1].isnull().any()
    assert dataset.sel(model="m", run="main", step=1).sizes == {"query": 10, "token": 7}
    assert bank.to_xarray("parity").identical(bank.to_xarray(QUERY_SET.name))
    other = bank.add_query_set(QuerySet("another tokenizer", QUERY_SET.queries))
    bank.add_prompts("parity", prompt_table().with_columns(query_set=pl.lit(other)))
    bank.deposit(logits(), checkpoint=STEP0, query_set=other)
    with pytest.raises(UsageError, match=other):
        bank.to_xarray("parity")
    with pytest.raises(AbsentError, match="'jobs'"):
        bank.to_xarray("jobs")


def test_a_bank_and_a_deposit_in_one_line(tmp_path: Path) -> None:
    assert "no model yet; 0 checkpoints; prompts none" in repr(Bank.create(tmp_path / "empty"))
    bank = new_bank(tmp_path / "b\x1b[2J")
    for checkpoint in (CheckpointId("a<b", step=8), CheckpointId("a<b", step=1000),
                       CheckpointId("c", "seed1")):  # fmt: skip
        bank.deposit(logits(), checkpoint=checkpoint, query_set=QUERY_SET.name, keep="options")
    assert (bank.models, bank.runs) == (["a<b", "c"], ["main", "seed1"])
    assert (bank.steps, bank.prompt_sets) == ([8, 1000, None], ["parity"])
    assert repr(bank).endswith("b\\x1b[2J: a<b, c; 3 checkpoints, steps 8 to 1000; prompts parity>")
    deposit = bank.deposits()[0]
    contents = "10 of 10 queries, keep options, float32, 6 outputs"
    assert repr(deposit) == f"<Deposit a<b step 8, {QUERY_SET.name}: {contents}>"
    (deposit.path / "zarr.json").write_text("{}")
    assert "cannot be read (" in repr(bank)


class Tensor:
    """As a tensor of torch that needs a gradient: an array only after `detach` and `cpu`."""

    def __init__(self, values: np.ndarray, steps: tuple[str, ...] = ()) -> None:
        self.values, self.steps = values, steps

    def detach(self) -> "Tensor":
        return Tensor(self.values, (*self.steps, "detach"))

    def cpu(self) -> "Tensor":
        return Tensor(self.values, (*self.steps, "cpu"))

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        if self.steps != ("detach", "cpu"):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")
        return self.values


def test_a_tensor_and_a_step_of_numpy_are_deposited(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    checkpoint = CheckpointId("m", "main", np.int64(3))  # type: ignore[arg-type]
    made = bank.deposit(
        Tensor(logits()),  # type: ignore[arg-type]
        checkpoint=checkpoint,
        query_set=QUERY_SET.name,
        dtype="float32",
    )
    other = new_bank(tmp_path / "c").deposit(
        logits(), checkpoint=CheckpointId("m", "main", 3), query_set=QUERY_SET.name, dtype="float32"
    )
    assert made.checkpoint == other.checkpoint
    assert type(made.checkpoint.step) is int
    assert made.logprobs(rows=[0]).tolist() == other.logprobs(rows=[0]).tolist()


@pytest.mark.parametrize("values", [[["a"]], object(), "logits"])
def test_what_is_no_array_is_refused_in_one_line(tmp_path: Path, values: object) -> None:
    with pytest.raises(UsageError, match="Logits are .* float32"):
        new_bank(tmp_path / "b").deposit(
            values,  # type: ignore[arg-type]
            checkpoint=CheckpointId("m", "main", 3),
            query_set=QUERY_SET.name,
        )
