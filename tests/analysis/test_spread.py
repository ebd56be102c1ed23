"""Analyses whose banks a cluster reads: the numbers of this machine. `test_ray` has a real one."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logitbank
from logitbank.errors import DamagedError, MissingExtraError, UsageError
from logitbank.store import Bank, Filter, Readable, View
from logitbank.store.read.tasks import in_order
from tests.support.command import Call
from tests.support.evaluation_banks import HITS, whole_bank
from tests.support.hidden_banks import hidden_bank
from tests.support.played_cluster import PlayedCluster, RayError

STEPS = len(HITS)
STUDIES: dict[str, tuple[Callable[..., Any], int]] = {
    "fairness": (logitbank.fairness, STEPS),
    "lambada": (logitbank.lambada, STEPS),
    "crows_pairs": (logitbank.crows_pairs, 2),
    "stereotype": (logitbank.stereotype, 2),
    "tradeoff": (logitbank.tradeoff, STEPS),
    "curves": (logitbank.curves, STEPS),
}
"""The function of each, and of how many checkpoints it reads deposits at least."""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return Bank.open(whole_bank(tmp_path_factory.mktemp("spread") / "b"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlayedCluster:
    played = PlayedCluster()
    for module in ("logitbank.store.read.tasks", "logitbank.store.cluster"):
        monkeypatch.setattr(f"{module}.joined", played.joined)
    return played


def view(bank: Bank) -> View:
    values = np.random.default_rng(3)
    return View.of(bank, Filter(values.normal(size=(4, 4)), values.normal(size=4), "keep_tail"))


def assert_same_tables(one: Any, other: Any) -> None:
    assert one.summary == other.summary
    for name, table in one.result.tables().items():
        assert other.result.tables()[name].equals(table, null_equal=True), name


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_the_tables_of_this_machine(
    bank: Bank, cluster: PlayedCluster, name: str
) -> None:
    study, checkpoints = STUDIES[name]
    options = {"bootstrap": 50} if name in ("fairness", "tradeoff") else {}
    here = study(bank, **options)
    assert not cluster.started
    there = study(bank, ray="auto", **options)
    assert len(cluster.started) >= checkpoints
    assert_same_tables(here, there)


def test_a_view_reads_full_rows_on_the_cluster(bank: Bank, cluster: PlayedCluster) -> None:
    here = logitbank.fairness(view(bank), prompts="winobias", bootstrap=0)
    there = logitbank.fairness(view(bank), prompts="winobias", bootstrap=0, ray="auto")
    assert len(cluster.started) == STEPS
    assert_same_tables(here, there)


def test_options_and_layers(tmp_path: Path, cluster: PlayedCluster) -> None:
    bank = hidden_bank(tmp_path / "b", steps=(0, 8), layers=(0, 2, 5))
    for study in (logitbank.options, logitbank.layers):
        before = len(cluster.started)
        assert_same_tables(study(bank), study(bank, ray="auto"))
        assert len(cluster.started) == before + 2
    assert_same_tables(logitbank.curves(bank), logitbank.curves(bank, ray="auto"))


def test_a_scan_is_read_when_it_is_collected(bank: Bank, cluster: PlayedCluster) -> None:
    key = ["step", "prompt_id", "option"]
    frame = bank.scan("winobias", ray="auto")
    assert not cluster.started
    assert frame.collect().sort(key).equals(bank.scan("winobias").collect().sort(key))
    assert len(cluster.started) == STEPS
    last = bank.scan("winobias").filter(step=128, option="male").sort("prompt_id").collect()
    few = frame.filter(step=128, option="male").sort("prompt_id").collect()
    assert few.equals(last)
    assert len(frame.head(5).collect()) == 5


def test_a_report_is_the_page_of_this_machine(
    bank: Bank, cluster: PlayedCluster, tmp_path: Path
) -> None:
    found: list[dict[str, Any]] = [{}, {}]
    for name, ray in ((0, None), (1, "auto")):
        logitbank.report(
            bank, tmp_path / f"{name}.html", bootstrap=0, ray=ray, found=found[name].__setitem__
        )
    assert found[0] == found[1]
    assert len(found[0]) >= 5
    assert len(cluster.started) > 4 * STEPS


def test_commands_take_the_option(bank: Bank, cluster: PlayedCluster, call: Call) -> None:
    here = call("analyze", "fairness", str(bank.path), "--bootstrap", "0")
    assert call("analyze", "fairness", str(bank.path), "--bootstrap", "0", "--ray", "auto") == here
    assert here[0] == 0
    assert len(cluster.started) == STEPS


def test_a_machine_without_the_bank_or_with_another_is_one_line(
    bank: Bank, cluster: PlayedCluster, tmp_path: Path
) -> None:
    shutil.copytree(bank.path, tmp_path / "b")
    opened = Bank.open(tmp_path / "b")
    frame = opened.scan("winobias", ray="auto")
    deposits = opened.deposits_of("winobias")
    # Its prompts stay: Polars reads them beside the scores, and either's loss may be the one told.
    (tmp_path / "b/toy").rename(tmp_path / "away")
    with pytest.raises(UsageError, match=r"does not see .*b/toy/main/.* need the bank at the same"):
        frame.collect()
    (tmp_path / "away").rename(tmp_path / "b/toy")
    other = deposits[0].path.rename(tmp_path / "moved")
    shutil.copytree(deposits[1].path, deposits[0].path)
    with pytest.raises(UsageError, match="has another deposit at "):
        frame.collect()
    assert other.exists()


def test_damage_is_told_as_it_is_here(bank: Bank, cluster: PlayedCluster, tmp_path: Path) -> None:
    shutil.copytree(bank.path, tmp_path / "b")
    opened = Bank.open(tmp_path / "b")
    (file,) = opened.deposits_of("winobias")[0].score_files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedError) as here:
        logitbank.fairness(opened, bootstrap=0)
    with pytest.raises(DamagedError) as there:
        logitbank.fairness(opened, bootstrap=0, ray="auto")
    assert str(there.value) == str(here.value)


def test_a_task_that_is_lost_with_every_machine_is_named(
    bank: Bank, cluster: PlayedCluster
) -> None:
    def lost(*_: object) -> None:
        raise RayError("The node died.\nmore")

    with pytest.raises(logitbank.errors.BankError, match=r"lost 11 times.*\(The node died\.\)"):
        list(in_order(lost, [(bank.deposits()[:1], 0)], ray="auto"))


def test_a_relative_path_is_absolute_elsewhere(
    bank: Bank, cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bank.path.parent)
    opened: Readable = Bank.open("b")
    found = list(
        in_order(lambda deposits, _: deposits, [([d], 0) for d in opened.deposits()], ray="auto")
    )
    assert [d.path for (d,) in found] == [d.path for d in bank.deposits()]
    through = view(Bank.open("b")).deposits()[0].absolute()
    assert through.path.is_absolute()
    assert through.stored.path == through.path


def test_without_ray_the_extra_is_named(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[ray\]"'):
        logitbank.fairness(bank, ray="auto")
