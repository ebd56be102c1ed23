"""Pushes that others overtake, that are killed, and whose servers are at fault."""

import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.errors import BankError, DamagedError, RemoteError, UsageError
from logitbank.store import Bank, verify
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import objects
from logitbank.store.format import index
from logitbank.store.share import remote
from logitbank.store.share.moves import moves
from logitbank.store.share.push import open_target, pull, push
from logitbank.store.share.s3 import S3, s3_store
from logitbank.store.share.selection import chosen
from logitbank.store.share.targets import Folder, Source, publish, stored_objects
from tests.support.fault_proxy import FaultProxy
from tests.support.file_server import FileServer
from tests.support.s3_server import S3Server
from tests.support.small_banks import bank_of, block_data, new_bank, spec

obstore = pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")
pytest.importorskip("moto")


@pytest.fixture(autouse=True)
def empty_cache(cache: Path) -> None:
    pass


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "target")
    return str(request.getfixturevalue("s3"))


class Killed(BaseException):
    """The process ends here."""


class Stopping(Source):
    """Ends before the object of a number is read, or calls a function there."""

    def __init__(self, root: Path, at: int, then: Callable[[], object] | None = None) -> None:
        super().__init__(root)
        object.__setattr__(self, "left", [at])
        object.__setattr__(self, "then", then)

    def _count(self) -> None:
        left: list[int] = self.__dict__["left"]
        left[0] -= 1
        if left[0] == -1:
            if (then := self.__dict__["then"]) is None:
                raise Killed
            then()

    def read(self, path: str, value: index.Object) -> bytes:
        self._count()
        return super().read(path, value)

    def copy(self, path: str, value: index.Object, to: Path) -> None:
        self._count()
        super().copy(path, value, to)


def send(bank: Bank, target: str, source: Source) -> None:
    """`push` with another source."""
    if not target.startswith("s3"):
        objects.make_root(Path(target))
    place = Folder(Path(target)) if not target.startswith("s3") else S3(target, write=True)
    stored = stored_objects(place)
    plan = moves(chosen(bank.path), stored, location=target)
    kept: dict[str, index.Object] = {}
    for group in plan.groups:
        kept |= place.send(group, source, lambda _: None)
    publish(place, {**stored, **plan.sent, **kept})


def sound(target: str, to: Path, bank: Bank) -> None:
    """The target has the bank's numbers, every digest is right, and nothing waits for anybody."""
    pull(target, to)
    assert verify(to) == ()
    pulled = Bank.open(to)
    assert len(pulled.deposits()) == len(bank.deposits())
    for one, other in zip(bank.deposits(), pulled.deposits(), strict=True):
        np.testing.assert_array_equal(other.logprobs(), one.logprobs())


COUNT = 17
"""Objects of a bank with one deposit."""


@pytest.mark.parametrize("at", range(COUNT))
def test_a_push_killed_anywhere_does_not_block_a_recomputed_deposit(
    tmp_path: Path, s3: str, at: int
) -> None:
    """Its objects have no commit, so they are nobody's result."""
    first, second = (
        bank_of(tmp_path / "1", 0),
        bank_of(tmp_path / "2", 0, seed=1, weights="cd" * 32),
    )
    with pytest.raises(Killed):
        send(first, s3, Stopping(first.path, at))
    push(second.path, s3)
    sound(s3, tmp_path / "back", second)
    assert push(second.path, s3).objects == 0


@pytest.mark.parametrize("at", [0, 6, 9, 12, COUNT - 1])
def test_of_two_results_of_one_deposit_one_is_whole_and_the_other_refused(
    tmp_path: Path, target: str, at: int
) -> None:
    first, second = bank_of(tmp_path / "1", 0), bank_of(tmp_path / "2", 0, seed=1)
    refused: list[str] = []

    def other() -> None:
        try:
            push(second.path, target)
        except BankError as error:
            refused.append(str(error))

    try:
        send(first, target, Stopping(first.path, at, other))
        winner = first
    except BankError as error:
        refused.append(str(error))
        winner = second
    assert len(refused) == 1, refused
    sound(target, tmp_path / "back", winner)


def sealed_at_other_times(tmp_path: Path) -> list[Bank]:
    """Two equal deposits, whose seals differ in their time."""
    bank = new_bank(tmp_path / "0")
    with bank.begin(spec(0)) as writer:
        for block in range(3):
            writer.write(block, block_data(writer.layout, block))
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    banks = [Bank.open(tmp_path / name) for name in "01"]
    DepositWriter(banks[0].deposits()[0]).seal()
    time.sleep(1.1)  # commits have whole seconds
    DepositWriter(banks[1].deposits()[0]).seal()
    seals = [(b.deposits()[0].path / "commits/seal.json").read_bytes() for b in banks]
    assert seals[0] != seals[1]
    return banks


