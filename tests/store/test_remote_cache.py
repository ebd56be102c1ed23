"""The cache of a URL: what was damaged there is fetched again, and said."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logitbank.errors import DamagedError, RemoteError
from logitbank.store import Bank
from logitbank.store.files import objects
from logitbank.store.remote.refresh import clear
from logitbank.store.sharing.transfer import push
from tests.support.file_server import FileServer
from tests.support.small_banks import block_data, new_bank, spec

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank with step 0 sealed, and two of three blocks of step 1."""
    folder = tmp_path_factory.mktemp("published")
    bank = new_bank(folder / "bank")
    for step, blocks in ((0, 3), (1, 2)):
        with bank.begin(spec(step)) as writer:
            for block in range(blocks):
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
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


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "logitbank"]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DATA = (
    "org%2Fmodel/main/0/q-*/scores/all.parquet",
    "org%2Fmodel/main/1/q-*/scores/1.parquet",
    "prompts/*.parquet",
    "queries/*.parquet",
)
TEXTS = (
    "zarr.json",
    "org%2Fmodel/zarr.json",
    "org%2Fmodel/main/0/q-*/zarr.json",
    "org%2Fmodel/main/0/q-*/logprobs/zarr.json",
    "org%2Fmodel/main/0/q-*/commits/seal.json",
    "org%2Fmodel/main/1/q-*/commits/0.json",
    "prompts/*.sha256",
    "queries/*.sha256",
)


