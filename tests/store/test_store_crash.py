"""Writers in real processes: killed, racing, many at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.store import Bank, repair, verify
from tests.support.marks import long, whole
from tests.support.paths import ROOT
from tests.support.small_banks import block_data, new_bank, spec


def output(work: str, *arguments: object) -> str:
    """What `tests.support.bank_writers` prints of a work, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.bank_writers", work, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},  # every forked process starts them anew
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


# A stride of 1 covers each change and takes seventeen times as long as one of 17.
@pytest.mark.parametrize(
    ("command", "first", "stride"),
    [
        ("write", 1, 17),
        ("rescore", 1, 17),
        ("describe", 1, 1),
        whole("write", 9, 17),  # halfway between those of the quick ones
        whole("rescore", 9, 17),
        long("rescore", 1, 3),
        *(
            whole(command, 1, 13)
            for command in ("push", "pull", "merge", "shrink", "apply", "repair")
        ),
    ],
)
def test_command_killed_before_any_change_is_completed_by_the_same_command(
    tmp_path: Path, command: str, first: int, stride: int
) -> None:
    least = {"rescore": 20, "describe": 4}.get(command, 100)
    assert int(output("killed_commands", tmp_path, command, first, stride)) > least


@pytest.mark.parametrize("stride_kb", [28, whole(12)])
def test_disk_that_fills_at_any_moment_leaves_a_bank_that_can_be_finished(
    small_disk: Path, stride_kb: int
) -> None:
    assert int(output("filled_disk", small_disk, stride_kb)) >= 5


def test_lost_directory_entries_lose_no_more_than_their_deposit(tmp_path: Path) -> None:
    """A folder whose newest entry did not survive a power cut."""
    asked, bank = spec(block_rows=4), new_bank(tmp_path / "b")
    for lost, left in (
        ("commits/1.json", {0, 2}),
        ("logprobs/c/1/0", set()),
        ("zarr.json", set()),
    ):
        with bank.begin(asked) as writer:
            for block in writer.missing():
                writer.write(block, block_data(writer.layout, block))
        (writer.deposit.path / lost).unlink()
        opened = Bank.open(bank.path)
        repair(opened, verify(opened))
        assert verify(opened) == ()
        assert {b for d in opened.deposits() for b in d.committed()} == left, lost
        with opened.begin(asked) as again:
            for block in again.missing():
                again.write(block, block_data(again.layout, block))
        whole = [block_data(again.layout, b).rows for b in range(3)]
        np.testing.assert_array_equal(again.deposit.logprobs(), np.concatenate(whole))
        assert verify(opened) == ()


def test_two_writers_race_for_one_deposit(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    ours, theirs = map(json.loads, output("race", bank.path).splitlines())
    assert [a + b for a, b in zip(ours, theirs, strict=True)] == [1] * 10
    (deposit,) = bank.deposits()
    assert deposit.sealed
    assert verify(bank) == ()
    assert not list(deposit.path.glob(".*"))


@pytest.mark.parametrize("count", [6, whole(20)])
def test_four_processes_write_many_checkpoints_each(tmp_path: Path, count: int) -> None:
    bank = new_bank(tmp_path / "b")
    output("checkpoints", bank.path, count)
    steps = 4 * count
    assert bank.info()["sealed"].to_list() == [True] * steps
    counts = Bank.open(bank.path).scan("parity").group_by("step").len().sort("step").collect()
    expected = pl.DataFrame({"step": range(steps), "len": [20] * steps}, schema=counts.schema)
    assert counts.equals(expected)
    assert verify(bank) == ()