@pytest.mark.parametrize("at", [0, 9, COUNT - 1])
def test_equal_deposits_sealed_at_other_times_are_equal_for_two_pushes_at_once(
    tmp_path: Path, target: str, at: int
) -> None:
    first, second = sealed_at_other_times(tmp_path)
    send(first, target, Stopping(first.path, at, lambda: push(second.path, target)))
    sound(target, tmp_path / "back", first)
    place = open_target(target)
    place.sizes()
    listed = json.loads(gzip.decompress(place.read(index.NAME)))["objects"]
    (seal,) = (path for path in listed if path.endswith("seal.json"))
    assert listed[seal]["text"].encode() == place.read(seal), "the index has the seal that is there"
    for bank in (first, second):
        assert push(bank.path, target).objects == 0
        assert pull(bank.path, tmp_path / "back").objects == 0


def test_another_push_that_replaces_an_object_before_the_commit_is_undone(
    tmp_path: Path, s3: str
) -> None:
    """It looked for a commit just before there was one."""
    bank = bank_of(tmp_path / "1", 0)
    shard = next(path for path in chosen(bank.path) if path.endswith("logprobs/c/1/0"))

    class Late(S3):
        def _changed(self, group: Any) -> list[str]:
            obstore.put(self.store, shard, b"of another")
            return super()._changed(group)

    place = Late(s3, write=True)
    for group in moves(chosen(bank.path), stored_objects(place), location=s3).groups:
        place.send(group, Source(bank.path), lambda _: None)
    publish(place, stored_objects(place))
    sound(s3, tmp_path / "back", bank)


def test_a_replaced_object_is_put_back_if_its_commit_has_come(tmp_path: Path, s3: str) -> None:
    """The other push commits between the look and the replacement."""
    first, second = bank_of(tmp_path / "1", 0), bank_of(tmp_path / "2", 0, seed=1)
    push(second.path, s3)
    seal = next(path for path in chosen(second.path) if path.endswith("seal.json"))
    place = S3(s3, write=True)
    shard = seal.replace("commits/seal.json", "logprobs/c/1/0")
    text = place.read(seal)
    obstore.delete(place.store, [seal])
    put = place._put

    def late(path: str, data: bytes, before: str) -> bool:
        done = put(path, data, before)
        if path == shard and before != "create" and data != place_bytes:
            obstore.put(place.store, seal, text)
        return done

    place_bytes = place.read(shard)
    place._put = late  # type: ignore[method-assign]
    data = (first.path / shard).read_bytes()
    with pytest.raises(BankError, match="already has"):
        place._replace(shard, data, objects.compute_digest(data))
    assert place.read(shard) == place_bytes
    sound(s3, tmp_path / "back", second)


class Damaging:
    """A target whose first reads of some paths have one flipped bit."""

    def __init__(self, place: Any, match: str, times: int) -> None:
        self._place, self._match, self._left = place, match, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def _flip(self, path: str, data: bytes) -> bytes:
        if not path.endswith(self._match) or self._left <= 0:
            return data
        self._left -= 1
        return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]

    def read(self, path: str) -> bytes:
        return self._flip(path, self._place.read(path))

    def current(self) -> dict[str, bytes]:
        return {p: self._flip(p, d) for p, d in self._place.current().items()}


@pytest.mark.parametrize("name", ["seal.json", "/zarr.json", ".sha256", ".parquet"])
def test_a_flipped_bit_of_a_listing_is_not_published(tmp_path: Path, s3: str, name: str) -> None:
    bank = bank_of(tmp_path / "1", 0)
    push(bank.path, s3)
    obstore.delete(s3_store(s3, write=True), [index.NAME])
    place = Damaging(open_target(s3), name, 1)
    publish(place, stored_objects(place))
    sound(s3, tmp_path / "back", bank)
    obstore.delete(s3_store(s3, write=True), [index.NAME])
    with pytest.raises(DamagedError, match="Run the same command again"):
        stored_objects(Damaging(open_target(s3), name, 1000))


def test_a_damaged_read_of_the_index_loses_no_deposit_of_others(tmp_path: Path, s3: str) -> None:
    theirs, mine = bank_of(tmp_path / "1", 0), bank_of(tmp_path / "2", 1)
    push(theirs.path, s3)
    place = Damaging(open_target(s3), index.NAME, 2)
    plan = moves(chosen(mine.path), stored_objects(open_target(s3)), location=s3)
    for group in plan.groups:
        place.send(group, Source(mine.path), lambda _: None)
    publish(place, plan.sent)
    assert Bank.open(s3).info()["step"].to_list() == [0, 1]


