"""Banks at a URL, read through a web server that counts and fails."""

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logitbank
from logitbank.errors import (
    BankError,
    BankFormatError,
    DamagedError,
    MissingExtraError,
    RemoteError,
    UsageError,
)
from logitbank.store import Bank, CheckpointId, Query, QuerySet, describe, merge, shrink, verify
from logitbank.store.files import documents
from logitbank.store.format.codecs import ROWS
from logitbank.store.format.shards import CHECKSUM, inner_bytes
from logitbank.store.share.local import open_remote
from logitbank.store.share.push import pull, push
from logitbank.store.share.remote import read
from logitbank.store.share.urls import bank_url
from tests.support.file_server import FileServer, Sent
from tests.support.hidden_banks import head, hidden_bank, states, true_logprobs
from tests.support.made_once import made_once
from tests.support.small_banks import (
    TOKENIZER,
    fill,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("cache")


def deposit(bank: Bank, step: int, *, seed: int = 0) -> None:
    fill(bank, spec(step), seed=seed)


@made_once
def two_steps(path: Path) -> None:
    made = new_bank(path)
    deposit(made, 0)
    deposit(made, 1, seed=1)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.open(two_steps(tmp_path / "bank"))


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
    return [sent for sent in log if not sent.path.endswith("index.json.gz")]


def test_a_bank_at_a_url_answers_as_the_folder_does(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    bank.add_tokens(TOKENIZER, token_table())
    publish(bank, tmp_path)
    there = logitbank.open(f"{served.url}/bank/", rows=True)
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
    text = gzip.decompress((root / "index.json.gz").read_bytes()).decode()
    index = json.loads(text)
    assert json.dumps(index, indent=2, ensure_ascii=False) + "\n" == text
    assert list(index) == ["index", "objects", "sha256"]
    told = f',\n  "sha256": "{index["sha256"]}"'
    assert hashlib.sha256(text.replace(told, "").encode()).hexdigest() == index["sha256"]
    assert index["index"] == 1
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    assert list(index["objects"]) == sorted(set(files) - {"index.json.gz", "README.md"})
    for path, value in index["objects"].items():
        data = files[path].read_bytes()
        assert value.pop("sha256") == hashlib.sha256(data).hexdigest()
        assert value.pop("bytes") == len(data)
        documents = path.endswith((".json", ".sha256"))
        assert value == ({"text": data.decode()} if documents else {})


def test_scores_are_copied_once_and_rows_when_they_are_asked_for(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    root, url = publish(bank, tmp_path), f"{served.url}/bank"
    there = Bank.open(url, steps=1)
    assert there.scan("parity", steps=1).collect().height == 20
    data = data_sent(served.log())
    folders = sorted(sent.path.split("/")[1] for sent in data)
    assert folders == ["org%2Fmodel", "prompts", "queries"]
    for sent in data:
        assert sent.bytes == (root.parent / sent.path).stat().st_size
    served.behave()
    again = Bank.open(url, steps=1)
    assert data_sent(served.log()) == []
    with pytest.raises(BankError, match=rf"logitbank\.open\('{url}', .*rows=True\)"):
        again.deposits()[1].logprobs()
    with pytest.raises(BankError, match=rf"logitbank\.open\('{url}', .*rows=True\)"):
        again.deposits()[1].group["logprobs"][:]
    with pytest.raises(BankError, match=rf"logitbank\.open\('{url}', .*prompts=…\)"):
        again.scan("parity").collect()
    steps = again.sql("SELECT DISTINCT step FROM scores").collect()["step"]
    assert steps.to_list() == [1]
    served.behave()
    rows = Bank.open(url, steps=1, rows=True).deposits()[1].logprobs()
    np.testing.assert_array_equal(rows, bank.deposits()[1].logprobs())
    assert {sent.path.split("/")[5] for sent in data_sent(served.log())} == {
        "logprobs",
        "logsumexp",
    }


def test_an_open_bank_stays_and_the_next_opening_finds_a_new_deposit(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    url = f"{served.url}/bank"
    open_before = Bank.open(url, rows=True)
    expected = open_before.deposits()[1].logprobs()
    deposit(bank, 2)
    publish(bank, tmp_path)
    assert len(open_before.deposits()) == 2
    assert Bank.open(url).info().equals(bank.info())
    np.testing.assert_array_equal(open_before.deposits()[1].logprobs(), expected)


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
    assert pull(url, target).objects == 0
    assert logitbank.verify(Bank.open(target)) == ()


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
        assert ROWS.claimed_size(data[offset:], length - CHECKSUM) == inner_bytes(grid)
        data[offset + 4 : offset + 8] = (2**31 - 1).to_bytes(4, "little")
    shard.write_bytes(data)
    (there,) = Bank.open(root).deposits()
    for ask in ({"tokens": [17]}, {}):  # by ranges, and the whole object
        with pytest.raises(DamagedError, match="2,147,483,647 bytes"):
            there.logprobs(**ask)  # type: ignore[arg-type]
    with pytest.raises(RemoteError, match="does not have the bytes"):
        Bank.open(f"{served.url}/bank", rows=True)


TABLE = "queries/q-" + "0" * 16 + ".parquet"
ENTRY = {"sha256": "a" * 64, "bytes": 1}
HOSTILE: list[Any] = [
    {"sha256": []},
    {"index": 2, "objects": {}},
    *(
        {"index": 1, "objects": {path: ENTRY}}
        for path in ("../x", "/etc/x", "a\\b", ".source.json")
    ),
    {"index": 1, "objects": {"zarr.json": ENTRY}},
    {"index": 1, "objects": {"zarr.json": ENTRY | {"bytes": 2, "text": "{}"}}},
    {"index": 1, "objects": {TABLE: ENTRY | {"sha256": "x"}}},
    {"index": 1, "objects": {TABLE: ENTRY | {"bytes": -1}}},
    {"index": 1, "objects": {}, "sha256": "0" * 64},
    {"index": 1, "objects": {}},
]


@pytest.mark.parametrize("index", HOSTILE)
def test_a_hostile_index_is_refused(
    served: FileServer, tmp_path: Path, cache: Path, index: Any
) -> None:
    (tmp_path / "www" / "bank").mkdir()
    data = json.dumps(index).encode() if "sha256" in index else documents.signed(index, index)
    (tmp_path / "www" / "bank" / "index.json.gz").write_bytes(gzip.compress(data))
    with pytest.raises((DamagedError, BankFormatError), match="index"):
        Bank.open(f"{served.url}/bank")
    assert [p.name for p in cache.rglob("*") if p.is_file()] == []


def test_a_size_that_lies_allocates_and_keeps_nothing(
    bank: Bank, served: FileServer, tmp_path: Path, cache: Path
) -> None:
    root = publish(bank, tmp_path)
    index = json.loads(gzip.decompress((root / "index.json.gz").read_bytes()))
    scores = [p for p in index["objects"] if p.endswith("all.parquet")]
    index["objects"][scores[0]]["bytes"] = 2**50
    index["objects"][scores[1]]["bytes"] = 1
    (root / "index.json.gz").write_bytes(gzip.compress(documents.signed(index, index)))
    for step in (0, 1):
        with pytest.raises(RemoteError, match="does not have the bytes"):
            Bank.open(f"{served.url}/bank", steps=step)
    assert not list(cache.rglob("scores/*"))
    assert not list(cache.rglob("scores/.*"))


def test_a_source_in_a_strangers_bank_means_nothing(bank: Bank, served: FileServer) -> None:
    listing = {"url": served.url, "etag": None}
    (bank.path / ".source.json").write_text(json.dumps(listing))
    served.behave()
    assert len(Bank.open(bank.path).scan("parity").collect()) == 40
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
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for url, name in (("s3://bucket/not-asked-for", "obstore"), ("https://x.org/b", "huggingface")):
        with pytest.raises(MissingExtraError, match=rf"needs {name}.*'logitbank\[remote"):
            Bank.open(url)


def test_a_sealed_folder_keeps_its_seal_when_an_older_copy_is_pulled(
    bank: Bank, served: FileServer, tmp_path: Path
) -> None:
    publish(bank, tmp_path)
    deposit(bank, 2)
    before = {p: p.read_bytes() for p in bank.path.rglob("*") if p.is_file()}
    assert pull(f"{served.url}/bank", bank.path).objects == 0
    assert {p: p.read_bytes() for p in bank.path.rglob("*") if p.is_file()} == before


def test_a_copy_is_read_only(bank: Bank, served: FileServer, tmp_path: Path) -> None:
    publish(bank, tmp_path)
    url = f"{served.url}/bank"
    copy = Bank.open(url)
    for write in (
        lambda: copy.begin(spec(9)),
        lambda: copy.add_prompts("parity", prompt_table()),
        lambda: verify(copy),
        lambda: describe(url, title="x"),
    ):
        with pytest.raises(UsageError, match=rf"{url} is read-only.*logitbank pull"):
            write()
    for create in (Bank.create, lambda to: logitbank.extract(to, suites="x", prompts="winobias")):
        with pytest.raises(UsageError, match="publish it at"):
            create(f"{served.url}/other")


def test_an_interrupted_pull_is_resumed(served: FileServer, tmp_path: Path) -> None:
    bank = wide_bank(tmp_path / "bank", queries=64, vocab=6_000, steps=(0, 1))
    publish(bank, tmp_path)
    url, target = f"{served.url}/bank", tmp_path / "pulled"
    served.behave(cut="/1/.*/logprobs/c")
    with pytest.raises(RemoteError, match=url):
        pull(url, target)
    assert [d.checkpoint.step for d in Bank.open(target).deposits() if d.committed()] in ([], [0])
    served.behave()
    pull(url, target)
    assert not [s for s in served.log() if "main/0/" in s.path and "/logprobs/c/" in s.path]
    for pulled, expected in zip(Bank.open(target).deposits(), bank.deposits(), strict=True):
        np.testing.assert_array_equal(pulled.logprobs(), expected.logprobs())
    assert verify(Bank.open(target)) == ()
    assert not list(target.rglob(".*"))


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"status": 404}, BankFormatError),
        ({"status": 403}, RemoteError),
        ({"change": "index"}, DamagedError),
        ({"gone": "scores"}, RemoteError),
        ({"limited": 99, "limit": {}}, RemoteError),
    ],
)
@pytest.mark.usefixtures("quick_retries")
def test_a_failed_copy_is_one_error_that_names_the_url(
    bank: Bank, served: FileServer, tmp_path: Path, how: dict[str, Any], kind: type[Exception]
) -> None:
    publish(bank, tmp_path)
    served.behave(**how)
    for call in (Bank.open, lambda url: pull(url, tmp_path / "pulled")):
        with pytest.raises(kind) as raised:
            call(f"{served.url}/bank")
        assert f"{served.url}/bank" in str(raised.value)
        assert "\n" not in str(raised.value)
    served.behave()
    push(f"{served.url}/bank", tmp_path / "further")
    assert verify(Bank.open(tmp_path / "further")) == ()