@pytest.mark.parametrize("name", [*DATA, *TEXTS])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_what_was_damaged_in_the_cache_is_fetched_again_and_said(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    (file,) = copy_of(cache).glob(name)
    sound = file.read_bytes()
    if damage == "flipped":
        flip(file, len(sound) // 2)
    elif damage == "cut":
        os.truncate(file, len(sound) - 1)
    else:
        file.unlink()
    caplog.clear()
    assert answer(Bank.open(url)) == expected
    assert file.read_bytes() == sound
    assert said(caplog) == (
        [] if damage == "gone" else [f"{file} was damaged and was fetched again"]
    )
    caplog.clear()
    assert answer(Bank.open(url)) == expected
    assert said(caplog) == []


@pytest.mark.parametrize("name", [*DATA, "prompts/*.sha256", TEXTS[2], TEXTS[4], TEXTS[5]])
def test_what_is_damaged_while_a_bank_is_open_is_fetched_again(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    bank = Bank.open(f"{server.url}/bank")
    expected = answer(bank)
    (file,) = copy_of(cache).glob(name)
    flip(file, 50)
    assert answer(bank) == expected
    assert said(caplog) == [f"{file} was damaged and was fetched again"]


@pytest.mark.parametrize("name", [*DATA, *TEXTS, ".remote.json", ".lock", "..remote.json.new"])
def test_a_folder_in_the_place_of_a_file_goes_and_the_file_is_fetched_again(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    file = next(copy_of(cache).glob(name), copy_of(cache) / name)
    file.unlink(missing_ok=True)
    (file / "more").mkdir(parents=True)
    if name == "..remote.json.new":
        (copy_of(cache) / ".remote.json").write_text("")
    assert answer(Bank.open(url)) == expected
    assert not file.is_dir()
    again = "is made anew" if name in (".remote.json", ".lock") else "was fetched again"
    if not name.endswith(".new"):
        assert said(caplog) == [f"{file} was damaged and {again}"]
    assert answer(Bank.open(url)) == expected


@pytest.mark.parametrize("name", ["prompts", "org%2Fmodel", "org%2Fmodel/main"])
def test_a_file_in_the_place_of_a_folder_goes(server: FileServer, cache: Path, name: str) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    shutil.rmtree(copy_of(cache) / name)
    (copy_of(cache) / name).touch()
    assert answer(Bank.open(url)) == expected


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"url": 3}', "half", "flipped"])
def test_a_listing_of_any_other_content_is_made_anew(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture, content: bytes | str
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    listing = copy_of(cache) / ".remote.json"
    sound = listing.read_bytes()
    if content == "flipped":
        flip(listing, sound.index(b"127.0.0.1") + 8)  # another server
    else:
        listing.write_bytes(sound[: len(sound) // 2] if isinstance(content, str) else content)
    with pytest.raises(DamagedError, match=r"\.remote\.json is not what was written there; open"):
        Bank.open(copy_of(cache))
    assert answer(Bank.open(url)) == expected
    assert said(caplog) == [f"{listing} was damaged and is made anew"]
    assert json.loads(listing.read_bytes()) == json.loads(sound)


def test_a_listing_that_other_software_wrote_without_a_digest_is_made_anew(
    server: FileServer, cache: Path
) -> None:
    url = f"{server.url}/bank"
    expected = answer(Bank.open(url))
    listing = copy_of(cache) / ".remote.json"
    told = json.loads(listing.read_bytes())
    del told["sha256"]
    listing.write_text(json.dumps(told))
    assert answer(Bank.open(url)) == expected
    assert "sha256" in json.loads(listing.read_bytes())


def test_what_the_bank_no_longer_has_goes_with_a_listing_that_was_lost(
    published: Path, cache: Path, tmp_path: Path
) -> None:
    www = shutil.copytree(published, tmp_path / "www")
    with FileServer(www) as server:
        _other_bank(f"{server.url}/bank", www / "bank", cache, tmp_path)


def _other_bank(url: str, www: Path, cache: Path, tmp_path: Path) -> None:
    Bank.open(url)
    shutil.rmtree(www)
    bank = new_bank(tmp_path / "other")
    with bank.begin(spec(7)) as writer:
        for block in range(3):
            writer.write(block, block_data(writer.layout, block))
        writer.seal()
    push(bank.path, www)
    (copy_of(cache) / ".remote.json").write_text("")
    assert Bank.open(url).info()["step"].to_list() == [7]


@pytest.mark.whole
def test_damage_that_cannot_be_fetched_again_is_one_line(published: Path, cache: Path) -> None:
    with FileServer(published) as server:
        bank = Bank.open(f"{server.url}/bank")
        answer(bank)
    (file,) = copy_of(cache).glob(DATA[0])
    flip(file, 100)
    with pytest.raises(
        RemoteError, match=r"all\.parquet is damaged and cannot be fetched again: ht"
    ):
        answer(bank)


def test_damage_at_the_place_itself_is_named(server: FileServer, cache: Path) -> None:
    bank = Bank.open(f"{server.url}/bank")
    answer(bank)
    (file,) = copy_of(cache).glob(DATA[0])
    flip(file, 100)
    server.behave(change="all.parquet$")
    with pytest.raises(RemoteError, match="does not hold the bytes that its bank lists for it"):
        answer(bank)


def test_the_command_line_says_one_line_on_stderr(server: FileServer, cache: Path) -> None:
    url = f"{server.url}/bank"
    answer(Bank.open(url))
    (file,) = copy_of(cache).glob(DATA[0])
    flip(file, 100)
    code = "from logitbank.cli.main import run; run()"
    query = "SELECT COUNT(*) AS n FROM scores"
    command = [sys.executable, "-c", code, "query", url, query, "--format", "csv"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "n\n36\n")
    assert result.stderr == f"{file} was damaged and was fetched again\n"


def test_files_are_durable_before_they_have_their_names(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves no name over bytes that never reached the disk."""
    durable: set[int] = set()
    named: list[str] = []
    fsync, replace, rename = os.fsync, Path.replace, Path.rename

    def synced(handle: int) -> None:
        durable.add(os.fstat(handle).st_ino)
        fsync(handle)

    def checked(path: Path, target: Path, move: object = None) -> Path:
        assert path.stat().st_ino in durable, target
        named.append(Path(target).name)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", checked)
    monkeypatch.setattr(Path, "rename", checked)
    answer(Bank.open(f"{server.url}/bank"))
    assert rename is not Path.rename
    assert {".remote.json", "zarr.json", "seal.json", "all.parquet"} <= set(named)
    files = [p for p in cache.rglob("*") if p.is_file() and p.name != ".lock"]
    assert {p.stat().st_ino for p in files} <= durable


def test_nothing_is_said_of_a_sound_cache(
    server: FileServer, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "logitbank")
    for _ in range(2):
        answer(Bank.open(f"{server.url}/bank"))
    assert said(caplog) == []
    assert objects.digest(copy_of(cache) / "zarr.json").bytes > 0


def test_threads_that_make_way_for_a_folder_do_not_mind_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between one's look and its removal, another has removed the file and made the folder."""
    place = tmp_path / "model"
    place.touch()
    own = Path.unlink

    def after_another(path: Path, missing_ok: bool = False) -> None:
        own(path)
        path.mkdir()
        own(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", after_another)
    assert clear(tmp_path, "model/zarr.json") == place / "zarr.json"
    assert place.is_dir()
