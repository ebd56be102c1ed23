"""Kept scores that are damaged, or cannot be written or read, cost a view time and nothing else."""

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from logitbank.store import open_bank, verify
from logitbank.store.files import objects
from tests.support.kept_views import answers, bank, files, saved, watch


@pytest.fixture
def view(tmp_path: Path) -> Path:
    """A view of two checkpoints."""
    return saved(tmp_path, bank(tmp_path / "b", 0, 8))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return watch(monkeypatch)


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def named_by(file: Path, data: bytes) -> None:
    """Other bytes in its place, under their digest."""
    file.unlink()
    (file.parent / f"{objects.digest_of(data).sha256}.parquet").write_bytes(data)


def no_table(file: Path) -> None:
    named_by(file, b"no table at all")


def other_columns(file: Path) -> None:
    pl.read_parquet(file).drop("logit").write_parquet(file)
    named_by(file, file.read_bytes())


def stored_types(file: Path) -> None:
    pl.read_parquet(file).cast({"logit": pl.Float32}).write_parquet(file)
    named_by(file, file.read_bytes())


def a_link(file: Path) -> None:
    file.symlink_to(file.rename(file.parents[3] / "elsewhere"))


def gone(file: Path) -> None:
    shutil.rmtree(file.parents[1])


@pytest.mark.parametrize(
    "damage", [flipped, cut, emptied, no_table, other_columns, stored_types, a_link, gone]
)
def test_what_is_damaged_is_computed_again(
    view: Path, computed: list[int], damage: Callable[[Path], None]
) -> None:
    expected = answers(view)
    damage(files(view)[0])
    computed.clear()
    assert answers(view).equals(expected)
    assert 1 <= len(computed) <= 2
    if damage in (flipped, cut, emptied, a_link, gone):  # it takes the place of what was there
        computed.clear()
        assert answers(view).equals(expected)
        assert computed == []
        assert verify(view) == ()


def test_a_folder_in_place_of_a_file_costs_time_alone(view: Path, computed: list[int]) -> None:
    expected = answers(view)
    for file in files(view):
        file.unlink()
        file.mkdir()
    computed.clear()
    for _ in range(2):
        assert answers(view).equals(expected)
    assert sorted(computed) == [0, 0, 8, 8]


def test_verification_tells_what_is_not_as_it_was_kept(view: Path) -> None:
    answers(view)
    first, second = files(view)
    flipped(first)
    (second.parent / "notes.txt").touch()
    (view / "scores" / "notes.txt").touch()
    found = {(damage.path, damage.problem) for damage in verify(view)}
    assert found == {
        (first.relative_to(view).as_posix(), "changed"),
        (f"scores/{second.parent.name}/notes.txt", "foreign"),
        ("scores/notes.txt", "foreign"),
    }
    shutil.rmtree(view / "scores")
    assert verify(view) == ()


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), OSError(30, "ro"), OSError(28, "full")]
)
def test_what_cannot_be_written_is_not_kept(
    view: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(objects, "beside", refused)
    assert answers(view).equals(answers(view))
    assert sorted(computed) == [0, 0, 8, 8]
    assert files(view) == []


def test_what_cannot_be_read_is_computed(
    view: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, real = answers(view), objects.digest

    def refused(path: Path) -> objects.Digest:
        if path.parent.parent.name == "scores":
            raise PermissionError(13, "no", str(path))
        return real(path)

    monkeypatch.setattr(objects, "digest", refused)
    computed.clear()
    assert answers(view).equals(expected)
    assert sorted(computed) == [0, 8]


@pytest.mark.parametrize("what", ["a file", "a link"])
def test_what_is_no_folder_is_not_written_into(view: Path, computed: list[int], what: str) -> None:
    elsewhere = view.parent / "elsewhere"
    elsewhere.mkdir()
    if what == "a link":
        (view / "scores").symlink_to(elsewhere)
    else:
        (view / "scores").write_text("mine")
    assert answers(view).equals(answers(view))
    assert sorted(computed) == [0, 0, 8, 8]
    assert list(elsewhere.iterdir()) == []
    assert what == "a link" or (view / "scores").read_text() == "mine"


def test_a_full_disk_fails_no_scan(small_disk: Path, tmp_path: Path, computed: list[int]) -> None:
    view = saved(small_disk, bank(tmp_path / "b", 0, 8))
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(bytes(12 * 2**20))
    assert answers(view).equals(answers(view))
    assert sorted(computed) == [0, 0, 8, 8]
    assert not any(file.is_file() for file in (view / "scores").rglob("*"))
    (small_disk / "filler").unlink()
    assert answers(view).equals(answers(view))
    assert len(computed) == 6


def test_a_view_that_is_deleted_meanwhile_stays_so(view: Path) -> None:
    opened = open_bank(view)
    shutil.rmtree(view)
    assert len(opened.scan("parity").collect()) == 40
    assert not view.exists()


def test_what_a_killed_writer_left_is_removed(view: Path) -> None:
    answers(view)
    file = files(view)[0]
    left = file.with_name(f".{file.name}-{'ab' * 16}")
    file.rename(left)
    answers(view)
    assert not left.exists()
    assert file.exists()
