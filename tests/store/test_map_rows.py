"""A function of full rows, in this process and on a played cluster; `test_ray` has a real one."""

from pathlib import Path

import numpy as np
import pytest

import logitbank
from logitbank import Bank, map_rows
from logitbank.errors import BankError, KeepLevelError, UsageError
from logitbank.store import CheckpointId
from tests.support.played_cluster import PlayedCluster
from tests.support.small_banks import QUERY_SET, block_data, logits, new_bank, spec


def entropy(logprobs: np.ndarray) -> np.ndarray:
    return -(np.exp(logprobs) * logprobs).sum(axis=1)


def filled(path: Path, *, steps: int = 3) -> Bank:
    bank = new_bank(path)
    for step in range(steps):
        checkpoint = CheckpointId("org/model", step=step)
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float32")
    return bank


def test_every_row_of_every_deposit_in_order(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b")
    found = list(map_rows(bank, entropy))
    assert [deposit.checkpoint.step for deposit, _ in found] == [0, 1, 2]
    for step, (_, values) in enumerate(found):
        rows = logits(step).astype(np.float64)
        p = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(values, -(p * np.log(p)).sum(axis=1), rtol=1e-5)
    ((only, _),) = map_rows(str(tmp_path / "b"), entropy, steps=1)
    assert only.checkpoint.step == 1


def test_one_block_is_read_at_a_time(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer:
        for block in range(writer.layout.blocks - 1):
            writer.write(block, block_data(writer.layout, block))
    sizes: list[int] = []

    def watched(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return rows[:, :2]

    with pytest.raises(BankError, match="8–9"):
        list(map_rows(bank, watched))
    sizes.clear()
    with bank.begin(spec()) as writer:
        writer.write(2, block_data(writer.layout, 2))
    ((deposit, values),) = map_rows(bank, watched)
    assert sizes == [4, 4, 2]
    np.testing.assert_array_equal(values, deposit.logprobs(tokens=[0, 1]))


def test_invalid_calls(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", steps=1)
    with pytest.raises(UsageError, match=r"\(\)"):
        list(map_rows(bank, lambda rows: rows.mean()))
    with pytest.raises(BankError, match="q-nothing"):
        map_rows(bank, entropy, query_set="q-nothing")
    with pytest.raises(BankError, match="step 7"):
        map_rows(bank, entropy, steps=7)
    logitbank.shrink(bank.path, tmp_path / "small", keep="topk:3")
    with pytest.raises(KeepLevelError):
        list(map_rows(tmp_path / "small", entropy))


def test_a_cluster_returns_the_same_and_starts_two_tasks_per_cpu_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, cluster = filled(tmp_path / "b", steps=9), PlayedCluster()
    monkeypatch.setattr("logitbank.store.read.mapping.joined", cluster.joined)
    found = map_rows(bank, entropy, ray="auto")
    next(found)
    assert len(cluster.started) == 1 + 2 * 3
    found.close()  # type: ignore[attr-defined]
    assert len(cluster.started) == 1 + 2 * 3
    remote = [values for _, values in map_rows(bank, entropy, ray="auto")]
    np.testing.assert_array_equal(remote, [values for _, values in map_rows(bank, entropy)])
