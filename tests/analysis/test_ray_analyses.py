"""Analyses on a real Ray cluster of three nodes, of which one is killed while they work.

`make test` has what needs no cluster: `test_spread`.
"""

import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logitbank
from logitbank.errors import DamagedError, UsageError
from logitbank.store import Bank, Deposit, Filter, View
from logitbank.store.read.tasks import in_order
from tests.support.evaluation_banks import HITS, whole_bank
from tests.support.marks import long
from tests.support.ray_cluster import add_node, ray_cluster

SECONDS = 0.4

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes are killed as on Linux"),
    # Ray's own: its sockets and processes end when the cluster does.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return Bank.open(whole_bank(tmp_path_factory.mktemp("ray") / "b"))


def view(bank: Bank) -> View:
    values = np.random.default_rng(3)
    return View.of(bank, Filter(values.normal(size=(4, 4)), values.normal(size=4), "keep_tail"))


def noted(work: Callable[..., Any], folder: Path, deposits: Sequence[Deposit], rest: Any) -> Any:
    """The work, and a file that says where it was begun; on a node to be killed it does not end."""
    raylet, start = os.getppid(), time.monotonic()
    begun = folder / f"{raylet}-{uuid.uuid4().hex}.begun"
    begun.touch()
    while (took := time.monotonic() - start) < SECONDS or (folder / f"{raylet}").exists():
        assert took < 60, "the node lives"
        time.sleep(0.01)
    begun.rename(begun.with_suffix(".done"))
    return work(deposits, rest)


class Losing:
    """`in_order`, which kills a node of the cluster that is at work when two tasks are done."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self.tasks = 0

    def __call__(self, work: Any, tasks: Any, *, ray: str | None, **_: Any) -> Iterator[Any]:
        assert ray == "auto"
        killing = threading.Thread(target=self._kill_one_at_work)
        killing.start()
        for result in in_order(partial(noted, work, self._folder), tasks, ray=ray):
            self.tasks += 1
            yield result
        killing.join()

    def _kill_one_at_work(self) -> None:
        young: list[Path] = []
        while not young:
            time.sleep(0.01)
            if len(list(self._folder.glob("*.done"))) >= 2:
                young = [file for file in self._folder.glob("*.begun") if _age(file) < SECONDS / 2]
        raylet = int(young[0].name.partition("-")[0])
        (self._folder / f"{raylet}").touch()
        (node,) = (
            n
            for n in self._cluster.worker_nodes
            if n.all_processes["raylet"][0].process.pid == raylet
        )
        self._cluster.remove_node(node, allow_graceful=False)


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:  # done meanwhile
        return np.inf


@pytest.mark.parametrize("name", ["fairness", long("fairness of a view"), "curves", "map_rows"])
def test_a_node_is_killed_and_the_numbers_are_those_of_one_machine(
    cluster: Any, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked: Any = view(bank) if name.endswith("view") else bank
    where = {
        "curves": "logitbank.analysis.families.curves.metric",
        "map_rows": "logitbank.store.read.mapping",
    }.get(name, "logitbank.store.read.together")

    (queries,) = {deposit.query_set for deposit in bank.deposits_of("winobias")}

    def found(**ray: Any) -> list[Any]:
        if name == "map_rows":

            def highest(rows: np.ndarray) -> np.ndarray:
                return rows.max(axis=1)

            return [
                values.tolist()
                for _, values in logitbank.map_rows(bank, highest, query_set=queries, **ray)
            ]
        if name == "curves":
            study = logitbank.curves(asked, prompts=["winobias"], **ray)
        else:
            study = logitbank.fairness(asked, prompts="winobias", **ray)
        return [study.summary, *(table.rows() for table in study.result.tables().values())]

    here = found()
    losing = Losing(cluster, tmp_path)
    monkeypatch.setattr(f"{where}.in_order", losing)
    try:
        there = found(ray="auto")
    finally:
        add_node(cluster)
    assert repr(there) == repr(here)
    assert losing.tasks == len(HITS)
    assert len(list(tmp_path.glob("*.begun"))) == 1, "what the node was at"
    assert len(list(tmp_path.glob("*.done"))) >= losing.tasks


def test_messages_are_those_of_this_machine(cluster: Any, bank: Bank, tmp_path: Path) -> None:
    shutil.copytree(bank.path, tmp_path / "b")
    opened = Bank.open(tmp_path / "b")
    frame = opened.scan("winobias", ray="auto")
    (file,) = opened.deposits_of("winobias")[3].score_files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedError) as there:
        frame.collect()
    with pytest.raises(DamagedError) as here:
        opened.scan("winobias")
    assert str(there.value) == str(here.value)
    shutil.rmtree(tmp_path / "b/toy")  # its prompts stay: Polars may read them first
    with pytest.raises(UsageError, match="does not see .* at the same path on one file system"):
        frame.collect()
