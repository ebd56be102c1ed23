"""Banks that keep states, sent, fetched and read at a URL: heads travel with what needs them."""

from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import DamagedError, RemoteError
from logitbank.store import Bank, verify
from logitbank.store.share.push import pull, push
from tests.support.file_server import FileServer
from tests.support.hidden_banks import (
    head,
    hidden_bank,
    states,
    true_logprobs,
)
from tests.support.small_banks import QUERIES

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("cache")


def test_heads_of_the_chosen_deposits_travel(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b", steps=(0, 1))
    push(bank.path, tmp_path / "www" / "bank", steps=[1])
    assert [p.name for p in (tmp_path / "www/bank/heads").iterdir() if p.is_dir()] == [
        head(2).digest
    ]
    push(bank.path, tmp_path / "www" / "bank")
    again = push(bank.path, tmp_path / "www" / "bank")
    assert again.objects == 0
    pull(f"{served.url}/bank", tmp_path / "here")
    here = Bank.open(tmp_path / "here")
    assert verify(here) == ()
    for step, deposit in enumerate(here.deposits()):
        expected = true_logprobs(head(step + 1), states(step))
        np.testing.assert_allclose(deposit.logprobs(), expected, atol=2e-6)


def test_scores_at_a_url_need_no_head(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    served.log()
    there = Bank.open(f"{served.url}/bank")
    assert there.scan("parity").collect().height == 2 * QUERIES
    assert there.info()["bytes"].to_list() == bank.info()["bytes"].to_list()
    assert not [sent for sent in served.log() if "/weight/" in sent.path]
    with pytest.raises(DamagedError, match="models=…, steps=…, prompts=…, rows=True"):
        there.deposits()[0].logprobs(tokens=[3])
    (deposit,) = Bank.open(f"{served.url}/bank", rows=True).deposits()
    expected = true_logprobs(head(), states())
    np.testing.assert_allclose(deposit.logprobs(tokens=[3]), expected[:, [3]], atol=2e-6)
    np.testing.assert_array_equal(deposit.hidden([2]), states()[[2]])


def test_a_damaged_head_at_a_url_is_refused(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    (shard,) = (tmp_path / "www" / "bank").glob("heads/*/weight/c/0/0")
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(RemoteError, match=r"weight/c/0/0 does not hold the bytes.*its publisher"):
        Bank.open(f"{served.url}/bank", rows=True)


def test_a_place_that_lists_tells_heads_without_an_index(tmp_path: Path) -> None:
    from logitbank.store.format import index
    from logitbank.store.share.selection import chosen

    here = chosen(hidden_bank(tmp_path / "b").path)
    texts = {path: value.text for path, value in here.items() if value.text is not None}
    told = index.committed_digests(texts)
    heads = {p: v.digest for p, v in here.items() if p.startswith("heads/") and v.text is None}
    assert heads
    assert heads.items() <= told.items()


def test_a_head_that_a_server_lost_is_named(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    (shard,) = (tmp_path / "www" / "bank" / "heads").rglob("weight/c/0/0")
    shard.unlink()
    for read in (
        lambda url: Bank.open(url, rows=True),
        lambda url: pull(url, tmp_path / "here"),
    ):
        with pytest.raises(RemoteError, match="weight/c/0/0 is not there, although the bank lists"):
            read(f"{served.url}/bank")
