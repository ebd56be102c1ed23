"""What reading a bank at a URL costs: requests and bytes, of one step among many."""

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from logitbank.errors import DamagedError
from logitbank.store import Bank, CheckpointId, open_bank
from logitbank.store.format import index
from logitbank.store.share.push import push
from tests.support.file_server import FileServer
from tests.support.made_once import made_once
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    token_table,
)

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("cache")

KEY = ["model", "run", "step", "prompt_id", "option"]
FEW, MANY = 12, 50


def add(bank: Bank, step: int) -> None:
    checkpoint = CheckpointId("org/model", step=step)
    bank.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)


def of_steps(path: Path, steps: int) -> None:
    bank = new_bank(path / "bank")
    bank.add_tokens(TOKENIZER, token_table())
    for step in range(steps):
        add(bank, step)
    push(bank.path, path / "www" / "bank")


@made_once
def few(path: Path) -> None:
    of_steps(path, FEW)


@pytest.fixture
def bank(served: FileServer, tmp_path: Path) -> Bank:
    """A bank of few steps, published where `served` gives it out."""
    made = few(tmp_path / "made")
    (tmp_path / "www" / "bank").symlink_to(made / "www" / "bank")
    return Bank.open(made / "bank")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "made" / "www" / "bank"


Ask = Callable[[Bank], pl.LazyFrame]
ONE_STEP: dict[str, Ask] = {
    "scan": lambda bank: bank.scan("parity", steps=3),
    "filter": lambda bank: bank.scan("parity", steps=3).filter(pl.col("option") == "yes"),
}


def costs(served: FileServer, ask: Ask, *, deposits: int) -> pl.DataFrame:
    """The answer of a bank that was never opened before, within its bounds."""
    served.behave()
    answer = ask(open_bank(f"{served.url}/bank", steps=3)).collect()
    log = served.log()
    scores = [sent.path for sent in log if "/scores/" in sent.path]
    assert [path.split("/")[3] for path in scores] == ["3"]
    assert len(log) == 5  # the index, prompts, queries, tokens, and scores
    assert sum(sent.bytes for sent in log) < 20_000 + 600 * deposits
    return answer


@pytest.mark.parametrize("ask", ONE_STEP)
def test_one_step_of_a_bank_costs_its_scores_and_what_all_share(
    bank: Bank, served: FileServer, ask: str
) -> None:
    answer = costs(served, ONE_STEP[ask], deposits=FEW)
    expected = ONE_STEP[ask](bank).collect()
    assert answer.height in (10, 20)
    assert answer.schema == expected.schema
    assert answer.sort(KEY).equals(expected.sort(KEY))


@pytest.mark.whole
def test_one_step_of_fifty_costs_no_more_requests(served: FileServer, tmp_path: Path) -> None:
    of_steps(tmp_path, MANY)
    assert len(costs(served, ONE_STEP["scan"], deposits=MANY)) == 20


def test_documents_and_tables_cost_four_requests(bank: Bank, served: FileServer) -> None:
    there = Bank.open(f"{served.url}/bank", prompts=[])
    assert there.info().equals(bank.info())
    folders = sorted(sent.path.split("/")[1] for sent in served.log())
    assert folders == ["index.json.gz", "prompts", "queries", "tokens"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-9],
    "longer": lambda data: data + b"x",
    "flipped": lambda data: data[:500] + bytes([data[500] ^ 1]) + data[501:],
    "bomb": lambda data: gzip.compress(bytes(2**20 + 1)),
    "page": lambda data: b"<html>all is well</html>",
    "empty": lambda data: b"",
    "other": lambda data: gzip.compress(gzip.decompress(data).replace(b"0", b"1", 1)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_refused_and_the_next_push_writes_it_again(
    bank: Bank, served: FileServer, root: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(index, "MAX_BYTES", 2**20)
    sound = (root / index.NAME).read_bytes()
    (root / index.NAME).write_bytes(DAMAGE[damage](sound))
    with pytest.raises(DamagedError, match=r"bank/index\.json\.gz"):
        Bank.open(f"{served.url}/bank")
    assert push(bank.path, root).objects == 0
    assert (root / index.NAME).read_bytes() == sound
    assert len(Bank.open(f"{served.url}/bank").deposits()) == FEW