@pytest.mark.parametrize("how", [{"chunked": True}, {"packed": "heeding"}, {"packed": "always"}])
def test_servers_may_compress_or_send_no_length(
    bank: Bank,
    served: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, Any],
) -> None:
    publish(bank, tmp_path)
    served.behave(**how)
    pull(f"{served.url}/bank", tmp_path / "pulled")
    assert verify(tmp_path / "pulled") == ()
    assert Bank.open(f"{served.url}/bank", rows=True).info().equals(bank.info())
    (tmp_path / "www" / "large").write_bytes(bytes(2**21))
    monkeypatch.setattr("logitbank.store.share.remote.MAX_BYTES", 1000)
    with pytest.raises(RemoteError, match="more than 1,000 bytes"):
        read(open_remote(served.url), "large")


def test_heads_are_copied_with_the_rows_that_need_them(tmp_path: Path, served: FileServer) -> None:
    bank = hidden_bank(tmp_path / "b", steps=(0, 1))
    root = publish(bank, tmp_path, steps=[1])
    assert [p.name for p in (root / "heads").iterdir() if p.is_dir()] == [head(2).digest]
    publish(bank, tmp_path)
    assert push(bank.path, root).objects == 0
    url = f"{served.url}/bank"
    pull(url, tmp_path / "pulled")
    pulled = Bank.open(tmp_path / "pulled")
    assert verify(pulled) == ()
    served.behave()
    copy = Bank.open(url)
    assert copy.scan("parity").collect().height == 4 * 10
    assert not [sent for sent in served.log() if "/weight/" in sent.path]
    with pytest.raises(DamagedError, match="rows=True"):
        copy.deposits()[0].logprobs(tokens=[3])
    for each in (pulled, Bank.open(url, rows=True)):
        for step, deposit in enumerate(each.deposits()):
            expected = true_logprobs(head(step + 1), states(step))
            np.testing.assert_allclose(deposit.logprobs(), expected, atol=2e-6)
    shutil.rmtree(tmp_path / "cache")
    shard = min(root.glob("heads/*/weight/c/0/0"))
    data = shard.read_bytes()
    for broken in (data[:20] + bytes([data[20] ^ 1]) + data[21:], None):
        shard.unlink() if broken is None else shard.write_bytes(broken)
        with pytest.raises(RemoteError, match="weight/c/0/0"):
            Bank.open(url, rows=True)


@pytest.mark.parametrize(
    "address",
    [
        *("gs://bucket/b", "file:///data/b.zarr", "s3://", "https://x.org/a?b=c"),
        *("https://x.org/../a", "hf://models/x"),
    ],
)
def test_unsupported_addresses_are_refused(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for call in (Bank.open, Bank.create, lambda to: push(bank.path, to), verify):
        with pytest.raises(UsageError):
            call(address)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("quick_retries")
def test_an_address_is_a_url_or_a_folder() -> None:
    assert bank_url("S3://Bucket/b") == "s3://Bucket/b"
    assert bank_url("C:/banks/b") is None, "a drive"
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:9/x"):
        Bank.open("http://127.0.0.1:9/x")
