from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from logitbank import push
from logitbank.errors import DamagedError, KeepLevelError, UsageError
from logitbank.store import Bank, CheckpointId, shrink, verify
from logitbank.store.format.schema import Dtype
from tests.support.small_banks import (
    QUERY_SET,
    VOCAB,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
)

QUERIES = 10


def banked(
    path: Path, values: np.ndarray, *, dtype: Dtype = "float32", keep: str = "full", step: int = 3
) -> Bank:
    bank = Bank.open(path) if path.exists() else new_bank(path)
    bank.deposit(
        values,
        checkpoint=CheckpointId("org/model", step=step),
        query_set=QUERY_SET.name,
        dtype=dtype,
        keep=keep,
        provenance={"host": "ada", "weights": "ab" * 32},
    )
    return bank


def scores(bank: Bank, index: int = 0) -> pl.DataFrame:
    return bank.deposits()[index].scores().collect().sort("query", "kind", "rank", "token")


@pytest.mark.parametrize("keep", ["topk:3", "options"])
def test_shrinking_equals_extraction_at_the_smaller_level(tmp_path: Path, keep: str) -> None:
    values = logits()
    full = banked(tmp_path / "full", values)
    small = banked(tmp_path / "small", values, keep=keep)
    shrink(full.path, tmp_path / "out", keep=keep)
    out = Bank.open(tmp_path / "out")
    assert verify(out) == ()
    columns = ["query", "token", "kind", "rank", "ties"]
    assert scores(out).select(columns).equals(scores(small).select(columns))
    exact = scores(out).filter("exact")
    assert exact.equals(scores(small).join(exact, on=["query", "kind", "token"], how="semi"))
    assert exact.height >= 30
    assert str(out.deposits()[0].layout.keep) == keep
    assert out.deposits()[0].sealed


def test_entries_that_nobody_listed_are_flagged(tmp_path: Path) -> None:
    values = np.tile(np.array([5, 4, 3, 2, 1, 0], np.float32), (10, 1))
    full = banked(tmp_path / "full", values)  # lists tokens 1 and 4, and 0 as the highest
    shrink(full.path, tmp_path / "out", keep="topk:3")
    rows = scores(Bank.open(tmp_path / "out")).filter(query=7)
    found = rows.select("kind", "token", "rank", "exact").rows()
    assert found == [
        ("option", 1, 2, True),
        ("option", 4, 5, True),
        ("top", 0, 1, True),
        ("top", 1, 2, True),
        ("top", 2, 3, False),
    ]
    assert rows["logit"].to_list() == pytest.approx([4, 1, 5, 4, 3], abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    values=arrays.arrays(
        np.float32,
        (QUERIES, VOCAB),
        # Differences that float16 keeps, and such that it loses.
        elements=st.sampled_from([0.0, 1.0, 1.0001, 1.0002, 5.0, 5.0001, -8.0]),
    ),
    k=st.integers(1, 8),
    then=st.integers(1, 8),
)
def test_highest_entries_and_intervals_hold_whatever_was_rounded(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, k: int, then: int
) -> None:
    folder = tmp_path_factory.mktemp("shrink")
    shrink(banked(folder / "full", values, dtype="float16").path, folder / "1", keep=f"topk:{k}")
    levels = [(folder / "1", k)]
    if then < k:
        shrink(folder / "1", folder / "2", keep=f"topk:{then}")
        levels.append((folder / "2", then))
    for path, kept in levels:
        found = scores(Bank.open(path))
        for query, row in enumerate(values):
            top = found.filter(query=query, kind="top")
            assert len(top) == min(kept, VOCAB)
            for token, rank, ties, exact in top.select("token", "rank", "ties", "exact").rows():
                true = int((row > row[token]).sum()) + 1
                assert rank <= true <= rank + ties
                if exact:
                    assert (rank, ties) == (true, int((row == row[token]).sum()) - 1)
                    assert rank <= kept


def test_float16_rows_and_exact_scores(tmp_path: Path) -> None:
    full = banked(tmp_path / "full", logits())
    made = shrink(full.path, tmp_path / "out", dtype="float16")
    out = Bank.open(tmp_path / "out")
    assert verify(out) == ()
    stored = full.deposits()[0].stored_logprobs()
    np.testing.assert_array_equal(out.deposits()[0].stored_logprobs(), stored.astype(np.float16))
    assert scores(out).equals(scores(full))
    assert made.deposits == 1
    assert made.bytes_before == full.info()["bytes"].sum()
    assert made.bytes_after == out.info()["bytes"].sum()


