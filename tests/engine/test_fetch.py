"""Downloads: several at once, continued, within a budget, and only what is not there."""

import fcntl
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import logitbank
from logitbank.engine.extract import extract
from logitbank.engine.hub.blobs import Claim
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.patience import Patience, waits_told
from logitbank.engine.suites.budget import parse_bytes
from logitbank.engine.suites.fetch import fetch
from logitbank.engine.suites.fetcher import Fetcher
from logitbank.engine.suites.suites import Suite, resolve_suite
from logitbank.engine.workers.events import Event, Note, Summary
from logitbank.errors import DiskSpaceError, EngineError, SuiteError, UsageError, WeightsError
from logitbank.store.remote.retry_after import seconds_to_wait
from tests.engine.test_extract import questions, write_series
from tests.support.checkpoints import VOCAB
from tests.support.command import Call
from tests.support.fakes import FakeBackend, InProcess
from tests.support.hub_server import HubServer

REPO = "lab/toy"
WEIGHT_BYTES = 100_000
WEIGHTS = r"GET .*/resolve/.*\.safetensors"
QUICK = Patience(tries=4, first_s=0.01)
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


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in range(6):
        write_step(tmp_path / "root", step)
    return tmp_path / "root"


@pytest.fixture
def server(root: Path) -> Iterator[HubServer]:
    with HubServer(root, gated={"lab/closed"}) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path) -> Hub:
    return Hub(server.endpoint, cache_dir=tmp_path / "cache", patience=QUICK)


def suite(hub: Hub) -> Suite:
    return resolve_suite(REPO, hub=hub)


@contextmanager
def fetcher(
    hub: Hub, *, budget: int | None = None, ahead: int = 2, parallel: int = 2
) -> Iterator[Fetcher]:
    with Fetcher(
        suite(hub).checkpoints,
        hub,
        legacy_weights=False,
        ahead=ahead,
        parallel=parallel,
        disk_budget=budget,
    ) as fetching:
        yield fetching
    for thread in fetching._threads:
        thread.join(DEADLINE_S)  # or they ask a server that is gone


def weights_here(hub: Hub) -> set[int]:
    """Steps whose weights are in the cache, told by their first byte."""
    blobs = hub.cache_dir.glob("models--*/blobs/*")
    return {b.read_bytes()[0] for b in blobs if b.stat().st_size == WEIGHT_BYTES}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_asked_for_when_all_is_over_is_refused(tmp_path: Path) -> None:
    """Also what waited for room, or for a thread, at that moment."""
    checkpoints = resolve_suite(str(write_series(tmp_path / "tiny", "step0"))).checkpoints
    with Fetcher(checkpoints, None, legacy_weights=False, parallel=0) as nobody_fetches:
        asked = threading.Thread(target=lambda: refused.append(_refusal(nobody_fetches)))
        refused: list[str] = []
        asked.start()
        until(lambda: bool(nobody_fetches._waiting))
    asked.join(DEADLINE_S)
    assert refused == ["the run is over; nothing more is fetched for it"]
    assert _refusal(nobody_fetches) == refused[0]


def _refusal(fetcher: Fetcher) -> str:
    with pytest.raises(EngineError) as refused:
        fetcher.folder(0)
    return str(refused.value)


def test_a_download_that_is_waited_for_is_told_once(hub: Hub, server: HubServer) -> None:
    told: list[str] = []
    server.pause_s = 0.5
    with fetcher(hub) as fetching:
        fetching.folder(0, on_wait=told.append, after_s=0.01)
        fetching.folder(0, on_wait=told.append, after_s=0.01)
    assert told == ["toy step 0: waiting for its download"]


