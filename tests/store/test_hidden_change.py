"""Banks that keep states: later options, filters, joins, smaller copies, results over all rows."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.comparison.compare import compare
from logitbank.errors import BankError, DamagedError, KeepLevelError
from logitbank.store import Bank, Filter, Keep, apply_filter, merge, repair, shrink, verify
from logitbank.store.format import layout as layouts
from logitbank.store.format.index import object_head
from logitbank.store.heads.stored import StoredHead
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.share.targets import Folder
from tests.support.hidden_banks import (
    fill,
    head,
    hidden_bank,
    states,
    true_logits,
    true_logprobs,
)
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    VOCAB,
    logits,
    new_bank,
    prompt_table,
    spec,
)

TRUTH = true_logprobs(head(), states())


def late(bank: Bank) -> None:
    """Prompts that name tokens 0 and 3, which no score lists."""
    bank.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))


def test_later_options_are_ranked_among_the_products(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    late(bank)
    (deposit,) = bank.rescore()
    scores = deposit.scores().filter(~pl.col("exact")).collect().sort("query", "token")
    assert scores["token"].to_list() == [0, 3] * QUERIES
    raw = true_logits(head(), states())
    np.testing.assert_allclose(scores["logit"].to_numpy(), raw[:, [0, 3]].ravel(), atol=1e-5)
    ranks = [1 + int((row > row[token]).sum()) for row in raw for token in (0, 3)]
    assert scores["rank"].to_list() == ranks
    assert scores["ties"].to_list() == [0] * 2 * QUERIES
    assert missing_options(deposit) is None
    assert bank.rescore() == []
    found = bank.scan("late").collect()
    assert found.height == 2 * QUERIES
    assert verify(bank) == ()


def test_rows_are_worked_out_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = hidden_bank(tmp_path / "b")
    monkeypatch.setattr(layouts, "COMPUTED_BYTES", 3 * 4 * VOCAB)
    (deposit,) = bank.deposits()
    assert [len(piece) for piece in deposit.layout.row_ranges] == [3, 1, 3, 1, 2]
    seen: list[int] = []

    def entropy(logprobs: np.ndarray) -> np.ndarray:
        seen.append(len(logprobs))
        return np.asarray(-(np.exp(logprobs) * logprobs).sum(axis=1))

    ((_, values),) = logitbank.map_rows(bank, entropy)
    assert seen == [3, 1, 3, 1, 2]
    np.testing.assert_allclose(values, -(np.exp(TRUTH) * TRUTH).sum(axis=1), atol=1e-5)
    late(bank)
    (deposit,) = bank.rescore()
    assert deposit.scores().filter(~pl.col("exact")).collect().height == 2 * QUERIES


def test_a_filter_changes_what_states_give(tmp_path: Path) -> None:
    bank, by = hidden_bank(tmp_path / "b"), Filter(np.eye(3) / 2, np.ones(3))
    shrink(bank.path, tmp_path / "full", keep="full")
    found = []
    for source in (bank.path, tmp_path / "full"):
        apply_filter(source, by, tmp_path / f"{source.name} filtered")
        (deposit,) = Bank.open(tmp_path / f"{source.name} filtered").deposits()
        found.append(deposit.scores().collect())
    one, other = found
    assert one.drop("logit", "logsumexp").equals(other.drop("logit", "logsumexp"))
    np.testing.assert_allclose(one["logit"], other["logit"], atol=2e-6)


def test_states_compare_as_rows_do(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    shrink(bank.path, tmp_path / "full", keep="full")
    found = compare(bank.path, tmp_path / "full").result.logits
    assert found.select("kept_a", "kept_b").row(0) == ("hidden float32", "full float32")
    assert found["entries"].item() == QUERIES * VOCAB
    assert found["max_logit_difference"].item() < 1e-6
    assert found["rounding"].item() < 1e-5


def test_states_become_full_rows(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b", steps=(0, 1))
    shrink(bank.path, tmp_path / "full", keep="full")
    full = Bank.open(tmp_path / "full")
    (deposit, other) = full.deposits()
    assert (deposit.layout.keep, deposit.layout.dtype) == (Keep("full"), "float32")
    np.testing.assert_allclose(deposit.logprobs(), TRUTH, atol=2e-6)
    np.testing.assert_allclose(other.logprobs(), true_logprobs(head(2), states(1)), atol=2e-6)
    assert deposit.scores().collect().equals(bank.deposits()[0].scores().collect())
    assert not (full.path / "heads").exists()
    assert verify(full) == ()
    assert bank.deposits()[0].layout.blocks == 3  # of four rows; full rows have blocks of their own
    assert deposit.layout.blocks == 1


def test_states_become_the_highest_entries_and_options(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    late(bank)
    shrink(bank.path, tmp_path / "top", keep="topk:3")
    (deposit,) = Bank.open(tmp_path / "top").deposits()
    top = deposit.scores().filter(pl.col("kind") == "top").collect().sort("query", "rank")
    order = np.argsort(-TRUTH, axis=1)[:, :3]
    assert top["token"].to_list() == order.ravel().tolist()
    listed = deposit.option_scores().collect()
    assert listed.height == 4 * QUERIES  # tokens 0 and 3 too, which nobody can read any more
    with pytest.raises(KeepLevelError, match="keeps topk:3"):
        deposit.logprobs()
    assert verify(Bank.open(tmp_path / "top")) == ()
    shrink(bank.path, tmp_path / "options", keep="options")
    (deposit,) = Bank.open(tmp_path / "options").deposits()
    assert str(deposit.layout.keep) == "options"


def test_states_become_narrow_and_keep_their_head(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    shrink(bank.path, tmp_path / "narrow", dtype="float16")
    narrow = Bank.open(tmp_path / "narrow")
    (deposit,) = narrow.deposits()
    assert (str(deposit.layout.keep), deposit.layout.dtype) == ("hidden", "float16")
    np.testing.assert_allclose(deposit.logprobs(), TRUTH, atol=2e-6)
    assert verify(narrow) == ()


def test_no_states_can_be_made_of_rows(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(), checkpoint=spec().checkpoint, query_set=QUERY_SET.name)
    with pytest.raises(KeepLevelError, match="keeps full, from which hidden cannot be made"):
        shrink(bank.path, tmp_path / "out", keep="hidden")


def test_a_merge_brings_heads(tmp_path: Path) -> None:
    first = hidden_bank(tmp_path / "a", blocks=range(1), seal=False)
    second = hidden_bank(tmp_path / "c", steps=(0, 1))
    merge(first.path, second.path)
    (deposit, other) = first.deposits()
    assert deposit.sealed
    assert other.sealed
    np.testing.assert_allclose(deposit.logprobs(), TRUTH, atol=2e-6)
    np.testing.assert_allclose(other.logprobs(), true_logprobs(head(2), states(1)), atol=2e-6)
    assert verify(first) == ()
    assert merge(first.path, second.path).bytes == 0


@pytest.mark.parametrize("placed", range(5))
def test_a_part_of_a_head_that_a_killed_merge_left_is_completed_by_an_extraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placed: int
) -> None:
    source, place, left = hidden_bank(tmp_path / "a"), Folder._place, placed

    def killed(self: Folder, path: str, *others: Any) -> None:
        nonlocal left
        if object_head(path) and left == 0:
            raise KeyboardInterrupt
        left -= bool(object_head(path))
        place(self, path, *others)

    bank = new_bank(tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_place", killed)
        with pytest.raises(KeyboardInterrupt):
            merge(bank.path, source.path)
    assert verify(bank) == ()
    assert StoredHead.open(bank.path, bank.put_head(head())).missing() == []


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("", "lost"),
        ("zarr.json", "cut"),
        ("weight/c/0/0", "cut"),
        ("weight/c/0/0", "flipped"),
        ("bias/c/0", "lost"),
    ],
)
def test_a_merge_restores_a_lost_or_damaged_head(tmp_path: Path, part: str, how: str) -> None:
    bank = hidden_bank(tmp_path / "a")
    merge(tmp_path / "copy", bank.path)
    file = bank.path / "heads" / head().digest / part
    if how == "lost":
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes(data[:-5] if how == "cut" else data[:3] + bytes([data[3] ^ 1]) + data[4:])
    (deposit,) = bank.deposits()
    with pytest.raises(DamagedError, match="heads/"):
        deposit.logprobs()
    assert deposit.scores().collect().height == 3 * QUERIES
    if how == "flipped":  # a merge compares sizes alone
        repair(bank, verify(bank))
    assert merge(bank.path, tmp_path / "copy").bytes > 0
    (deposit,) = bank.deposits()
    np.testing.assert_allclose(deposit.logprobs(), TRUTH, atol=2e-6)
    assert verify(bank) == ()
    assert merge(bank.path, tmp_path / "copy").bytes == 0


def test_other_states_or_rows_are_not_joined(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "a")
    other = new_bank(tmp_path / "c")
    fill(other, 0, dtype="float16")
    with pytest.raises(BankError, match="dtype is float16, not float32"):
        merge(bank.path, other.path)
    rows = new_bank(tmp_path / "d")
    made = {"weights": "ab" * 32, "engine": "test"}
    rows.deposit(
        true_logits(head(), states()),
        checkpoint=spec().checkpoint,
        query_set=QUERY_SET.name,
        provenance=made,
    )
    with pytest.raises(BankError, match="keep is full, not hidden.*logitbank shrink"):
        merge(bank.path, rows.path)


def test_a_head_is_counted_with_the_first_deposit_that_names_it(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b", steps=(0, 1))
    (of_first,) = bank.deposits()[0].spec.heads.values()
    with_heads = bank.info()["bytes"].to_list()
    sizes = {
        path.name: sum(f.stat().st_size for f in path.glob("*/**/*") if f.is_file())
        for path in (bank.path / "heads").iterdir()
        if path.is_dir()
    }
    assert min(sizes.values()) > 100
    shutil.rmtree(bank.path / "heads")
    without = bank.info()["bytes"].to_list()
    assert with_heads[0] - without[0] == sizes[of_first]
    assert sum(with_heads) - sum(without) == sum(sizes.values())
