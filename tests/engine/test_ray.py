"""A real Ray cluster of several nodes on this machine: workers and nodes are killed meanwhile.

`make test` has what needs no cluster.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank import map_rows
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.workers import ray_worker
from logitbank.engine.workers.events import BlockCommitted, Event, Note
from logitbank.engine.workers.ray_worker import RayPool, WorkerResources
from logitbank.errors import MissingExtraError, UsageError
from logitbank.store import Bank, verify
from logitbank.store.cluster import joined
from tests.support.checkpoints import make_series
from tests.support.paths import ROOT
from tests.support.preloaded import Preloaded, processes_from_servers
from tests.support.ray_cluster import add_node, ray_cluster
from tests.support.resolved import run
from tests.support.run_driver import LARGE_BLOCK_ROWS, OPTIONS, PROMPTS, extraction
from tests.support.run_driver import assert_same as assert_sound

STEPS = (0, 1, 2)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    # Ray's own: its sockets and processes end when the cluster does.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def cluster(preloaded: Preloaded) -> Iterator[Any]:
    """One node, and what tests add."""
    with preloaded.workers("transformers"):
        with ray_cluster(1, worker_process_setup_hook=processes_from_servers) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_series(tmp_path_factory.mktemp("ray") / "tiny", steps=STEPS)


@pytest.fixture(scope="module")
def local_run(series: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Bank:
    """What an extraction without Ray gives."""
    path = tmp_path_factory.mktemp("whole") / "b.zarr"
    with preloaded.workers("transformers"):
        assert run(path, extraction(series, block_rows=PROMPTS)).complete
    return Bank.open(path)


def assert_same(path: Path, local_run: Bank) -> None:
    assert_sound(path, local_run)
    bank = Bank.open(path)
    assert not list(path.rglob(".staging*"))
    assert not list(path.parent.glob(f"{path.name}.run-*"))
    assert bank.query_sets() == local_run.query_sets()
    keys = ["step", "prompt_id", "option"]
    scores = [b.scan("mine").sort(keys).collect() for b in (bank, local_run)]
    assert len(scores[0]) == len(STEPS) * PROMPTS * len(OPTIONS)
    for column in (*keys, "token", "rank", "ties"):
        assert scores[0][column].equals(scores[1][column])


class Watch:
    """Collects events, and does something once after so many blocks."""

    def __init__(self, action: Callable[[], object] = lambda: None, *, after: int = 3) -> None:
        self.notes: list[str] = []
        self.rows = 0
        self._left, self._action = after, action

    def __call__(self, event: Event) -> None:
        match event:
            case Note(text=text):
                self.notes.append(text)
            case BlockCommitted(rows=rows):
                self.rows += rows
                self._left -= 1
                if self._left == 0:
                    self._action()


def actors(cluster: Any) -> dict[int, Any]:
    """Processes of the workers that live in this cluster, and their nodes; the oldest first."""
    nodes = {n.all_processes["raylet"][0].process.pid: n for n in cluster.worker_nodes}
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and b"ray::Actor" in (entry / "cmdline").read_bytes():
                (parent,) = re.findall(r"^PPid:\s+(\d+)", (entry / "status").read_text(), re.M)
                if int(parent) in nodes:
                    found[int(entry.name)] = nodes[int(parent)]
    return dict(sorted(found.items()))


@pytest.mark.whole
def test_the_bank_is_the_one_of_a_run_without_ray(
    cluster: Any, tmp_path: Path, series: Path, local_run: Bank
) -> None:
    watch = Watch()
    second = add_node(cluster)
    try:
        summary = run(
            tmp_path / "b",
            extraction(series, ray="auto", block_rows=LARGE_BLOCK_ROWS),
            on_event=watch,
        )
    finally:
        cluster.remove_node(second)
    assert summary.complete
    assert summary.workers == 2, "one for each node that takes work"
    assert summary.rows == len(STEPS) * PROMPTS
    assert watch.notes == []
    assert_same(tmp_path / "b", local_run)


@pytest.mark.whole
def test_the_bank_is_complete_after_killed_workers_and_a_killed_node(
    cluster: Any, tmp_path: Path, series: Path, local_run: Bank
) -> None:
    add_node(cluster)

    def kill_the_workers() -> None:  # Of one alone, it may be the one that has no work yet.
        for actor in actors(cluster):
            os.kill(actor, signal.SIGKILL)

    def lose_a_node() -> None:
        add_node(cluster)
        cluster.remove_node(next(iter(actors(cluster).values())), allow_graceful=False)

    first = Watch(kill_the_workers, after=3)
    second = Watch(lose_a_node, after=40)

    def watch(event: Event) -> None:
        first(event)
        second(event)

    try:
        summary = run(
            tmp_path / "b",
            extraction(series, workers=2, ray="auto"),
            on_event=watch,
        )
    finally:
        cluster.remove_node(next(iter(cluster.worker_nodes)))
    assert summary.complete
    assert first.notes, "a worker that has no work when it is lost leaves none to tell of"
    assert all(
        f"its worker on {socket.gethostname()} is gone" in note and "retrying" in note
        for note in first.notes
    ), first.notes
    # A commit whose event was lost with its machine is in the bank, and is not made again.
    assert summary.rows <= len(STEPS) * PROMPTS
    assert_same(tmp_path / "b", local_run)


@pytest.mark.whole
def test_sigterm_stops_after_the_blocks_at_hand_and_a_run_without_ray_goes_on(
    cluster: Any, tmp_path: Path, series: Path, local_run: Bank
) -> None:
    watch = Watch(lambda: os.kill(os.getpid(), signal.SIGTERM))
    summary = run(tmp_path / "b", extraction(series, workers=1, ray="auto"), on_event=watch)
    assert summary.interrupted
    assert summary.failed == []
    assert 0 < summary.rows < len(STEPS) * PROMPTS
    bank = Bank.open(tmp_path / "b")
    assert not verify(bank)
    assert sum(deposit.rows_committed for deposit in bank.deposits()) == summary.rows
    rest = run(tmp_path / "b", extraction(series))
    assert rest.complete
    assert rest.rows == len(STEPS) * PROMPTS - summary.rows
    assert_same(tmp_path / "b", local_run)


@pytest.mark.whole
def test_a_machine_that_does_not_see_the_bank_is_named(
    cluster: Any, tmp_path: Path, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(RayPool):
        marker = tmp_path / "b.run-elsewhere"

    monkeypatch.setattr(ray_worker, "RayPool", Elsewhere)
    monkeypatch.setattr(ray_worker, "Actor", Impatient)
    summary = run(tmp_path / "b", extraction(series, workers=1, ray="auto"))
    (failed,) = summary.failed
    name = socket.gethostname()
    assert f"{name} does not see the bank {tmp_path / 'b'} of the machine that" in failed.message
    assert "(b.run-elsewhere is absent)" in failed.message


class Impatient(ray_worker.Actor):
    def start(self) -> str:
        ray_worker.VISIBLE_S = 0.1
        return super().start()


@pytest.mark.whole
def test_a_function_of_all_rows_runs_on_the_cluster(cluster: Any, local_run: Bank) -> None:
    found = list(map_rows(local_run, lambda rows: rows.max(axis=1), steps=[0, 2], ray="auto"))
    assert [deposit.checkpoint.step for deposit, _ in found] == [0, 2]
    for deposit, values in found:
        np.testing.assert_array_equal(values, deposit.logprobs().max(axis=1))


@pytest.mark.whole
def test_joining_leaves_signals_as_they_were_and_asks_for_no_statistics(cluster: Any) -> None:
    code = """
