"""The cache of a URL: what was damaged there is fetched again, and said."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logitbank.errors import DamagedError, DiskSpaceError, UsageError
from logitbank.store import Bank
from logitbank.store.share.push import push
from tests.support.fault_points import stopped
from tests.support.file_server import FileServer
from tests.support.preloaded import Preloaded
from tests.support.small_banks import fill, flip, new_bank, spec

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of two steps."""
    folder = tmp_path_factory.mktemp("published")
    bank = new_bank(folder / "bank")
    for step in (0, 1):
        fill(bank, spec(step), seed=step)
    push(bank.path, folder / "www" / "bank")
    return folder / "www"


@pytest.fixture(scope="module")
def running(published: Path) -> Iterator[FileServer]:
    with FileServer(published) as served:
        yield served


@pytest.fixture
def server(running: FileServer) -> FileServer:
    running.behave()
    return running


def answer(bank: Bank) -> str:
    """All that is read through the copy, as text."""
    rows = bank.scan("parity").sort("step", "row", "token").collect()
    sets = sorted(bank.query_sets())
    return f"{rows.write_csv()}{bank.info().write_csv()}{sets}{bank.attributes['title']}"


def copy_of(cache: Path) -> Path:
    (root,) = cache.iterdir()
    return root


def log_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "logitbank"]


DATA = (
    "org%2Fmodel/main/0/q-*/scores/all.parquet",
    "org%2Fmodel/main/1/q-*/scores/all.parquet",
    "prompts/*.parquet",
    "queries/*.parquet",
)
TEXTS = (
    "zarr.json",
    "org%2Fmodel/zarr.json",
    "org%2Fmodel/main/0/q-*/zarr.json",
    "org%2Fmodel/main/0/q-*/logprobs/zarr.json",
    "org%2Fmodel/main/0/q-*/commits/seal.json",
    "org%2Fmodel/main/1/q-*/commits/seal.json",
    "prompts/*.sha256",
    "queries/*.sha256",
)


@pytest.mark.parametrize(
    ("name", "damage"),
    [*zip([*DATA, *TEXTS], 4 * ["flipped", "cut", "gone"], strict=True), (DATA[0], "cut")],
)
def test_damaged_cache_files_are_fetched_again_and_reported(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    (file,) = copy_of(cache).glob(name)
    sound = file.read_bytes()
    if damage == "flipped":
        flip(file)
    elif damage == "cut":
        os.truncate(file, len(sound) - 1)
    else:
        file.unlink()
    caplog.clear()
    assert answer(Bank.open(url)) == expected
    assert file.read_bytes() == sound
    assert log_messages(caplog) == (
        [] if damage == "gone" else [f"{file} was damaged and was fetched again."]
    )
    caplog.clear()
    assert answer(Bank.open(url)) == expected
    assert log_messages(caplog) == []


def test_damage_while_a_bank_is_open_is_refused_and_opening_again_mends_it(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bank = Bank.open(f"{server.url}/bank")
    expected = answer(bank)
    (file,) = copy_of(cache).glob(DATA[0])
    flip(file, 50)
    with pytest.raises(DamagedError, match=r"all\.parquet differs from its commit"):
        answer(bank)
    assert answer(Bank.open(f"{server.url}/bank")) == expected
    assert log_messages(caplog) == [f"{file} was damaged and was fetched again."]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"url": 3}', "gone"])
@pytest.mark.parametrize("name", [".source.json", "index.json.gz"])
def test_a_copy_whose_own_files_are_damaged_is_made_anew(
    server: FileServer, cache: Path, content: bytes | str, name: str
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    file = copy_of(cache) / name
    sound = file.read_bytes()
    file.unlink()
    if isinstance(content, bytes):
        file.write_bytes(content)
    assert answer(Bank.open(url)) == expected
    assert file.read_bytes() == sound


@pytest.mark.parametrize("name", ["prompts", "org%2Fmodel/main/0/q-*/commits/seal.json", ".lock"])
def test_a_copy_that_cannot_be_mended_is_one_error_that_says_what_to_delete(
    server: FileServer, cache: Path, name: str
) -> None:
    url = f"{server.url}/bank"
    Bank.open(url)
    path = next(copy_of(cache).glob(name), copy_of(cache) / name)
    if path.is_dir():
        shutil.rmtree(path)
        path.touch()
    else:
        path.unlink(missing_ok=True)
        (path / "more").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be written.*Delete that folder"):
        Bank.open(url)
    shutil.rmtree(copy_of(cache))
    assert Bank.open(url).info().height == 2


def test_what_the_bank_no_longer_has_goes(published: Path, cache: Path, tmp_path: Path) -> None:
    www = shutil.copytree(published, tmp_path / "www")
    other = new_bank(tmp_path / "other")
    fill(other, spec(7))
    with FileServer(www) as server:
        url = f"{server.url}/bank"
        Bank.open(url)
        shutil.rmtree(www / "bank")
        push(other.path, www / "bank")
        assert Bank.open(url).info()["step"].to_list() == [7]


def test_processes_that_open_one_bank_at_once_copy_it_once(server: FileServer, cache: Path) -> None:
    code = f"from logitbank import open; print(open({server.url + '/bank'!r}).info().height)"
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["2\n"] * 3
    paths = [sent.path for sent in server.log() if "index" not in sent.path]
    assert len(paths) == len(set(paths))


@pytest.mark.whole
def test_a_copy_that_was_killed_is_completed_by_the_next_call(
    preloaded: Preloaded, server: FileServer, cache: Path
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    shutil.rmtree(cache)
    query = ("query", url, "SELECT * FROM scores")
    number = 1
    while stopped(preloaded, f"change:{cache}", number, *query):
        assert answer(Bank.open(url, rows=True)) == expected
        shutil.rmtree(cache)
        number *= 2
    assert number > 8


def test_a_full_cache_disk_is_reported(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskSpaceError("the disk of the cache is full")

    monkeypatch.setattr("logitbank.store.share.local.download", full)
    with pytest.raises(DiskSpaceError, match="the cache is full"):
        Bank.open(f"{server.url}/bank")


def test_an_odd_file_in_the_cache_is_told_as_that_of_the_cache(
    server: FileServer, cache: Path, tmp_path: Path
) -> None:
    Bank.open(f"{server.url}/bank")
    copy = copy_of(cache)
    for name in ("zarr.json", "index.json.gz", "prompts"):
        file = copy / name
        moved = tmp_path / f"moved-{name}"
        file.rename(moved)
        file.symlink_to(moved)
        with pytest.raises(
            UsageError, match=rf"^The copy of {server.url}/bank in {copy} .*Delete that"
        ):
            Bank.open(f"{server.url}/bank")
        file.unlink()
        moved.rename(file)
    Bank.open(f"{server.url}/bank")
