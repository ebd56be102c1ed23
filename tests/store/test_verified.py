"""What is read is what was committed: damaged, moved and exchanged objects are refused."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import DamagedError
from logitbank.store import (
    Bank,
    Deposit,
    Filter,
    OptionTokens,
    apply_filter,
    describe,
    merge,
    rescore,
    shrink,
    verify,
)
from logitbank.store.files import objects, verified
from logitbank.store.filter.top import top
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.share.selection import chosen
from logitbank.store.tables.prompt_tables import option_tokens
from tests.support.made_once import made_once
from tests.support.small_banks import (
    TOKENIZER,
    block_data,
    fill,
    flip,
    new_bank,
    prompt_table,
    recommit,
    rewrite,
    spec,
    token_table,
)

OPTIONS = OptionTokens.build([[2, 5]] + [[]] * 9)


@made_once
def four_steps(path: Path) -> None:
    """Steps 0 and 1 are sealed, 2 and 3 lack a block; all but 3 have further options."""
    made = new_bank(path)
    made.add_tokens(TOKENIZER, token_table())
    for step, blocks in ((0, 3), (1, 3), (2, 2), (3, 2)):
        deposit = fill(made, spec(step), blocks=range(blocks), seed=step)
        if step < 3:
            rescore(deposit, OPTIONS)
    assert verify(made) == ()


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.open(four_steps(tmp_path / "b"))


def deposit(bank: Bank, step: int) -> Deposit:
    return next(d for d in bank.deposits() if d.checkpoint.step == step)


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


READERS: dict[str, Callable[[Bank], object]] = {
    "scores": lambda bank: [d.scores().collect() for d in bank.deposits()],
    "option_scores": lambda bank: [d.option_scores().collect() for d in bank.deposits()],
    "logsumexp": lambda bank: [d.logsumexp([0]) for d in bank.deposits()],
    "scan": lambda bank: bank.scan("parity").collect(),
    "scan of a step": lambda bank: bank.scan("parity", steps=0).collect(),
    "sql": lambda bank: bank.sql("SELECT AVG(logit) FROM scores").collect(),
    "missing_options": lambda bank: [missing_options(d) for d in bank.deposits()],
    "rescore": lambda bank: rescore(bank.deposits()[0], OptionTokens.build([[3]] + [[]] * 9)),
    "to_xarray": lambda bank: bank.to_xarray(bank.deposits()[0].query_set),
    "top": lambda bank: top(bank.deposits()[0], 1),
    "merge": lambda bank: merge(bank.path.with_name("m"), bank.path),
    "shrink": lambda bank: shrink(bank.path, bank.path.with_name("s"), keep="options"),
    "apply_filter": lambda bank: apply_filter(bank, Filter.ones(1), bank.path.with_name("f")),
}


@pytest.mark.parametrize("reader", READERS)
def test_changed_or_exchanged_scores_are_refused_by_every_reader(bank: Bank, reader: str) -> None:
    one, other = (deposit(bank, step).path / "scores/all.parquet" for step in (0, 1))
    (options,) = one.parent.glob("options-*.parquet")
    for path in (one, options):
        flip(path)
        with pytest.raises(DamagedError, match=r"differs from its commit|is changed"):
            READERS[reader](bank)
        flip(path)
    exchange(one, other)
    with pytest.raises(DamagedError, match=r"all\.parquet (differs from its commit|is changed)"):
        READERS[reader](bank)
    exchange(one, other)
    READERS[reader](bank)


TABLE_READERS: dict[str, Callable[[Bank], object]] = {
    "query_set": lambda bank: bank.query_sets(),
    "prompts": lambda bank: bank.prompts("parity").collect(),
    "scan": lambda bank: bank.scan("parity").collect(),
    "sql": lambda bank: bank.sql("SELECT * FROM prompts").collect(),
    "option_tokens": lambda bank: option_tokens(bank.path, bank.deposits()[0].query_set),
    "begin": lambda bank: bank.begin(spec(9)),
    "add_prompts": lambda bank: bank.add_prompts("parity", prompt_table(split="dev")),
    "merge": lambda bank: merge(bank.path.with_name("m"), bank.path),
    "push": lambda bank: chosen(bank.path, prompts=["parity"]),
    "tokens": lambda bank: bank.tokens(),
    "texts": lambda bank: bank.deposits()[0].logprobs([0], [" no"]),
    "texts in sql": lambda bank: bank.sql("SELECT token_text FROM options").collect(),
}
OF_TOKENS = ("tokens", "texts", "texts in sql")


@pytest.mark.parametrize(
    ("reader", "folder"),
    [
        *(
            (reader, "prompts")
            for reader in TABLE_READERS
            if reader not in ("query_set", "begin", *OF_TOKENS)
        ),
        *((reader, "tokens") for reader in ("merge", "push", *OF_TOKENS)),
        *((reader, "queries") for reader in ("query_set", "option_tokens", "begin", "merge")),
        ("push", "queries"),
        ("add_prompts", "queries"),
    ],
)
def test_tables_are_refused_where_their_digest_is_another_or_none(
    bank: Bank, reader: str, folder: str
) -> None:
    (table,) = bank.path.glob(f"{folder}/*.parquet")
    beside = Path(f"{table}.sha256")
    sound, told = table.read_bytes(), beside.read_text()
    flip(table)
    with pytest.raises(DamagedError, match=r"parquet (differs from its commit|is changed)"):
        TABLE_READERS[reader](bank)
    table.write_bytes(sound)
    for text in (told.replace(table.name, "x"), told[1:], ""):
        beside.write_text(text)
        with pytest.raises(DamagedError, match=r"parquet\.sha256"):
            TABLE_READERS[reader](bank)
    beside.unlink()
    with pytest.raises(DamagedError, match=r"parquet\.sha256"):
        TABLE_READERS[reader](bank)


def test_seals_of_two_deposits_that_were_exchanged_are_refused(bank: Bank) -> None:
    one, other = (deposit(bank, step).path / "commits/seal.json" for step in (0, 1))
    scores = [path.parents[1] / "scores/all.parquet" for path in (one, other)]
    exchange(one, other)
    exchange(*scores)  # which these seals vouch for
    for read in (READERS["scan of a step"], lambda bank: bank.info()):
        with pytest.raises(DamagedError, match=r"seal\.json does not belong to the zarr\.json"):
            read(bank)
    assert {damage.path.rpartition("/")[2] for damage in verify(bank)} == {"seal.json"}


@pytest.mark.parametrize("name", ["0", "options-*"])
def test_commits_of_another_deposit_are_refused(bank: Bank, name: str) -> None:
    """Blocks and options of two steps, exchanged with their commits."""
    one, other = deposit(bank, 2).path, deposit(bank, 3).path
    if name != "0":
        one, other = deposit(bank, 0).path, deposit(bank, 1).path
    for kind in ("commits", "scores"):
        (here,), (there,) = (folder.glob(f"{kind}/{name}.*") for folder in (one, other))
        exchange(here, there)
    if name == "0":
        exchange(one / "logprobs/c/0/0", other / "logprobs/c/0/0")
    with pytest.raises(DamagedError, match=r"is a commit of '.*main/\d/q-.*it was moved or swapp"):
        bank.scan("parity").collect()
    assert verify(bank)


def test_a_commit_that_names_no_deposit_is_refused(bank: Bank) -> None:
    rewrite(deposit(bank, 2).path / "commits/0.json", lambda commit: commit.pop("deposit"))
    with pytest.raises(DamagedError, match=r"is a commit of None: it was moved or swapped"):
        bank.scan("parity", steps=2).collect()
    assert verify(bank)


def test_documents_with_another_digest_or_none_are_refused(bank: Bank) -> None:
    """A changed year, which is JSON like any other; and a digest that was taken out."""
    seal = deposit(bank, 0).path / "commits/seal.json"
    sound = seal.read_bytes()
    for text in (
        sound.replace(b'"time": "20', b'"time": "21'),
        sound.replace(b'"sha256": "', b'"sha257": "'),
        b"{}\n",
    ):
        seal.write_bytes(text)
        for read in (READERS["scan of a step"], lambda bank: bank.info()):
            with pytest.raises(DamagedError, match=r"seal\.json was changed"):
                read(bank)
    seal.write_bytes(sound)
    attributes = deposit(bank, 0).path / "zarr.json"
    attributes.write_bytes(
        attributes.read_bytes().replace(b'"engine": "test"', b'"engine": "tess"')
    )
    with pytest.raises(DamagedError, match=r"zarr\.json was changed"):
        bank.deposits()


def test_a_damaged_title_is_refused_and_can_be_set_again(bank: Bank) -> None:
    root = bank.path / "zarr.json"
    root.write_bytes(root.read_bytes().replace(b'"small"', b'"snall"'))
    with pytest.raises(DamagedError, match="logitbank describe"):
        Bank.open(bank.path)
    assert describe(bank.path, title="small").attributes["title"] == "small"
    assert verify(Bank.open(bank.path)) == ()


def test_a_part_that_its_commit_does_not_name_is_refused(bank: Bank) -> None:
    own = deposit(bank, 2)
    shutil.copy(own.path / "commits/1.json", own.path / "commits/0.json")
    with pytest.raises(DamagedError, match=r"no commit names scores/0\.parquet"):
        own.scores()


def test_array_metadata_that_were_damaged_are_not_sealed_as_they_are(bank: Bank) -> None:
    path = deposit(bank, 3).path / "logsumexp/zarr.json"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b'"NaN"', b'"NaM"'))
    with bank.begin(spec(3)) as writer:
        writer.write(2, block_data(writer.layout, 2, seed=3))
        writer.seal()
    assert [damage.path for damage in verify(bank)] == [str(path.relative_to(bank.path))]
    path.write_bytes(sound)
    assert verify(bank) == ()


def test_a_file_is_looked_at_once_and_again_when_it_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def counted(path: Path) -> objects.Digest:
        looks.append(path)
        return digest(path)

    digest = objects.digest
    monkeypatch.setattr(objects, "digest", counted)
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    told = objects.compute_digest(b"abc")
    verified.require({path: told})
    verified.require({path: told})
    assert len(looks) == 2, "its times do not tell yet whether it is written to again"
    monkeypatch.setattr(verified, "_SETTLED_NS", -(10**12))
    verified.require({path: told})
    verified.require({path: told})
    assert len(looks) == 3
    times = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DamagedError, match="its SHA-256 differs"):
        verified.require({path: told})
    path.write_bytes(b"abcd")
    with pytest.raises(DamagedError, match="4 bytes instead of 3"):
        verified.require({path: told})


def test_other_bytes_that_are_committed_are_read(bank: Bank) -> None:
    """A look that was remembered is of the digest that was told then."""
    own = deposit(bank, 0)
    before = own.scores().collect()
    path = own.path / "scores/all.parquet"
    other = deposit(bank, 1).path / "scores/all.parquet"
    shutil.copy(other, path)
    recommit(own.path, "scores/all.parquet")
    assert not own.scores().collect().equals(before)
    np.testing.assert_array_equal(own.logsumexp(), deposit(bank, 1).logsumexp())
