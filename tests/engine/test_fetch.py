"""Downloads: several at once, some ahead, within a budget, and only what is not there."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import logitbank
from logitbank.engine.extract import extract
from logitbank.engine.suites.fetch import fetch
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import Prefetcher, parse_bytes
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.workers.events import Event, Note, Planned, Summary
from logitbank.errors import DiskSpaceError, EngineError, SuiteError, UsageError, WeightsError
from logitbank.store import Bank
from tests.support.command import Call
from tests.support.fakes import FakeBackend, InProcess, questions, write_series
from tests.support.hub_server import HubServer

REPO = "lab/toy"
WEIGHT_BYTES = 100_000
CHECKPOINT_BYTES = WEIGHT_BYTES + len('{"model_type": "gpt_neox"}') + len("{}")
WEIGHTS = r"GET .*/resolve/.*\.safetensors"
DEADLINE_S = 120.0


def write_step(root: Path, step: int, *, repo: str = REPO, content: int | None = None) -> Path:
    """A revision whose weights differ by step; nobody here reads them as such."""
    folder = root / repo / f"step{step}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "gpt_neox"}')
    (folder / "tokenizer.json").write_text("{}")
    number = step if content is None else content
    (folder / "model.safetensors").write_bytes(bytes([number]) * WEIGHT_BYTES)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in range(6):
        write_step(tmp_path / "root", step)
    return tmp_path / "root"


@contextmanager
def prefetcher(hub: Hub, *, budget: int | None = None, ahead: int = 2) -> Iterator[Prefetcher]:
    checkpoints = resolve_suite(REPO, hub=hub).checkpoints
    with Prefetcher(checkpoints, hub, ahead=ahead, disk_budget=budget) as fetching:
        yield fetching
    for thread in fetching._threads:
        thread.join(DEADLINE_S)  # or they ask a server that is gone


def weights_in(folder: Path) -> set[int]:
    """Steps whose weights are below a folder, by their first byte."""
    found = set()
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.stat().st_size == WEIGHT_BYTES:
                found.add(path.read_bytes()[0])
        except OSError:  # deleted meanwhile
            continue
    return found


def cached(hub: Hub) -> set[int]:
    return weights_in(hub.cache_dir / "models--lab--toy" / "blobs")


def budgeted(hub: Hub) -> set[int]:
    return weights_in(hub.cache_dir / "logitbank")


def until(condition: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_first_download_is_told_before_there_is_a_plan(hub, server, tmp_path, monkeypatch):
    """The files here are no model, so that nothing comes after it."""
    events: list[Event] = []
    soon = partialmethod(Prefetcher.folder, after_s=0.01)
    monkeypatch.setattr(Prefetcher, "folder", soon)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    server.pause_s = 0.3
    with pytest.raises(SuiteError):
        extract(
            tmp_path / "b",
            suites=REPO,
            prompts=questions(" the"),
            engine="transformers",
            hub=hub,
            on_event=events.append,
        )
    assert Note("toy step 0: waiting for its download") in events


def test_checkpoints_download_side_by_side_and_no_more_ahead_than_planned(hub, server):
    server.pause_s = 0.5
    with prefetcher(hub, ahead=2) as fetching:
        fetching.plan([1, 3, 5, 0])
        fetching.folder(1)
        until(lambda: cached(hub) == {1, 3, 5})
        time.sleep(0.05)
        assert cached(hub) == {1, 3, 5}
    assert server.most_at_once > 1


def test_leaving_stops_downloads_and_whoever_waits(hub, server):
    server.pause_s = 0.3
    refused: list[str] = []
    with prefetcher(hub) as fetching:
        fetching.plan(range(6))
        waiting = threading.Thread(target=lambda: refused.append(_refusal(fetching)))
        waiting.start()
        until(lambda: server.sending > 0 and bool(fetching._in_use))
    waiting.join(DEADLINE_S)
    assert refused == ["The run is over."]
    assert _refusal(fetching) == refused[0]
    until(lambda: server.sending == 0)
    assert cached(hub) == set()


def _refusal(fetching: Prefetcher) -> str:
    with pytest.raises(EngineError) as refused:
        fetching.folder(0)
    return str(refused.value)


# A budget.


def test_the_next_one_downloads_as_soon_as_there_is_room(hub):
    with prefetcher(hub, budget=2 * CHECKPOINT_BYTES) as fetching:
        fetching.folder(4)
        fetching.plan(range(6))
        fetching.folder(0)
        until(lambda: budgeted(hub) == {0, 1})
        fetching.done(0)
        until(lambda: budgeted(hub) == {1, 2})
        with pytest.raises(AssertionError):
            until(lambda: len(budgeted(hub)) > 2, seconds=0.1)


def test_existing_files_are_neither_counted_nor_deleted(hub, server):
    for step in (0, 1, 2):
        hub.fetch(HubSource(REPO, f"step{step}"))
    with prefetcher(hub, budget=CHECKPOINT_BYTES) as fetching:
        fetching.plan(range(6))
        for index in range(6):
            fetching.folder(index)
            fetching.done(index)
    assert cached(hub) == {0, 1, 2}
    assert budgeted(hub) == set()
    assert server.count(WEIGHTS) == 6


def test_a_download_that_failed_is_raised_where_it_is_needed_and_makes_room(hub, root, server):
    (root / REPO / "step1" / "model.safetensors").unlink()
    server.damaged = 1
    with prefetcher(hub, budget=CHECKPOINT_BYTES) as fetching:
        fetching.plan([0, 1, 2])
        with pytest.raises(WeightsError, match="does not have the SHA-256"):
            fetching.folder(0)
        with pytest.raises(WeightsError, match="step1 contains no weights"):
            fetching.folder(1)
        assert (fetching.folder(2) / "model.safetensors").is_file()


def test_a_failed_download_that_another_worker_declared_done_is_still_raised(hub, root, server):
    (root / REPO / "step0" / "model.safetensors").unlink()
    server.pause_s = 0.2
    messages: list[str] = []

    def wait() -> None:
        with pytest.raises(WeightsError) as failed:
            fetching.folder(0, on_wait=lambda _: fetching.done(0), after_s=0.01)
        messages.append(str(failed.value))

    with prefetcher(hub) as fetching:
        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(5.0)
    assert len(messages) == 2
    assert all("step0 contains no weights" in message for message in messages)


KILLED = """
import sys
from pathlib import Path
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.prefetch import Prefetcher
from logitbank.engine.suites.suites import resolve_suite

