"""Public data come from the user's folder, or once from the network, checked."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logitbank.engine.prompts.datasets import Dataset, dataset_folder
from logitbank.engine.prompts.known import winobias
from logitbank.engine.prompts.known.winobias import DATASET as WINOBIAS
from logitbank.engine.prompts.registry import prompt_set
from logitbank.errors import LogitbankError, UsageError
from tests.support.command import Call
from tests.support.file_server import FileServer
from tests.support.paths import PUBLIC as DATA

TOY = Dataset(
    name="toy",
    base_url="http://127.0.0.1:9/none",  # nothing listens on the discard port
    files={
        "a.txt": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",  # hello
        "b.txt": "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7",  # world
    },
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server on the loopback address, and the folder that it serves."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder / "b.txt").write_text("world")
    with FileServer(folder) as server:
        yield server.url, folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data folder, no proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for name in ("LOGITBANK_DATA", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "logitbank" / "toy"


def filled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in TOY.files:
        (folder / name).write_text("the user's own")
    return folder


def test_a_named_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = filled(tmp_path / "mine" / "toy")
    theirs = filled(tmp_path / "theirs" / "toy")
    monkeypatch.setenv("LOGITBANK_DATA", str(theirs.parent))
    assert dataset_folder(TOY, data=mine.parent) == mine
    assert dataset_folder(TOY) == theirs


def test_an_incomplete_folder_of_the_user_is_refused(
    home: tuple[str, Path], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (filled(tmp_path / "toy") / "b.txt").unlink()
    with pytest.raises(UsageError, match=r"toy has no b\.txt.*http://127\.0\.0\.1:9/none"):
        dataset_folder(TOY, data=tmp_path)
    monkeypatch.setenv("LOGITBANK_DATA", str(tmp_path / "data"))
    assert dataset_folder(replace(TOY, base_url=home[0])) == cache
    (tmp_path / "data" / "toy").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has no a\.txt, b\.txt"):
        dataset_folder(replace(TOY, base_url=home[0]))


def test_files_are_downloaded_once_and_without_a_word(
    home: tuple[str, Path], cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url, served = home
    assert dataset_folder(replace(TOY, base_url=url)) == cache
    assert {p.name: p.read_text() for p in cache.iterdir()} == {"a.txt": "hello", "b.txt": "world"}
    (served / "a.txt").unlink()
    assert dataset_folder(replace(TOY, base_url=url)) == cache
    assert capfd.readouterr() == ("", "")


def test_a_download_with_another_digest_is_refused_and_not_kept(
    home: tuple[str, Path], cache: Path
) -> None:
    url, served = home
    (served / "b.txt").write_text("moon")
    with pytest.raises(LogitbankError, match=rf"{url}/b\.txt"):
        dataset_folder(replace(TOY, base_url=url))
    assert [p.name for p in cache.iterdir()] == ["a.txt"]


def test_a_changed_cached_file_is_refused_and_not_replaced(
    home: tuple[str, Path], cache: Path
) -> None:
    dataset_folder(replace(TOY, base_url=home[0]))
    (cache / "a.txt").write_text("hellO")
    with pytest.raises(LogitbankError, match=re.escape(str(cache / "a.txt"))):
        dataset_folder(replace(TOY, base_url=home[0]))
    assert (cache / "a.txt").read_text() == "hellO"


def test_a_failed_download_names_the_file_and_other_ways(home: tuple[str, Path]) -> None:
    url, served = home
    (served / "a.txt").unlink()
    for base_url, reason in ((url, "404"), (TOY.base_url, "127.0.0.1")):
        with pytest.raises(LogitbankError, match=rf"{base_url}/a\.txt \(.*{reason}.*--data"):
            dataset_folder(replace(TOY, base_url=base_url))


def test_offline_nothing_is_requested(
    home: tuple[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset_folder(replace(TOY, base_url=home[0]))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert dataset_folder(replace(TOY, base_url=home[0])) == cache
    (cache / "b.txt").unlink()
    with pytest.raises(UsageError, match=f"{re.escape(str(cache))} .*1 file.*logitbank fetch"):
        dataset_folder(replace(TOY, base_url=home[0]))
    assert not (cache / "b.txt").exists()


def test_fetch_brings_prompts_that_are_read_offline(
    call: Call, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (DATA / "winobias").is_dir():
        pytest.skip(f"{DATA / 'winobias'} is not there")
    with FileServer(DATA / "winobias") as server:
        monkeypatch.setattr(winobias, "DATASET", replace(WINOBIAS, base_url=server.url))
        code, out, _ = call("fetch", "--prompts", "winobias:splits=dev")
    assert code == 0
    assert out.startswith("Prompt sets downloaded: winobias:splits=dev")
    assert "logitbank extract BANK --suite SUITE --prompts winobias:splits=dev" in out
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline, named = (prompt_set("winobias:splits=dev", data=data) for data in (None, DATA))
    assert offline == named
    code, _, error = call("prompts", "show", "winobias")
    assert code == 2
    assert re.match(r"logitbank: .*winobias .*2 files.*HF_HUB_OFFLINE", error)


def test_winobias_pins_the_files_as_they_were_published() -> None:
    if not (DATA / "winobias").is_dir():
        pytest.skip(f"{DATA / 'winobias'} is not there")
    found = {
        name: hashlib.sha256((DATA / "winobias" / name).read_bytes()).hexdigest()
        for name in WINOBIAS.files
    }
    assert found == WINOBIAS.files
