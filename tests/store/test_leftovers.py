"""What killed writers left is cleared by the next one; a new folder lasts in its parent."""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from logitbank.store import Bank, CheckpointId, Filter, describe, merge, repair, shrink, verify
from logitbank.store.files import locks, objects, staging
from logitbank.store.share.push import pull, push
from tests.support.small_banks import QUERY_SET, logits, new_bank

HEX = "0123456789abcdef0123456789abcdef"


def full_bank(path: Path, step: int = 0) -> Bank:
    bank = new_bank(path)
    checkpoint = CheckpointId("org/model", step=step)
    bank.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)
    return bank


def names(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*"))


def test_describe_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    root = full_bank(tmp_path / "b").path
    sound = names(root)
    (root / f".zarr.json-{HEX}").write_text("half a docu")
    describe(root, title="another")
    assert names(root) == sound
    assert verify(Bank.open(root)) == ()


def test_a_staging_folder_may_go_while_another_writer_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that seals removes its own folder after another one has listed it."""
    deposit = full_bank(tmp_path / "b").deposits()[0].path
    own, glob = staging.Staging(deposit), Path.glob

    def after_removal(folder: Path, pattern: str) -> Iterator[Path]:
        if folder == own.path:
            own.remove()
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", after_removal)
    staging.remove_dead_staging(deposit)
    assert not staging.any_staging(deposit)


CLEARS: dict[str, Callable[[Path, Path], object]] = {
    "merge": lambda bank, source: merge(bank, source),
    "push": lambda bank, source: push(source, bank),
    "pull": lambda bank, source: pull(source, bank),
    "repair": lambda bank, _: repair(Bank.open(bank), verify(Bank.open(bank))),
}


@pytest.mark.parametrize("command", CLEARS)
def test_what_killed_writers_left_is_cleared_and_what_live_ones_hold_stays(
    tmp_path: Path, command: str
) -> None:
    source, bank = full_bank(tmp_path / "a").path, tmp_path / "b"
    pull(source, bank)
    deposit = Bank.open(bank).deposits()[0].path
    CLEARS[command](bank, source)  # a push adds an index
    sound = names(bank)
    for folder in (bank, bank / "prompts", *[*deposit.parents][:3], deposit, deposit / "commits"):
        (folder / f".zarr.json-{HEX}").write_text("half")
    for folder in (bank, deposit):
        (folder / f".staging-{HEX}").mkdir()
        for name in ("owner", "shard"):
            (folder / f".staging-{HEX}" / name).touch()
    (deposit.parent / f".gone-{HEX}").mkdir()
    for lock in (bank / ".lock", bank / ".index.lock", deposit / ".lock"):
        lock.touch()
    live = staging.Staging(bank)
    with locks.locked(deposit.parent / ".lock"):
        CLEARS[command](bank, source)
        assert live.path.exists()
        assert (deposit.parent / ".lock").exists()
    live.remove()
    assert names(bank) == sound


def test_what_a_live_writer_prepares_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / f".zarr.json-{HEX}"
    with file.open("wb") as live:
        fcntl.flock(live, fcntl.LOCK_EX)
        objects.remove_dead_files(tmp_path)
        assert file.exists()
    objects.remove_dead_files(tmp_path)
    assert not file.exists()
    with objects.temporary_file(tmp_path / "x", b"data") as prepared:
        objects.remove_dead_files(tmp_path)
        assert prepared.read_bytes() == b"data"
    assert names(tmp_path) == []


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in (".gitignore", ".a-b", f"zarr.json-{HEX}", f".x-{HEX[:-1]}"):
        (tmp_path / name).touch()
    (tmp_path / f".folder-{HEX}").mkdir()
    (tmp_path / f".link-{HEX}").symlink_to(tmp_path / ".gitignore")
    before = names(tmp_path)
    objects.remove_dead_files(tmp_path)
    assert names(tmp_path) == before


def test_a_new_folder_is_durable_in_its_parent_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = full_bank(tmp_path / "source").path
    synced: list[Path] = []
    real, moments = objects.sync, {}

    def watched(path: Path) -> None:
        synced.append(path)
        moments.setdefault(path, [p for p in tmp_path.glob("*/*/*") if p.is_file()])
        real(path)

    monkeypatch.setattr(objects, "sync", watched)
    makers = {
        "create": lambda to: Bank.create(to),
        "merge": lambda to: merge(to, source),
        "shrink": lambda to: shrink(source, to, keep="topk:2"),
        "push": lambda to: push(source, to),
        "filter": lambda to: Filter(np.eye(2), np.zeros(2)).save(to / "f.safetensors"),
    }
    for name, make in makers.items():
        synced.clear()
        make(tmp_path / name / "bank")
        assert {tmp_path, tmp_path / name} <= set(synced), name
        assert not [p for p in moments[tmp_path / name] if p.parent == tmp_path / name / "bank"]


def test_a_folder_that_is_there_already_is_made_durable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it may have been stopped before that."""
    (tmp_path / "b").mkdir()
    synced: list[int] = []
    real = os.fsync

    def watched(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", watched)
    Bank.create(tmp_path / "b")
    assert tmp_path.stat().st_ino in synced
