"""What reading a bank at a URL costs: requests and bytes, of one step among many."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from logitbank.errors import BankError, DamagedError
from logitbank.store import Bank, CheckpointId
from logitbank.store.filter.view import open_bank
from logitbank.store.format import index
from logitbank.store.read.readable import Readable
from logitbank.store.sharing.transfer import push
from tests.support.file_server import FileServer, Sent
from tests.support.made_once import made_once
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    prompt_table,
    token_table,
)

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("cache")

KEY = ["model", "run", "step", "prompt_id", "option"]
FEW, MANY = 12, 200


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


Ask = Callable[[Readable], pl.LazyFrame]
ONE_STEP: dict[str, Ask] = {
    "argument": lambda bank: bank.scan("parity", steps=3),
    "filter": lambda bank: bank.scan("parity").filter(pl.col("step") == 3),
    "names": lambda bank: bank.scan("parity", runs="main").filter(
        (pl.col("model") == "org/model") & pl.col("step").is_in([3])
    ),
    "texts": lambda bank: bank.scan("parity", token_text=True).filter(step=3),
    "whole": lambda bank: bank.scan("parity", whole_options=True).filter(step=3),
    "sql": lambda bank: bank.sql("SELECT * FROM scores WHERE step = 3 AND model = 'org/model'"),
    "option": lambda bank: bank.sql(
        "SELECT MAX(logprob) AS nats FROM scores WHERE step = 3 AND option = 'yes'"
    ),
}


def costs(served: FileServer, ask: Ask, *, deposits: int) -> pl.DataFrame:
    """The answer of a bank that was never opened before, within its bounds."""
    served.behave()
    answer = ask(open_bank(f"{served.url}/bank")).collect()
    log = served.log()
    scores = [sent.path for sent in log if "/scores/" in sent.path]
    assert [path.split("/")[3] for path in scores] == ["3"]
    assert len(log) <= 6
    assert sum(sent.bytes for sent in log) < 20_000 + 600 * deposits
    return answer


@pytest.mark.parametrize("ask", ONE_STEP)
def test_one_step_of_a_bank_costs_its_scores_and_what_all_share(
    bank: Bank, served: FileServer, ask: str
) -> None:
    answer = costs(served, ONE_STEP[ask], deposits=FEW)
    order = [name for name in KEY if name in answer.columns]
    expected = ONE_STEP[ask](bank).collect()
    assert answer.height in (1, 20)
    assert answer.schema == expected.schema
    assert (answer.sort(order) if order else answer).equals(
        expected.sort(order) if order else expected
    )


@pytest.mark.whole
def test_one_step_of_two_hundred_costs_no_more_requests(served: FileServer, tmp_path: Path) -> None:
    of_steps(tmp_path, MANY)
    assert len(costs(served, ONE_STEP["filter"], deposits=MANY)) == 20


def test_a_few_rows_cost_one_deposit_and_none_costs_no_scores(
    bank: Bank, served: FileServer
) -> None:
    there = Bank.open(f"{served.url}/bank")
    served.behave()
    nothing = there.scan("parity").filter(pl.col("step") == 99).collect()
    assert nothing.is_empty()
    assert nothing.schema == bank.scan("parity").collect_schema()
    assert not [sent for sent in served.log() if "/scores/" in sent.path]
    assert len(there.scan("parity").head(5).collect()) == 5
    assert len([sent for sent in served.log() if "/scores/" in sent.path]) == 1
    assert len(there.scan("parity").head(70).collect()) == 70


def test_filters_of_a_scan_leave_what_they_leave_of_a_folder(
    bank: Bank, served: FileServer
) -> None:
    there = Bank.open(f"{served.url}/bank")
    logprob, step = pl.col("logprob"), pl.col("step")
    for condition in (
        (step < 4) | (step > 9),
        (step > 2) & (pl.col("option") == "no") & (logprob < -1),
        pl.col("row").is_between(3, 5) & (step == pl.col("row")),
        pl.col("is_answer"),
    ):
        mine, theirs = (b.scan("parity").filter(condition).sort(KEY) for b in (bank, there))
        assert theirs.collect().height > 0
        assert theirs.collect().equals(mine.collect())
        count = pl.len().alias("n")
        assert theirs.select(count).collect().equals(mine.select(count).collect())


def test_a_step_that_lacks_an_options_scores_is_refused_and_others_are_not(
    bank: Bank, served: FileServer, root: Path
) -> None:
    more = prompt_table().with_columns(
        prompt_id=pl.lit("new"), option=pl.col("option") + "?", token=pl.lit(3, pl.Int32)
    )
    bank.add_prompts("parity", more.filter(pl.col("row") == 0).unique("option").head(1))
    bank.deposit(
        logits(99), checkpoint=CheckpointId("org/model", step=99), query_set=QUERY_SET.name
    )
    push(bank.path, root)
    there = Bank.open(f"{served.url}/bank")
    assert len(there.scan("parity", steps=99).collect()) == 21
    frame = there.scan("parity").filter(pl.col("step") == 3)
    with pytest.raises(BankError, match=r"step 3, \S+ lacks scores of 1 options.*logitbank pull"):
        frame.collect()


def test_the_compressed_index_counts_only_as_long_as_it_is_that_of_the_index(
    bank: Bank, served: FileServer, root: Path, cache: Path
) -> None:
    url, packed = f"{served.url}/bank", root / index.COMPRESSED
    old = packed.read_bytes()
    there = Bank.open(url)
    add(bank, FEW)
    push(bank.path, root)
    new = packed.read_bytes()
    packed.write_bytes(old)  # as of a push that was stopped, or a writer that knows of none
    served.behave()
    assert len(Bank.open(url).deposits()) == len(there.deposits()) == FEW + 1
    # It has changed; the compressed one is not its own; so it is read.
    assert [(sent.path[5:], sent.status) for sent in served.log()][:2] == [
        ("index.json", 206),
        ("index.json.gz", 200),
    ]
    assert served.log()[-1].path == "bank/index.json"
    assert served.log()[-1].range is None
    assert push(bank.path, root).objects == 0
    assert index.decompress(packed.read_bytes(), where="") == (root / index.NAME).read_bytes()
    # And one that is of a later index than the one that is there.
    add(bank, FEW + 1)
    (root / index.NAME).rename(root / "kept")
    push(bank.path, root)
    (root / "kept").rename(root / index.NAME)
    assert packed.read_bytes() not in (old, new)
    assert len(Bank.open(url).deposits()) == FEW + 1


def bomb(data: bytes) -> bytes:
    return index.compress(bytes(index.MAX_BYTES + 1))


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda data: data[:-9], "does not end where its gzip does"),
    "longer": (lambda data: data + b"x", "does not end where its gzip does"),
    "flipped": (lambda data: data[:500] + bytes([data[500] ^ 1]) + data[501:], "gzip"),
    "bomb": (bomb, "becomes more than .* bytes; no index has so many"),
    "page": (lambda data: b"<html>all is well</html>", "does not end with its SHA-256"),
    "empty": (lambda data: b"", "does not end with its SHA-256"),
    "other": (
        lambda data: index.compress(index.decompress(data, where="").replace(b"0", b"1", 1)),
        "is no index of a bank",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_compressed_index_is_said_and_the_index_is_read(
    bank: Bank,
    served: FileServer,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    monkeypatch.setattr(index, "MAX_BYTES", 2**20)
    change, message = DAMAGE[damage]
    packed = root / index.COMPRESSED
    packed.write_bytes(change(packed.read_bytes()))
    assert len(Bank.open(f"{served.url}/bank").deposits()) == FEW
    (said,) = [r.getMessage() for r in caplog.records if r.name == "logitbank"]
    assert said.startswith(f"{served.url}/bank/index.json.gz")
    assert said.endswith(f"; {served.url}/bank/index.json is read in its place")
    assert re.search(message, said)
    assert push(bank.path, root).objects == 0
    assert index.is_compressed(packed.read_bytes(), (root / index.NAME).read_bytes())


@pytest.mark.parametrize("how", [{"forbidden": r"\.gz$"}, {"ranges": False}, {}])
def test_places_without_a_compressed_index_or_parts_of_objects_are_read(
    bank: Bank,
    served: FileServer,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    how: dict[str, str],
) -> None:
    if not how:
        (root / index.COMPRESSED).unlink()
    served.behave(**how)
    there = Bank.open(f"{served.url}/bank")
    assert len(there.scan("parity", steps=3).collect()) == 20
    assert Sent("bank/index.json", None, 200, (root / index.NAME).stat().st_size) in served.log()
    add(bank, FEW)
    push(bank.path, root)
    assert len(Bank.open(f"{served.url}/bank").deposits()) == FEW + 1
    assert [r for r in caplog.records if r.name == "logitbank"] == []


def test_a_compressed_index_that_a_server_decompresses_is_as_good(
    bank: Bank, served: FileServer, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / index.COMPRESSED).write_bytes((root / index.NAME).read_bytes())
    assert len(Bank.open(f"{served.url}/bank").deposits()) == FEW
    assert [sent.status for sent in served.log()] == [200, 206]
    assert caplog.records == []


def test_what_decompresses_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_BYTES", 1000)
    assert index.decompress(index.compress(bytes(1000)), where="x") == bytes(1000)
    with pytest.raises(DamagedError, match="x becomes more than 1,000 bytes"):
        index.decompress(index.compress(bytes(1001)), where="x")
