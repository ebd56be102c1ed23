import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import BankError, DamagedError, SuiteError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet, rescore
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.small_banks import (
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    recommit,
    resign_table,
    spec,
)

CHECKPOINT = ["model", "run", "run_seed", "step"]
VALUES = [
    "logit", "logsumexp", "logprob", "rank", "ties", "padding_above", "padding_ties", "exact"
]  # fmt: skip


def deposit(
    bank: Bank, values: np.ndarray, query_set: QuerySet = QUERY_SET, **checkpoint: object
) -> None:
    names = {"model": "m", **checkpoint}
    bank.deposit(values, checkpoint=CheckpointId(**names), query_set=query_set.name)  # type: ignore[arg-type]


def test_one_row_per_checkpoint_prompt_and_option(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    values = np.zeros((10, 6), np.float32)
    values[3] = [0, 2, 0, 0, 1, 0]
    deposit(bank, values, step=5, run="seed3", run_seed=3)
    deposit(bank, values)
    frame = bank.scan("parity")
    assert frame.collect_schema().names() == [*CHECKPOINT, *PROMPTS_SCHEMA, *VALUES]
    rows = frame.filter(prompt_id="p3", step=5).sort("option").collect()
    assert rows.select(*CHECKPOINT, "option", "is_answer", "token", "logit", "rank").rows() == [
        ("m", "seed3", 3, 5, "no", False, 4, 1.0, 2),
        ("m", "seed3", 3, 5, "yes", True, 1, 2.0, 1),
    ]
    total = np.log(np.exp(2) + np.exp(1) + 4)
    np.testing.assert_allclose(rows["logprob"], [1 - total, 2 - total], rtol=1e-6)
    assert rows.schema["logprob"] == pl.Float64
    assert frame.collect().height == 40
    assert frame.filter(pl.col("step").is_null()).collect().height == 20


def test_own_columns_follow_those_of_every_prompt_set(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("own", prompt_table(split="dev", index=4))
    deposit(bank, logits())
    names = bank.scan("own").collect_schema().names()
    assert names == [*CHECKPOINT, *PROMPTS_SCHEMA, "split", "index", *VALUES]


def test_uncommitted_blocks_are_left_out(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec(1)) as writer:
        writer.write(2, block_data(writer.layout, 2))
    bank.begin(spec(2))
    found = bank.scan("parity").collect()
    assert sorted(found["prompt_id"].to_list()) == ["p8", "p8", "p9", "p9"]
    assert found["step"].unique().to_list() == [1]


def test_prompts_of_two_tokenizers_stay_apart(tmp_path: Path) -> None:
    """The same prompts, of one name, tokenized twice: each model meets its own tokens."""
    bank = new_bank(tmp_path / "b")
    other = QuerySet("other", tuple(Query((row, 7), 1) for row in range(10)))
    bank.add_query_set(other)
    bank.add_prompts("parity", prompt_table(other).with_columns(token=pl.col("token") + 1))
    deposit(bank, np.tile(np.arange(6.0), (10, 1)), model="a")
    deposit(bank, np.tile(np.arange(8.0) * 10, (10, 1)), other, model="b")
    found = bank.scan("parity").filter(prompt_id="p0").sort("model", "option").collect()
    assert found.select("model", "option", "token", "logit").rows() == [
        ("a", "no", 4, 4.0),
        ("a", "yes", 1, 1.0),
        ("b", "no", 5, 50.0),
        ("b", "yes", 2, 20.0),
    ]


def test_checkpoints_can_be_chosen(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for model in ("a", "b"):
        for step in (0, 1, None):
            deposit(bank, logits(), model=model, step=step)
    found = bank.scan("parity", models="a", runs=["main"], steps=[1, None]).collect()
    assert found.select("model", "step").unique().sort("step").rows() == [("a", None), ("a", 1)]
    assert bank.scan("parity", steps=0).collect()["step"].unique().to_list() == [0]


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ("last", [("a", 1000), ("b", 16)]),
        ("8:1000:8", [("a", 8), ("a", 1000), ("b", 16)]),
        ("log", [("a", 8), ("a", 1000), ("b", 16)]),
        ("8,release", [("a", 8), ("b", None)]),
        ("release", [("b", None)]),
    ],
)
def test_steps_in_words_are_chosen_of_each_run(
    tmp_path: Path, steps: str, rows: list[tuple[str, int | None]]
) -> None:
    bank = new_bank(tmp_path / "b")
    for model, step in (("a", 8), ("a", 1000), ("b", 16), ("b", None)):
        deposit(bank, logits(), model=model, step=step)
    chosen = bank.scan("parity", steps=steps).select("model", "step").unique().collect()
    assert sorted(chosen.rows(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"models": ["x"]}, "no deposit has model x; the bank has m"),
        ({"runs": "seed1"}, "no deposit has run seed1; the bank has main"),
        ({"models": ["m"], "steps": [7]}, "no deposit has step 7; the bank has 0, 8"),
        ({"steps": []}, "no deposit has step none; the bank has 0, 8, 1000, release"),
        ({"steps": [9, 10]}, "no deposit has step 9, 10; the bank has 0, 8, 1000, release"),
        ({"steps": "9"}, "step 9 of this bank is not available; the nearest is 8"),
        ({"steps": "20:30"}, "steps '20:30' choose none of this bank"),
        ({"steps": "some"}, "use all, log, START:STOP:STRIDE, release, or a list"),
    ],
)
def test_checkpoints_that_are_not_there(
    tmp_path: Path, chosen: dict[str, object], message: str
) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (1000, 8, 0, None):
        deposit(bank, logits(), step=step)
    with pytest.raises((BankError, SuiteError, UsageError), match=message):
        bank.scan("parity", **chosen)  # type: ignore[arg-type]