@pytest.mark.parametrize("ignored", ["create", "etag"])
def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    put = obstore.put

    def careless(*arguments: Any, mode: Any, **others: Any) -> Any:
        if (mode == "create") == (ignored == "create"):
            mode = "overwrite"
        return put(*arguments, mode=mode, **others)

    monkeypatch.setattr(obstore, "put", careless)
    with pytest.raises(RemoteError, match="ignores the conditions If-None-Match and If-Match"):
        push(bank_of(tmp_path / "1", 0).path, s3)
    assert not open_target(s3).sizes()


# Servers that are at fault


@pytest.mark.parametrize(
    "limit",
    [
        {"Retry-After": "86400"},
        {"Retry-After": "9" * 400},
        {"Retry-After": "²"},
        {"Retry-After": "-1"},
        {"Retry-After": "soon"},
        {"RateLimit": '"api";r=0;t=86400'},
        {"RateLimit": f'"api";r=0;t={"9" * 5000}'},
        {"RateLimit": '"api";r=0;t=x'},
        {"RateLimit": '"api";r=0;t=5', "RateLimit-Policy": "ü;" * 200},
    ],
)
def test_a_wait_that_a_server_asks_for_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, str]
) -> None:
    bank = bank_of(tmp_path / "1", 0)
    push(bank.path, tmp_path / "public")
    waits: list[float] = []
    with FileServer(tmp_path / "public") as server:
        server.behave(limited=2, limit={k: v.encode().decode("latin-1") for k, v in limit.items()})
        monkeypatch.setattr("time.sleep", waits.append)
        assert Bank.open(server.url, prompts=[]).info().height == 1
    assert len(waits) == 2
    assert max(waits) <= remote.MOST_WAIT_S + 1


def test_an_object_that_comes_too_slowly_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 50))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    drip = remote._steady("https://host/x", (b"x" for _ in range(1000)))
    with pytest.raises(RemoteError, match=r"https://host/x came with 0 bytes a second"):
        list(drip)


@pytest.mark.parametrize(
    "error", [json.JSONDecodeError("x", "<html>", 0), KeyError("sha"), UnicodeError("ascii")]
)
def test_answers_of_another_protocol_are_one_line(error: Exception) -> None:
    with pytest.raises(RemoteError, match=r"^s3://b is not available \(an invalid answer, \w+\)"):
        with remote.explained("s3://b"):
            raise error
    with pytest.raises(UsageError):
        with remote.explained("s3://b"):
            raise UsageError("ours")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL", "no address"),
        ("AWS_ENDPOINT_URL", "localhost:9000"),
        ("AWS_ENDPOINT_URL", "ftp://host"),
        ("AWS_ENDPOINT_URL", "http://[x"),
        ("HTTP_PROXY", "http://host:99999"),
        ("HTTPS_PROXY", "nothing://host"),
        ("all_proxy", "http://"),
    ],
)
def test_odd_addresses_in_variables_are_one_line(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    bank = bank_of(tmp_path / "1", 0)
    monkeypatch.setenv(name, value)
    for call in (lambda: Bank.open(s3), lambda: push(bank.path, s3)):
        with pytest.raises(UsageError, match=rf"^{name} is .*which is no address\. Use"):
            call()


@pytest.fixture
def portal(s3_server: S3Server) -> Iterator[str]:
    """An address that answers everything with the page of a login."""
    with FaultProxy(s3_server.endpoint) as proxy:
        proxy.spoil("html")
        yield proxy.endpoint


def test_the_page_of_a_login_is_neither_a_bank_nor_an_empty_place(
    tmp_path: Path, s3: str, portal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_of(tmp_path / "1", 0)
    for name, value in (("AWS_ENDPOINT_URL", portal), ("HF_ENDPOINT", portal), ("HF_TOKEN", "x")):
        monkeypatch.setenv(name, value)
    for url in (s3, "hf://datasets/lab/bank", f"{portal}/bank"):
        for call in (lambda url=url: Bank.open(url), lambda url=url: pull(url, tmp_path / "back")):
            with pytest.raises(BankError, match=r"is not an index of a bank|is not available"):
                call()
        if not url.startswith("http"):
            with pytest.raises(BankError, match=r"ignores the conditions|is not available") as told:
                push(bank.path, url)
            assert "\n" not in str(told.value)
    assert not (tmp_path / "back" / "zarr.json").exists()
