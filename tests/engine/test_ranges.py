"""Large files over several connections: what one connection promises, they keep."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.hub import blobs
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.patience import Patience, waits_told
from logitbank.engine.hub.ranges import Connections, Ranges
from logitbank.engine.hub.receive import Body
from logitbank.engine.hub.requests import HubRequests
from logitbank.engine.suites.fetch import fetch
from logitbank.errors import SuiteError, WeightsError
from tests.support.hub_server import HubServer

REPO = "lab/toy"
SIZE = 100_000
PIECE = 10_000
WEIGHTS = r"GET .*/resolve/.*\.safetensors"
CONTENT = {step: random.Random(step).randbytes(SIZE) for step in range(3)}
DEADLINE_S = 60.0


def connections(spare: int = 6) -> Connections:
    return Connections(large_bytes=50_000, piece_bytes=PIECE, spare=threading.Semaphore(spare))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HubServer]:
    for step, content in CONTENT.items():
        folder = tmp_path / "root" / REPO / f"step{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "gpt_neox"}')
        (folder / "model.safetensors").write_bytes(content)
    with HubServer(tmp_path / "root") as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path) -> Hub:
    return Hub(
        server.endpoint,
        cache_dir=tmp_path / "cache",
        patience=Patience(tries=3, first_s=0.01),
        connections=connections(),
    )


class Open:
    """How many answers are being received, and were at most."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def change(self, by: int) -> None:
        with self._lock:
            self.now += by
            self.most = max(self.most, self.now)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Open:
    answers, real = Open(), HubRequests.body

    @contextmanager
    def body(*arguments: Any) -> Iterator[Body]:
        answers.change(1)
        try:
            with real(*arguments) as body:
                yield body
        finally:
            answers.change(-1)

    monkeypatch.setattr(HubRequests, "body", body)
    return answers


def fetched(hub: Hub, step: int = 1) -> int:
    """Fetches a checkpoint, and looks at its content; how many bytes came, net."""
    came: list[int] = []
    folder = hub.fetch(REPO, f"step{step}", on_bytes=came.append)
    assert (folder / "model.safetensors").read_bytes() == CONTENT[step]
    (blob,) = hub.blobs(REPO, f"step{step}")
    assert not blob.part.exists()
    return sum(came)


def asked_for(server: HubServer) -> list[tuple[int, int]]:
    return sorted((span.start, span.stop) for span in server.spans)


def pieces(start: int = 0) -> list[tuple[int, int]]:
    return [(at, min(at + PIECE, SIZE)) for at in range(start, SIZE, PIECE)]


def test_a_large_file_comes_in_parts_side_by_side_and_no_byte_twice(
    hub: Hub, server: HubServer, answers: Open
) -> None:
    server.pause_s = 0.1
    assert fetched(hub) == SIZE
    assert asked_for(server) == pieces()
    assert answers.most == 4


def test_a_file_that_is_not_large_comes_over_one_connection(
    server: HubServer, tmp_path: Path
) -> None:
    assert fetched(Hub(server.endpoint, cache_dir=tmp_path / "cache")) == SIZE
    assert asked_for(server) == [(0, SIZE)]


def test_files_share_the_connections_that_are_to_spare(
    server: HubServer, tmp_path: Path, answers: Open
) -> None:
    server.pause_s = 0.05
    hub = Hub(server.endpoint, cache_dir=tmp_path / "cache", connections=connections(spare=2))
    assert fetch(REPO, hub=hub, parallel=3).bytes == 3 * SIZE
    assert 3 < answers.most <= 5


def test_a_part_that_is_here_is_gone_on_with(hub: Hub, server: HubServer) -> None:
    (blob,) = hub.blobs(REPO, "step1")
    blob.part.parent.mkdir(parents=True)
    blob.part.write_bytes(CONTENT[1][:25_000])
    assert fetched(hub) == 75_000
    assert asked_for(server) == pieces(25_000)


def test_a_stopped_transfer_leaves_a_beginning_and_no_threads(hub: Hub, server: HubServer) -> None:
    server.pause_s = 0.01
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        if sum(came) > 30_000:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        hub.fetch(REPO, "step1", on_bytes=stop)
    (blob,) = hub.blobs(REPO, "step1")
    have = blob.part.read_bytes()
    assert have == CONTENT[1][: sum(came)]
    assert blob.left == SIZE - len(have)
    _until(lambda: not any(t.name == "fetch-part" for t in threading.enumerate()))
    server.spans.clear()
    assert fetched(hub) == SIZE - len(have)
    assert asked_for(server) == pieces(len(have))


_FETCH = """
import sys, threading
from pathlib import Path
from logitbank.engine.hub import blobs
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.ranges import Connections
connections = Connections(large_bytes=50_000, piece_bytes=10_000)
Hub(sys.argv[1], cache_dir=Path(sys.argv[2]), connections=connections).fetch("lab/toy", "step1")
"""


