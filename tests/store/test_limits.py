"""Limits at the door: what no reader would take is written by nobody, and named in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.errors import LogitbankError, UsageError
from logitbank.store import (
    Bank,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OutputHead,
    Query,
    QuerySet,
    SoftCap,
    describe,
)
from logitbank.store.format.limits import check_text, shown
from logitbank.store.format.schema import TOKENS_SCHEMA
from tests.support.small_banks import QUERIES, QUERY_SET, VOCAB, new_bank, prompt_table, spec

HALF = "\ud800"
DIGITS = 10**5000
MANY = pytest.param(DIGITS, id="digits")
NAMES = [HALF, "a\x1b[2J", "a\nb", "a\x00", "x" * 201, "ü" * 40, "", " a", None, 7]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_refused_at_every_door(tmp_path: Path, name: Any) -> None:
    bank = new_bank(tmp_path / "b")
    texts = pl.DataFrame([(0, "a", True, False)], schema=TOKENS_SCHEMA, orient="row")
    doors = [
        lambda: CheckpointId(name),
        lambda: CheckpointId("m", run=name),
        lambda: bank.add_prompts(name, prompt_table()),
        lambda: bank.add_tokens(name, texts),
    ]
    for door in doors:
        with pytest.raises(UsageError) as refused:
            door()
        str(refused.value).encode()  # it can be printed


@pytest.mark.parametrize("name", [HALF, "a\x1b[2J", "a\nb", "x" * 1001, 7])
def test_titles_are_one_line_and_texts_are_texts(tmp_path: Path, name: Any) -> None:
    with pytest.raises(UsageError, match="title"):
        Bank.create(tmp_path / "b", title=name)
    assert not (tmp_path / "b").exists()
    bank = Bank.create(tmp_path / "b", citation="@article{a,\n  title = {ü}\n}")
    with pytest.raises(UsageError, match="title"):
        describe(bank.path, title=name)
    with pytest.raises(UsageError, match="surrogate"):
        describe(bank.path, licence=HALF)
    assert Bank.open(bank.path).attributes["citation"].startswith("@article{a,\n")


@pytest.mark.parametrize("number", [2**63, -(2**63), MANY, True, 1.0, np.int64(1), "1"])
def test_steps_and_seeds_that_no_reader_takes_are_not_written(number: Any) -> None:
    for given in ({"step": number}, {"run_seed": number}):
        with pytest.raises(UsageError, match="use a whole number from"):
            CheckpointId("m", **given)


def test_the_largest_step_and_seed_are_read_back(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, seed in ((0, 2**63 - 1), (10**18 - 1, -(2**63) + 1)):
        made = spec(step)
        checkpoint = CheckpointId("org/model", step=step, run_seed=seed)
        bank.begin(DepositSpec(checkpoint, made.query_set, made.layout, VOCAB, made.provenance))
        assert bank.deposits()[-1].checkpoint == checkpoint
    assert bank.info()["step"].to_list() == [0, 10**18 - 1]


@pytest.mark.parametrize("token", [2**31, -1, MANY])
@pytest.mark.parametrize("field", ["ids", "segments", "position"])
def test_numbers_of_queries_fit_their_columns(token: int, field: str) -> None:
    query = {"ids": (1, 2), "position": 1, "head": "mask", "segments": (0, 0)}
    query[field] = token if field == "position" else (1, token)
    with pytest.raises(UsageError, match="of a query"):
        QuerySet("t", (Query(**query),))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        QuerySet.of_contexts("t", [Query((1, token), 1)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 2**24 + 1}, "vocab"),
        ({"keep": Keep("topk", 0)}, "keep_k"),
        ({"keep": Keep("topk", 2**31)}, "keep_k"),
        ({"block_rows": 2**31}, "block_rows"),
        ({"dtype": "float64"}, "dtype"),
        ({"keep": Keep("some")}, "keep"),  # type: ignore[arg-type]
    ],
)
def test_no_deposit_is_begun_that_its_reader_would_refuse(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    bank, made = new_bank(tmp_path / "b"), spec(0)
    sizes = {"queries": QUERIES, "vocab": VOCAB, "dtype": "float32", "keep": Keep("options")}
    layout = Layout(**{**sizes, "block_rows": 4, **change})
    with pytest.raises(UsageError, match=message):
        bank.begin(DepositSpec(made.checkpoint, made.query_set, layout, VOCAB, made.provenance))
    assert bank.deposits() == []


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [float("nan"), HALF, MANY, object(), pytest.param(nested(100_000), id="nested")]
)
def test_provenance_that_is_no_json_is_refused(tmp_path: Path, value: Any) -> None:
    bank, made = new_bank(tmp_path / "b"), spec(0)
    provenance = {**made.provenance, "note": value}
    for _ in range(2):  # of a deposit that is there, too
        with pytest.raises(UsageError, match="provenance is not JSON"):
            bank.begin(DepositSpec(made.checkpoint, QUERY_SET.name, made.layout, VOCAB, provenance))
        bank.begin(made)


@pytest.mark.parametrize("cap", [0.0, float("inf"), float("nan"), 1e300])
def test_heads_that_no_reader_takes_are_not_made(cap: float) -> None:
    with pytest.raises(UsageError, match="soft_cap"):
        OutputHead(np.ones((2, 2), np.float32), "float32", after=(SoftCap(cap),))
    with pytest.raises(UsageError, match="outputs of a head"):
        OutputHead(np.ones((0, 2), np.float32), "float32")


@pytest.mark.parametrize("name", ["a\nb", "x" * 1001])
def test_ids_and_columns_of_a_table_of_prompts_are_names(tmp_path: Path, name: str) -> None:
    bank, table = new_bank(tmp_path / "b"), prompt_table()
    with pytest.raises(UsageError, match="prompt id"):
        bank.add_prompts("p", table.with_columns(prompt_id=pl.lit(name)))
    with pytest.raises(UsageError, match="prompts column"):
        bank.add_prompts("p", table.with_columns(pl.lit(1).alias(name)))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(DIGITS, "a number of more than 4,999 digits", id="digits"),
        (HALF, r"'\ud800'"),
        ("a" * 99, "'aaa"),
    ],
)
def test_any_value_can_be_shown(value: object, said: str) -> None:
    assert shown(value).startswith(said)
    assert len(shown(value)) <= 60


def test_texts_keep_their_lines() -> None:
    check_text("a\n\tb\x00", "text")
    with pytest.raises(LogitbankError, match="half"):
        check_text("a" + HALF, "text")
