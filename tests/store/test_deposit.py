import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import BankError, DamagedError, DiskSpaceError, KeepLevelError, UsageError
from logitbank.store import (
    Bank,
    BlockData,
    Deposit,
    Keep,
    OptionTokens,
    rescore,
    verify,
)
from logitbank.store.deposits.scores import committed_parts, query_logsumexp, scan_parts
from logitbank.store.files import disk, objects
from logitbank.store.format.commits import Committed
from tests.support.small_banks import (
    block_data,
    new_bank,
    spec,
)


def filled(path: Path, *blocks: int, seal: bool = False, **options: object) -> Bank:
    bank = new_bank(path)
    with bank.begin(spec(**options)) as writer:  # type: ignore[arg-type]
        for block in blocks:
            writer.write(block, block_data(writer.layout, block))
        if seal:
            writer.seal()
    return bank


def only_deposit(bank: Bank) -> Deposit:
    (deposit,) = bank.deposits()
    return deposit


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_blocks_are_written_and_read_before_the_seal(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 2, 0)
    deposit = only_deposit(bank)
    assert deposit.committed() == {0, 2}
    assert not deposit.complete
    assert not deposit.sealed
    assert deposit.rows_committed == 6
    assert bank.begin(spec()).missing() == [1]
    rows = [9, 0, 3, 8]
    expected = np.concatenate([block_data(deposit.layout, b).rows for b in range(3)])
    np.testing.assert_array_equal(deposit.logprobs(rows), expected[rows])
    assert np.isfinite(deposit.logsumexp(rows)).all()
    assert deposit.scores().select("query").unique().collect().height == 6


def test_rows_that_are_not_committed_are_an_error(tmp_path: Path) -> None:
    deposit = only_deposit(filled(tmp_path / "b", 0))
    for read in (deposit.logprobs, deposit.logsumexp):
        with pytest.raises(BankError, match="2 of 3 .*4–7, 8–9"):
            read([0, 5, 9])


@pytest.mark.parametrize(
    ("rows", "tokens", "named"),
    [
        ([10], None, "row 10 .* 0 to 9"),
        ([-1], None, "row -1"),
        (None, [6], "token 6 .* 0 to 5"),
        ([0.5], None, r"\(1,\), float64"),
        (3, None, r"\(\), int64"),
    ],
)
def test_rows_and_tokens_outside_are_refused(
    tmp_path: Path, rows: object, tokens: object, named: str
) -> None:
    deposit = only_deposit(filled(tmp_path / "b", 0, 1, 2))
    with pytest.raises(UsageError, match=named):
        deposit.logprobs(rows, tokens)  # type: ignore[arg-type]


def test_no_rows_are_no_values(tmp_path: Path) -> None:
    deposit = only_deposit(filled(tmp_path / "b"))
    assert deposit.logprobs([]).shape == (0, 6)
    assert deposit.logprobs([], [2]).shape == (0, 1)


@pytest.mark.parametrize("keep", [Keep("topk", 3), Keep("options")])
def test_lower_keep_levels_have_scores_only(tmp_path: Path, keep: Keep) -> None:
    bank = filled(tmp_path / "b", 0, 1, 2, seal=True, keep=keep)
    deposit = only_deposit(bank)
    assert deposit.scores().collect().height == 30
    assert deposit.logsumexp().shape == (10,)
    assert not (deposit.path / "logprobs").exists()
    with pytest.raises(KeepLevelError, match=f"keeps {keep}"):
        deposit.logprobs()
    with pytest.raises(KeepLevelError, match=f"keeps {keep}"):
        rescore(deposit, OptionTokens.build([[2]] * 10))


