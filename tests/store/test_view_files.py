"""The files of a view: what vouches for them, what a stopped call leaves, and their damage."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import BankFormatError, DamagedError, LogitbankError, UsageError
from logitbank.store import Bank, CheckpointId, Filter, View, describe, open_bank, repair, verify
from logitbank.store.files import objects
from tests.support.command import Call
from tests.support.small_banks import QUERY_SET, logits, new_bank

BY = Filter(np.array([[1.0, 0.25], [0.5, 1.0]]), np.array([0.125, 0.0]), "keep_tail", {"seed": 3})


def bank(path: Path, *steps: int, shift: float = 0.0) -> Bank:
    made = Bank.open(path) if path.exists() else new_bank(path)
    for step in steps:
        made.deposit(
            logits(step) + np.float32(shift),
            checkpoint=CheckpointId("org/model", step=step),
            query_set=QUERY_SET.name,
            keep="topk:4",
        )
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A view `v` of a bank `b`."""
    View.of(bank(tmp_path / "b", 0, 8), BY, name="filtered").save(tmp_path / "v")
    return tmp_path / "v"


def answers(view: Path) -> list[tuple[object, ...]]:
    key = ["model", "step", "prompt_id", "option"]
    rows = open_bank(view).scan("parity").select(*key, "logprob", "rank").collect()
    return rows.sort(key).rows()


def test_a_view_names_the_bytes_of_its_filter_and_of_its_deposits(saved: Path) -> None:
    content = json.loads((saved / "view.json").read_text())
    data = (saved / "filter.safetensors").read_bytes()
    assert content["filter"] == hashlib.sha256(data).hexdigest()
    documents = sorted((saved.parent / "b").glob("*/*/*/*/zarr.json"))
    assert content["source"] == {
        str(file.parent.relative_to(saved.parent / "b")): hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in documents
    }
    assert len(documents) == 2


def test_another_filter_is_not_taken_for_the_views_own(saved: Path) -> None:
    (saved / "filter.safetensors").unlink()
    Filter.identity(2).save(saved / "filter.safetensors")
    with pytest.raises(DamagedError, match=r"filter\.safetensors is not the filter that this view"):
        open_bank(saved)
    assert [(d.path, d.problem) for d in verify(saved)] == [("filter.safetensors", "changed")]


@pytest.mark.parametrize("folder", [False, True])
def test_a_filter_that_is_gone_is_put_back_and_no_new_one_trained(
    saved: Path, folder: bool
) -> None:
    (saved / "filter.safetensors").unlink()
    if folder:
        (saved / "filter.safetensors").mkdir()
    why = "is no file" if folder else "is not there"
    with pytest.raises(UsageError, match=rf"filter\.safetensors {why}, .*; put back") as refused:
        open_bank(saved)
    assert str(refused.value).endswith("or make the view again with `logitbank debias apply`")
    assert "train" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "[]"])
def test_a_document_that_is_none_has_one_remedy(saved: Path, content: str) -> None:
    (saved / "view.json").write_text(content)
    with pytest.raises(BankFormatError, match=r"no view of a bank \(.*JSON.*\); make") as refused:
        open_bank(saved)
    assert "verify" not in str(refused.value)


def test_another_bank_in_the_place_of_a_views_own_is_refused(saved: Path) -> None:
    shutil.rmtree(saved.parent / "b")
    bank(saved.parent / "b", 0, 8, shift=1.0)
    with pytest.raises(
        BankFormatError, match=r"v was made of another bank than .*b: .*has another deposit there"
    ):
        open_bank(saved)
    assert [(d.path, d.problem) for d in verify(saved)] == [("../b", "swapped")]
    shutil.rmtree(saved.parent / "b")
    bank(saved.parent / "b", 8)
    with pytest.raises(BankFormatError, match=r"another bank .*/0/q-.* has no such deposit"):
        open_bank(saved)


def test_a_bank_that_grows_and_is_described_anew_is_the_same(saved: Path) -> None:
    before = answers(saved)
    bank(saved.parent / "b", 16)
    describe(saved.parent / "b", title="another title")
    after = answers(saved)
    assert [row for row in after if row[1] != 16] == before
    assert len(after) == len(before) * 3 // 2
    assert verify(saved) == ()


