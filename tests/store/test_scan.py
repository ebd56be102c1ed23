"""Scores of prompts as one frame: values, selection, damage, one scan for many deposits."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.errors import BankError, DamagedError, SuiteError, UsageError
from logitbank.store import Bank, CheckpointId, Deposit, Query, QuerySet, rescore
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read import scan_files
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.tables.prompt_tables import option_tokens
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
OTHER = QuerySet("other", tuple(Query((row, 7), 1) for row in range(10)))


def deposit(
    bank: Bank, values: np.ndarray, query_set: QuerySet = QUERY_SET, **checkpoint: object
) -> Deposit:
    made = CheckpointId(**{"model": "m", **checkpoint})  # type: ignore[arg-type]
    return bank.deposit(values, checkpoint=made, query_set=query_set.name)


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
    bank.add_prompts("own", prompt_table(split="dev", index=4))
    names = bank.scan("own").collect_schema().names()
    assert names == [*CHECKPOINT, *PROMPTS_SCHEMA, "split", "index", *VALUES]
    plan = bank.scan("parity").select("step", "option", "rank").explain()
    assert "logsumexp" not in plan
    assert "continuation" not in plan


def test_uncommitted_blocks_are_excluded(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec(1)) as writer:
        writer.write(2, block_data(writer.layout, 2))
    bank.begin(spec(2))
    found = bank.scan("parity").collect()
    assert sorted(found["prompt_id"].to_list()) == ["p8", "p8", "p9", "p9"]
    assert found["step"].unique().to_list() == [1]


def test_prompts_of_two_tokenizers_stay_separate(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER)
    bank.add_prompts("parity", prompt_table(OTHER).with_columns(token=pl.col("token") + 1))
    deposit(bank, np.tile(np.arange(6.0), (10, 1)), model="a")
    deposit(bank, np.tile(np.arange(8.0) * 10, (10, 1)), OTHER, model="b")
    found = bank.scan("parity").filter(prompt_id="p0").sort("model", "option").collect()
    assert found.select("model", "option", "token", "logit").rows() == [
        ("a", "no", 4, 4.0),
        ("a", "yes", 1, 1.0),
        ("b", "no", 5, 50.0),
        ("b", "yes", 2, 20.0),
    ]


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        ({"models": "a", "runs": ["main"], "steps": [8, None]}, [("a", 8)]),
        ({"steps": 16}, [("b", 16)]),
        ({"steps": np.int64(8)}, [("a", 8)]),
        ({"steps": np.array([8])}, [("a", 8)]),
        ({"steps": "last"}, [("a", 1000), ("b", 16)]),
        ({"steps": "8:1000:8"}, [("a", 8), ("a", 1000), ("b", 16)]),
        ({"steps": "8,release"}, [("a", 8), ("b", None)]),
        ({"steps": "release"}, [("b", None)]),
    ],
)
def test_checkpoints_are_selected_in_each_run(
    tmp_path: Path, chosen: dict[str, object], rows: list[tuple[str, int | None]]
) -> None:
    bank = new_bank(tmp_path / "b")
    for model, step in (("a", 8), ("a", 1000), ("b", 16), ("b", None)):
        deposit(bank, logits(), model=model, step=step)
    found = bank.scan("parity", **chosen).select("model", "step").unique().collect()  # type: ignore[arg-type]
    assert sorted(found.rows(), key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(
    ("chosen", "error", "named"),
    [
        ({"models": ["x"]}, BankError, "model x.* m"),
        ({"runs": "seed1"}, BankError, "run seed1.* main"),
        ({"models": ["m"], "steps": [7]}, BankError, "step 7.* 0, 8"),
        ({"steps": []}, BankError, "0, 8, 1000, release"),
        ({"steps": "9"}, SuiteError, "8"),
        ({"steps": "20:30"}, SuiteError, "20:30"),
        ({"steps": "some"}, UsageError, "START:STOP:STRIDE"),
    ],
)
def test_missing_checkpoints_are_named(
    tmp_path: Path, chosen: dict[str, object], error: type[Exception], named: str
) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (1000, 8, 0, None):
        deposit(bank, logits(), step=step)
    with pytest.raises(error, match=named):
        bank.scan("parity", **chosen)  # type: ignore[arg-type]


def test_a_bank_without_prompts_or_deposits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="parity"):
        Bank.create(tmp_path / "empty").scan("parity")
    with pytest.raises(BankError, match="extract"):
        new_bank(tmp_path / "b").scan("parity")


@pytest.mark.parametrize("left", [0, 100, -1])
@pytest.mark.parametrize("file", ["prompts/parity-*.parquet", "m/main/0/q-*/scores/all.parquet"])
@pytest.mark.parametrize("signed", [False, True])
def test_a_truncated_file_is_damage_before_anything_is_collected(
    tmp_path: Path, file: str, left: int, signed: bool
) -> None:
    bank = new_bank(tmp_path / "b")
    deposit(bank, logits(), step=0)
    (path,) = bank.path.glob(file)
    os.truncate(path, left % path.stat().st_size)
    if signed and path.parent.name == "scores":
        recommit(path.parents[1], "scores/all.parquet")
    elif signed:
        resign_table(path)
    with pytest.raises(DamagedError, match=path.name) as raised:
        bank.scan("parity")
    assert ("differs from its commit" in str(raised.value)) is not signed


def test_another_table_in_the_place_of_prompts_is_damage(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    (path,) = bank.path.glob("prompts/*.parquet")
    prompt_table().drop("text").write_parquet(path)
    resign_table(path)
    for read in (
        lambda: bank.scan("parity"),
        lambda: option_tokens(bank.path, QUERY_SET.name),
    ):
        with pytest.raises(DamagedError, match="text"):
            read()


def long_options(**columns: object) -> pl.DataFrame:
    """One prompt: option "long" is " a" at query 0 and "b" at query 9, option "short" is " c"."""
    rows = [
        ("p", None, 0, "Text", "short", "long", " a", 1, False, QUERY_SET.name, 0),
        ("p", None, 1, "Text", "short", "long", "b", 4, False, QUERY_SET.name, 9),
        ("p", None, 0, "Text", "short", "short", " c", 4, True, QUERY_SET.name, 0),
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    return table.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def test_a_whole_option_is_the_sum_of_its_tokens(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("long", long_options(topic="x"))
    other = bank.add_query_set(QuerySet("another tokenizer", QUERY_SET.queries))
    one_token = long_options(topic="x").filter(piece=0).with_columns(query_set=pl.lit(other))
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


def test_an_option_with_an_unscored_token_has_no_sum(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("long", long_options())
    with bank.begin(spec(3)) as writer:
        writer.write(0, block_data(writer.layout, 0))  # query 9 is in another block
    found = bank.scan("long", whole_options=True).sort("option").collect()
    assert found["pieces"].to_list() == [2, 1]
    assert found["logprob"].is_null().to_list() == [True, False]
    bank.add_prompts("own", long_options(pieces=2))
    with pytest.raises(UsageError):
        bank.scan("own", whole_options=True)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The score files that one scan reads together."""
    files: list[Path] = []
    read = scan_files._scan

    def watched(paths: list[Path], *, include_file_paths: str | None = None) -> pl.LazyFrame:
        files.extend(paths if include_file_paths else [])
        return read(paths, include_file_paths=include_file_paths)

    monkeypatch.setattr(scan_files, "_scan", watched)
    return files


