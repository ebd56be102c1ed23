"""What a push into a folder, and a pull, leave there: whole, or to be continued."""

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logitbank.errors import BankFormatError, DamagedError
from logitbank.store import Bank, CheckpointId, repair, verify
from logitbank.store.files import locks, staging
from logitbank.store.share.card import MARK
from logitbank.store.share.push import pull, push
from tests.support.made_once import made_once
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    made = Bank.create(
        tmp_path / "b", title="A <b>bank</b> & more", licence="CC0-1.0", citation="Me <me@x>, 2026"
    )
    made.add_query_set(QUERY_SET)
    made.add_prompts("parity", prompt_table())
    for step in (0, 8):
        checkpoint = CheckpointId("org/model", step=step)
        made.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)
    return made


@made_once
def _twelve(path: Path) -> None:
    made = new_bank(path)
    made.add_tokens(TOKENIZER, token_table())
    for step in range(12):
        with made.begin(spec(step)) as writer:
            for block in writer.missing():
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()


@pytest.fixture
def twelve(tmp_path: Path) -> Bank:
    """Twelve deposits of three blocks each, of over a hundred objects."""
    return Bank.open(_twelve(tmp_path / "twelve"))


def objects_of(root: Path) -> dict[str, bytes]:
    """Objects of a bank, without its index and card."""
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if name not in ("index.json.gz", "README.md")
    }


def test_a_card_is_kept_current_until_its_owner_takes_it(tmp_path: Path, bank: Bank) -> None:
    www = tmp_path / "www"
    push(bank.path, www, steps="0")
    assert "| 0 to 0 |" in (www / "README.md").read_text()
    text = (www / "README.md").read_text()
    assert MARK in text
    assert "# A &lt;b&gt;bank&lt;/b&gt; &amp; more" in text.splitlines()
    assert "Replace https://… with the address of this folder:" in text
    push(bank.path, www)
    assert "| 0 to 8 |" in (www / "README.md").read_text()
    (www / "README.md").write_text("mine")
    push(bank.path, www)
    assert (www / "README.md").read_text() == "mine"


def test_a_bank_that_is_pulled_has_no_card(tmp_path: Path, bank: Bank) -> None:
    push(bank.path, tmp_path / "www")
    pull(tmp_path / "www", tmp_path / "back")
    assert {p.name for p in (tmp_path / "back").iterdir()} == {p.name for p in bank.path.iterdir()}
    assert Bank.open(tmp_path / "back").info().equals(bank.info())


def test_locks_of_a_pull_that_was_killed_go_with_the_next_and_others_stay(
    tmp_path: Path, bank: Bank
) -> None:
    back = tmp_path / "back"
    pull(bank.path, back)
    dead, held = (deposit.path / ".lock" for deposit in Bank.open(back).deposits())
    for file in (dead, back / ".lock"):
        file.touch()
    with locks.locked(held):
        assert pull(bank.path, back).objects == 0
        assert held.exists()
    assert list(back.rglob(".lock")) == []


def test_a_lost_object_is_damage_to_whoever_pushes(tmp_path: Path, bank: Bank) -> None:
    for i, lost in enumerate(("prompts/*.parquet", "*/main/8/*/logprobs/c/0/0", "*/scores/*")):
        file = next(bank.path.rglob(lost))
        data = file.read_bytes()
        file.unlink()
        with pytest.raises(DamagedError, match=file.name):
            push(bank.path, tmp_path / f"to{i}")
        file.write_bytes(data)
    push(bank.path, tmp_path / "to")
    assert verify(tmp_path / "to") == ()


def test_a_folder_with_parts_of_a_bank_says_how_to_go_on(tmp_path: Path, bank: Bank) -> None:
    parts = tmp_path / "parts"
    push(bank.path, parts)
    document = (parts / "zarr.json").read_bytes()
    (parts / "zarr.json").unlink()
    for call in (Bank.open, lambda to: push(bank.path, to), lambda to: pull(bank.path, to)):
        with pytest.raises(BankFormatError, match=r"parts of a bank.*Copy zarr\.json"):
            call(parts)
    (parts / "zarr.json").write_bytes(document)
    assert push(bank.path, parts).objects == 0
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(BankFormatError, match=r"no bank: it has no zarr\.json; check the path"):
        Bank.open(tmp_path / "photos")


