"""Many deposits are read by one scan, which gives what one for each of them gives."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from logitbank.errors import DamagedError
from logitbank.store import Bank, CheckpointId, Query, QuerySet, rescore
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.read import scan_files
from tests.support.small_banks import (
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    recommit,
    spec,
)

COLUMNS = ["model", "step", "prompt_id", "option", "token", "logit", "logsumexp", "rank"]
OTHER = QuerySet("other", tuple(Query((row, 7), 1) for row in range(10)))


def deposit(bank: Bank, step: int, *, model: str = "m", queries: QuerySet = QUERY_SET) -> Deposit:
    return bank.deposit(
        logits(step), checkpoint=CheckpointId(model, step=step), query_set=queries.name
    )


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(COLUMNS).sort(COLUMNS[:5])


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of scores that are read by one scan."""
    files: list[Path] = []
    read = scan_files._scan

    def watched(paths: list[Path], *, include_file_paths: str | None = None) -> pl.LazyFrame:
        files.extend(paths if include_file_paths else [])
        return read(paths, include_file_paths=include_file_paths)

    monkeypatch.setattr(scan_files, "_scan", watched)
    return files


def as_text(bank: Bank) -> None:
    """Another writer's scores, in which kinds are plain text."""
    made = deposit(bank, 1)
    part = made.path / "scores" / "all.parquet"
    pl.read_parquet(part).cast({"kind": pl.String}).write_parquet(part)
    recommit(made.path, "scores/all.parquet")


def with_a_column_more(bank: Bank) -> None:
    made = deposit(bank, 1)
    part = made.path / "scores" / "all.parquet"
    pl.read_parquet(part).with_columns(seen=True).write_parquet(part)
    recommit(made.path, "scores/all.parquet")


def unsealed(bank: Bank) -> None:
    with bank.begin(spec(1)) as writer:
        writer.write(1, block_data(writer.layout, 1))


def rescored(bank: Bank) -> None:
    late = deposit(bank, 1, queries=OTHER)
    bank.add_prompts("late", prompt_table(OTHER).with_columns(token=pl.col("token") - 1))
    lacking = bank.missing_options(late)
    assert lacking is not None
    rescore(late, lacking)


def of_another_query_set(bank: Bank) -> None:
    deposit(bank, 1, model="other model/b", queries=OTHER)
    deposit(bank, 5, model="other model/b", queries=OTHER)


@pytest.mark.parametrize(
    ("differing", "together_are"),
    [
        (as_text, 0),
        (with_a_column_more, 4),
        (unsealed, 3),
        (rescored, 3),
        (of_another_query_set, 5),
    ],
)
def test_mixed_deposits_give_what_each_of_them_gives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scanned: list[Path],
    differing: Callable[[Bank], None],
    together_are: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    bank = new_bank(Path("b"))  # a relative path is one too
    bank.add_query_set(OTHER)
    bank.add_prompts("parity", prompt_table(OTHER))
    for step in (0, 8, 64):
        deposit(bank, step)
    differing(bank)
    whole = bank.frames()["scores"].collect()
    assert len(set(scanned)) == together_are
    one_by_one = []
    for made in bank.deposits():
        scores = made.option_scores().collect()
        asked = pl.concat(bank.prompts(n).collect() for n in bank.prompt_sets).filter(
            query_set=made.query_set
        )
        one_by_one.append(
            asked.join(scores, left_on=["row", "token"], right_on=["query", "token"]).with_columns(
                model=pl.lit(made.checkpoint.model), step=pl.lit(made.checkpoint.step, pl.Int64)
            )
        )
    assert in_order(whole).equals(in_order(pl.concat(one_by_one, how="diagonal_relaxed")))


def test_only_files_of_what_is_asked_for_are_opened(tmp_path: Path, scanned: list[Path]) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(OTHER)
    bank.add_prompts("other", prompt_table(OTHER))
    for model in ("a", "b"):
        for step in range(5):
            deposit(bank, step, model=model)
            deposit(bank, step, model=model, queries=OTHER)

    def opened(query: Callable[[], pl.LazyFrame]) -> int:
        scanned.clear()
        assert len(query().collect()) > 0
        return len(set(scanned))

    assert opened(lambda: bank.scan("parity")) == 10
    assert opened(lambda: bank.scan("parity", models="a", steps=[1, 2])) == 2
    for condition, files in (
        ("model = 'a' AND step > 2", 4),
        ("prompt_set = 'other' AND step IN (0, 3)", 4),
        ("prompt_set = 'parity' AND option = 'no' AND run = 'main'", 10),
    ):
        query = f"SELECT rank FROM scores WHERE {condition}"
        assert opened(lambda query=query: bank.sql(query)) == files  # type: ignore[misc]


def test_a_damaged_file_among_many_is_named(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in range(3):
        deposit(bank, step)
    part = bank.deposits()[1].path / "scores" / "all.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(DamagedError, match="main/1/.*all.parquet differs from its commit"):
        bank.scan("parity")
    with pytest.raises(DamagedError, match="main/1/.*differs from its commit"):
        bank.sql("SELECT SUM(rank) FROM scores").collect()
    assert bank.scan("parity", steps=[0, 2]).collect().height == 40


def test_what_is_committed_and_no_table_is_refused(tmp_path: Path) -> None:
    """A footer that breaks off in the middle, whose digest is right."""
    bank = new_bank(tmp_path / "b")
    for step in range(3):
        deposit(bank, step)
    part = bank.deposits()[1].path / "scores" / "all.parquet"
    data = bytearray(part.read_bytes())
    half = int.from_bytes(data[-8:-4], "little") // 2
    data[-8 - half : -8] = bytes(half)
    part.write_bytes(data)
    recommit(part.parents[1], "scores/all.parquet")
    with pytest.raises(DamagedError, match="main/1/.*all.parquet is no table of scores"):
        bank.scan("parity")