def test_provenance_license_and_prompts_go_along(tmp_path: Path) -> None:
    full = banked(tmp_path / "full", logits())
    shrink(full.path, tmp_path / "1", dtype="float16")
    shrink(tmp_path / "1", tmp_path / "2", keep="options")
    out = Bank.open(tmp_path / "2")
    assert (out.attributes["title"], out.attributes["license"]) == ("small", "CC0-1.0")
    assert "sources" not in out.attributes
    made = dict(out.deposits()[0].spec.provenance)
    second = made.pop("shrunk_from")
    assert made == full.deposits()[0].spec.provenance
    first = second.pop("shrunk_from")
    assert (second["keep"], second["dtype"]) == ("full", "float16")
    assert (first["keep"], first["dtype"]) == ("full", "float32")
    assert len(first["zarr.json"]) == 64
    assert out.prompt_sets == full.prompt_sets
    keys = ["step", "prompt_id", "option"]
    scans = [bank.scan("parity").collect().sort(keys) for bank in (full, out)]
    assert scans[0].equals(scans[1])


def test_options_that_came_later_and_those_still_to_be_read_are_kept(tmp_path: Path) -> None:
    full = banked(tmp_path / "full", logits())
    third = prompt_table().with_columns(token=pl.lit(3, pl.Int32)).unique("row")
    full.add_prompts("third", third)  # nobody has scored it
    shrink(full.path, tmp_path / "out", keep="options")
    rows = Bank.open(tmp_path / "out").scan("third").collect()
    assert rows.height == 10
    assert not rows["exact"].any()


def test_a_deposit_in_progress_is_left_out_and_counted(tmp_path: Path) -> None:
    bank = banked(tmp_path / "b", logits())
    with bank.begin(spec(7)) as writer:
        writer.write(1, block_data(writer.layout, 1))
    done = shrink(bank.path, tmp_path / "out", keep="options")
    assert (done.deposits, done.incomplete) == (1, 1)
    with bank.begin(spec(7)) as writer:
        for block in writer.missing():
            writer.write(block, block_data(writer.layout, block))
        writer.seal()
    seen: list[tuple[int, int]] = []
    shrink(bank.path, tmp_path / "out", keep="options", progress=lambda *at: seen.append(at))
    out = Bank.open(tmp_path / "out")
    assert [deposit.sealed for deposit in out.deposits()] == [True, True]
    assert seen[-1] == (20, 20)
    assert verify(out) == ()


def test_deposits_that_are_small_already_are_copied(tmp_path: Path) -> None:
    bank = banked(tmp_path / "b", logits())
    banked(bank.path, logits(1), keep="topk:2", step=5)
    shrink(bank.path, tmp_path / "out", keep="topk:2")
    out = Bank.open(tmp_path / "out")
    assert [str(d.layout.keep) for d in out.deposits()] == ["topk:2"] * 2
    assert scores(out, 1).equals(scores(bank, 1))
    assert "shrunk_from" not in out.deposits()[1].spec.provenance


def test_an_error_about_damage_says_that_the_copy_is_not_whole(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (0, 8):
        bank.deposit(logits(step), checkpoint=spec(step).checkpoint, query_set=QUERY_SET.name)
    (scores,) = bank.path.glob("*/*/8/*/scores/all.parquet")
    scores.write_bytes(bytes(scores.stat().st_size))
    for copy in (lambda: shrink(bank.path, tmp_path / "s", keep="options"),
                 lambda: push(bank.path, tmp_path / "p")):  # fmt: skip
        with pytest.raises(DamagedError, match=r"all\.parquet differs .*/(s|p) lacks results"):
            copy()


def test_a_folder_with_another_keep_level_is_refused(tmp_path: Path) -> None:
    bank = banked(tmp_path / "b", logits())
    shrink(bank.path, tmp_path / "out", keep="topk:3")
    before = scores(Bank.open(tmp_path / "out"))
    with pytest.raises(
        KeepLevelError, match=r"keep level topk:3, not options\. Choose another fold"
    ):
        shrink(bank.path, tmp_path / "out", keep="options")
    shrink(bank.path, tmp_path / "out", keep="topk:3")  # the same call again
    assert scores(Bank.open(tmp_path / "out")).equals(before)


@pytest.mark.parametrize(
    ("stored", "requested", "error"),
    [
        ({}, {"keep": "full"}, UsageError),
        ({}, {}, UsageError),
        ({"dtype": "float16"}, {"dtype": "float16"}, UsageError),
        ({"dtype": "float16"}, {"dtype": "float32"}, KeepLevelError),
        ({"keep": "topk:2"}, {"keep": "topk:2"}, UsageError),
        ({"keep": "topk:2"}, {"keep": "topk:3"}, KeepLevelError),
        ({"keep": "options"}, {"dtype": "float16"}, UsageError),
    ],
)
def test_a_level_that_is_not_smaller_is_an_error(
    tmp_path: Path, stored: dict[str, str], requested: dict[str, str], error: type
) -> None:
    bank = banked(tmp_path / "b", logits(), **stored)  # type: ignore[arg-type]
    with pytest.raises(error):
        shrink(bank.path, tmp_path / "out", **requested)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="is the bank itself"):
        shrink(bank.path, tmp_path / "x" / ".." / "b", keep="options")


def test_rows_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    values = logits()
    values[8, 2] = -1e5
    bank = banked(tmp_path / "b", values)
    with pytest.raises(
        KeepLevelError, match="log-probability of -1000.. exceeds the range of float16"
    ):
        shrink(bank.path, tmp_path / "out", dtype="float16")
