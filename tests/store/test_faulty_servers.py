"""Banks at URLs behind a proxy that spoils answers: never a wrong number, an error of one line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import LogitbankError
from logitbank.store import Bank, verify
from logitbank.store.share import remote
from logitbank.store.share.push import pull, push
from tests.support.dataset_hub import DatasetHub
from tests.support.fault_proxy import FaultProxy
from tests.support.file_server import FileServer
from tests.support.marks import whole
from tests.support.s3_server import S3Server
from tests.support.small_banks import bank_of

pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")
pytest.importorskip("moto")
# huggingface_hub 2.4 uploads large files in a way that httpx calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

FAULTS = ("html", "cut", "torn", "flip", "wait")
READ = (r"GET .*index\.json\.gz", r"GET .*scores/all\.parquet", r"GET .*logprobs/c/0/0")
"""Requests of a reader."""
PUSH = (
    *(r"GET .*list-type|/tree/", r"GET .*index\.json\.gz", r"PUT .*index\.json\.gz|/commit/"),
    *(r"PUT .*logprobs/c/0/0", r"PUT .*commits/seal\.json", r"(PUT|GET|HEAD) .*\.parquet"),
)
"""Requests of a push; of the Hub there are fewer."""


@pytest.fixture(autouse=True)
def quick(cache: Path, quick_retries: None) -> None:
    """Retries come at once, and reads are kept for one test."""


@pytest.fixture
def s3_place(
    s3_server: S3Server, s3: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FaultProxy, str]]:
    with FaultProxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy, s3


@pytest.fixture
def hub_place(
    hub_server: DatasetHub, hub: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FaultProxy, str]]:
    with FaultProxy(hub_server.endpoint) as proxy:
        monkeypatch.setenv("HF_ENDPOINT", proxy.endpoint)
        yield proxy, hub


@pytest.fixture
def web_place(tmp_path: Path) -> Iterator[tuple[FaultProxy, str]]:
    (tmp_path / "www").mkdir()
    with FileServer(tmp_path / "www") as server, FaultProxy(server.endpoint) as proxy:
        yield proxy, f"{proxy.endpoint}/bank"


def sound_copy(bank: Bank, path: Path) -> dict[str, bytes]:
    """The files of a pulled bank, which has what another has and no fault."""
    copy = Bank.open(path)
    assert verify(copy) == ()
    assert copy.info().equals(bank.info())
    for a, b in zip(bank.deposits(), copy.deposits(), strict=True):
        np.testing.assert_array_equal(b.logprobs(), a.logprobs())
        assert b.scores().collect().equals(a.scores().collect())
    return files(path)


def files(path: Path) -> dict[str, bytes]:
    found = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in found}


def right_or_one_line(call: Callable[[], object]) -> None:
    """A fault may be mended by a retry. Otherwise it is an error for people."""
    told = ""
    try:
        call()
    except LogitbankError as error:
        told = str(error)
    assert "\n" not in told
    assert "Traceback" not in told


@pytest.mark.parametrize("place", ["web", "s3", "hub"])
def test_a_spoilt_answer_gives_a_reader_no_wrong_number(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    """A fault that stays, one that a retry may mend where something is missing yet, and none."""
    proxy, url = request.getfixturevalue(f"{place}_place")
    bank = bank_of(tmp_path / "bank", 0, 1)
    push(bank.path, tmp_path / "www" / "bank" if place == "web" else url)
    pull(url, tmp_path / "sound")
    sound = sound_copy(bank, tmp_path / "sound")
    for fault in FAULTS:
        for number, match in enumerate(READ):
            to = tmp_path / f"{fault}{number}"
            for times in (10**6, 1):
                right = to.exists() and files(to) == sound
                proxy.spoil(fault, match, times)
                right_or_one_line(lambda to=to: pull(url, to))  # type: ignore[misc]
                assert proxy.spoilt or right, (fault, match, times)
            proxy.spoil()
            pull(url, to)
            assert files(to) == sound, (fault, match)


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        *(("s3", "flip"), ("hub", "html")),
        *(whole("s3", fault) for fault in FAULTS if fault != "flip"),
        *(whole("hub", fault) for fault in FAULTS if fault != "html"),
    ],
)
def test_a_spoilt_answer_makes_no_push_publish_a_wrong_number(
    tmp_path: Path, request: pytest.FixtureRequest, place: str, fault: str
) -> None:
    """What was pushed before stays, and the same push ends well once the fault is gone."""
    proxy, url = request.getfixturevalue(f"{place}_place")
    every, spoilt = bank_of(tmp_path / "every", *range(len(PUSH) + 1)), 0
    push(bank_of(tmp_path / "theirs", 0).path, url)
    for step, match in enumerate(PUSH, 1):
        mine = bank_of(tmp_path / f"mine{step}", step).path
        proxy.spoil(fault, match)
        right_or_one_line(lambda mine=mine: push(mine, url))  # type: ignore[misc]
        spoilt += bool(proxy.spoilt)
        proxy.spoil()
        pull(url, tmp_path / "back")  # which checks what it takes
        push(mine, url)
    pull(url, tmp_path / "back")
    sound_copy(every, tmp_path / "back")
    assert spoilt >= (3 if place == "hub" else len(PUSH))


@pytest.mark.parametrize("place", ["web", "s3"])
def test_a_slow_drip_is_one_error(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """At most 1,280 bytes a second, whatever the machine does."""
    monkeypatch.undo()
    proxy, url = request.getfixturevalue(f"{place}_place")
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    bank = bank_of(tmp_path / "bank", 0)
    push(bank.path, tmp_path / "www" / "bank" if place == "web" else url)
    proxy.spoil("drip", r"GET .*index\.json\.gz")
    with monkeypatch.context() as patch:
        patch.setattr(remote, "SLOW_S", 0.1)
        patch.setattr(remote, "SLOWEST", 1e5)
        with pytest.raises(LogitbankError, match=r"bytes a second\. The minimum is 100,000"):
            pull(url, tmp_path / "back")
    proxy.spoil()
    pull(url, tmp_path / "back")
    sound_copy(bank, tmp_path / "back")