def test_bank_without_prompts_or_deposits_says_what_to_run(tmp_path: Path) -> None:
    empty = Bank.create(tmp_path / "empty")
    with pytest.raises(BankError, match="has no prompts yet; add some with `logitbank extract`"):
        empty.scan("parity")
    bank = new_bank(tmp_path / "b")
    message = "has no deposit of prompt set 'parity' yet; run `logitbank extract`"
    with pytest.raises(BankError, match=message):
        bank.scan("parity")


def test_rescored_options_join_the_others(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    values = np.tile(np.arange(6.0), (10, 1))
    deposit(bank, values, step=0)
    bank.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))
    with pytest.raises(BankError, match="lacks scores of 20 options .*`logitbank rescore"):
        bank.scan("late")
    (only,) = bank.deposits()
    lacking = bank.missing_options(only)
    assert lacking is not None
    rescore(only, lacking)
    found = bank.scan("late").filter(prompt_id="p9").sort("option").collect()
    assert found.select("token", "rank", "exact").rows() == [(3, 3, False), (0, 6, False)]
    np.testing.assert_allclose(found["logit"], [3, 0], atol=1e-5)
    assert bank.scan("parity").collect()["exact"].all()


@pytest.mark.parametrize("left", [0, 100, -1])
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("prompts/parity-*.parquet", r"parity-\w+.parquet is (not|no table of prompts \().*verify"),
        ("m/main/0/q-*/scores/all.parquet", r"all.parquet is (not|no table of scores \().*verify"),
    ],
)
@pytest.mark.parametrize("vouched", [False, True])
def test_a_file_cut_short_is_damage_before_anything_is_collected(
    tmp_path: Path, file: str, message: str, left: int, vouched: bool
) -> None:
    bank = new_bank(tmp_path / "b")
    deposit(bank, logits(), step=0)
    (path,) = bank.path.glob(file)
    os.truncate(path, left % path.stat().st_size)
    if vouched and path.parent.name == "scores":
        recommit(path.parents[1], "scores/all.parquet")
    elif vouched:
        resign_table(path)
    with pytest.raises(DamagedError, match=message) as raised:
        bank.scan("parity")
    assert ("differs from its commit" in str(raised.value)) is not vouched


