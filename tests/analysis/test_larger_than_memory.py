"""A bank whose rows are several times the memory that a process may take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from logitbank.store import Bank, CheckpointId
from tests.support.evaluation_banks import add_winobias
from tests.support.paths import ROOT

STEPS, VOCAB, ALLOWED_MB = 56, 65_536, 200


def answers(bank: Path, *limit: str) -> tuple[bool, dict[str, object]]:
    """Whether there is room for all rows at once, and what is found.

    Threads take memory too, so that their number is the same on every machine.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.limited", str(bank), *limit],
        cwd=ROOT,
        env=os.environ | {"POLARS_MAX_THREADS": "2", "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    room, found = json.loads(done.stdout)
    return room, found


@pytest.mark.whole
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_numbers_are_those_of_unlimited_memory(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    add_winobias(bank, steps=[], skew_from=0)
    (queries,) = bank.query_sets()
    size = 0
    for step in range(STEPS):
        rng = np.random.default_rng(step)
        values = np.tile(rng.normal(size=(48, 64)).astype(np.float32), VOCAB // 64)
        values[:, :8] += rng.normal(size=(48, 8))
        at = CheckpointId("toy", step=step)
        deposit = bank.deposit(values, checkpoint=at, query_set=queries)
        size += 4 * deposit.layout.queries * deposit.layout.vocab
    assert size > 3 * ALLOWED_MB * 2**20
    room, limited = answers(bank.path, str(ALLOWED_MB))
    assert not room
    room, unlimited = answers(bank.path)
    assert room
    assert limited == unlimited
    assert len(limited) == 5
