"""Push to, read from and pull from an S3-protocol server."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import logitbank
from logitbank.errors import BankError, BankFormatError, DamagedError, RemoteError
from logitbank.store import Bank, verify
from logitbank.store.share.places import place_at, s3_store
from logitbank.store.share.push import pull, push
from tests.support.s3_server import BUCKET, S3Server
from tests.support.small_banks import (
    block_data,
    new_bank,
    prompt_table,
    spec,
)

obstore = pytest.importorskip("obstore")
pytest.importorskip("moto")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def url(
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> str:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    server.behave()
    return f"s3://{BUCKET}/{request.node.name[:60]}/bank"


def make(path: Path, *steps: int, seed: int = 0, **made: str) -> Bank:
    bank = new_bank(path)
    for step in steps:
        add(bank, step, seed=seed, **made)
    return bank


def add(bank: Bank, step: int, *, blocks: int = 3, seed: int = 0, **made: str) -> None:
    with bank.begin(spec(step, **made)) as writer:
        for block in writer.missing()[:blocks]:
            writer.write(block, block_data(writer.layout, block, seed=seed))
        if blocks == 3:
            writer.seal()


def same_rows(one: Bank, other: Bank) -> None:
    assert other.info().equals(one.info())
    for a, b in zip(one.deposits(), other.deposits(), strict=True):
        rows = np.arange(a.rows_committed)
        np.testing.assert_array_equal(b.logprobs(rows), a.logprobs(rows))
        np.testing.assert_array_equal(b.logsumexp(rows), a.logsumexp(rows))


def test_a_pushed_bank_opens_in_place_and_comes_back_equal(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    bank = make(tmp_path / "bank", 0, 1)
    add(bank, 2, blocks=1)
    done = push(bank.path, url)
    puts = server.puts()
    assert done.objects == len(puts) - 1  # and the index, which is the last
    assert [path.rpartition("/")[2] for path in puts][-1] == "index.json.gz"
    assert next(iter(puts)).endswith("/bank/zarr.json"), "what makes it a bank comes first"
    order = list(puts)
    for seal in (p for p in order if p.endswith("seal.json")):
        mine = [p for p in order if p.startswith(seal.removesuffix("commits/seal.json"))]
        assert mine[0].endswith("/zarr.json")
        assert mine[-1] == seal
    same_rows(bank, Bank.open(url, rows=True))
    pull(url, tmp_path / "back")
    assert verify(Bank.open(tmp_path / "back")) == ()
    same_rows(bank, Bank.open(tmp_path / "back"))
    key = ["step", "prompt_id", "option"]
    scans = [b.scan("parity").collect().sort(key) for b in (bank, Bank.open(url))]
    assert scans[0].equals(scans[1])


def test_pushing_again_sends_what_is_new_and_removes_what_a_seal_replaced(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    bank = make(tmp_path / "bank", 0)
    add(bank, 1, blocks=1)
    push(bank.path, url)
    server.behave()
    assert push(bank.path, url).objects == 0
    assert server.puts() == {}
    add(bank, 1)
    push(bank.path, url)
    assert {p.split("/bank/")[1].split("/")[2] for p in server.puts() if "index" not in p} == {"1"}
    for there in (listing(url), index_of(url)):
        assert not [p for p in there if p.endswith(("commits/0.json", "scores/0.parquet"))]
        assert len([p for p in there if p.endswith("seal.json")]) == 2
    same_rows(bank, Bank.open(url, rows=True))


def listing(url: str) -> list[str]:
    return [meta["path"] for page in obstore.list(s3_store(url)) for meta in page]


def delete(url: str, *paths: str) -> None:
    obstore.delete(s3_store(url, write=True), list(paths))


def put(url: str, path: str, data: bytes) -> None:
    obstore.put(s3_store(url, write=True), path, data)


def index_of(url: str) -> dict[str, Any]:
    answer = place_at(url).read("index.json.gz")
    objects: dict[str, Any] = json.loads(gzip.decompress(answer.data))["objects"]
    return objects


def test_a_push_that_a_failing_server_broke_off_goes_on_without_sending_again(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    bank = make(tmp_path / "bank", 0, 1, 2)
    server.behave(puts=20)
    with pytest.raises(RemoteError, match=rf"{url}/.* \(503 Service Unavailable\)"):
        push(bank.path, url)
    first = server.puts() if server.behave() else {}
    done = push(bank.path, url)
    second = server.puts()
    assert done.objects + done.present == len(bank_files(bank))
    assert done.present >= 10
    assert not set(first) & set(second)
    same_rows(bank, Bank.open(url, rows=True))


def bank_files(bank: Bank) -> list[Path]:
    return [p for p in bank.path.rglob("*") if p.is_file()]


@pytest.mark.whole
def test_a_killed_push_and_a_killed_pull_are_completed_by_the_same_command(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    bank = make(tmp_path / "bank", *range(6))
    back = tmp_path / "back"
    for command in (["push", str(bank.path), url], ["pull", url, str(back)]):
        code = "from logitbank.cli.main import run; run()"
        for delay in (0.9, 1.4, 1.9):
            process = subprocess.Popen([sys.executable, "-c", code, *command])
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert "objects" in done.stdout
    same_rows(bank, Bank.open(url, rows=True))
    same_rows(bank, Bank.open(back))
    assert verify(Bank.open(back)) == ()
    assert sorted(p.relative_to(back) for p in bank_files(Bank.open(back))) == sorted(
        p.relative_to(bank.path) for p in bank_files(bank)
    )


def test_two_people_push_different_deposits_at_once_and_both_survive(
    tmp_path: Path, url: str
) -> None:
    banks = [make(tmp_path / f"bank{i}", i, seed=i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda bank: push(bank.path, url), banks))
    there = Bank.open(url, rows=True)
    assert there.info()["step"].to_list() == [0, 1, 2, 3]
    for bank, deposit in zip(banks, there.deposits(), strict=True):
        np.testing.assert_array_equal(deposit.logprobs(), bank.deposits()[0].logprobs())


def test_a_deposit_that_is_there_with_other_content_is_one_error_and_stays(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    config = "1" * 16
    push(make(tmp_path / "theirs", 0, config=config).path, url)
    before = index_of(url)
    mine = make(tmp_path / "mine", 0, 1, seed=3, config=config)
    server.behave()
    with pytest.raises(BankError, match=r"org%2Fmodel/main/0/q-\S+ is in s3://\S+ already, with"):
        push(mine.path, url)
    assert server.puts() == {}
    assert index_of(url) == before
    for made, message in (
        ({"engine": "y"}, r"main/0/q-\S+ is in .* with another zarr.json"),
        ({"weights": "cd" * 32}, "not the same weights; store these under another model"),
        ({"config": "2" * 16}, "with config digest 1+, not 2+: not the same config; store"),
    ):
        other = new_bank(tmp_path / f"other-{next(iter(made))}")
        with other.begin(spec(0, **{"config": config, **made})) as writer:
            writer.write(0, block_data(writer.layout, 0))
        with pytest.raises(BankError, match=message):
            push(other.path, url)


def test_the_same_deposit_pushed_by_two_is_no_conflict(tmp_path: Path, url: str) -> None:
    push(make(tmp_path / "one", 0).path, url)
    time.sleep(1.1)  # so that the commits' times differ
    two = make(tmp_path / "two", 0)
    assert push(two.path, url).objects == 0
    same_rows(two, Bank.open(url, rows=True))


def test_a_lost_index_is_written_again_by_the_next_push(tmp_path: Path, url: str) -> None:
    bank = make(tmp_path / "bank", 0)
    add(bank, 1, blocks=2)
    push(bank.path, url)
    before = index_of(url)
    delete(url, "index.json.gz")
    with pytest.raises(BankFormatError, match=r"index\.json\.gz is not there.*logitbank push"):
        Bank.open(url)
    assert push(bank.path, url).objects == 0
    assert index_of(url) == before
    put(url, "index.json.gz", b"no index")
    with pytest.raises(DamagedError, match="is no index of a bank"):
        Bank.open(url)
    assert push(bank.path, url).objects == 0
    assert index_of(url) == before


def test_parts_bring_what_they_need(tmp_path: Path, url: str) -> None:
    bank = make(tmp_path / "bank", 0, 1, 2)
    bank.add_prompts("other", prompt_table(topic="x"))
    push(bank.path, url, steps=[0, 2], prompts=["parity"])
    there = Bank.open(url)
    assert there.info()["step"].to_list() == [0, 2]
    assert there.prompt_sets == ["parity"]
    assert len(there.query_sets()) == 1


def test_the_commands_take_the_steps_of_extract(tmp_path: Path, url: str) -> None:
    from logitbank.cli.main import app

    bank = make(tmp_path / "bank", 0, 1, 2, 4)
    run = CliRunner().invoke
    assert run(app, ["push", str(bank.path), url, "--steps", "0:4:2"]).exit_code == 0
    result = run(app, ["pull", url, str(tmp_path / "back"), "--steps", "2,last"])
    assert result.exit_code == 0, result.output
    assert "→" in result.output
    assert Bank.open(tmp_path / "back").info()["step"].to_list() == [2, 4]
    assert isinstance(
        run(app, ["pull", url, "x", "--steps", "3"]).exception, logitbank.LogitbankError
    )


def test_a_damaged_object_is_not_sent(tmp_path: Path, url: str, server: S3Server) -> None:
    bank = make(tmp_path / "bank", 0)
    scores = next(iter(bank.path.glob("*/main/0/*/scores/all.parquet")))
    data = scores.read_bytes()
    scores.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedError, match=r"all.parquet is not what was committed"):
        push(bank.path, url)
    assert not [
        p for p in server.puts() if p.endswith(("all.parquet", "seal.json", "index.json.gz"))
    ]


def test_a_missing_bucket_is_one_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(RemoteError, match=r"s3://nowhere/x.*NoSuchBucket"):
        push(make(tmp_path / "bank", 0).path, "s3://nowhere/x")


def test_without_a_right_one_error_names_the_variables_to_set(
    tmp_path: Path, url: str, server: S3Server
) -> None:
    bank = make(tmp_path / "bank", 0)
    server.behave(puts=0, status="403 Forbidden")
    for call in (Bank.open, lambda to: push(bank.path, to)):
        with pytest.raises(RemoteError, match=rf"{url}\S* refuses access; set AWS_ACCESS_KEY_ID"):
            call(url)


@pytest.mark.parametrize("indexed", [True, False])
def test_a_truncated_object_is_named_and_sent_anew_once_it_is_deleted(
    tmp_path: Path, url: str, indexed: bool
) -> None:
    bank = make(tmp_path / "bank", 0)
    push(bank.path, url)
    (shard,) = (p for p in listing(url) if p.endswith("logprobs/c/1/0"))
    put(url, shard, (bank.path / shard).read_bytes()[:-1])
    if not indexed:
        delete(url, "index.json.gz")
    message = rf"{url}/{shard} is damaged.* Delete {shard} there and run the same command again"
    with pytest.raises(DamagedError, match=message):
        push(bank.path, url)
    delete(url, shard)
    assert push(bank.path, url).objects == 1
    pull(url, tmp_path / "back")
    assert verify(Bank.open(tmp_path / "back")) == ()


def test_an_object_of_the_right_size_is_not_read_again_and_the_command_says_so(
    tmp_path: Path, url: str
) -> None:
    bank = make(tmp_path / "bank", 0)
    push(bank.path, url)
    (shard,) = (p for p in listing(url) if p.endswith("logprobs/c/1/0"))
    put(url, shard, bytes(len((bank.path / shard).read_bytes())))
    done = push(bank.path, url)
    assert str(done).endswith("of the same size were there already and were not read again")
    assert done.objects == 0
    with pytest.raises(RemoteError, match="does not hold the bytes that its bank lists"):
        pull(url, tmp_path / "back")