def test_a_killed_process_leaves_a_beginning(hub: Hub, server: HubServer) -> None:
    """Those who wait for the end of their part are many; on the disk is what was their turn."""
    server.pause_s = 0.2
    command = [sys.executable, "-c", _FETCH, server.endpoint, str(hub.cache_dir)]
    process = subprocess.Popen(command)
    (blob,) = hub.blobs(REPO, "step1")
    _until(lambda: blob.part.exists() and blob.part.stat().st_size > 15_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    have = blob.part.read_bytes()
    assert have == CONTENT[1][: len(have)]
    assert fetched(hub) == SIZE - len(have)


def test_a_server_that_sends_no_parts_is_asked_over_one_connection(
    hub: Hub, server: HubServer, answers: Open
) -> None:
    server.ranges = False
    assert fetched(hub) == SIZE
    assert asked_for(server) == [(0, SIZE), (0, SIZE)], "the first is left as it begins"
    assert answers.most == 1


def test_a_part_that_was_here_counts_no_more_where_a_server_sends_no_parts(
    hub: Hub, server: HubServer
) -> None:
    server.ranges = False
    (blob,) = hub.blobs(REPO, "step1")
    blob.part.parent.mkdir(parents=True)
    blob.part.write_bytes(CONTENT[1][:25_000])
    assert fetched(hub) == SIZE - 25_000


@pytest.mark.parametrize("content", [CONTENT[1][:-1], b"<html>Log in</html>"])
def test_answers_that_all_end_before_the_file_are_refused(
    hub: Hub, server: HubServer, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "PAUSE_S", 0.0)
    server.ranges = False
    server.instead[r"/resolve/.*safetensors"] = content
    message = rf"model\.safetensors has 100,000 bytes.* ended after {len(content):,} or before; "
    with pytest.raises(WeightsError, match=message):
        hub.fetch(REPO, "step1")


def test_more_than_is_listed_is_refused_by_the_files_name(hub: Hub, server: HubServer) -> None:
    server.ranges = False
    server.instead[r"/resolve/.*safetensors"] = CONTENT[1] + b"\0"
    message = (
        r"model\.safetensors has 100,000 bytes as its hub lists it, and more of it came; fetch"
    )
    with pytest.raises(WeightsError, match=message):
        hub.fetch(REPO, "step1")


def test_a_file_that_changes_between_its_parts_is_begun_anew(hub: Hub, server: HubServer) -> None:
    server.changed = 1  # the first answer
    assert fetched(hub) == SIZE
    assert (0, SIZE) in asked_for(server), "over one connection, from its beginning"


@pytest.mark.parametrize("fault", ["short", "broken", "shifted", "overlong", "limited"])
def test_a_part_that_came_otherwise_than_asked_is_asked_for_again(
    hub: Hub, server: HubServer, fault: str
) -> None:
    hub.blobs(REPO, "step1")
    server.retry_after = "0.01"
    setattr(server, fault, 2)
    assert fetched(hub) == SIZE
    assert getattr(server, fault) == 0
    assert max(len(span) for span in server.spans) <= PIECE or fault == "overlong"


def test_a_file_that_came_damaged_comes_once_more(hub: Hub, server: HubServer) -> None:
    told: list[str] = []
    server.damaged = 1
    with waits_told(told.append):
        assert fetched(hub) == SIZE
    assert told == ["model.safetensors came with another content than its digest says; once more"]
    assert (0, SIZE) in asked_for(server), "over one connection"


def test_content_that_is_not_its_digests_is_refused(hub: Hub, server: HubServer) -> None:
    (blob,) = hub.blobs(REPO, "step1")
    (server.root / REPO / "step1" / "model.safetensors").write_bytes(CONTENT[2])
    with pytest.raises(WeightsError, match=r"model\.safetensors came twice with another content"):
        hub.fetch(REPO, "step1")
    assert not blob.present
    assert blob.left == SIZE


def test_a_hub_that_fails_to_the_end_is_told_in_one_line(hub: Hub, server: HubServer) -> None:
    hub.blobs(REPO, "step1")
    server.status = 500
    with pytest.raises(SuiteError, match=r"answered 500 for lab/toy at revision step1; try again"):
        hub.fetch(REPO, "step1")


def test_what_came_before_a_hub_failed_stays(hub: Hub, server: HubServer) -> None:
    came: list[int] = []

    def fail_later(number: int) -> None:
        came.append(number)
        if sum(came) >= 40_000:
            server.status = 500

    with pytest.raises(SuiteError, match="answered 500"):
        hub.fetch(REPO, "step1", on_bytes=fail_later)
    (blob,) = hub.blobs(REPO, "step1")
    assert SIZE - blob.left == sum(came) >= 40_000
    server.status = None
    assert fetched(hub) == SIZE - sum(came)


# Signed addresses.


def test_the_hub_is_asked_once_where_it_names_a_signed_address(
    hub: Hub, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    server.elsewhere = True
    assert fetched(hub) == SIZE
    assert asked_for(server) == pieces()
    assert server.count(WEIGHTS) == 1
    assert server.tokens_elsewhere == {None}


def test_a_signed_address_that_is_no_longer_good_is_asked_for_again(
    hub: Hub, server: HubServer
) -> None:
    server.elsewhere, server.pause_s = True, 0.05
    came: list[int] = []

    def expire(number: int) -> None:
        server.expired += not came
        came.append(number)

    folder = hub.fetch(REPO, "step1", on_bytes=expire)
    assert (folder / "model.safetensors").read_bytes() == CONTENT[1]
    assert server.expired == 0
    assert 2 <= server.count(WEIGHTS) <= 5, "by those too that went on meanwhile"
    assert asked_for(server) == pieces()


# The order of parts.


def test_no_more_waits_in_memory_than_twice_the_connections() -> None:
    content, first_may_come = CONTENT[0], threading.Event()
    opened: list[int] = []

    @contextmanager
    def receive(start: int, stop: int | None) -> Iterator[Body]:
        opened.append(start)

        def chunks() -> Iterator[bytes]:
            yield content[start : start + 1]
            if start == 0:
                first_may_come.wait(DEADLINE_S)
            yield content[start + 1 : stop]

        yield Body(start, chunks())

    few = Connections(a_file=2, piece_bytes=PIECE)
    ranges = Ranges(receive, 0, SIZE, few, patiently=lambda ask: ask(), broken=())
    with ranges:
        _until(lambda: len(opened) == 4)
        time.sleep(0.05)
        assert sorted(opened) == [0, PIECE, 2 * PIECE, 3 * PIECE]
        first_may_come.set()
        assert b"".join(ranges) == content


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
