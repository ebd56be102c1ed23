"""Push to, read from and pull from a folder, an S3-protocol server and a hub of datasets."""

import gzip
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from logitbank.errors import (
    BankError,
    BankFormatError,
    DamagedError,
    LogitbankError,
    RemoteError,
    UsageError,
)
from logitbank.store import Bank, describe, verify
from logitbank.store.files import objects
from logitbank.store.format import commits, index
from logitbank.store.share.card import card
from logitbank.store.share.hub import HubDataset
from logitbank.store.share.moves import moves
from logitbank.store.share.push import open_target, pull, push
from logitbank.store.share.s3 import s3_store
from logitbank.store.share.selection import chosen
from logitbank.store.share.targets import Folder, Source, publish, stored_objects
from tests.support.dataset_hub import DatasetHub
from tests.support.fault_points import stops
from tests.support.made_once import made_once
from tests.support.preloaded import Preloaded
from tests.support.s3_server import S3Server
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    bank_of,
    fill,
    new_bank,
    prompt_table,
    resign_table,
    spec,
    token_table,
)

obstore = pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")
pytest.importorskip("moto")
# huggingface_hub 2.4 uploads large files in a way that httpx calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def empty_cache(cache: Path) -> None:
    pass


@pytest.fixture(params=["folder", "s3", "hub"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "target")
    return str(request.getfixturevalue(request.param))


def add(bank: Bank, step: int, *, blocks: int = 3, seed: int = 0, **provenance: str) -> None:
    fill(bank, spec(step, **provenance), blocks=range(blocks), seed=seed + step)


def same_rows(one: Bank, other: Bank) -> None:
    assert other.info().equals(one.info())
    for a, b in zip(one.deposits(), other.deposits(), strict=True):
        rows = np.arange(a.rows_committed)
        np.testing.assert_array_equal(b.logprobs(rows), a.logprobs(rows))
        np.testing.assert_array_equal(b.logsumexp(rows), a.logsumexp(rows))


def paths_at(target: str) -> set[str]:
    return set(open_target(target).sizes())


def indexed(target: str) -> dict[str, Any]:
    place = open_target(target)
    place.sizes()
    objects: dict[str, Any] = json.loads(gzip.decompress(place.read(index.NAME)))["objects"]
    return objects


def test_a_pushed_bank_opens_in_place_and_comes_back_equal(tmp_path: Path, target: str) -> None:
    bank = bank_of(tmp_path / "bank", 0, 1)
    push(bank.path, target)
    same_rows(bank, Bank.open(target, rows=True))
    pull(target, tmp_path / "back")
    back = Bank.open(tmp_path / "back")
    assert verify(back) == ()
    same_rows(bank, back)
    assert {p.name for p in back.path.iterdir()} == {p.name for p in bank.path.iterdir()}
    scans = [b.scan("parity").sort("step", "row", "token").collect() for b in (bank, back)]
    assert scans[0].equals(scans[1])


def test_whole_deposits_alone_are_sent(tmp_path: Path, target: str) -> None:
    """One in progress is left out, and the result counts it."""
    bank = bank_of(tmp_path / "bank", 0)
    add(bank, 1, blocks=1)
    sent = push(bank.path, target)
    assert str(sent).endswith(", 1 incomplete deposit left out")
    assert pull(bank.path, tmp_path / "back").incomplete == 1
    assert not [path for path in paths_at(target) if "/main/1/" in path]
    assert Bank.open(tmp_path / "back").info()["step"].to_list() == [0]
    assert push(bank.path, target).objects == 0
    before = paths_at(target)
    add(bank, 1)
    push(bank.path, target)
    assert all("/1/" in path for path in paths_at(target) - before)
    for paths in (paths_at(target), indexed(target)):
        assert len([p for p in paths if p.endswith("seal.json")]) == 2
    same_rows(bank, Bank.open(target, rows=True))


def test_concurrent_pushes_lose_and_mix_nothing(tmp_path: Path, target: str) -> None:
    banks = [bank_of(tmp_path / f"bank{i}", i, seed=i) for i in range(4)]
    push(banks[0].path, target)  # a hub creates the repository
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda bank: push(bank.path, target), banks[1:]))
    pushed = Bank.open(target, rows=True)
    assert pushed.info()["step"].to_list() == [0, 1, 2, 3]
    for bank, deposit in zip(banks, pushed.deposits(), strict=True):
        np.testing.assert_array_equal(deposit.logprobs(), bank.deposits()[0].logprobs())