import os, signal, sys
from logitbank.store.cluster import joined
mine = lambda *_: None
signal.signal(signal.SIGTERM, mine)
with joined(sys.argv[1]) as ray:
    assert signal.getsignal(signal.SIGTERM) is mine
    assert len(ray.nodes()) >= 2
assert not ray.is_initialized()
assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
try:
    with joined("127.0.0.1:9"):
        pass
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = os.environ | {"RAY_gcs_rpc_server_connect_timeout_s": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code, cluster.address],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert "UsageError No Ray cluster can be joined at '127.0.0.1:9'" in result.stdout


def test_invalid_parallel_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ParallelConfig.detect(ray="auto") == ParallelConfig(0, ray="auto")
    assert ParallelConfig.detect(workers=3, ray="h:1") == ParallelConfig(3, ray="h:1")
    with pytest.raises(UsageError, match="--workers 0 is invalid"):
        ParallelConfig.detect(workers=0, ray="auto")
    with pytest.raises(UsageError, match="neither GPUs nor CPUs yet"):
        WorkerResources.plan([{"CPU": 0}])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[ray\]"'):
        with joined("auto"):
            pass


def test_places_follow_gpus_and_else_machines() -> None:
    def planned(*nodes: dict[str, float], workers: int = 0) -> tuple[int, ...]:
        return astuple(WorkerResources.plan(nodes, workers))

    gpus = {"CPU": 2.0}, {"CPU": 64.0, "GPU": 4.0}, {"CPU": 32.0, "GPU": 2.0}
    assert planned(*gpus) == (6, 1, 0, 16)
    assert planned({"CPU": 0.0}, {"CPU": 8.0}, {"CPU": 16.0}) == (2, 0, 8, 8)
    assert planned({"CPU": 8.0}, {"CPU": 8.0}, workers=3) == (3, 0, 4, 4)
    assert planned({"CPU": 1.0}, workers=3) == (3, 0, 1, 1), "two of them wait"