def test_a_bank_that_moved_may_be_written_into_a_view(saved: Path) -> None:
    before = answers(saved)
    (saved.parent / "b").rename(saved.parent / "elsewhere")
    assert [(d.path, d.problem) for d in verify(saved)] == [("../b", "missing")]
    file = saved / "view.json"
    file.write_text(file.read_text().replace('"../b"', '"../elsewhere"'))
    assert answers(saved) == before
    file.write_text(file.read_text().replace('"filtered"', '"other"'))
    with pytest.raises(DamagedError, match=r"view\.json is not as it was written: .*only bank may"):
        open_bank(saved)


@pytest.mark.parametrize("name", ["view.json", "filter.safetensors"])
def test_flipped_bits_in_a_view_give_the_same_answers_or_none(saved: Path, name: str) -> None:
    expected, file = answers(saved), saved / name
    sound = file.read_bytes()
    random, refused = np.random.default_rng(0), 0
    for _ in range(150):
        at, bit = random.integers(len(sound)), random.integers(8)
        data = bytearray(sound)
        data[at] ^= 1 << bit
        file.write_bytes(data)
        try:
            assert answers(saved) == expected, (at, bit)
        except LogitbankError:
            refused += 1
    assert refused > 100


def test_a_view_without_digests_opens_and_is_told_by_verification(saved: Path) -> None:
    """As views were written before they had any."""
    before = answers(saved)
    content = json.loads((saved / "view.json").read_text())
    old = {name: content[name] for name in ("format", "bank", "model")}
    (saved / "view.json").write_text(json.dumps(old))
    assert answers(saved) == before
    (damage,) = verify(saved)
    assert "it has no digests, so nothing vouches for the filter or the bank" in str(damage)
    (saved / "view.json").write_text(json.dumps(old | {"filter": content["filter"]}))
    with pytest.raises(DamagedError, match=r"view\.json is not as it was written"):
        open_bank(saved)


def test_a_stopped_save_is_completed_by_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, real = View.of(bank(tmp_path / "b", 0), BY), objects.write_new

    def stopped(path: Path, data: bytes) -> bool:
        if path.name == "view.json":
            raise KeyboardInterrupt
        return real(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(objects, "write_new", stopped)
        with pytest.raises(KeyboardInterrupt):
            view.save(tmp_path / "v")
    left = (tmp_path / "v" / "filter.safetensors").read_bytes()
    (tmp_path / "v" / ".view.json-0123").write_text("half")  # as a kill would leave it
    with pytest.raises(UsageError, match=r"v is there already; choose another folder"):
        View.of(bank(tmp_path / "b"), Filter.identity(2)).save(tmp_path / "v")
    view.save(tmp_path / "v")
    assert (tmp_path / "v" / "filter.safetensors").read_bytes() == left
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == ["filter.safetensors", "view.json"]
    assert verify(tmp_path / "v") == ()
    with pytest.raises(UsageError, match=r"v is there already"):
        view.save(tmp_path / "v")


def test_verify_takes_views_and_exits_as_for_banks(saved: Path, call: Call) -> None:
    code, out, _ = call("verify", saved)
    assert code == 0
    assert f"{saved} is whole, a view of {saved.parent / 'b'}; `logitbank verify " in out
    code, _, error = call("verify", saved, "--repair")
    assert code == 2
    assert "is a view, which is not repaired but made again" in error
    (saved / "more.txt").touch()
    (saved / "filter.safetensors").unlink()
    code, out, _ = call("verify", saved)
    assert code == 1
    assert out.splitlines() == [
        "more.txt: foreign (a view has no such file)",
        "filter.safetensors: missing (what the view is seen through)",
        f"2 damaged objects in {saved}",
    ]


def test_a_view_that_was_not_saved_has_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"was not saved, so it has no files; verify its bank"):
        verify(View.of(bank(tmp_path / "b", 0), BY))


def test_a_view_is_not_repaired(saved: Path) -> None:
    with pytest.raises(UsageError, match=r"is seen through a filter already; use the bank itself"):
        repair(open_bank(saved), ())
