"""Processes that write into a bank, for tests of crashes and races. Started with `-m`.

Zarr and Polars start threads at their first use, and threads do not survive a fork: the process
that forks makes no bank, frame or array itself.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.random  # the parts that forks use, and the next two: imported once, before them
import numpy.testing
import polars as pl
import zarr  # noqa: F401
import zarrs  # noqa: F401

from logitbank.errors import DiskSpaceError
from logitbank.store import (
    Bank,
    DepositSpec,
    Filter,
    apply_filter,
    describe,
    merge,
    repair,
    shrink,
    verify,
)
from logitbank.store.care.damage import Remedy
from logitbank.store.share.push import pull, push
from tests.support import hidden_banks
from tests.support.fault_points import stop_before
from tests.support.small_banks import (
    TOKENIZER,
    block_data,
    fill,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

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
    """The bank opens, and every committed block holds what was given.

    Nothing is damaged, except tables of which only the digest is there yet.
    """
    bank = Bank.open(path)
    assert {each.remedy for each in verify(bank)} <= {Remedy.EXTRACT}, verify(bank)
    for deposit in bank.deposits():
        scores = deposit.scores().collect()
        assert set(scores["query"]) == {r for b in deposit.committed() for r in _rows(deposit, b)}
        for block in deposit.committed() if deposit.layout.keep.level == "full" else ():
            expected = block_data(deposit.layout, block).rows
            np.testing.assert_array_equal(deposit.logprobs(_rows(deposit, block)), expected)


def _rows(deposit: object, block: int) -> range:
    return deposit.layout.rows(block)  # type: ignore[attr-defined, no-any-return]


def content(path: Path) -> dict[str, str]:
    """Digest of every file below `path`; of commits, what they list."""
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


def _repaired(path: Path) -> None:
    bank = Bank.open(path)
    repair(bank, verify(bank))
    for step in (0, 1):
        fill(bank, spec(step))


def _begin(path: Path, command: str) -> Callable[[], object]:
    """A command that changes the bank at `path`, which is made as it is before."""
    source, before = (
        path.with_name("source"),
        {
            "merge": "part",
            "repair": "damaged",
            "write": "empty",
            "rescore": "late",
            "describe": "empty",
        },
    )
    shutil.rmtree(path, ignore_errors=True)
    if command in before:
        shutil.copytree(path.with_name(before[command]), path)
    commands: dict[str, Callable[[], object]] = {
        "push": lambda: push(source, path),
        "pull": lambda: pull(source, path),
        "merge": lambda: merge(path, source),
        "shrink": lambda: shrink(source, path, keep="options"),
        "repair": lambda: _repaired(path),
        "apply": lambda: apply_filter(source, Filter.identity(1), path),
        "write": lambda: write(path, spec()),
        "rescore": lambda: Bank.open(path).rescore(),
        "describe": lambda: describe(path, license="MIT"),
    }
    return commands[command]


def _banks(folder: Path) -> None:
    """Two whole steps with rows and one with states; a part of one; and damage of several kinds."""
    source = new_bank(folder / "source")
    source.add_tokens(TOKENIZER, token_table())
    for step in (0, 1):
        fill(source, spec(step))
    damaged = Bank.open(shutil.copytree(source.path, folder / "damaged"))
    one, other = (deposit.path for deposit in damaged.deposits())
    (one / "logprobs/c/2/0").write_bytes(b"damaged")
    (one / "logsumexp/c/0").unlink()
    (other / "scores/all.parquet").write_bytes(b"damaged")
    next((damaged.path / "tokens").glob("*.sha256")).unlink()
    hidden_banks.fill(source, 5)
    late = Bank.open(shutil.copytree(source.path, folder / "late"))
    late.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))
    fill(new_bank(folder / "part"), spec(1), blocks=[1])
    new_bank(folder / "empty")


def killed_commands(folder: Path, command: str, first: str, stride: str) -> None:
    """Kill a command before a change, and every `stride`-th later; look at its bank; run it again.

    Prints the number of the first change that the command does not have.
    """
    assert forked(lambda: _banks(folder)) == 0
    path = folder / "path"
    assert forked(_begin(path, command)) == 0
    expected = content(path)
    change = int(first)
    while True:
        run = _begin(path, command)

        def dying(run: Callable[[], object] = run, change: int = change) -> None:
            stop_before(f"change:{path}", change)
            run()

        code = forked(dying)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code

        def completing(run: Callable[[], object] = run) -> None:
            if command != "repair" and (path / "zarr.json").exists():
                check(path)
            run()

        assert forked(completing) == 0
        assert not lost_or_left(path, expected), change
        change += int(stride)
    print(change)


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
    os.fsync = lambda fd: None  # a killed process loses nothing that it wrote, synced or not
    work = {
        "killed_commands": killed_commands,
        "filled_disk": filled_disk,
        "race": race,
        "checkpoints": checkpoints,
    }
    work[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])  # type: ignore[operator]
