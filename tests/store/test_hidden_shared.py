"""Banks that keep states, sent, fetched and read at a URL: heads travel with what needs them."""

from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import DamagedError, RemoteError
from logitbank.store import Bank, CheckpointId, Keep, Layout, OutputHead, verify
from logitbank.store.format.layout import DepositSpec
from logitbank.store.sharing.transfer import pull, push
from tests.support.file_server import FileServer
from tests.support.hidden_banks import (
    head,
    hidden_bank,
    hidden_block,
    states,
    true_logprobs,
)
from tests.support.small_banks import QUERIES, QUERY_SET, TOKENIZER, new_bank

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
    (deposit,) = there.deposits()
    expected = true_logprobs(head(), states())
    np.testing.assert_allclose(deposit.logprobs(tokens=[3]), expected[:, [3]], atol=2e-6)
    np.testing.assert_array_equal(deposit.hidden([2]), states()[[2]])


def test_a_token_at_a_url_reads_few_rows_of_the_head(tmp_path: Path, served: FileServer) -> None:
    vocab, width = 20_000, 64
    weight = np.random.default_rng(0).normal(size=(vocab, width)).astype(np.float32)
    of, bank = OutputHead(weight, "float32", np.zeros(vocab, np.float32)), new_bank(tmp_path / "b")
    layout = Layout(QUERIES, vocab, "float32", Keep("hidden"), 16, width=width)
    spec = DepositSpec(
        CheckpointId("m", step=0),
        QUERY_SET.name,
        layout,
        vocab,
        {"tokenizer": TOKENIZER},
        {"next_token": bank.put_head(of)},
    )
    with bank.begin(spec) as writer:
        writer.write(0, hidden_block(layout, 0, of))
        writer.seal()
    push(bank.path, tmp_path / "www" / "bank")
    (deposit,) = Bank.open(f"{served.url}/bank").deposits()
    served.log()
    read = deposit.logprobs(tokens=[12_345])
    values = states(width=width)
    logits = 5 * np.tanh((values.astype(np.float64) @ weight.astype(np.float64).T) / 5)
    lse = np.log(np.exp(logits).sum(axis=1))  # of `hidden_block`, whose logits have a soft cap
    expected = values.astype(np.float64) @ weight[12_345].astype(np.float64) - lse
    np.testing.assert_allclose(read[:, 0], expected, atol=2e-5)
    sent = [sent for sent in served.log() if "/weight/" in sent.path]
    size = sum(s.bytes for s in sent)
    assert 0 < size < weight.nbytes / 50
    assert len(sent) == 2  # the index of the shard, and an inner chunk


def test_a_damaged_head_at_a_url_is_refused(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    (shard,) = (tmp_path / "www" / "bank").glob("heads/*/weight/c/0/0")
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    (deposit,) = Bank.open(f"{served.url}/bank").deposits()
    with pytest.raises(DamagedError, match="ask its publisher"):
        deposit.logprobs(tokens=[0])


def test_a_head_that_lacks_at_a_url_is_named(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    (shard,) = (tmp_path / "www" / "bank").glob("heads/*/weight/c/0/0")
    shard.unlink()
    (deposit,) = Bank.open(f"{served.url}/bank").deposits()
    url = f"{served.url}/bank/heads/{head().digest}/weight/c/0/0"
    with pytest.raises(DamagedError, match=rf"^{url} \(block 0, rows .* was committed and is not"):
        deposit.logprobs(tokens=[0])


def test_a_place_that_lists_tells_heads_without_an_index(tmp_path: Path) -> None:
    from logitbank.store.format import index
    from logitbank.store.sharing.selection import chosen

    here = chosen(hidden_bank(tmp_path / "b"))
    texts = {path: value.text for path, value in here.items() if value.text is not None}
    told = index.vouched(texts)
    heads = {p: v.digest for p, v in here.items() if p.startswith("heads/") and v.text is None}
    assert heads
    assert heads.items() <= told.items()


def test_a_head_that_a_server_lost_is_named(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    (shard,) = (tmp_path / "www" / "bank" / "heads").rglob("weight/c/0/0")
    shard.unlink()
    with pytest.raises(RemoteError, match="weight/c/0/0 is not there, although the bank lists it"):
        pull(f"{served.url}/bank", tmp_path / "here")
