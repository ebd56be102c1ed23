"""Banks that are written from other banks: where they may be, and what else they have."""

from collections.abc import Callable
from pathlib import Path

import pytest

from logitbank.errors import BankFormatError, UsageError
from logitbank.store import Bank, Filter, apply_filter, merge, shrink
from logitbank.store.share.push import pull
from tests.support.small_banks import fill, new_bank, spec

WRITERS: dict[str, Callable[[Path, str], object]] = {
    "shrink": lambda bank, out: shrink(bank, out, keep="options"),
    "apply_filter": lambda bank, out: apply_filter(bank, Filter.identity(1), out, name="new"),
    "merge": lambda bank, out: merge(out, bank),
    "pull": pull,
}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    made = new_bank(tmp_path / "b")
    fill(made, spec(0))
    return made.path


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:9/x", "s3://bucket/x"])
def test_a_url_is_no_folder_to_write_to(
    bank: Path, writer: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bank.parent)
    with pytest.raises(UsageError, match="created in a folder") as error:
        WRITERS[writer](bank, url)
    assert "secret" not in str(error.value)
    assert [path.name for path in bank.parent.iterdir()] == ["b"]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_with_other_files_is_left_alone(bank: Path, tmp_path: Path, writer: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    with pytest.raises(BankFormatError, match="no zarr.json"):
        WRITERS[writer](bank, str(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("writer", ["shrink", "apply_filter"])
def test_the_new_bank_has_no_groups_without_results(
    bank: Path, tmp_path: Path, writer: str
) -> None:
    WRITERS[writer](bank, str(tmp_path / "new"))
    made = Bank.open(tmp_path / "new")
    groups = {path.parent for path in made.path.rglob("zarr.json")} - {made.path}
    (deposit,) = made.deposits()
    for group in groups:
        assert group in (deposit.path, *deposit.path.parents) or deposit.path in group.parents
