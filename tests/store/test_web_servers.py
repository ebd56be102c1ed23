"""Banks on web servers that limit, compress, tell no length or know no suffix."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.errors import RemoteError
from logitbank.store import Bank, CheckpointId
from logitbank.store.files.objects import Digest
from logitbank.store.share.places import place_at
from logitbank.store.share.push import pull, push
from tests.support.file_server import FileServer
from tests.support.small_banks import QUERY_SET, logits, new_bank

pytest.importorskip("obstore")
LARGE = b"0123456789abcdef" * 2**17


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """Serves a bank of one deposit, `bank`, and a file of 2 MiB, `large`."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(0), checkpoint=CheckpointId("org/m", step=0), query_set=QUERY_SET.name)
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "large").write_bytes(LARGE)
    push(bank.path, tmp_path / "www" / "bank")
    with FileServer(tmp_path / "www") as running:
        yield running


def read_all(bank: Bank) -> tuple[list[Any], np.ndarray]:
    rows = bank.scan("parity").sort("prompt_id", "option").collect().rows()
    return rows, bank.deposits()[0].logprobs([7, 2])


def same_as_local(server: FileServer, tmp_path: Path) -> None:
    url = f"{server.url}/bank"
    there, here = read_all(Bank.open(url, rows=True)), read_all(Bank.open(tmp_path / "b"))
    assert there[0] == here[0]
    np.testing.assert_array_equal(there[1], here[1])


SERVERS: list[dict[str, Any]] = [{"chunked": True}, {"packed": "heeding"}, {"packed": "always"}]


@pytest.mark.parametrize("how", SERVERS)
def test_a_bank_is_read_and_pulled_from_servers_that_compress_or_give_no_length(
    server: FileServer, tmp_path: Path, how: dict[str, Any]
) -> None:
    server.behave(**how)
    same_as_local(server, tmp_path)
    pull(f"{server.url}/bank", tmp_path / "pulled")
    mine, theirs = read_all(Bank.open(tmp_path / "pulled")), read_all(Bank.open(tmp_path / "b"))
    assert mine[0] == theirs[0]
    np.testing.assert_array_equal(mine[1], theirs[1])


@pytest.mark.parametrize("how", [{}, *SERVERS])
def test_an_interrupted_download_goes_on_or_begins_anew(
    server: FileServer, tmp_path: Path, how: dict[str, Any]
) -> None:
    server.behave(**how)
    expected = Digest(hashlib.sha256(LARGE).hexdigest(), len(LARGE))
    for left in (LARGE[:1000], b"of another object", bytes(len(LARGE)), bytes(len(LARGE) + 1)):
        (tmp_path / ".x.part").write_bytes(left)
        place_at(server.url).download("large", expected, tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == LARGE


def test_what_is_packed_is_not_unpacked_beyond_its_limit(server: FileServer) -> None:
    server.behave(packed="always")
    with pytest.raises(RemoteError, match=r"large is larger than 1,000 bytes; refused"):
        place_at(server.url).read("large", limit=1000)


@pytest.mark.whole
def test_a_server_that_asks_to_wait_is_asked_again_only_then(
    server: FileServer, tmp_path: Path
) -> None:
    server.behave(limited=2, limit={"Retry-After": "2"})
    start = time.monotonic()
    same_as_local(server, tmp_path)
    assert time.monotonic() - start > 2
    assert [sent.status for sent in server.log()[:3]] == [429, 429, 200]


@pytest.mark.parametrize(("limit", "answers"), [({"Retry-After": "86400"}, 1), ({}, 5)])
def test_a_server_that_limits_for_long_or_always_is_one_error(
    server: FileServer, limit: dict[str, str], answers: int
) -> None:
    server.behave(limited=99, limit=limit)
    with pytest.raises(RemoteError, match=r"is not available \(429 Too Many Requests\)"):
        place_at(server.url).read("bank/zarr.json")
    assert len(server.log()) == answers