def overtaken(monkeypatch: pytest.MonkeyPatch, name: str, first: Callable[[], object]) -> None:
    """Call a function before the next call of a function of `share`, which others call, too."""
    module, _, last = name.rpartition(".")
    owner = importlib.import_module(f"logitbank.store.share.{module}")
    real = getattr(owner, last)

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, last, real)
        first()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, last, late)


@pytest.mark.parametrize(
    ("what", "moment"),
    [
        ("answer", "copying.counting"),
        ("answer", "s3.claim"),
        ("fewer", "copying.counting"),
        ("license", "copying.root_document"),
    ],
)
def test_of_two_pushes_of_different_versions_at_once_one_is_refused(
    tmp_path: Path, target: str, what: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a new place: each has compared its tables with nothing."""
    if moment == "s3.claim" and not target.startswith("s3"):
        return  # only S3 has no transaction
    banks = [Bank.create(tmp_path / name, license="CC0-1.0") for name in "ab"]
    for step, bank in enumerate(banks):
        bank.add_query_set(QUERY_SET)
        table = prompt_table()
        if step and what == "answer":
            table = table.with_columns(answer=pl.lit("no"), is_answer=pl.col("option") == "no")
        elif what == "fewer":
            table = table.head(8) if step else table.tail(8)
        bank.add_prompts("parity", table)
        add(bank, step, seed=step)
    if what == "license":
        describe(banks[1].path, license="CC-BY-NC-4.0")
    first, second = banks
    overtaken(monkeypatch, moment, lambda: push(first.path, target))
    with pytest.raises(BankError, match="two versions" if what != "license" else "'CC0-1.0'") as e:
        push(second.path, target)
    assert str(first.path) in str(e.value) or target in str(e.value)
    pull(target, tmp_path / "back")
    assert verify(tmp_path / "back") == ()
    back = Bank.open(tmp_path / "back")
    assert back.steps == [0]
    assert back.prompts("parity").collect().equals(first.prompts("parity").collect())
    tables = [p for p in paths_at(target) if p.startswith("prompts/") and p.endswith(".parquet")]
    assert tables == [f"prompts/{file.name}" for file in first.path.glob("prompts/*.parquet")]
    assert push(first.path, target).objects == 0


def test_what_a_killed_push_left_of_another_version_blocks_nobody(tmp_path: Path, s3: str) -> None:
    bank, other = bank_of(tmp_path / "bank", 0), new_bank(tmp_path / "other")
    other.add_prompts("own", prompt_table(topic="a"))
    bank.add_prompts("own", prompt_table(topic="b"))
    for path in chosen(other.path):
        if path.startswith("prompts/own"):
            put(s3, path, (other.path / path).read_bytes())
    push(bank.path, s3)
    assert Bank.open(s3).prompts("own").collect()["topic"].unique().to_list() == ["b"]


def test_licenses_and_citations_of_what_is_pushed_are_recorded(tmp_path: Path, target: str) -> None:
    theirs, mine = bank_of(tmp_path / "theirs", 0), bank_of(tmp_path / "mine", 1)
    push(theirs.path, target)
    describe(mine.path, title="mine", citation="Me 2026")
    push(mine.path, target)
    attributes = Bank.open(target).attributes
    assert (attributes["title"], attributes["license"]) == ("small", "CC0-1.0")
    source = {"title": "mine", "license": "CC0-1.0", "citation": "Me 2026", "models": ["org/model"]}
    assert attributes["sources"] == [source]
    add(mine, 2)
    describe(mine.path, license="CC-BY-NC-4.0")
    with pytest.raises(BankError, match=rf"{target} is published .*'CC0-1.0'.*'CC-BY-NC-4.0'"):
        push(mine.path, target)
    assert Bank.open(target).attributes == attributes
    assert Bank.open(target).steps == [0, 1]
    pull(mine.path, tmp_path / "copy")
    pull(target, tmp_path / "copy")
    assert Bank.open(tmp_path / "copy").attributes["sources"][-1]["title"] == "small"


def test_a_push_fills_in_what_was_not_stored(tmp_path: Path, target: str) -> None:
    bank = bank_of(tmp_path / "bank", 0)
    describe(bank.path, license="")
    push(bank.path, target)
    describe(bank.path, license="CC-BY-4.0")
    assert push(bank.path, target).objects == 0
    assert Bank.open(target).attributes["license"] == "CC-BY-4.0"


def test_a_deposit_with_other_content_is_refused_and_stays(tmp_path: Path, target: str) -> None:
    config = "1" * 16
    push(bank_of(tmp_path / "theirs", 0, config=config).path, target)
    before = indexed(target)
    mine = bank_of(tmp_path / "mine", 0, 1, seed=3, config=config)
    with pytest.raises(BankError, match=r"logprobs/c/0/0 differs .*/org%2Fmodel/main/0/q-"):
        push(mine.path, target)
    for provenance in ({"engine": "y"}, {"weights": "cd" * 32}, {"config": "2" * 16}):
        other = new_bank(tmp_path / f"other-{next(iter(provenance))}")
        add(other, 0, **{"config": config, **provenance})
        with pytest.raises(BankError, match="under another model or run name"):
            push(other.path, target)
    assert indexed(target) == before


def test_the_same_deposit_pushed_by_two_is_no_conflict(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(bank_of(tmp_path / "one", 0).path, target)
    with monkeypatch.context() as patch:
        patch.setattr(
            commits, "datetime", SimpleNamespace(now=lambda zone: datetime(2030, 1, 1, tzinfo=zone))
        )
        two = bank_of(tmp_path / "two", 0)
    assert push(two.path, target).objects == 0
    same_rows(two, Bank.open(target, rows=True))


def test_a_damaged_object_is_not_sent(tmp_path: Path, target: str) -> None:
    bank = bank_of(tmp_path / "bank", 0)
    push(bank.path, target, steps=0)
    add(bank, 1)
    (scores,) = bank.path.glob("*/main/1/*/scores/all.parquet")
    data = scores.read_bytes()
    scores.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DamagedError, match=r"all.parquet differs from its commit"):
        push(bank.path, target)
    assert not [p for p in paths_at(target) if "/main/1/" in p and p.endswith("/seal.json")]
    scores.unlink()
    with pytest.raises(DamagedError, match=r"all.parquet"):
        push(bank.path, target)
    scores.write_bytes(data)
    push(bank.path, target)
    pull(target, tmp_path / "back")
    assert verify(tmp_path / "back") == ()


def test_parts_bring_the_tables_that_they_need(tmp_path: Path, target: str) -> None:
    bank = bank_of(tmp_path / "bank", 0, 1, 2)
    bank.add_prompts("other", prompt_table(topic="x"))
    push(bank.path, target, steps=[0, 2], prompts=["parity"])
    pushed = Bank.open(target)
    assert pushed.info()["step"].to_list() == [0, 2]
    assert pushed.prompt_sets == ["parity"]
    assert len(pushed.query_sets()) == 1


def put(target: str, path: str, data: bytes | None) -> None:
    """Write or delete an object at a target, as damage does."""
    if target.startswith("s3"):
        store = s3_store(target, write=True)
        obstore.delete(store, [path]) if data is None else obstore.put(store, path, data)
    elif data is None:
        (Path(target) / path).unlink()
    else:
        (Path(target) / path).write_bytes(data)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_damaged_target_is_refused_or_repaired(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    target = str(tmp_path / "target") if kind == "folder" else request.getfixturevalue("s3")
    bank = bank_of(tmp_path / "bank", 0)
    push(bank.path, target)
    before = indexed(target)
    (shard,) = (p for p in before if p.endswith("logprobs/c/1/0"))
    for index_stays in (True, False):
        put(target, shard, (bank.path / shard).read_bytes()[:-1])
        if not index_stays:
            put(target, index.NAME, None)
        assert push(bank.path, target).objects == 1, "its commit lists the right digest"
    (table,) = (p for p in before if p.startswith("prompts/") and p.endswith(".parquet"))
    put(target, table, (bank.path / table).read_bytes()[:50])
    with pytest.raises(BankError, match=rf"delete {table} and {table}\.sha256 there"):
        push(bank.path, target)
    put(target, table, None)
    put(target, f"{table}.sha256", None)
    assert push(bank.path, target).objects == 2
    put(target, index.NAME, b"no index")
    assert push(bank.path, target).objects == 0
    assert indexed(target) == before
    pull(target, tmp_path / "back")
    assert verify(Bank.open(tmp_path / "back")) == ()
    put(target, shard, bytes((bank.path / shard).stat().st_size))
    assert push(bank.path, target).objects == 0, "the size is the same"
    with pytest.raises(LogitbankError, match=shard):
        pull(target, tmp_path / "again")


def test_an_index_that_no_reader_accepts_is_not_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_of(tmp_path / "bank", 0)
    monkeypatch.setattr(index, "MAX_BYTES", 1000)
    with pytest.raises(UsageError):
        push(bank.path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_large_index_of_a_target_is_not_read(
    tmp_path: Path, s3: str, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (s3, hub):
        push(bank_of(tmp_path / url[:2], 0).path, url)
    monkeypatch.setattr(index, "MAX_BYTES", 100)
    for url in (s3, hub):
        place = open_target(url)
        for call in (lambda place=place: stored_objects(place), place.current):
            with pytest.raises(RemoteError, match=rf"{url}/{index.NAME} has more than 100 bytes"):
                call()


# S3


def test_objects_are_put_in_an_order_that_readers_may_see(
    tmp_path: Path, s3: str, s3_server: S3Server
) -> None:
    done = push(bank_of(tmp_path / "bank", 0, 1).path, s3)
    puts = list(s3_server.puts())
    assert done.objects == len(puts) - 1
    assert puts[0].endswith("/bank/zarr.json")
    assert puts[-1].endswith("/index.json.gz")
    for seal in (p for p in puts if p.endswith("seal.json")):
        mine = [p for p in puts if p.startswith(seal.removesuffix("commits/seal.json"))]
        assert mine[0].endswith("/zarr.json")
        assert mine[-1] == seal


def test_a_push_that_a_failing_server_interrupted_sends_nothing_again(
    tmp_path: Path, s3: str, s3_server: S3Server
) -> None:
    bank = bank_of(tmp_path / "bank", 0, 1, 2)
    s3_server.behave(puts=20)
    with pytest.raises(RemoteError, match=rf"{s3}/.* \(503 Service Unavailable\)"):
        push(bank.path, s3)
    first = s3_server.puts()
    s3_server.behave()
    done = push(bank.path, s3)
    assert done.present >= 10
    assert len(first) == 20
    again = {path for path in {*first} & {*s3_server.puts()} if not path.endswith(index.NAME)}
    assert not again
    same_rows(bank, Bank.open(s3, rows=True))


@pytest.mark.whole
def test_a_killed_push_is_completed_by_the_same_command(
    preloaded: Preloaded, tmp_path: Path, s3: str
) -> None:
    bank = bank_of(tmp_path / "bank", *range(6))
    assert len([*stops(preloaded, "logitbank.store.share.s3:S3._put", "push", bank.path, s3)]) > 3
    same_rows(bank, Bank.open(s3, rows=True))


def test_refusals_are_one_error_that_names_the_next_step(
    tmp_path: Path, s3: str, hub: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_of(tmp_path / "bank", 0)
    with pytest.raises(RemoteError, match=r"s3://nowhere/x.*NoSuchBucket"):
        push(bank.path, "s3://nowhere/x")
    s3_server.behave(puts=0, status="403 Forbidden")
    for call in (Bank.open, lambda to: push(bank.path, to)):
        with pytest.raises(RemoteError, match=rf"{s3}\S* refuses access.*AWS_ACCESS_KEY_ID"):
            call(s3)
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(RemoteError, match=rf"{hub} refuses access.*HF_TOKEN"):
        push(bank.path, hub)
    with pytest.raises(BankFormatError, match=hub):
        Bank.open(hub)
    for url in (f"{hub}@v1", "https://example.org/bank"):
        with pytest.raises(UsageError, match=f"Cannot push to {url}"):
            push(bank.path, url)


def test_the_commands_take_the_steps_of_extract(tmp_path: Path, s3: str) -> None:
    from logitbank.cli.main import app

    bank = bank_of(tmp_path / "bank", 0, 1, 2, 4)
    run = CliRunner().invoke
    assert run(app, ["push", str(bank.path), s3, "--steps", "0:4:2"]).exit_code == 0
    result = run(app, ["pull", s3, str(tmp_path / "back"), "--steps", "2,last"])
    assert result.exit_code == 0, result.output
    assert Bank.open(tmp_path / "back").info()["step"].to_list() == [2, 4]
    assert isinstance(run(app, ["pull", s3, "x", "--steps", "3"]).exception, LogitbankError)


# The Hub


def test_a_push_to_the_hub_is_two_commits_with_a_card(
    tmp_path: Path, hub: str, hub_server: DatasetHub
) -> None:
    bank = Bank.create(
        tmp_path / "bank",
        title="Pronouns <b>& bias</b>",
        license="CC-BY-4.0",
        citation="A. Author (2026).\nTitle.",
    )
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("parity", prompt_table())
    add(bank, 0)
    add(bank, 1000)
    push(bank.path, hub)
    assert hub_server.count("POST /api/datasets/.*/commit/main") == 2
    assert Bank.open(f"{hub}@main").info().equals(bank.info())
    place = open_target(hub)
    place.sizes()
    text = place.read("README.md").decode()
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["pretty_name"] == "Pronouns <b>& bias</b>"
    assert front["license"] == "cc-by-4.0"
    assert [one["config_name"] for one in front["configs"]] == ["prompts-parity", "scores"]
    for one, count in zip(front["configs"], (1, 2), strict=True):
        assert len(list(bank.path.glob(one["data_files"]))) == count
    for line in (
        r"# Pronouns &lt;b&gt;&amp; bias&lt;/b&gt;",
        f"$ logitbank info {hub}",
        f'bank = logitbank.open("{hub}")',
        "    A. Author (2026).",
        "    Title.",
    ):
        assert line in text.splitlines()
    other = Bank.create(tmp_path / "other", license="Ours: ask")
    text = card(chosen(other.path), url="hf://datasets/a/b")
    assert "license: other\n" in text
    assert "license_name: 'Ours: ask'\n" in text


def test_a_push_that_the_hub_refused_sends_nothing_again(
    tmp_path: Path, hub: str, hub_server: DatasetHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.store.share.moves.GROUP_OBJECTS", 12)
    bank = bank_of(tmp_path / "bank", 0)
    add(bank, 1, seed=1)
    add(bank, 2, seed=2)
    hub_server.behave(commits=2)
    with pytest.raises(RemoteError, match=rf"{hub} is not available .*503"):
        push(bank.path, hub)
    sent = hub_server.count("PUT /large/")
    hub_server.behave()
    push(bank.path, hub)
    assert sent + hub_server.count("PUT /large/") == 5  # a query set, prompts, three scores
    same_rows(bank, Bank.open(hub, rows=True))


def test_a_commit_between_listing_and_sending_is_kept(tmp_path: Path, hub: str) -> None:
    mine, theirs = bank_of(tmp_path / "mine", 0), bank_of(tmp_path / "theirs", 1)
    push(bank_of(tmp_path / "first", 5).path, hub)
    target = HubDataset(hub)
    stored = stored_objects(target)
    push(theirs.path, hub)
    plan = moves(chosen(mine.path), stored, location=hub)
    for group in plan.groups:
        target.send(group, Source(mine.path), lambda _: None)
    publish(target, {**stored, **plan.sent})
    assert Bank.open(hub).info()["step"].to_list() == [0, 1, 5]


# Folders


@made_once
def _six(path: Path) -> None:
    made = new_bank(path)
    made.add_tokens(TOKENIZER, token_table())
    for step in range(6):
        add(made, step, seed=step)


@pytest.fixture
def six(tmp_path: Path) -> Bank:
    """Six deposits of three blocks each, of over sixty objects."""
    return Bank.open(_six(tmp_path / "six"))


def objects_of(root: Path) -> dict[str, bytes]:
    """Objects of a bank, without its index and card."""
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if name not in ("index.json.gz", "README.md")
    }


def test_a_card_is_updated_until_a_user_replaces_it(tmp_path: Path, hub: str) -> None:
    bank, target = bank_of(tmp_path / "b", 0, 8), HubDataset(hub)
    push(bank.path, hub, steps="0")
    first = target.current()["README.md"]
    assert b"Models: org/model. Prompt sets: parity." in first
    push(bank.path, hub)
    before = target.current()
    assert before["README.md"] != first
    assert target.replace({"README.md": b"mine"}, before)
    add(bank, 9)
    push(bank.path, hub)
    assert target.current()["README.md"] == b"mine"


def test_what_a_killed_pull_staged_goes_before_the_next_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may fill the disk."""
    bank, back = bank_of(tmp_path / "b", 0), tmp_path / "back"
    (back / ".staging-dead").mkdir(parents=True)
    (back / ".staging-dead" / "owner").touch()
    copy, found = Source.copy, set()

    def looking(*about: Any) -> None:
        found.add((back / ".staging-dead").exists())
        copy(*about)

    monkeypatch.setattr(Source, "copy", looking)
    pull(bank.path, back)
    assert found == {False}


def test_a_folder_with_parts_of_a_bank_is_refused(tmp_path: Path) -> None:
    bank, parts = bank_of(tmp_path / "b", 0), tmp_path / "parts"
    push(bank.path, parts)
    document = (parts / "zarr.json").read_bytes()
    (parts / "zarr.json").unlink()
    for call in (Bank.open, lambda to: push(bank.path, to), lambda to: pull(bank.path, to)):
        with pytest.raises(BankFormatError, match=r"zarr\.json"):
            call(parts)
    (parts / "zarr.json").write_bytes(document)
    assert push(bank.path, parts).objects == 0
    with pytest.raises(UsageError, match="is the bank itself"):
        push(bank.path, bank.path)


def test_two_pushes_into_a_new_folder_at_once_lose_and_mix_nothing(
    tmp_path: Path, six: Bank
) -> None:
    other = new_bank(tmp_path / "other")
    other.add_tokens(TOKENIZER, token_table())
    for step in (100, 101, 102):
        add(other, step, seed=step)
    to = tmp_path / "to"
    code = "import sys; from logitbank.store.share.push import push; push(*sys.argv[1:])"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(one.path), str(to)])
        for one in (six, other)
    ]
    assert [process.wait() for process in running] == [0, 0]
    assert objects_of(to) == objects_of(other.path) | objects_of(six.path)
    assert verify(to) == ()
    assert push(six.path, to).objects == 0