hub = Hub(sys.argv[1], Path(sys.argv[2]))
Prefetcher(resolve_suite("lab/toy", hub=hub).checkpoints, hub, disk_budget=10**6).folder(0)
"""


def test_what_a_killed_run_left_is_deleted_by_the_next(hub, server):
    """A process that is killed holds its lock no more; one that goes on does."""
    root = hub.cache_dir / "logitbank"
    server.pause_s = 2.0
    killed = subprocess.Popen([sys.executable, "-c", KILLED, server.endpoint, str(hub.cache_dir)])
    until(lambda: server.sending > 0)
    (left,) = root.iterdir()
    killed.kill()
    killed.wait()
    server.pause_s = 0.0
    with prefetcher(hub, budget=CHECKPOINT_BYTES) as alive:
        assert not left.exists()
        folder = alive.folder(0)
        with prefetcher(hub, budget=CHECKPOINT_BYTES):
            assert folder.is_dir(), "another run uses it"
    assert list(root.iterdir()) == []


def test_sizes_are_read_or_refused():
    sizes = {"100GB": 10**11, "1.5 tb": 15 * 10**11, "500MB": 5 * 10**8, 7: 7}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    for text in ("", "GB", "-1GB", "0", "100 apples", "1e9", "nan", "10GiB"):
        with pytest.raises(UsageError, match="500MB, 100GB or 2TB"):
            parse_bytes(text)


# The command.


def test_fetch_brings_everything_once(hub, server):
    seen: list[tuple[int, int]] = []
    result = logitbank.fetch(REPO, hub=hub, progress=lambda done, total: seen.append((done, total)))
    assert result.complete
    assert len(result.folders) == 6
    # tokenizer and config are the same files in all six
    assert result.bytes == 6 * WEIGHT_BYTES + CHECKPOINT_BYTES - WEIGHT_BYTES
    assert max(seen) == (result.bytes, result.bytes)
    server.requests.clear()
    again = logitbank.fetch(REPO, hub=hub)
    assert again.folders == result.folders
    assert again.bytes == 0
    assert server.count("/resolve/") == 0


def test_fetch_refuses_more_than_the_disk(hub, server, monkeypatch):
    monkeypatch.setattr(
        "logitbank.engine.suites.fetch.shutil.disk_usage", lambda _: type("U", (), {"free": 1000})
    )
    with pytest.raises(DiskSpaceError, match=r"need 600 kB, and .* has 1 kB free"):
        fetch(REPO, hub=hub)
    assert server.count(WEIGHTS) == 0


# Extraction.


@pytest.fixture
def banked(root: Path, backend: FakeBackend) -> None:
    """The checkpoints of the hub can be extracted by the fake engine."""
    shutil.rmtree(root)
    series = write_series(root / REPO, *(f"step{step}" for step in range(5)))
    for step in range(5):
        values = np.full(WEIGHT_BYTES // 4, step, np.float32)
        save_file({"w": values}, series / f"step{step}" / "model.safetensors")


def extracted(path: Path, hub: Hub, **changes: object) -> Summary:
    arguments = {
        "suites": REPO,
        "prompts": questions(" the nurse said"),
        "canary_every": 0,
    } | changes
    return extract(path, engine="transformers", hub=hub, **arguments)  # type: ignore[arg-type]


def test_extraction_within_a_budget_leaves_no_weights_behind(banked, hub, server, tmp_path):
    kept = hub.fetch(HubSource(REPO, "step2"))
    largest: list[int] = []

    def watch(event: Event) -> None:
        largest.append(len(list((hub.cache_dir / "logitbank").rglob("model.safetensors"))))

    with pytest.raises(UsageError, match="files of toy step 0 take .* --disk-budget 50 kB"):
        extracted(tmp_path / "b.zarr", hub, disk_budget="50kB")
    assert not (tmp_path / "b.zarr").exists()
    summary = extracted(tmp_path / "b.zarr", hub, disk_budget="300kB", on_event=watch)
    assert [c.step for c in summary.done] == [0, 1, 2, 3, 4]
    assert 0 < max(largest) <= 2
    assert [*hub.cache_dir.rglob("model.safetensors")] == [kept / "model.safetensors"]
    assert server.count(WEIGHTS) == 5
    assert extracted(tmp_path / "b.zarr", hub, disk_budget="300kB").rows == 0


def test_missing_steps_are_noted_before_a_run(banked, hub, server, tmp_path):
    (server.root / "EleutherAI").mkdir()
    (server.root / REPO).rename(server.root / "EleutherAI" / "pythia-14m")
    events: list[Event] = []
    extracted(tmp_path / "b.zarr", hub, suites="pythia-14m", steps="0:2", on_event=events.append)
    (planned,) = [event for event in events if isinstance(event, Planned)]
    (missing,) = planned.notes
    assert missing.startswith("pythia-14m: missing 150 of 154 steps: 8,")


def test_folders_of_a_repository_are_extracted(banked, hub, server, tmp_path):
    (server.root / "lab" / "folders").mkdir()
    (server.root / REPO).rename(server.root / "lab" / "folders" / "main")
    summary = extracted(tmp_path / "b.zarr", hub, suites="lab/folders", disk_budget="300kB")
    assert [c.step for c in summary.done] == [0, 1, 2, 3, 4]
    deposit = Bank.open(tmp_path / "b.zarr").deposits()[1]
    assert deposit.spec.provenance["source"] == {
        "repo": "lab/folders", "revision": "main", "folder": "step1",
    }  # fmt: skip


def test_the_space_for_downloads_is_not_the_banks(banked, hub, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 450_000})
    monkeypatch.setattr("logitbank.engine.plan.checks.shutil.disk_usage", lambda _: usage)
    prompts = questions(*(f" the nurse said {'he ' * n}" for n in range(12)))
    with pytest.raises(DiskSpaceError, match="450 kB free, of which 400 kB .*--disk-budget"):
        extracted(tmp_path / "b.zarr", hub, prompts=prompts)
    assert extracted(tmp_path / "b.zarr", hub, prompts=prompts, disk_budget="200kB").complete


def test_extraction_after_fetch_sends_no_requests(banked, hub, server, tmp_path, monkeypatch):
    fetch(REPO, steps="0,2,4", hub=hub)
    server.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    summary = extracted(tmp_path / "b.zarr", Hub(cache_dir=hub.cache_dir), steps="0,2,4")
    assert [c.step for c in summary.done] == [0, 2, 4]
    assert server.requests == []


# The command line.


@pytest.fixture
def fetched(
    call: Call, hub: Hub, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Run `logitbank fetch` with the hub that the environment names."""
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    return partial(call, "fetch")


def test_the_command_prints_downloads_failures_and_the_next_command(fetched, root, tmp_path):
    code, out, _ = fetched("--suite", REPO, "--steps", "0:4:2")
    assert code == 0
    assert re.search(r"^3 of 3 checkpoints downloaded \(300 kB in .* s\)\.$", out, re.M)
    command = (
        "HF_HUB_OFFLINE=1 logitbank extract BANK --suite lab/toy --steps 0:4:2 --prompts FILE\n"
    )
    assert command in out
    assert len(list((tmp_path / "elsewhere").glob("models--lab--toy/snapshots/*"))) == 3
    code, out, _ = fetched("--suite", REPO, "--steps", "0:4:2")
    assert code == 0
    assert "3 of 3 checkpoints downloaded (0 B in " in out
    (root / REPO / "step1" / "model.safetensors").unlink()
    code, out, error = fetched("--suite", REPO)
    assert code == 1
    assert "5 of 6 checkpoints downloaded" in out
    assert "Failed: toy step 1: lab/toy at revision step1 contains no weights" in error