def test_a_file_that_another_process_fetches_is_waited_for_and_that_is_told(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.engine.hub.blobs.LONG_S", 0.01)
    (blob,) = hub.blobs(REPO, "step3")
    blob.part.parent.mkdir(parents=True)
    told: list[str] = []
    with blob.part.open("ab") as theirs, waits_told(told.append):
        fcntl.flock(theirs, fcntl.LOCK_EX)
        waiting = threading.Thread(target=hub.fetch, args=(REPO, "step3"))
        waiting.start()
        until(lambda: bool(told))
        fcntl.flock(theirs, fcntl.LOCK_UN)
        waiting.join(DEADLINE_S)
    (text,) = told
    assert text == (
        f"model.safetensors is on its way in another process ({blob.part}); waiting for it"
    )
    assert blob.present


def test_a_server_s_limit_is_told_once_to_the_listener_that_came_last() -> None:
    outer: list[str] = []
    told: list[str] = []
    patience = Patience()
    with waits_told(outer.append):
        with waits_told(told.append):
            for seconds in (300.0, 299.0, 3.0):
                patience._all_wait(seconds)
    patience._all_wait(900.0)
    assert (outer, told) == (
        [],
        ["the server limits requests and asks to wait; going on in 300 s"],
    )


def test_an_answer_that_fails_is_told_where_the_next_try_is_long_in_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logitbank.engine.hub.patience.time.sleep", lambda _: None)
    told: list[str] = []

    def fails() -> None:
        raise ConnectionError("no route\nto it")

    with waits_told(told.append), pytest.raises(ConnectionError):
        Patience(tries=5).call(fails, lambda _: 0)
    assert told == ["no route; asking again in 8 s, 4 of 5 tries"]


def test_the_first_download_is_told_before_there_is_a_plan(
    hub: Hub, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files here are no model, so that nothing comes after it."""
    real, events = Fetcher.folder, list[Event]()
    soon = partialmethod(real, after_s=0.01)
    monkeypatch.setattr(Fetcher, "folder", soon)
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    server.pause_s = 0.3
    with pytest.raises(SuiteError):
        extract(
            tmp_path / "b",
            suite=REPO,
            prompts=questions(" the"),
            engine="transformers",
            hub=hub,
            on_event=events.append,
        )
    assert events[0] == Note("toy step 0: waiting for its download")


# What the hub refuses for now, and what breaks.


def test_a_connection_that_breaks_is_continued_where_it_broke(hub: Hub, server: HubServer) -> None:
    server.broken = 1
    came: list[int] = []
    folder = hub.fetch(REPO, "step3", on_bytes=came.append)
    assert (folder / "model.safetensors").read_bytes() == bytes([3]) * WEIGHT_BYTES
    assert sum(came) == WEIGHT_BYTES, "no byte came twice"
    assert server.count(WEIGHTS) == 2


def test_what_a_killed_process_had_is_not_fetched_again(hub: Hub, server: HubServer) -> None:
    (blob,) = hub.blobs(REPO, "step3")
    blob.part.parent.mkdir(parents=True)
    blob.part.write_bytes(bytes([3]) * 70_000)
    came: list[int] = []
    folder = hub.fetch(REPO, "step3", on_bytes=came.append)
    assert sum(came) == 30_000
    assert (folder / "model.safetensors").read_bytes() == bytes([3]) * WEIGHT_BYTES
    assert not blob.part.exists()


def test_a_damaged_part_is_fetched_anew(hub: Hub) -> None:
    (blob,) = hub.blobs(REPO, "step3")
    blob.part.parent.mkdir(parents=True)
    blob.part.write_bytes(bytes([9]) * 70_000)
    folder = hub.fetch(REPO, "step3")
    assert (folder / "model.safetensors").read_bytes() == bytes([3]) * WEIGHT_BYTES


def test_content_that_is_not_its_digests_is_refused(
    hub: Hub, root: Path, server: HubServer
) -> None:
    hub.files(REPO, "step3")
    (root / REPO / "step3" / "model.safetensors").write_bytes(bytes([4]) * WEIGHT_BYTES)
    with pytest.raises(WeightsError, match=r"model\.safetensors came twice with another content"):
        hub.fetch(REPO, "step3")
    assert weights_here(hub) == set()
    assert server.count("GET .*model.safetensors") == 2


def test_a_file_that_came_damaged_is_fetched_once_more(hub: Hub, server: HubServer) -> None:
    told: list[str] = []
    server.damaged = 1
    with waits_told(told.append):
        folder = hub.fetch(REPO, "step3")
    assert (folder / "model.safetensors").read_bytes() == bytes([3]) * WEIGHT_BYTES
    assert server.count("GET .*model.safetensors") == 2
    assert told == ["model.safetensors came with another content than its digest says; once more"]


def test_a_stopped_transfer_leaves_its_part(hub: Hub, server: HubServer) -> None:
    def stop(_: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        hub.fetch(REPO, "step3", on_bytes=stop)
    (blob,) = hub.blobs(REPO, "step3")
    assert 0 < blob.part.stat().st_size <= WEIGHT_BYTES
    assert blob.left == WEIGHT_BYTES - blob.part.stat().st_size


@pytest.mark.parametrize(
    "ask", [lambda hub: hub.revisions(REPO), lambda hub: hub.fetch(REPO, "step1")]
)
def test_a_hub_that_limits_requests_is_waited_for_as_long_as_it_says(
    hub: Hub, server: HubServer, ask: Callable[[Hub], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr("logitbank.engine.hub.patience.time", clock)
    server.limited, server.retry_after = 2, "0.2"
    start = time.monotonic()
    ask(hub)
    assert time.monotonic() - start >= 0.4
    assert max(pauses) <= 0.2, "its own pauses are of a second and more"


def test_a_limit_holds_for_every_thread() -> None:
    patience, answers, start = Patience(), [ConnectionError()], time.monotonic()
    times: list[float] = []

    def ask() -> None:
        times.append(time.monotonic() - start)
        if answers:
            raise answers.pop()

    first = threading.Thread(target=patience.call, args=(ask, lambda _: 0.3))
    first.start()
    until(lambda: len(times) == 1 and patience._not_before > 0)
    patience.call(ask, lambda _: None)
    first.join()
    assert times[0] < 0.3 <= min(times[1:])


def test_a_limit_that_does_not_end_says_so(hub: Hub, server: HubServer) -> None:
    server.limited, server.retry_after = 99, "0.01"
    with pytest.raises(SuiteError, match=r"limits requests \(status 429\).*HF_TOKEN raises"):
        hub.revisions(REPO)
    assert server.count(".") == QUICK.tries


def test_a_wait_beyond_all_patience_is_not_begun(hub: Hub, server: HubServer) -> None:
    server.limited, server.retry_after = 1, "100000"
    with pytest.raises(SuiteError, match="limits requests"):
        hub.revisions(REPO)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30),
        ({"Retry-After": "Wed, 21 Oct 2026 07:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({"RateLimit": '"resolvers";r=0;t=113'}, 113),
        ({"RateLimit": '"resolvers";r=5;t=113'}, 0),
        ({}, 0),
    ],
)
def test_what_a_server_says_of_waiting_is_read(headers: dict[str, str], seconds: float) -> None:
    assert seconds_to_wait(headers, datetime(2026, 10, 21, 7, 28, tzinfo=UTC)) == seconds


def test_a_hub_that_has_answered_before_is_waited_for(root: Path, tmp_path: Path) -> None:
    with HubServer(root) as server:
        hub = Hub(server.endpoint, cache_dir=tmp_path, patience=Patience(tries=4, first_s=0.1))
        hub.revisions(REPO)
    start = time.monotonic()
    with pytest.raises(SuiteError, match="cannot reach"):
        hub.revisions(REPO)
    assert time.monotonic() - start >= 0.7, "tries after 0.1, 0.2 and 0.4 s"


def test_a_gated_model_says_what_to_do(
    hub: Hub, root: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_step(root, 1, repo="lab/closed")
    where = f"{server.endpoint}/lab/closed"
    with pytest.raises(SuiteError, match=f"accept its licence on {where} and set HF_TOKEN, or run"):
        hub.fetch("lab/closed", "step1")
    monkeypatch.setenv("HF_TOKEN", "someone-else")
    with pytest.raises(SuiteError, match=f"this token has no access: accept its lic.* on {where} "):
        hub.fetch("lab/closed", "step1")
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert hub.fetch("lab/closed", "step1")


def test_what_is_here_is_used_while_the_hub_is_out_of_reach(root: Path, tmp_path: Path) -> None:
    with HubServer(root) as server:
        hub = Hub(server.endpoint, cache_dir=tmp_path / "cache", patience=QUICK)
        folder = hub.fetch(REPO, "step1")
    away = Hub(server.endpoint, cache_dir=tmp_path / "cache", patience=QUICK)
    assert away.fetch(REPO, "step1") == folder
    with pytest.raises(SuiteError, match="cannot reach"):
        away.fetch(REPO, "step2")


# Several at once, some ahead.


def test_checkpoints_download_side_by_side(hub: Hub, server: HubServer) -> None:
    server.pause_s = 0.2
    with fetcher(hub, ahead=6, parallel=3) as fetching:
        fetching.plan(range(6))
        for index in range(6):
            fetching.folder(index)
    assert server.most_at_once == 3


def test_no_more_than_planned_is_fetched_ahead(hub: Hub, server: HubServer) -> None:
    with fetcher(hub, ahead=2) as fetching:
        fetching.plan([1, 3, 5, 0])
        until(lambda: weights_here(hub) == {1, 3})
        fetching.folder(1)
        until(lambda: weights_here(hub) == {1, 3, 5})
        time.sleep(0.05)
        assert weights_here(hub) == {1, 3, 5}


def test_the_next_checkpoint_is_read_while_one_runs(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(Fetcher, "_read_weights", lambda self, folder: read.append(folder))
    with fetcher(hub) as fetching:
        fetching.plan([0, 1, 2])
        fetching.folder(0)
        until(lambda: len(read) == 1)
        assert fetching.folder(1) == read[0]
        until(lambda: len(read) == 2)


def test_weights_are_read_only_where_memory_is_plenty(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hub.fetch(REPO, "step1")
    opened: list[Path] = []
    plain = Path.open

    def watched(self: Path, *args: object, **kwargs: object) -> object:
        opened.append(self)
        return plain(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", watched)
    with fetcher(hub) as fetching:
        for free, expected in ((2 * WEIGHT_BYTES - 1, 0), (2 * WEIGHT_BYTES, 1)):
            monkeypatch.setattr(
                "logitbank.engine.suites.fetcher.available_bytes", lambda free=free: free
            )
            opened.clear()
            fetching._read_weights(folder)
            assert sum(path.suffix == ".safetensors" for path in opened) == expected


def test_a_fetch_that_fails_is_raised_where_it_is_asked_for(hub: Hub, root: Path) -> None:
    (root / REPO / "step1" / "model.safetensors").unlink()
    with fetcher(hub) as fetching:
        fetching.plan([0, 1, 2])
        fetching.folder(0)
        with pytest.raises(WeightsError, match="step1 holds no weights"):
            fetching.folder(1)
        fetching.folder(2)


def test_leaving_stops_downloads(hub: Hub, server: HubServer) -> None:
    server.pause_s = 0.3
    with fetcher(hub) as fetching:
        fetching.plan(range(6))
        until(lambda: server.most_at_once == 2)
    until(lambda: server.sending == 0)
    time.sleep(0.1)
    assert weights_here(hub) == set()


# A budget.


def test_a_budget_is_never_exceeded_and_everything_is_fetched(hub: Hub) -> None:
    most = 0
    with fetcher(hub, budget=2 * WEIGHT_BYTES + 50_000, ahead=3, parallel=3) as fetching:
        fetching.plan(range(6))
        for index in range(6):
            folder = fetching.folder(index)
            assert (folder / "model.safetensors").read_bytes()[0] == index
            most = max(most, *(len(weights_here(hub)) for _ in range(5)))
            fetching.done(index)
            assert not (folder / "model.safetensors").is_symlink()
            assert (folder / "tokenizer.json").is_file()
    assert most == 2
    assert weights_here(hub) == set()


def test_the_next_one_downloads_as_soon_as_there_is_room(hub: Hub) -> None:
    with fetcher(hub, budget=2 * WEIGHT_BYTES) as fetching:
        fetching.plan(range(6))
        fetching.folder(0)
        until(lambda: weights_here(hub) == {0, 1})
        fetching.done(0)
        until(lambda: weights_here(hub) == {1, 2})


def test_what_the_user_had_is_neither_counted_nor_evicted(hub: Hub) -> None:
    for step in (0, 1, 2):
        hub.fetch(REPO, f"step{step}")
    (part,) = hub.blobs(REPO, "step4")
    part.part.write_bytes(bytes([4]) * 10)
    with fetcher(hub, budget=WEIGHT_BYTES) as fetching:
        fetching.plan(range(6))
        for index in range(6):
            fetching.folder(index)
            fetching.done(index)
    assert weights_here(hub) == {0, 1, 2, 4}


def test_a_blob_of_another_snapshot_survives(hub: Hub, root: Path) -> None:
    write_step(root, 7, content=1)
    with fetcher(hub, budget=2 * WEIGHT_BYTES) as fetching:
        fetching.plan([1, 2])
        fetching.folder(1)
        other = Hub(hub.endpoint, cache_dir=hub.cache_dir).fetch(REPO, "step7")
        fetching.done(1)
        fetching.folder(2)
        fetching.done(2)
    assert (other / "model.safetensors").read_bytes()[0] == 1
    assert weights_here(hub) == {1}


def test_twins_of_one_run_share_their_room(hub: Hub, root: Path, server: HubServer) -> None:
    write_step(root, 6, content=5)
    with fetcher(hub, budget=WEIGHT_BYTES) as fetching:
        fetching.plan([5, 6])
        fetching.folder(5)
        until(lambda: 6 in fetching._futures and fetching._futures[6].done())
        fetching.done(5)
        assert (fetching.folder(6) / "model.safetensors").read_bytes()[0] == 5
        fetching.done(6)
    assert server.count(WEIGHTS) == 1
    assert weights_here(hub) == set()


def test_a_budget_below_one_checkpoint_names_both_sizes(hub: Hub, server: HubServer) -> None:
    message = "the weights of toy step 0 take 100 kB and --disk-budget is 90 kB; give at least 100"
    with fetcher(hub, budget=90_000) as fetching:
        for _ in range(2):
            with pytest.raises(UsageError, match=message):
                fetching.folder(0)
    assert server.count(WEIGHTS) == 0


def test_what_is_asked_for_takes_the_room_of_what_is_not(hub: Hub) -> None:
    with fetcher(hub, budget=2 * WEIGHT_BYTES) as fetching:
        fetching.plan(range(6))
        until(lambda: all(i in fetching._futures and fetching._futures[i].done() for i in (0, 1)))
        fetching.folder(5)
        assert weights_here(hub) == {0, 5}
        assert (fetching.folder(0) / "model.safetensors").is_file()


def test_what_a_plan_leaves_out_makes_room(hub: Hub) -> None:
    with fetcher(hub, budget=WEIGHT_BYTES) as fetching:
        fetching.folder(0)
        fetching.plan([3])
        fetching.folder(3)
        assert weights_here(hub) == {3}


def test_what_a_killed_run_left_is_evicted_by_the_next(hub: Hub) -> None:
    with fetcher(hub, budget=2 * WEIGHT_BYTES) as fetching:
        fetching.plan(range(6))
        until(lambda: weights_here(hub) == {0, 1})
    with fetcher(hub, budget=2 * WEIGHT_BYTES) as fetching:
        fetching.plan(range(2))
        for index in range(2):
            fetching.folder(index)
            fetching.done(index)
    assert weights_here(hub) == set()


def test_what_is_asked_for_without_a_budget_stays(hub: Hub) -> None:
    with fetcher(hub, budget=WEIGHT_BYTES) as fetching:
        fetching.folder(0)
        fetch(replace(suite(hub), checkpoints=suite(hub).checkpoints[:1]), hub=hub)
        fetching.done(0)
    assert weights_here(hub) == {0}


def test_processes_do_not_evict_from_each_other(hub: Hub) -> None:
    (blob,) = hub.blobs(REPO, "step0")
    mine, other = Claim(blob), Claim(blob)
    folder = hub.fetch(REPO, "step0", keep=False)
    assert not mine.evict([folder])
    assert blob.present
    assert other.evict([folder])
    assert not blob.present


@pytest.mark.parametrize(
    ("text", "number"), [("100GB", 10**11), ("1.5 tb", 15 * 10**11), ("500MB", 5 * 10**8), (7, 7)]
)
def test_sizes_are_read(text: str | int, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "100 apples", "1e9", "nan", "10GiB"])
def test_what_is_no_size_says_what_is(text: str) -> None:
    with pytest.raises(UsageError, match="write one such as 500MB, 100GB or 2TB"):
        parse_bytes(text)


# The command.


def test_fetch_brings_everything_once(hub: Hub, server: HubServer) -> None:
    seen: list[tuple[int, int]] = []
    result = logitbank.fetch(REPO, hub=hub, progress=lambda done, total: seen.append((done, total)))
    assert result.complete
    assert len(result.folders) == 6
    assert result.bytes == 6 * WEIGHT_BYTES
    assert max(seen) == (6 * WEIGHT_BYTES, 6 * WEIGHT_BYTES)
    server.requests.clear()
    again = logitbank.fetch(REPO, hub=hub)
    assert again.folders == result.folders
    assert again.bytes == 0
    assert server.count("/resolve/") == 0


@pytest.mark.whole
def test_fetch_of_many_revisions_that_share_files(root: Path, server: HubServer, hub: Hub) -> None:
    for step in range(6, 50):
        write_step(root, step, content=step % 4)
    result = fetch(REPO, hub=hub)
    assert len(result.folders) == 50
    assert server.count(WEIGHTS) == 6
    assert result.bytes == 6 * WEIGHT_BYTES
    assert any("hold the same weights" in note for note in result.notes)


def test_fetch_lists_what_failed_and_brings_the_rest(hub: Hub, root: Path) -> None:
    (root / REPO / "step1" / "model.safetensors").unlink()
    result = fetch(REPO, hub=hub)
    assert [c.step for c in result.folders] == [0, 2, 3, 4, 5]
    assert ["step1 holds no weights" in why for why in result.failed.values()] == [True]
    assert not result.complete


def test_fetch_of_a_gated_model_gives_up_after_two(hub: Hub, root: Path) -> None:
    for step in range(20):
        write_step(root, step, repo="lab/closed")
    result = fetch("lab/closed", hub=hub, parallel=1)
    assert len(result.failed) == 2
    assert result.untried == 18


def test_fetch_refuses_more_than_its_budget_or_the_disk(
    hub: Hub, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="need 600 kB and --disk-budget is 250 kB, .* first 2; ch"):
        fetch(REPO, hub=hub, disk_budget=250_000)
    monkeypatch.setattr(
        "logitbank.engine.suites.fetch.shutil.disk_usage", lambda _: type("U", (), {"free": 1000})
    )
    with pytest.raises(DiskSpaceError, match=r"need 600 kB and .* has 1 kB free; choose fewer"):
        fetch(REPO, hub=hub)
    assert server.count(WEIGHTS) == 0


# Extraction.


@pytest.fixture
def banked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hub, HubServer]]:
    """A hub whose checkpoints can be extracted by the fake engine."""
    series = write_series(tmp_path / "hub" / "lab" / "toy", *(f"step{step}" for step in range(5)))
    for step in range(5):
        values = np.full(WEIGHT_BYTES // 4, step, np.float32)
        save_file({"w": values}, series / f"step{step}" / "model.safetensors")
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    with HubServer(tmp_path / "hub") as server:
        yield Hub(server.endpoint, cache_dir=tmp_path / "cache", patience=QUICK), server


def extracted(path: Path, hub: Hub, **changes: object) -> Summary:
    arguments = {
        "suite": REPO,
        "prompts": questions(" the nurse said"),
        "canary_every": 0,
    } | changes
    return extract(path, engine="transformers", hub=hub, **arguments)  # type: ignore[arg-type]


def test_extraction_within_a_budget_leaves_no_weights_behind(
    banked: tuple[Hub, HubServer], tmp_path: Path
) -> None:
    hub, server = banked
    hub.fetch(REPO, "step2")
    (kept,) = hub.blobs(REPO, "step2")
    largest: list[int] = []

    def watch(event: Event) -> None:
        blobs = (b for b in hub.cache_dir.glob("models--*/blobs/*") if b.name != kept.sha256)
        largest.append(sum(size for b in blobs if (size := b.stat().st_size) >= WEIGHT_BYTES))

    summary = extracted(tmp_path / "b.zarr", hub, disk_budget="250kB", on_event=watch)
    assert [c.step for c in summary.done] == [0, 1, 2, 3, 4]
    assert 0 < max(largest) <= 250_000
    assert [b.name for b in kept.path.parent.iterdir() if b.stat().st_size >= WEIGHT_BYTES] == [
        kept.sha256
    ]
    assert server.count(WEIGHTS) == 5
    again = extracted(tmp_path / "b.zarr", hub, disk_budget="250kB")
    assert again.rows == 0


def test_extraction_refuses_a_budget_below_a_checkpoint(
    banked: tuple[Hub, HubServer], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="take 100 kB and --disk-budget is 50 kB"):
        extracted(tmp_path / "b.zarr", banked[0], disk_budget="50kB")
    assert not (tmp_path / "b.zarr").exists()


def test_the_space_for_downloads_is_not_the_banks(
    banked: tuple[Hub, HubServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 450_000})
    monkeypatch.setattr("logitbank.engine.plan.checks.shutil.disk_usage", lambda _: usage)
    message = r"has 450 kB free, of which 400 kB are for checkpoints to download \(--disk-budget "
    prompts = questions(*(f" the nurse said {'he ' * n}" for n in range(12)))
    with pytest.raises(DiskSpaceError, match=message):
        extracted(tmp_path / "b.zarr", banked[0], prompts=prompts)
    assert extracted(tmp_path / "b.zarr", banked[0], prompts=prompts, disk_budget="200kB").complete


def test_after_fetch_extraction_asks_nobody(
    banked: tuple[Hub, HubServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, server = banked
    fetch(REPO, steps="0,2,4", hub=hub)
    server.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    summary = extracted(tmp_path / "b.zarr", Hub(cache_dir=hub.cache_dir), steps="0,2,4")
    assert [c.step for c in summary.done] == [0, 2, 4]
    assert server.requests == []


# The command line.


@pytest.fixture
def fetched(call: Call, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `logitbank fetch` with the hub that the environment names."""
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    return partial(call, "fetch")


def test_the_command_says_what_came_and_how_to_go_on(fetched: Call, tmp_path: Path) -> None:
    code, out, _ = fetched("--suite", REPO, "--steps", "0:4:2")
    assert code == 0
    assert re.search(r"^3 of 3 checkpoints are here; 300 kB came in .* s \(.*/s\)$", out, re.M)
    assert (
        "HF_HUB_OFFLINE=1 logitbank extract BANK --suite lab/toy --steps 0:4:2 --prompts FILE\n"
        "a known prompt set needs its files there too: fetch --prompts NAME, here\n"
    ) in out
    assert len(list((tmp_path / "elsewhere").glob("models--lab--toy/snapshots/*"))) == 3
    code, out, _ = fetched("--suite", REPO, "--steps", "0:4:2")
    assert code == 0
    assert "3 of 3 checkpoints are here; nothing had to be fetched" in out


def test_the_command_ends_with_1_where_some_failed(fetched: Call, root: Path) -> None:
    (root / REPO / "step1" / "model.safetensors").unlink()
    code, out, error = fetched("--suite", REPO)
    assert code == 1
    assert "5 of 6 checkpoints are here" in out
    assert "failed toy step 1: lab/toy at revision step1 holds no weights" in error


def test_the_command_refuses_what_cannot_be(fetched: Call) -> None:
    code, _, error = fetched("--suite", REPO, "--disk-budget", "much")
    assert code == 2
    assert error.startswith("logitbank: size 'much' is unknown")
    code, _, error = fetched("--suite", REPO, "--disk-budget", "150kB")
    assert code == 2
    assert "need 600 kB and --disk-budget is 150 kB, which holds the first 1" in error
