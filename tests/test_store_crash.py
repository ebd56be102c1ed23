"""Writers in real processes: killed, racing, many at once."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from logitbank.store import Bank, verify
from tests.small_banks import new_bank

ROOT = Path(__file__).parents[1]


def start(work: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.bank_writers", work, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def finish(process: "subprocess.Popen[str]", told: str = "") -> str:
    with process:
        try:
            out, err = process.communicate(told, timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err[-3000:]
    return out


def test_writer_killed_before_any_change_leaves_a_bank_that_can_be_finished(tmp_path: Path) -> None:
    # A stride of 1 covers each of the 170 changes and takes eleven times as long.
    changes = int(finish(start("killed_before_changes", tmp_path, 11)))
    assert changes > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_writer_killed_at_random_moments_resumes_bit_for_bit(tmp_path: Path, seed: int) -> None:
    left = json.loads(finish(start("killed_at_random", tmp_path, seed)))
    assert left == sorted(left), "a block was lost"


def test_two_writers_race_for_one_deposit(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    writers = [start("race", bank.path) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    ours, theirs = (json.loads(finish(writer).lower()) for writer in writers)
    assert [a + b for a, b in zip(ours, theirs, strict=True)] == [1] * 10
    (deposit,) = bank.deposits()
    assert deposit.sealed
    assert verify(bank) == ()
    assert not list(deposit.path.glob(".*"))


def test_four_processes_write_twenty_checkpoints_each(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for writer in [start("checkpoints", bank.path, 20 * i) for i in range(4)]:
        finish(writer)
    assert bank.info()["sealed"].to_list() == [True] * 80
    counts = Bank.open(bank.path).scan("parity").group_by("step").len().sort("step").collect()
    assert counts.equals(pl.DataFrame({"step": range(80), "len": [20] * 80}, schema=counts.schema))
    assert verify(bank) == ()