def test_another_table_in_the_place_of_prompts_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    (path,) = bank.path.glob("prompts/*.parquet")
    prompt_table().drop("text").write_parquet(path)
    resign_table(path)
    for read in (lambda: bank.scan("parity"), lambda: bank.option_tokens(QUERY_SET.name)):
        with pytest.raises(DamagedError, match="is no table of prompts: it has no text; run"):
            read()


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    deposit(bank, logits(), step=0)
    plan = bank.scan("parity").select("step", "option", "rank").explain()
    assert "logsumexp" not in plan
    assert "continuation" not in plan


def pieces_table(**columns: object) -> pl.DataFrame:
    """One prompt: option "long" is " a" at query 0 and "b" at query 9, option "short" is " c"."""
    rows = [
        ("p", None, 0, "Text", "short", "long", " a", 1, False, QUERY_SET.name, 0),
        ("p", None, 1, "Text", "short", "long", "b", 4, False, QUERY_SET.name, 9),
        ("p", None, 0, "Text", "short", "short", " c", 4, True, QUERY_SET.name, 0),
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    return table.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def test_a_whole_option_is_the_sum_of_its_pieces(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("long", pieces_table(topic="x"))
    other = bank.add_query_set(QuerySet("another tokenizer", QUERY_SET.queries))
    one_token = pieces_table(topic="x").filter(piece=0).with_columns(query_set=pl.lit(other))
    bank.add_prompts("long", one_token.with_columns(continuation=pl.lit(" whole")))
    deposit(bank, logits(), step=1)
    bank.deposit(logits(1), checkpoint=CheckpointId("n", step=1), query_set=other)
    found = bank.scan("long", whole_options=True).sort("model", "option").collect()
    assert found.columns == [
        *CHECKPOINT, "prompt_id", "order_seed", "text", "answer", "option", "continuation",
        "is_answer", "topic", "pieces", "logprob",
    ]  # fmt: skip
    assert found.select("model", "option", "continuation", "is_answer", "pieces").rows() == [
        ("m", "long", " ab", False, 2),
        ("m", "short", " c", True, 1),
        ("n", "long", " whole", False, 1),
        ("n", "short", " whole", True, 1),
    ]
    ours, theirs = (bank.deposits(CheckpointId(name, step=1))[0].logprobs() for name in "mn")
    expected = [ours[0, 1] + ours[9, 4], ours[0, 4], theirs[0, 1], theirs[0, 4]]
    np.testing.assert_allclose(found["logprob"], expected, rtol=1e-6)


def test_of_an_option_with_a_piece_that_is_not_scored_there_is_no_sum(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("long", pieces_table())
    with bank.begin(spec(3)) as writer:
        writer.write(0, block_data(writer.layout, 0))  # query 9 is in another block
    found = bank.scan("long", whole_options=True).sort("option").collect()
    assert found["pieces"].to_list() == [2, 1]
    assert found["logprob"].is_null().to_list() == [True, False]


def test_whole_options_have_no_texts_of_tokens_and_no_other_pieces(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("own", pieces_table(pieces=2))
    deposit(bank, logits(), step=1)
    with pytest.raises(UsageError, match="token_text is of single tokens"):
        bank.scan("own", whole_options=True, token_text=True)
    with pytest.raises(UsageError, match="a column 'pieces' of their own"):
        bank.scan("own", whole_options=True)


def test_a_step_may_be_a_number_of_numpy_s(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (0, 8):
        bank.deposit(logits(), checkpoint=CheckpointId("a", step=step), query_set=QUERY_SET.name)
    for steps in (np.int64(8), [np.int32(8)], np.array([8])):
        assert set(bank.scan("parity", steps=steps).collect()["step"]) == {8}


def test_few_tokens_and_a_prompt_without_options_need_no_warning(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bare = prompt_table().head(1).with_columns(
        prompt_id=pl.lit("bare"), option=pl.lit(None, pl.String), token=pl.lit(None, pl.Int32),
        continuation=pl.lit(None, pl.String), is_answer=pl.lit(None, pl.Boolean),
    )  # fmt: skip
    bank.add_prompts("parity", bare)
    bank.deposit(logits(), checkpoint=CheckpointId("a", step=0), query_set=QUERY_SET.name)
    count = bank.sql("SELECT COUNT(logprob) FROM scores").collect()
    assert count.item() == 20
