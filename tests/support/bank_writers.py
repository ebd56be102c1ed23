"""Processes that write into a bank, for tests of crashes and races. Started with `-m`.

Zarr and Polars start threads at their first use, and threads do not survive a fork: the process
that forks makes no bank, frame or array itself.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr  # noqa: F401 (imported once, before the forks)
import zarrs  # noqa: F401

from logitbank.errors import DiskSpaceError
from logitbank.store import Bank, DepositSpec, verify
from tests.support.fault_points import stop_before
from tests.support.small_banks import block_data, new_bank, spec

_GROUP_IN_MAKING = re.compile(r"([^/]+/){1,3}\.zarr\.json-[0-9a-f]{32}")


def big_spec() -> DepositSpec:
    """Ten blocks of one row: more commits than data."""
    return spec(block_rows=1, vocab=2000)


def write(path: Path, asked: DepositSpec) -> list[bool]:
    with Bank.open(path).begin(asked) as writer:
        done = [writer.write(b, block_data(writer.layout, b)) for b in writer.missing()]
        writer.seal()
    return done


def check(path: Path) -> None:
    """The bank opens, is sound, and every committed block holds what was given."""
    bank = Bank.open(path)
    assert verify(bank) == (), verify(bank)
    for deposit in bank.deposits():
        scores = deposit.scores().collect()
        assert set(scores["query"]) == {r for b in deposit.committed() for r in _rows(deposit, b)}
        for block in deposit.committed():
            expected = block_data(deposit.layout, block).rows
            np.testing.assert_array_equal(deposit.logprobs(_rows(deposit, block)), expected)


def _rows(deposit: object, block: int) -> range:
    return deposit.layout.rows(block)  # type: ignore[attr-defined, no-any-return]


def content(path: Path) -> dict[str, str]:
    """Digest of every file below `path`; of commits, what they vouch for."""
    found = {}
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        data = file.read_bytes()
        if file.parent.name == "commits":
            data = json.dumps({**json.loads(data), "time": None, "sha256": None}).encode()
        found[str(file.relative_to(path))] = hashlib.sha256(data).hexdigest()
    return found


def lost_or_left(path: Path, expected: dict[str, str]) -> set[str]:
    """Files that differ from the expected ones.

    A writer killed between making a group's `zarr.json` and giving it its name leaves a hidden
    file beside it, which nobody may delete: it may be another writer's at work.
    """
    differing = {name for name, _ in expected.items() ^ content(path).items()}
    return {name for name in differing if not _GROUP_IN_MAKING.fullmatch(name)}


def begun(work: Callable[[], object]) -> int:
    """Run in a forked process, of which the id is returned."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except KeyboardInterrupt:
            os._exit(1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid


def forked(work: Callable[[], object]) -> int:
    """Run in a forked process; returns the exit code."""
    return ended(begun(work))


def ended(pid: int) -> int:
    """The exit code of a process that has begun."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_before_changes(folder: Path, stride: str) -> None:
    """Kill a writer before every `stride`-th of its changes, look at the bank, and finish it."""
    asked = spec()
    empty = folder / "empty"
    assert forked(lambda: new_bank(empty)) == 0
    whole = shutil.copytree(empty, folder / "whole")
    assert forked(lambda: write(whole, asked)) == 0
    expected = content(whole)
    change = 1
    while True:
        path = shutil.copytree(empty, folder / f"killed{change}")

        def dying(path: Path = path, change: int = change) -> None:
            stop_before(f"change:{path}", change)
            write(path, asked)

        code = forked(dying)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        assert forked(lambda path=path: (check(path), write(path, asked))) == 0  # type: ignore[misc]
        assert not lost_or_left(path, expected), change
        shutil.rmtree(path)
        change += int(stride)
    print(change)


def stopped_again_and_again(folder: Path, seed: str, by: str) -> None:
    """Stop a writer ten times, each before another of its changes; look each time; finish it."""
    numbers = random.Random(int(seed))
    asked = big_spec()
    path = folder / "stopped"
    assert forked(lambda: new_bank(path)) == 0
    whole = shutil.copytree(path, folder / "whole")
    assert forked(lambda: write(whole, asked)) == 0
    left = []
    for _ in range(10):
        number = numbers.randint(1, 60)

        def stopped(number: int = number) -> None:
            stop_before(f"change:{path}", number, signal.Signals[by])
            write(path, asked)

        forked(stopped)
        assert forked(lambda: check(path)) == 0
        left.append(len(list(path.glob("*/*/*/q-*/logprobs/c/*/0"))))
    assert forked(lambda: (write(path, asked), check(path))) == 0
    assert not lost_or_left(path, content(whole))
    print(left)


def filled_disk(folder: Path, stride_kb: str) -> None:
    """Fill a writer's disk at every so many kB until there is enough; each time look, then finish.

    `folder` is a file system of its own.
    """
    asked = big_spec()
    expected: dict[str, str] = {}
    refused, size_kb = 0, 8
    while True:
        path = folder / "bank"
        assert forked(lambda path=path: new_bank(path)) == 0  # type: ignore[misc]
        os.sync()
        with (folder / "filler").open("wb") as filler:
            free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
            os.posix_fallocate(filler.fileno(), 0, max(1, free - 1024 * size_kb))
        code = forked(lambda path=path: _refused(path, asked))  # type: ignore[misc]
        assert code in (0, FULL), code
        refused += code == FULL
        assert forked(lambda path=path: check(path)) == 0  # type: ignore[misc]
        (folder / "filler").unlink()
        assert forked(lambda path=path: (write(path, asked), check(path))) == 0  # type: ignore[misc]
        expected = expected or content(path)
        assert not lost_or_left(path, expected)
        shutil.rmtree(path)
        if code == 0:
            break
        size_kb += int(stride_kb)
    print(refused)


FULL = 28


def _refused(path: Path, asked: DepositSpec) -> None:
    try:
        write(path, asked)
    except DiskSpaceError as error:
        os._exit(FULL if "is full" in str(error) else 1)


def race(folder: Path) -> None:
    """Two processes write one deposit at once, and print which blocks were theirs."""
    gate, shut = os.pipe()

    def written() -> None:
        os.close(shut)
        os.read(gate, 1)  # ends when nobody holds the other end any more
        with Bank.open(folder).begin(big_spec()) as writer:
            ours = [writer.write(b, block_data(writer.layout, b)) for b in range(10)]
            os.write(1, f"{json.dumps(ours)}\n".encode())  # at once: two write
            writer.seal()

    writers = [begun(written) for _ in range(2)]
    os.close(shut)
    assert [ended(writer) for writer in writers] == [0, 0]


def checkpoints(folder: Path, count: str) -> None:
    """Four processes write `count` checkpoints each at once."""
    each = int(count)

    def written(first: int) -> None:
        for step in range(first, first + each):
            write(folder, spec(step, block_rows=5))

    writers = [begun(lambda first=first: written(first)) for first in range(0, 4 * each, each)]  # type: ignore[misc]
    assert [ended(writer) for writer in writers] == [0] * 4


if __name__ == "__main__":
    work = {
        "killed_before_changes": killed_before_changes,
        "stopped_again_and_again": stopped_again_and_again,
        "filled_disk": filled_disk,
        "race": race,
        "checkpoints": checkpoints,
    }
    work[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])  # type: ignore[operator]