def _changed(data: BlockData, **columns: pl.Expr) -> BlockData:
    return replace(data, scores=data.scores.with_columns(**columns))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: replace(d, rows=None), r"None.*\(4, 6\)"),
        (lambda d: replace(d, rows=d.rows[:3]), r"\(3, 6\).*\(4, 6\)"),
        (lambda d: replace(d, rows=d.rows.astype("f8")), "float64.* float32"),
        (lambda d: replace(d, rows=d.rows * np.nan), "row 4 .*not finite"),
        (lambda d: replace(d, scores=d.scores.drop("rank")), "columns"),
        (lambda d: replace(d, scores=d.scores.tail(-3)), "4 to 7"),
        (lambda d: _changed(d, query=pl.lit(4, pl.Int32), token=pl.int_range(12, dtype=pl.Int32)),
         "4 to 7"),
        (lambda d: replace(d, scores=pl.concat([d.scores, d.scores])), "twice"),
        (lambda d: _changed(d, rank=pl.lit(None, pl.Int32)), "nulls"),
        (lambda d: _changed(d, logit=pl.lit(np.inf, pl.Float32)), "not finite"),
        (lambda d: _changed(d, token=pl.col("token") + 6), "0 to 5"),
    ],
)  # fmt: skip
def test_invalid_blocks_are_refused(tmp_path: Path, change: object, named: str) -> None:
    with new_bank(tmp_path / "b").begin(spec()) as writer:
        data = change(block_data(writer.layout, 1))  # type: ignore[operator]
        with pytest.raises(UsageError, match=named):
            writer.write(1, data)
        with pytest.raises(UsageError, match="3 .* 0 to 2"):
            writer.write(3, block_data(writer.layout, 0))
        assert writer.missing() == [0, 1, 2]


def test_lower_levels_refuse_full_rows(tmp_path: Path) -> None:
    with new_bank(tmp_path / "b").begin(spec(keep=Keep("options"))) as writer:
        with pytest.raises(UsageError, match="options stores no rows"):
            writer.write(0, block_data(spec().layout, 0))


def test_block_written_after_the_seal_is_dropped(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as slow, bank.begin(spec()) as fast:
        slow.write(0, block_data(slow.layout, 0))
        for block in range(3):
            fast.write(block, block_data(fast.layout, block))
        fast.seal()
        assert not slow.write(1, block_data(slow.layout, 1))
        slow.seal()
    assert only_deposit(bank).committed() == {0, 1, 2}
    assert verify(bank) == ()


def test_reader_that_meets_a_seal_reads_the_sealed_parts(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0, 1, 2)
    deposit = only_deposit(bank)
    stale = deposit.state()
    lazy = deposit.scores()
    bank.begin(spec()).seal()
    states = iter([stale])

    def read(state: Committed) -> pl.LazyFrame:
        state = next(states, state)
        return scan_parts(committed_parts(deposit.path, state, name="it"), state)

    assert deposit.read_committed(read).collect().equals(lazy.collect())


def test_lost_objects_are_damage(tmp_path: Path) -> None:
    deposit = only_deposit(filled(tmp_path / "b", 0, 1, 2))
    (deposit.path / "logprobs" / "c" / "1" / "0").unlink()
    assert deposit.logprobs([0]).shape == (1, 6)
    with pytest.raises(DamagedError, match="logprobs/c/1/0"):
        deposit.logprobs([0, 5])
    (deposit.path / "scores" / "1.parquet").unlink()
    with pytest.raises(DamagedError, match=r"scores/1\.parquet"):
        deposit.scores()


def test_seal_refuses_damaged_parts(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0, 1, 2)
    part = only_deposit(bank).path / "scores" / "1.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"1\.parquet"):
        bank.begin(spec()).seal()
    assert not only_deposit(bank).sealed


def test_seal_deletes_nothing_behind_a_link(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0, 1, 2, seal=True)
    scores = only_deposit(bank).path / "scores"
    scores.rename(tmp_path / "elsewhere")
    scores.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "1.parquet").write_text("mine")
    with pytest.raises(BankError, match="symbolic link"):
        bank.begin(spec()).seal()
    assert (tmp_path / "elsewhere" / "1.parquet").read_text() == "mine"


def test_closing_a_writer_removes_its_staging(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0)
    assert not list(only_deposit(bank).path.glob(".*"))


def test_staging_files_of_dead_writers_are_removed_and_others_kept(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0)
    path = only_deposit(bank).path
    for name in ("dead", "alive", "empty"):
        (path / f".staging-{name}").mkdir()
    (path / ".staging-dead" / "owner").touch()
    with (path / ".staging-alive" / "owner").open("w") as owner, bank.begin(spec()) as writer:
        fcntl.flock(owner, fcntl.LOCK_EX)
        writer.write(1, block_data(writer.layout, 1))
        names = sorted(p.name for p in path.glob(".staging-*"))
    assert len(names) == 2
    assert ".staging-alive" in names