@dataclass(frozen=True)
class Interrupting(Source):
    """Calls `first` before it copies a path that matches `at`."""

    at: str = ""
    first: Callable[[], None] = lambda: None

    def copy(self, path: str, value: index.Object, to: Path) -> None:
        if re.search(self.at, path):
            self.first()
        super().copy(path, value, to)


def with_other_table(bank: Bank) -> Path:
    """Write the prompts again, with other bytes and the same values."""
    (table,) = bank.path.glob("prompts/*.parquet")
    pl.read_parquet(table).write_parquet(table, compression="uncompressed")
    resign_table(table)
    return table


@pytest.mark.parametrize("at", [r"/commits/seal", r"^prompts/.*parquet$"])
def test_two_pushes_of_other_numbers_at_once_are_not_mixed(tmp_path: Path, at: str) -> None:
    ours, theirs = (bank_of(tmp_path / f"{seed}", 0, seed=seed) for seed in range(2))
    with_other_table(theirs)
    target = Folder(tmp_path / "target")
    objects.make_root(tmp_path / "target")

    def send(bank: Bank, source: Source) -> None:
        for group in moves(chosen(bank.path), {}, location="").groups:
            target.send(group, source, lambda _: None)

    def stop() -> None:
        raise KeyboardInterrupt

    def send_theirs() -> None:
        with pytest.raises(KeyboardInterrupt):
            send(theirs, Interrupting(theirs.path, at="/commits/seal", first=stop))

    send(ours, Interrupting(ours.path, at=at, first=send_theirs))
    assert verify(tmp_path / "target") == ()
    same_rows(ours, Bank.open(tmp_path / "target"))


def test_a_table_replaces_the_digest_that_a_killed_push_left(tmp_path: Path) -> None:
    ours, theirs = (bank_of(tmp_path / f"{seed}", 0) for seed in range(2))
    table = with_other_table(theirs)
    push(ours.path, tmp_path / "target")
    (tmp_path / "target" / "prompts" / table.name).unlink()
    assert push(theirs.path, tmp_path / "target").objects == 2
    assert verify(tmp_path / "target") == ()