def change_scores(bank: Bank, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    made = deposit(bank, logits(1), step=1)
    part = made.path / "scores" / "all.parquet"
    change(pl.read_parquet(part)).write_parquet(part)
    recommit(made.path, "scores/all.parquet")


def with_kinds_as_text(bank: Bank) -> None:
    change_scores(bank, lambda scores: scores.cast({"kind": pl.String}))


def with_another_column(bank: Bank) -> None:
    change_scores(bank, lambda scores: scores.with_columns(seen=True))


def unsealed(bank: Bank) -> None:
    with bank.begin(spec(1)) as writer:
        writer.write(1, block_data(writer.layout, 1))


def rescored(bank: Bank) -> None:
    late = deposit(bank, logits(1), OTHER, step=1)
    bank.add_prompts("late", prompt_table(OTHER).with_columns(token=pl.col("token") - 1))
    missing = missing_options(late)
    assert missing is not None
    rescore(late, missing)


def with_another_query_set(bank: Bank) -> None:
    for step in (1, 5):
        deposit(bank, logits(step), OTHER, model="other model/b", step=step)


@pytest.mark.parametrize(
    ("differing", "together"),
    [
        (with_kinds_as_text, 0),
        (with_another_column, 4),
        (unsealed, 3),
        (rescored, 3),
        (with_another_query_set, 5),
    ],
)
def test_one_scan_of_mixed_deposits_equals_one_scan_of_each(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scanned: list[Path],
    differing: Callable[[Bank], None],
    together: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    bank = new_bank(Path("b"))  # a relative path is possible also
    bank.add_query_set(OTHER)
    bank.add_prompts("parity", prompt_table(OTHER))
    for step in (0, 8, 64):
        deposit(bank, logits(step), step=step)
    differing(bank)
    whole = bank.sql("SELECT * FROM scores").collect()
    assert len(set(scanned)) == together
    one_by_one = []
    for made in bank.deposits():
        scores = made.option_scores().collect()
        prompts = pl.concat(bank.prompts(name).collect() for name in bank.prompt_sets)
        joined = prompts.filter(query_set=made.query_set).join(
            scores, left_on=["row", "token"], right_on=["query", "token"]
        )
        step = pl.lit(made.checkpoint.step, pl.Int64)
        one_by_one.append(joined.with_columns(model=pl.lit(made.checkpoint.model), step=step))
    columns = ["model", "step", "prompt_id", "option", "token", "logit", "logsumexp", "rank"]
    found, expected = (
        frame.select(columns).sort(columns[:5])
        for frame in (whole, pl.concat(one_by_one, how="diagonal_relaxed"))
    )
    assert found.equals(expected)


def test_a_scan_opens_only_files_of_the_selected_checkpoints(
    tmp_path: Path, scanned: list[Path]
) -> None:
    bank = new_bank(tmp_path / "b")
    for model in ("a", "b"):
        for step in range(5):
            deposit(bank, logits(step), model=model, step=step)
    for chosen, files in (({}, 10), ({"models": "a", "steps": [1, 2]}, 2)):
        scanned.clear()
        assert len(bank.scan("parity", **chosen).collect()) > 0  # type: ignore[arg-type]
        assert len(set(scanned)) == files


@pytest.mark.parametrize("signed", [False, True])
def test_a_damaged_file_among_many_is_named(tmp_path: Path, signed: bool) -> None:
    bank = new_bank(tmp_path / "b")
    for step in range(3):
        deposit(bank, logits(step), step=step)
    part = bank.deposits()[1].path / "scores" / "all.parquet"
    data = bytearray(part.read_bytes())
    half = int.from_bytes(data[-8:-4], "little") // 2
    data[-8 - half : -8] = bytes(half)  # a footer that ends in the middle
    part.write_bytes(data)
    if signed:
        recommit(part.parents[1], "scores/all.parquet")
    for read in (
        lambda: bank.scan("parity"),
        lambda: bank.sql("SELECT SUM(rank) FROM scores").collect(),
    ):
        with pytest.raises(DamagedError, match=r"main/1/.*all\.parquet"):
            read()
    assert bank.scan("parity", steps=[0, 2]).collect().height == 40


FEW, MANY = (QuerySet("5e" * 32, tuple(Query((7, i), 1) for i in range(n))) for n in (3, 5))
GROWN = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
PIECES = (("yes", 0, 1), ("yes", 1, 2), ("no", 0, 3))
"""Option, piece and token: `yes` has two tokens, scored after the same context."""


@pytest.fixture
def grown(tmp_path: Path) -> Bank:
    """Step 0 has the results of three prompts, step 2 of five, and step 1 of both query sets."""
    bank = Bank.create(tmp_path / "b")
    for queries in (FEW, MANY):
        bank.add_query_set(queries)
        rows = [
            (f"p{row}", None, piece, f"Text {row}", "yes", option, f" {option}{piece}", token,
             option == "yes", queries.name, row)
            for row in range(len(queries))
            for option, piece, token in PIECES
        ]  # fmt: skip
        bank.add_prompts("mine", pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row"))
    for step, query_sets in ((0, [FEW]), (1, [FEW, MANY]), (2, [MANY])):
        for queries in query_sets:
            deposit(bank, GROWN[: len(queries)], queries, step=step)
    return bank


def test_a_score_in_two_query_sets_is_one_row(grown: Bank) -> None:
    rows = grown.scan("mine").collect()
    assert rows.select("step", "prompt_id", "option", "piece").is_duplicated().sum() == 0
    assert dict(rows.group_by("step").len().iter_rows()) == {0: 9, 1: 15, 2: 15}
    logprobs = GROWN - np.log(np.exp(GROWN.astype(np.float64)).sum(axis=1, keepdims=True))
    expected = [
        logprobs[int(p[1:]), token] for p, token in rows.select("prompt_id", "token").rows()
    ]
    np.testing.assert_allclose(rows["logprob"].to_numpy(), expected, atol=1e-6)
    whole = grown.scan("mine", whole_options=True).collect()
    assert dict(whole.group_by("step").len().iter_rows()) == {0: 6, 1: 10, 2: 10}
    for prompt, option, pieces, logprob in whole.select(
        "prompt_id", "option", "pieces", "logprob"
    ).iter_rows():
        row, tokens = logprobs[int(prompt[1:])], [1, 2] if option == "yes" else [3]
        assert pieces == len(tokens)
        assert logprob == pytest.approx(row[tokens].sum(), abs=1e-6)
    query = "SELECT step, COUNT(*) AS n FROM scores GROUP BY step ORDER BY step"
    assert grown.sql(query).collect().rows() == [(0, 9), (1, 15), (2, 15)]


def test_analyses_count_each_prompt_once(grown: Bank) -> None:
    measures = logitbank.options(grown).result.measures
    for name in ("accuracy", "top1_probability"):
        table = measures.filter(measure=name)
        assert table.sort("step").select("step", "items").rows() == [(0, 3), (1, 5), (2, 5)]
    (sentence,) = logitbank.options(grown).missing
    assert "Missing: 2 prompts at 1 checkpoint" in sentence