def test_a_full_disk_error_has_a_fix(tmp_path: Path) -> None:
    message = "disk of .*x is full: 4,096 more bytes"
    with pytest.raises(DiskSpaceError, match=message):
        with disk.naming_full(tmp_path / "x", 4096), open("/dev/full", "wb", 0) as full:
            full.write(b"x")
    for number in (errno.ENOSPC, errno.EDQUOT):  # of the disk, of the user's share of it
        with pytest.raises(DiskSpaceError, match=message):
            with disk.naming_full(tmp_path / "x", 4096):
                raise RuntimeError(f"{os.strerror(number)} (os error {number})")
    with pytest.raises(RuntimeError, match="os error 2801"):
        with disk.naming_full(tmp_path / "x", 4096):
            raise RuntimeError("os error 2801")
    with pytest.raises(OSError, match="Permission"):
        with disk.naming_full(tmp_path / "x", 4096):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a//b", "a/../../b", "a\\b", "a\0b", ""])
def test_paths_out_of_the_bank_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(BankError, match="is not a path inside a bank"):
        objects.plain_path(tmp_path, path)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rescored_ranks_count_stored_values(tmp_path: Path, dtype: str) -> None:
    bank = new_bank(tmp_path / "b")
    asked = spec(dtype=dtype)  # type: ignore[arg-type]
    asked = replace(asked, vocab_entries=4)
    with bank.begin(asked) as writer:
        for block in range(3):
            data = block_data(writer.layout, block)
            assert data.rows is not None
            # log-probabilities; outputs 4 and 5 are padding
            data.rows[:] = [-2, -0.0, -3, 0.0, -2, -1.5]
            writer.write(block, data)
        writer.seal()
    rescore(writer.deposit, OptionTokens.build([[0, 2, 3]] + [[]] * 9))
    scores = writer.deposit.scores().filter(kind="option", exact=False).sort("token").collect()
    columns = ("token", "rank", "ties", "padding_above", "padding_ties")
    assert scores.select(columns).rows() == [(0, 4, 1, 1, 1), (2, 6, 0, 2, 0), (3, 1, 1, 0, 0)]
    logsumexp = writer.deposit.logsumexp([0])[0]
    np.testing.assert_allclose(scores["logit"], np.array([-2, -3, 0]) + logsumexp, rtol=1e-6)


def test_exact_scores_win_over_rescored(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", 0, 1, 2, seal=True)
    deposit = only_deposit(bank)
    before = deposit.scores().sort("query", "kind", "token").collect()
    rescore(deposit, OptionTokens.build([[1, 4]] * 10))
    assert deposit.scores().sort("query", "kind", "token").collect().equals(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([[0]] * 9, "9 queries"),
        ([[]] * 10, "0 options"),
        ([[6]] * 10, "6.* 0 to 5"),
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, options: list[list[int]], message: str
) -> None:
    deposit = only_deposit(filled(tmp_path / "b", 0, 1, 2))
    with pytest.raises(UsageError, match=message):
        rescore(deposit, OptionTokens.build(options))


def test_rescoring_goes_by_committed_blocks(tmp_path: Path) -> None:
    deposit = only_deposit(filled(tmp_path / "b", 0))
    with pytest.raises(BankError, match="6 of 10"):
        rescore(deposit, OptionTokens.build([[0]] * 10))
    rescore(deposit, OptionTokens.build([[0]] * 4 + [[]] * 6))
    new = deposit.scores().filter(kind="option", token=0).collect()
    assert new["query"].to_list() == [0, 1, 2, 3]


def test_blocks_that_are_committed_while_scores_are_read_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = new_bank(tmp_path / "b")
    writer = bank.begin(spec())
    writer.write(0, block_data(writer.layout, 0))
    (deposit,) = bank.deposits()
    before = deposit.logsumexp([0, 3])
    real = query_logsumexp

    def meanwhile(scores: pl.LazyFrame) -> tuple[np.ndarray, np.ndarray]:
        found = real(scores)
        writer.write(1, block_data(writer.layout, 1))
        return found

    monkeypatch.setattr("logitbank.store.deposits.deposit.query_logsumexp", meanwhile)
    np.testing.assert_array_equal(deposit.logsumexp([0, 3]), before)
    assert deposit.committed() == {0, 1}
