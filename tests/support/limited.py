"""Analyses of a bank in a process whose memory is limited, and their tables as JSON.

`python -m tests.support.limited BANK MB`; without MB there is no limit.
"""

import json
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import logitbank
from logitbank.store import Bank, Filter, apply_filter
from tests.support.evaluation_banks import add_winobias


def highest(rows: np.ndarray) -> np.ndarray:
    return rows.max(axis=1)


def study(result: Any) -> list[Any]:
    return [repr(table.rows()) for table in result.result.tables().values()]


def filtered_fairness(bank: Bank) -> list[Any]:
    values = np.random.default_rng(3)
    by = Filter(values.normal(size=(4, 4)) / 4, values.normal(size=4), "keep_tail")
    with tempfile.TemporaryDirectory() as folder:
        apply_filter(bank, by, Path(folder) / "b")
        return study(logitbank.fairness(Path(folder) / "b", bootstrap=50))


KEY = ["step", "prompt_id", "option"]
ANSWERS: dict[str, Callable[[Bank], Any]] = {
    "fairness": lambda bank: study(logitbank.fairness(bank, bootstrap=50)),
    "fairness of a filtered bank": filtered_fairness,
    "options": lambda bank: study(logitbank.options(bank)),
    "full rows": lambda bank: [values.tolist() for _, values in logitbank.map_rows(bank, highest)],
    "scan": lambda bank: bank.scan("winobias").collect().sort(KEY).hash_rows().to_list(),
}


def has_room(bank: Bank) -> bool:
    """Whether all rows of the bank could be in memory at once."""
    size = sum(deposit.layout.queries * deposit.layout.vocab for deposit in bank.deposits())
    try:
        np.empty(size, np.float32)
    except MemoryError:
        return False
    return True


def main(path: str, megabytes: str = "") -> None:
    os.fsync = lambda fd: None  # the filtered bank need not survive a power cut
    threading.stack_size(2**20)  # the limit counts the stacks of threads as data, else 8 MB each
    with tempfile.TemporaryDirectory() as folder:  # what is imported and started by the first use
        small = Bank.create(Path(folder) / "b")
        add_winobias(small, steps=[0, 1], skew_from=1)
        for answer in ANSWERS.values():
            answer(small)
    if megabytes:
        status = Path("/proc/self/status").read_text().splitlines()
        (now,) = [int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")]
        limit = now + int(megabytes) * 2**20
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    bank = Bank.open(path)
    print(json.dumps([has_room(bank), {name: answer(bank) for name, answer in ANSWERS.items()}]))


if __name__ == "__main__":
    main(*sys.argv[1:])