KILLED = """
import os, sys
from logitbank.store.share.push import {call}
from logitbank.store.share import targets
place, left = targets.Folder._place, int(sys.argv[3])
def counted(self, prepared, path, value):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    place(self, prepared, path, value)
targets.Folder._place = counted
{call}(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("call", ["push", "pull"])
@pytest.mark.parametrize("placed", [0, 1, 3, 30, 100])
def test_a_copy_killed_while_it_places_files_is_resumed(
    tmp_path: Path, twelve: Bank, call: str, placed: int
) -> None:
    command = [
        sys.executable,
        "-c",
        KILLED.format(call=call),
        str(twelve.path),
        str(tmp_path / "to"),
    ]
    assert subprocess.run([*command, str(placed)]).returncode == 9
    assert Bank.open(tmp_path / "to").path.is_dir(), "it is a bank from the first file on"
    assert list((tmp_path / "to").glob(".staging-*"))
    assert subprocess.run([*command, "-1"]).returncode == 0
    assert objects_of(tmp_path / "to") == objects_of(twelve.path)
    assert verify(tmp_path / "to") == ()


@pytest.mark.whole
@pytest.mark.parametrize("call", ["push", "pull"])
def test_a_copy_killed_at_any_moment_is_resumed(tmp_path: Path, twelve: Bank, call: str) -> None:
    code = f"import sys; from logitbank.store.share.push import {call}; {call}(*sys.argv[1:])"
    chosen = random.Random(call)
    killed = 0
    for attempt in range(4):
        to = tmp_path / f"to{attempt}"
        command = [sys.executable, "-c", code, str(twelve.path), str(to)]
        for _ in range(3):
            process = subprocess.Popen(command, stderr=subprocess.PIPE)
            while not to.exists() and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chosen.uniform(0, 0.6))
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
            assert process.stderr is not None
            assert process.stderr.read() == b""
            process.stderr.close()
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert objects_of(to) == objects_of(twelve.path)
        assert verify(to) == ()
    assert killed > 4


@pytest.mark.parametrize("pair", range(3))
def test_two_pushes_into_a_new_folder_at_once_lose_and_mix_nothing(
    tmp_path: Path, twelve: Bank, pair: int
) -> None:
    other = new_bank(tmp_path / "other")
    other.add_tokens(TOKENIZER, token_table())
    for step in (100, 101, 102):
        with other.begin(spec(step)) as writer:
            for block in writer.missing():
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
    to = tmp_path / "to"
    code = "import sys; from logitbank.store.share.push import push; push(*sys.argv[1:])"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(one.path), str(to)])
        for one in (twelve, other)
    ]
    assert [process.wait() for process in running] == [0, 0]
    assert objects_of(to) == objects_of(other.path) | objects_of(twelve.path)
    assert verify(to) == ()
    assert push(twelve.path, to).objects == 0


def test_threads_that_push_the_same_and_others_at_once_lose_nothing(
    tmp_path: Path, twelve: Bank
) -> None:
    to = tmp_path / "to"
    with ThreadPoolExecutor(4) as pool:
        for steps in ("0:5:1", "3:8:1", "0:11:1"):
            pool.submit(push, twelve.path, to, steps=steps)
    push(twelve.path, to)
    assert objects_of(to) == objects_of(twelve.path)
    assert verify(to) == ()


def test_what_dead_writers_left_goes_with_a_repair_and_what_live_ones_prepare_stays(
    tmp_path: Path, bank: Bank
) -> None:
    root, hexes = bank.path, "0123456789abcdef" * 2
    before = objects_of(root)
    deposit = bank.deposits()[0].path
    for folder in (root, deposit, root / "prompts", deposit / "commits", deposit / "logprobs"):
        (folder / f".zarr.json-{hexes}").write_text("half")  # as of a killed shrink
    for folder in (root, deposit):
        (folder / f".staging-{hexes}").mkdir()
        (folder / f".staging-{hexes}" / "owner").touch()
        (folder / f".staging-{hexes}" / "shard").touch()
    (deposit.parent / f".gone-{hexes}").mkdir()
    live = staging.Staging(root)
    (live.path / "shard").touch()
    repair(bank, verify(bank))
    assert (live.path / "shard").exists()
    live.remove()
    assert objects_of(root) == before
    assert not list(root.rglob(".*"))
