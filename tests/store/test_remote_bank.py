"""Banks at a URL, read through a web server that counts and fails."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import logitbank
from logitbank.errors import (
    BankFormatError,
    DamagedError,
    MissingExtraError,
    RemoteError,
    UsageError,
)
from logitbank.store import Bank, CheckpointId, Query, QuerySet, describe, merge, shrink, verify
from logitbank.store.filter.filters import Filter
from logitbank.store.format.shards import CHECKSUM, blosc_bytes, inner_bytes
from logitbank.store.remote.urls import url_of
from logitbank.store.sharing.transfer import pull, push
from tests.support.evaluation_banks import add_winobias
from tests.support.file_server import FileServer, Sent
from tests.support.made_once import made_once
from tests.support.small_banks import (
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("cache")


def deposit(bank: Bank, step: int, *, blocks: int = 3, seed: int = 0) -> None:
    with bank.begin(spec(step)) as writer:
        for block in writer.missing()[:blocks] if blocks else []:
            writer.write(block, block_data(writer.layout, block, seed=seed))
        if blocks == 3:
            writer.seal()


@made_once
def three_steps(path: Path) -> None:
    """Steps 0 and 1 sealed, one of three blocks of step 2."""
    made = new_bank(path)
    deposit(made, 0)
    deposit(made, 1, seed=1)
    deposit(made, 2, blocks=1)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.open(three_steps(tmp_path / "bank"))


def wide_bank(path: Path, *, queries: int, vocab: int, steps: tuple[int, ...] = (0,)) -> Bank:
    """Rows of several inner chunks."""
    made = Bank.create(path)
    query_set = QuerySet("5e" * 32, tuple(Query((i, 7), 1) for i in range(queries)))
    made.add_query_set(query_set)
    values = logits(queries=queries, vocab=vocab)
    for step in steps:
        checkpoint = CheckpointId("m", step=step)
        made.deposit(values, checkpoint=checkpoint, query_set=query_set.name, dtype="float16")
    return made


def publish(bank: Bank, tmp_path: Path, **part: Any) -> Path:
    push(bank.path, tmp_path / "www" / "bank", **part)
    return tmp_path / "www" / "bank"


def data_sent(log: list[Sent]) -> list[Sent]:
    return [sent for sent in log if not sent.path.endswith(("index.json", "index.json.gz"))]


def test_a_bank_at_a_url_is_read_through_a_filter(
    bank: Bank, served: FileServer, tmp_path: Path, cache: Path
) -> None:
    publish(bank, tmp_path)
    url, by = f"{served.url}/bank", Filter(np.eye(3) / 2, np.ones(3))
    there, here = (opened.filtered(by, name="v") for opened in (logitbank.open(url), bank))
    key = ["step", "prompt_id", "option"]
    mine, theirs = (b.scan("parity", steps=[0, 1]).collect().sort(key) for b in (here, there))
    assert theirs.equals(mine)
    for one, other in zip(here.deposits()[:2], there.deposits()[:2], strict=True):
        np.testing.assert_array_equal(other.logprobs([5, 2]), one.logprobs([5, 2]))


def test_a_bank_at_a_url_answers_as_the_folder_does(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    bank.add_tokens(TOKENIZER, token_table())
    publish(bank, tmp_path)
    there = logitbank.open(f"{served.url}/bank/")
    assert there.info().equals(bank.info())
    assert there.attributes == bank.attributes
    assert there.prompt_sets == ["parity"]
    assert there.query_sets() == bank.query_sets()
    key = ["step", "prompt_id", "option"]
    mine, theirs = (b.scan("parity").collect().sort(key) for b in (bank, there))
    assert theirs.equals(mine)
    for one, other in zip(bank.deposits(), there.deposits(), strict=True):
        rows = np.arange(one.rows_committed)
        np.testing.assert_array_equal(other.logprobs(rows), one.logprobs(rows))
        np.testing.assert_array_equal(other.logsumexp(rows), one.logsumexp(rows))
        np.testing.assert_array_equal(other.logprobs([0], [" no"]), one.logprobs([0], [4]))
    assert there.tokens().equals(token_table())
    assert repr(there).startswith(f"<Bank {served.url}/bank: org/model; ")


def test_index_is_as_documented(bank: Bank, tmp_path: Path) -> None:
    root = publish(bank, tmp_path)
    text = (root / "index.json").read_text()
    index = json.loads(text)
    assert json.dumps(index, indent=2, ensure_ascii=False) + "\n" == text
    assert list(index) == ["index", "parts", "objects", "sha256"]
    told = f',\n  "sha256": "{index["sha256"]}"'
    assert hashlib.sha256(text.replace(told, "").encode()).hexdigest() == index["sha256"]
    assert (index["index"], index["parts"]) == (1, 1)
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    beside = {"index.json", "index.json.gz", "index.html", "README.md"}
    assert list(index["objects"]) == sorted(set(files) - beside)
    assert gzip.decompress((root / "index.json.gz").read_bytes()).decode() == text
    for path, value in index["objects"].items():
        data = files[path].read_bytes()
        assert value.pop("sha256") == hashlib.sha256(data).hexdigest()
        assert value.pop("bytes") == len(data)
        documents = path.endswith((".json", ".sha256"))
        assert value == ({"text": data.decode()} if documents else {})


def test_opening_costs_a_compressed_index_and_opening_again_no_bytes(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    root = publish(bank, tmp_path)
    size, packed = ((root / name).stat().st_size for name in ("index.json", "index.json.gz"))
    Bank.open(f"{served.url}/bank").info()
    end = len(',\n  "sha256": ""\n}\n') + 64
    assert served.log() == [
        Sent("bank/index.json.gz", None, 200, packed),
        Sent("bank/index.json", f"bytes={size - end}-{size - 1}", 206, end),
    ]
    served.behave()
    Bank.open(f"{served.url}/bank").info()
    assert served.log() == [Sent("bank/index.json", "bytes=0-0", 304, 0)]


def test_a_scan_fetches_the_scores_asked_for_once(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    root = publish(bank, tmp_path)
    there = Bank.open(f"{served.url}/bank")
    served.behave()
    there.scan("parity", steps=1).collect()
    prompts, scores = sorted(served.log(), key=lambda sent: "/1/" in sent.path)
    assert prompts.path.startswith("bank/prompts/parity-")
    assert scores.path.endswith("/1/" + there.deposits()[0].query_set + "/scores/all.parquet")
    for sent in (prompts, scores):
        assert sent.bytes == (root.parent / sent.path).stat().st_size
    served.behave()
    Bank.open(f"{served.url}/bank").scan("parity", steps=1).collect()
    assert data_sent(served.log()) == []


def test_one_token_of_all_rows_fetches_its_inner_chunks(served: FileServer, tmp_path: Path) -> None:
    queries, vocab = 300, 12_000
    bank = Bank.create(tmp_path / "bank")
    query_set = QuerySet("5e" * 32, tuple(Query((i, 7), 1) for i in range(queries)))
    bank.add_query_set(query_set)
    values = logits(queries=queries, vocab=vocab)
    for step in (0, 1):
        bank.deposit(
            values,
            checkpoint=CheckpointId("m", step=step),
            query_set=query_set.name,
            dtype="float16",
        )
    root = publish(bank, tmp_path)
    there = Bank.open(f"{served.url}/bank")
    served.behave()
    columns = [d.logprobs(tokens=[4321]) for d in there.deposits()]
    for column, own in zip(columns, bank.deposits(), strict=True):
        np.testing.assert_array_equal(column, own.logprobs(tokens=[4321]))
    log = served.log()
    shards = sum(f.stat().st_size for f in root.glob("m/main/*/*/logprobs/c/*/0"))
    # Per checkpoint one shard of 3 × 3 inner chunks: its index, and the chunks of one column.
    assert len(log) == 2 * (1 + 3)
    assert {sent.status for sent in log} == {206}
    # The index by its place: what the commit says of the size tells it, and no server needs to.
    assert not any(sent.range.startswith("bytes=-") for sent in log if sent.range)
    index = 16 * 16 * 3 + 4  # of blocks of 2,048 rows: 16 × 3 inner chunks, most of them absent
    assert sum(sent.bytes == index for sent in log) == 2
    assert 0.3 * shards < sum(sent.bytes for sent in log) < 0.35 * shards
    assert not list(Path(os.environ["LOGITBANK_CACHE"]).glob("*/m/main/*/*/logprobs/c"))


def test_analyze_fairness_on_a_url_fetches_scores_and_one_table_of_prompts(
    served: FileServer, tmp_path: Path
) -> None:
    bank = Bank.create(tmp_path / "bank")
    add_winobias(bank, steps=(0, 8, 16), skew_from=8)
    add_winobias(bank, steps=(0, 8, 16), skew_from=8, model="other")
    root = publish(bank, tmp_path)
    from logitbank.cli.main import app

    served.behave()
    url = f"{served.url}/bank"
    command = ["analyze", "fairness", url, "--model", "toy", "--bootstrap", "0", "--table", "gap"]
    result = CliRunner().invoke(app, [*command, "--format", "csv"])
    assert result.exit_code == 0, result.output
    local = CliRunner().invoke(app, [*command[:2], str(bank.path), *command[3:], "--format", "csv"])
    assert result.output == local.output
    needed = [root / "index.json.gz", *root.glob("prompts/*.parquet")]
    needed += root.glob("toy/main/*/*/scores/all.parquet")
    log = [sent for sent in served.log() if not sent.path.endswith("index.json")]
    assert sorted(sent.path for sent in log) == sorted(
        p.relative_to(root.parent).as_posix() for p in needed
    )
    assert sum(sent.bytes for sent in log) == sum(p.stat().st_size for p in needed)


def test_an_open_bank_follows_a_seal_and_the_next_opening_a_new_deposit(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    url = f"{served.url}/bank"
    open_before = Bank.open(url)
    deposit(bank, 2)
    deposit(bank, 3)
    root = publish(bank, tmp_path)
    assert not list(root.glob("*/main/2/*/scores/0.parquet"))
    assert len(open_before.deposits()) == 3
    # Its part of block 0 is gone: the seal is found instead.
    assert open_before.deposits()[2].scores().collect()["query"].n_unique() == 10
    now = Bank.open(url)
    assert now.info().equals(bank.info())
    assert [d.sealed for d in now.deposits()] == [True] * 4


def test_a_copy_is_read_only(bank: Bank, served: FileServer, tmp_path: Path) -> None:
    publish(bank, tmp_path)
    there = Bank.open(f"{served.url}/bank")
    for write in (
        lambda: there.begin(spec(9)),
        lambda: there.add_query_set(bank.query_sets().popitem()[1]),
        lambda: there.add_prompts("parity", prompt_table()),
    ):
        with pytest.raises(
            UsageError, match=rf"{served.url}/bank can only be read.*logitbank pull"
        ):
            write()
    for look in (lambda: verify(there), lambda: describe(f"{served.url}/bank", title="x")):
        with pytest.raises(UsageError, match="can only be read.*work on the folder"):
            look()
    with pytest.raises(UsageError, match="made in a folder; publish it at"):
        Bank.create(f"{served.url}/other")
    with pytest.raises(UsageError, match="made in a folder; publish it at"):
        logitbank.extract(f"{served.url}/bank", suite="pythia-70m", prompts="winobias")


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ({"status": 404}, BankFormatError, "there is no bank at .*check the address"),
        ({"status": 403}, RemoteError, "refuses access; ask its publisher"),
        ({"status": 401}, RemoteError, "refuses access; ask its publisher"),
        ({"cut": "index"}, RemoteError, "the answer broke off"),
        ({"change": "index"}, DamagedError, "is no index of a bank .*push again"),
    ],
)
def test_what_stops_opening_is_one_error_that_names_the_url(
    bank: Bank,
    served: FileServer,
    tmp_path: Path,
    how: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    publish(bank, tmp_path)
    served.behave(**how)
    with pytest.raises(kind, match=message) as raised:
        Bank.open(f"{served.url}/bank")
    assert f"{served.url}/bank" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.whole
def test_a_refused_connection_is_one_error(served: FileServer) -> None:
    served.close()
    with pytest.raises(RemoteError, match=rf"{served.url}/bank.*no connection.*same command again"):
        Bank.open(f"{served.url}/bank")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"cut": "scores"}, "the answer broke off.*what arrived is kept"),
        ({"change": "scores"}, "does not hold the bytes that its bank lists"),
        ({"status": 404}, "is not there, although the bank lists it|there is no bank at"),
        ({"status": 500}, "500 Internal Server Error"),
    ],
)
def test_what_stops_a_scan_names_the_object(
    bank: Bank, served: FileServer, tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    publish(bank, tmp_path)
    there = Bank.open(f"{served.url}/bank")
    served.behave(**how)
    with pytest.raises((RemoteError, BankFormatError), match=message) as raised:
        there.scan("parity", steps=0).collect()
    assert served.url in str(raised.value)
    served.behave()
    assert len(there.scan("parity", steps=0).collect()) == 20


def test_a_server_without_ranges_serves_scores_and_refuses_rows(
    served: FileServer, tmp_path: Path
) -> None:
    wide_bank(tmp_path / "bank", queries=300, vocab=12_000)
    push(tmp_path / "bank", tmp_path / "www" / "bank")
    (there,) = Bank.open(f"{served.url}/bank").deposits()
    served.behave(ranges=False)
    assert there.scores().collect()["query"].n_unique() == 300
    with pytest.raises(RemoteError, match=rf"{served.url}.*range requests.*logitbank pull"):
        there.logprobs(tokens=[17])


def test_a_missing_shard_is_damage_and_no_number(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    root = publish(bank, tmp_path)
    next(iter(root.glob("*/main/0/*/logprobs/c/1/0"))).unlink()
    with pytest.raises(DamagedError, match=rf"{served.url}/\S+logprobs/c/1/0 .* is not there"):
        Bank.open(f"{served.url}/bank").deposits()[0].logprobs()


def test_pull_goes_on_where_a_broken_connection_left_it(served: FileServer, tmp_path: Path) -> None:
    bank = wide_bank(tmp_path / "bank", queries=64, vocab=60_000)
    root = publish(bank, tmp_path)
    url, target = f"{served.url}/bank", tmp_path / "pulled"
    served.behave(cut="logprobs/c")
    with pytest.raises(RemoteError, match="broke off"):
        pull(url, target)
    assert not (target / "m").exists() or Bank.open(target).deposits() == []
    served.behave()
    done = pull(url, target)
    shard = next(iter(root.glob("m/main/0/*/logprobs/c/0/0")))
    (again,) = [s for s in served.log() if "/logprobs/c/" in s.path]
    assert again.status == 206
    assert again.bytes < shard.stat().st_size
    assert done.present == 0
    np.testing.assert_array_equal(
        Bank.open(target).deposits()[0].logprobs(), bank.deposits()[0].logprobs()
    )
    assert logitbank.verify(Bank.open(target)) == ()
    assert not list(target.rglob(".*"))


def test_pull_fetches_only_what_changed_and_whole_parts(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    url, target = f"{served.url}/bank", tmp_path / "pulled"
    pull(url, target, steps=[1])
    assert Bank.open(target).info()["step"].to_list() == [1]
    assert Bank.open(target).prompt_sets == ["parity"]
    pull(url, target)
    assert Bank.open(target).info().equals(bank.info())
    deposit(bank, 2)
    publish(bank, tmp_path)
    served.behave()
    pull(url, target)
    assert Bank.open(target).info().equals(bank.info())
    assert all("/2/" in sent.path for sent in data_sent(served.log()))
    assert not list(target.glob("*/main/2/*/scores/0.parquet"))
    assert pull(url, target).objects == 0
    assert logitbank.verify(Bank.open(target)) == ()


def test_pull_refuses_a_deposit_that_is_there_with_other_content(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    mine = new_bank(tmp_path / "mine")
    deposit(mine, 0, seed=5)
    before = {p: p.read_bytes() for p in mine.path.rglob("*") if p.is_file()}
    with pytest.raises(Exception, match=r"org%2Fmodel/main/0/q-\S+ is in .*mine already") as raised:
        pull(f"{served.url}/bank", mine.path)
    assert isinstance(raised.value, logitbank.LogitbankError)
    assert {p: p.read_bytes() for p in mine.path.rglob("*") if p.is_file()} == before
    pull(f"{served.url}/bank", mine.path, steps=[1])
    assert mine.info()["step"].to_list() == [0, 1]


def test_merge_and_shrink_read_a_bank_at_a_url(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    merge(tmp_path / "merged", f"{served.url}/bank")
    merged = Bank.open(tmp_path / "merged")
    assert merged.info().equals(bank.info())
    assert verify(merged) == ()
    shrink(f"{served.url}/bank", tmp_path / "small", keep="options")
    assert Bank.open(tmp_path / "small").info()["keep"].unique().to_list() == ["options"]


def test_a_frame_that_would_fill_memory_is_refused(served: FileServer, tmp_path: Path) -> None:
    bank = wide_bank(tmp_path / "bank", queries=300, vocab=12_000)
    root = publish(bank, tmp_path)
    (shard,) = root.glob("m/main/0/*/logprobs/c/0/0")
    data, grid = bytearray(shard.read_bytes()), bank.deposits()[0].layout.grid
    assert grid is not None
    count = np.prod(grid.shard_shape) // np.prod(grid.chunk_shape)
    index = np.frombuffer(data[-16 * count - 4 : -4], "<u8").reshape(count, 2)
    for offset, length in index[index[:, 1] < len(data)].tolist():  # the others are absent
        assert blosc_bytes(data[offset:], length - CHECKSUM) == inner_bytes(grid)
        data[offset + 4 : offset + 8] = (2**31 - 1).to_bytes(4, "little")
    shard.write_bytes(data)
    for place in (root, f"{served.url}/bank"):
        (there,) = Bank.open(place).deposits()
        for ask in ({"tokens": [17]}, {}):  # by ranges, and the whole object
            with pytest.raises(DamagedError, match="an inner chunk tells 2,147,483,647 bytes, and"):
                there.logprobs(**ask)  # type: ignore[arg-type]


def test_what_a_bank_lacks_is_said(bank: Bank, served: FileServer, tmp_path: Path) -> None:
    publish(bank, tmp_path)
    url = f"{served.url}/bank"
    for part, message in (
        ({"steps": [7]}, "no step 7; it has 0, 1, 2"),
        ({"models": ["x"]}, "no model x; it has org/model"),
        ({"prompts": ["x"]}, "no prompt set x; it has parity"),
    ):
        with pytest.raises(logitbank.LogitbankError, match=message):
            pull(url, tmp_path / "pulled", **part)  # type: ignore[arg-type]
    assert not (tmp_path / "pulled").exists()
    with pytest.raises(UsageError, match="cannot be written to over HTTP"):
        push(bank.path, url)


TABLE = "queries/q-" + "0" * 16 + ".parquet"
HOSTILE: list[tuple[Any, str]] = [
    ([], "is no index"),
    ({"index": 2, "objects": {}}, "of version 2"),
    ({"index": 1, "parts": 10**9, "objects": {}}, "parts is"),
    ({"index": 1, "objects": {"../x": {"sha256": "a" * 64, "bytes": 1}}}, "no path of a bank"),
    ({"index": 1, "objects": {"/etc/x": {"sha256": "a" * 64, "bytes": 1}}}, "no path of a bank"),
    ({"index": 1, "objects": {"a\\b": {"sha256": "a" * 64, "bytes": 1}}}, "no path of a bank"),
    ({"index": 1, "objects": {".remote.json": {"sha256": "a" * 64, "bytes": 1}}}, "no path"),
    ({"index": 1, "objects": {"zarr.json": {"sha256": "a" * 64, "bytes": 1}}}, "texts belong"),
    (
        {"index": 1, "objects": {"zarr.json": {"sha256": "a" * 64, "bytes": 2, "text": "{}"}}},
        "text has another digest",
    ),
    ({"index": 1, "objects": {TABLE: {"sha256": "x", "bytes": 1}}}, "sha256 is 'x'"),
    ({"index": 1, "objects": {TABLE: {"sha256": "a" * 64, "bytes": -1}}}, "bytes is -1"),
    ({"index": 1, "objects": {}, "sha256": "0" * 64}, "its SHA-256 is not the one that it tells"),
    ({"index": 1, "objects": {}}, "lists no zarr.json"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "message"), HOSTILE)
def test_a_hostile_index_is_refused(
    served: FileServer, tmp_path: Path, cache: Path, index: Any, message: str
) -> None:
    (tmp_path / "www" / "bank").mkdir()
    (tmp_path / "www" / "bank" / "index.json").write_text(json.dumps(index))
    with pytest.raises((DamagedError, BankFormatError), match=message):
        Bank.open(f"{served.url}/bank")
    assert [p.name for p in cache.rglob("*") if p.is_file()] == []


def test_a_size_that_lies_allocates_and_keeps_nothing(
    bank: Bank, served: FileServer, tmp_path: Path, cache: Path
) -> None:
    root = publish(bank, tmp_path)
    index = json.loads((root / "index.json").read_text())
    scores = [p for p in index["objects"] if p.endswith("all.parquet")]
    index["objects"][scores[0]]["bytes"] = 2**50
    index["objects"][scores[1]]["bytes"] = 1
    del index["sha256"]  # as of an older publisher: nothing vouches for the sizes
    (root / "index.json").write_text(json.dumps(index))
    there = Bank.open(f"{served.url}/bank")
    for deposit in there.deposits()[:2]:
        with pytest.raises(RemoteError, match="does not hold the bytes"):
            deposit.scores().collect()
    assert not list(cache.rglob("scores/*"))
    assert not list(cache.rglob("scores/.*"))


def test_an_index_that_no_reader_takes_is_not_pushed(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.store.format.index.MAX_BYTES", 1000)
    with pytest.raises(UsageError, match=r"readers take 1,000; push the bank to several places"):
        push(bank.path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("indexed", [True, False])
def test_a_truncated_object_in_a_folder_is_named_and_sent_anew_once_it_is_deleted(
    bank: Bank, tmp_path: Path, indexed: bool
) -> None:
    root = publish(bank, tmp_path)
    deposits = "org%2Fmodel/main"
    for path in (f"{deposits}/0/*/scores/all.parquet", f"{deposits}/2/*/logprobs/c/0/0"):
        (there,) = root.glob(path)
        os.truncate(there, there.stat().st_size - 1)
        if not indexed:
            (root / "index.json").unlink()
        with pytest.raises(DamagedError, match=f"{there} is damaged.* Delete .* there and run"):
            push(bank.path, root)
        there.unlink()
        assert push(bank.path, root).objects == 1
    (table,) = root.glob("prompts/*.parquet")
    os.truncate(table, 50)
    beside = table.with_name(f"{table.name}.sha256")
    with pytest.raises(DamagedError, match=rf"Delete prompts/{table.name} and .*sha256 there and"):
        push(bank.path, root)
    table.unlink()
    beside.unlink()
    assert push(bank.path, root).objects == 2
    assert verify(Bank.open(root)) == ()


def test_a_listing_in_a_strangers_bank_means_nothing(bank: Bank, served: FileServer) -> None:
    listing = {"url": served.url, "etags": [None], "objects": {}}
    (bank.path / ".remote.json").write_text(json.dumps(listing))
    served.behave()
    assert len(Bank.open(bank.path).scan("parity").collect()) == 48
    assert served.log() == []


def test_a_local_bank_needs_no_obstore_and_a_url_names_the_extra(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from logitbank import open, push;"
        f"open({str(bank.path)!r}).deposits()[0].logprobs();"
        f"push({str(bank.path)!r}, {str(tmp_path / 'copy')!r});"
        "print([m for m in ('obstore', 'huggingface_hub') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingExtraError, match=r"needs obstore; .*pip install 'logitbank\[remote"):
        Bank.open("s3://bucket/not-asked-for")


@pytest.mark.whole
def test_the_command_line_says_one_line(served: FileServer) -> None:
    code = "from logitbank.cli.main import run; run()"
    for url, said, exit_code in (
        (f"{served.url}/none", f"there is no bank at {served.url}/none", 2),
        ("http://127.0.0.1:9/x", "http://127.0.0.1:9/x/index.json.gz cannot be reached", 1),
    ):
        command = [sys.executable, "-c", code, "info", url]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (exit_code, "")
        assert result.stderr.startswith(f"logitbank: {said}")
        assert len(result.stderr.splitlines()) == 1


def test_a_bank_at_a_url_is_pushed_on(bank: Bank, served: FileServer, tmp_path: Path) -> None:
    publish(bank, tmp_path)
    push(f"{served.url}/bank", tmp_path / "further", steps=[1])
    assert verify(Bank.open(tmp_path / "further")) == ()
    assert (tmp_path / "further" / "index.json").exists()


def test_a_sealed_folder_keeps_its_seal_when_an_older_copy_is_pulled(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    deposit(bank, 2)
    before = {p: p.read_bytes() for p in bank.path.rglob("*") if p.is_file()}
    assert pull(f"{served.url}/bank", bank.path).objects == 0
    assert {p: p.read_bytes() for p in bank.path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("address", ["gs://bucket/b", "gs:/bucket/b", "ABFS://b/c", "az://b"])
def test_places_that_are_not_known_are_no_folders(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    message = (
        r"^(gs|abfs|az)://\S+ is no place of banks: give a folder, or a URL of https://, s3://"
    )
    for call in (Bank.open, Bank.create, lambda to: push(bank.path, to), verify):
        with pytest.raises(UsageError, match=message):
            call(address)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_s_url_is_answered_with_its_path() -> None:
    for address in ("file:///data/b.zarr", Path("file:///data/b.zarr"), "FILE:///data/b.zarr"):
        with pytest.raises(UsageError, match=r"give its path, /data/b\.zarr$"):
            Bank.open(address)


def test_a_scheme_is_the_same_in_capital_letters() -> None:
    assert url_of("S3://Bucket/b") == "s3://Bucket/b"
    assert url_of("HF://datasets/me/b@v1") == "hf://datasets/me/b@v1"
    assert url_of("C:/banks/b") is None, "a drive"


def test_a_bank_is_not_pushed_into_itself(bank: Bank) -> None:
    before = sorted(bank.path.rglob("*"))
    with pytest.raises(UsageError, match="is the bank itself; give another folder"):
        push(bank.path, bank.path)
    assert sorted(bank.path.rglob("*")) == before


def test_addresses_that_no_bank_can_have() -> None:
    for address in ("https://x.org/a?b=c", "https://x.org/../a", "hf://models/x", "s3://a/./b"):
        with pytest.raises(UsageError, match="leave out|names no repository"):
            Bank.open(address)
