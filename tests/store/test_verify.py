import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import DamagedError
from logitbank.store import (
    Bank,
    OptionTokens,
    merge,
    repair,
    rescore,
    verify,
)
from logitbank.store.care.damage import CHECKS, Check, Remedy
from logitbank.store.deposits.rows import write_shard
from logitbank.store.files import documents
from logitbank.store.format import index, zarrays
from logitbank.store.format.grid import Grid
from logitbank.store.read.provenance import bank_digest
from logitbank.store.share.push import push
from logitbank.store.tables.table_files import content_digest, write_table
from tests.support import hidden_banks, small_banks
from tests.support.small_banks import (
    BLOCK_ROWS,
    QUERIES,
    TOKENIZER,
    VOCAB,
    flip,
    new_bank,
    prompt_table,
    recommit,
    rewrite,
    spec,
    token_table,
)


def bank_of_two(path: Path) -> Bank:
    """Step 0 is sealed; of step 1 block 1 is missing."""
    bank = new_bank(path)
    for step, blocks in ((0, (0, 1, 2)), (1, (0, 2))):
        small_banks.fill(bank, spec(step), blocks=blocks, seed=step)
    return bank


def deposit_folder(bank: Bank, step: int) -> Path:
    return next(bank.path.glob(f"org%2Fmodel/main/{step}/q-*"))


def problems(bank: Bank) -> list[tuple[str, str]]:
    return [(damage.path, damage.problem) for damage in verify(bank)]


def test_sound_bank_has_no_damage_and_every_object_is_read(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    told: list[tuple[int, int]] = []
    assert verify(bank, progress=lambda *about: told.append(about)) == ()
    files = {p.relative_to(bank.path).as_posix(): p for p in bank.path.rglob("*") if p.is_file()}
    size = sum(file.stat().st_size for path, file in files.items() if index.is_data(path))
    assert told[-1] == (size, size)


LOG = "runs/20261122T020154Z-0badcafe.jsonl"
HEAD = hidden_banks.head(3).digest


def fill(bank: Bank) -> None:
    """What the same extraction does: run what is missing."""
    for step in (0, 1):
        small_banks.fill(bank, spec(step), seed=step)
    hidden_banks.fill(bank, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Step 0 is sealed and has further options, block 1 of step 1 is missing, step 2 keeps states.

    A bank with every kind of object, and beside it a pushed copy with an index.
    """
    bank = bank_of_two(tmp_path_factory.mktemp("verify") / "b")
    bank.add_tokens(TOKENIZER, token_table())
    hidden_banks.fill(bank, 2)
    bank.put_head(hidden_banks.head(9))
    rescore(bank.deposits()[0], OptionTokens.build([[2, 5]] + [[]] * 9))
    push(bank.path, bank.path.with_name("pushed"))
    (bank.path / LOG).parent.mkdir()
    (bank.path / LOG).write_text('{"event": "No')  # a killed run
    assert verify(bank) == ()
    return bank.path


def remove(file: Path) -> None:
    shutil.rmtree(file) if file.is_dir() else file.unlink()


BREAK: dict[str, Callable[[Path], object]] = {
    "missing": remove,
    "changed": flip,
    "foreign": lambda file: file.with_name("note.txt").write_text("mine"),
}


def without(file: Path, name: str) -> None:
    """Take a field out of attributes and sign them again."""
    rewrite(file, lambda told: told["attributes"]["logitbank"].pop(name))


def other_head(head: Path) -> None:
    (other,) = {p for p in head.parent.iterdir() if p.is_dir() and p != head}
    shutil.rmtree(head)
    shutil.copytree(other, head)


def recompress(file: Path) -> None:
    pl.read_parquet(file).write_parquet(file, compression="uncompressed")


CASES: dict[str, dict[str, Callable[[Path], object] | None]] = {
    "object of a deposit": {
        "*/*/1/q-*/logprobs/c/2/0": None,
        "*/*/1/q-*/scores/2.parquet": lambda file: os.truncate(file, file.stat().st_size - 1),
        "*/*/1/q-*/commits/2.json": lambda file: file.write_text("{"),
        "*/*/0/q-*/scores/all.parquet": None,
        "*/*/0/q-*/commits/seal.json": lambda file: file.write_text("{"),
        "*/*/0/q-*/scores/options-*.parquet": None,
        "*/*/0/q-*/commits/options-*.json": lambda file: file.write_text("{"),
        "*/*/0/q-*/logsumexp/c/0": None,
        "*/*/0/q-*/logprobs/zarr.json": None,
        "*/*/0/q-*/zarr.json": None,
        "*/*/1/q-*/zarr.json": lambda file: without(file, "model"),
    },
    "deposit or head": {"*/*/0/q-*": None},
    "head": {
        f"heads/{HEAD}/weight/c/0/0": None,
        f"heads/{HEAD}/zarr.json": lambda file: without(file, "width"),
        f"heads/{HEAD}": other_head,
    },
    "plain group": {"*/main/zarr.json": None},
    "table": {"tokens/*.parquet": recompress, "queries/*.parquet": remove},
    "digest of a table": {
        "prompts/*.sha256": lambda file: file.write_text("{"),
        "tokens/*.sha256": remove,
    },
    "index": {"index.json.gz": None},
    "bank": {"zarr.json": None},
    "anything else": {"*/*/1/q-*/zarr.json": None},
}
"""Objects of each row, and how they are broken if not as in `BREAK`."""


@pytest.mark.parametrize(
    ("check", "fault", "example"),
    [
        (check, fault, example)
        for check in CHECKS
        for fault in check.faults
        for example, change in CASES[check.kind].items()
        if change is None or fault == ("missing" if change is remove else "changed")
    ],
)
def test_each_row_of_the_table_is_found_and_repaired(
    made: Path, tmp_path: Path, check: Check, fault: str, example: str
) -> None:
    indexed = check.kind in ("index", "deposit or head")
    bank = Bank.open(shutil.copytree(made.with_name("pushed") if indexed else made, tmp_path / "b"))
    scores = bank.scan("parity").sort("step", "row", "token").collect()
    file = min(bank.path.glob(example))
    (CASES[check.kind][example] or BREAK[fault])(file)
    found = verify(bank)
    assert fault in {damage.problem for damage in found if damage.check is check}
    assert {damage.remedy for damage in found} == {check.remedy}
    done = repair(bank, found)
    if not check.remedy.is_repair:
        assert done == ((), (), ())
        assert verify(bank) == found
        return
    left = verify(bank)  # a head comes back with the next extraction
    assert {each.remedy_after_repair for each in left} == (
        {Remedy.EXTRACT} if check.remedy is Remedy.DROP_HEAD else set()
    )
    assert bool(done.restored) == (check.remedy is Remedy.REWRITE)
    assert bool(done.removed) == (check.remedy is not Remedy.REWRITE)
    lost_options = any("/0/q-" in folder for folder in done.removed)
    assert any(deposit.state().options for deposit in bank.deposits()) != lost_options
    fill(bank)
    after = bank.scan("parity", steps=[0, 2]).sort("step", "row", "token").collect()
    assert after.equals(scores.filter(pl.col("step") != 1))
    assert verify(bank) == ()


def test_commit_that_points_outside_is_refused(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    commit = deposit_folder(bank, 1) / "commits" / "2.json"
    entry = {"sha256": "0", "bytes": 1}
    rewrite(commit, lambda told: told.update(objects={"../../../../../zarr.json": entry}))
    (damage,) = verify(bank)
    assert damage.problem == "foreign"
    assert "is not a path inside a bank" in damage.detail


def test_a_deposit_without_attributes_is_not_begun_again(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (deposit_folder(bank, 1) / "zarr.json").unlink()
    (damage,) = verify(bank)
    assert "8 files" in damage.detail
    with pytest.raises(DamagedError, match=r"zarr\.json"):
        bank.begin(spec(1))  # other weights would take over its blocks


def test_a_query_set_that_only_prompts_need_is_missing(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (queries,) = bank.path.glob("queries/*.parquet")
    queries.unlink()
    shutil.rmtree(bank.path / "org%2Fmodel")
    assert problems(bank) == [(f"queries/{queries.name}", "missing")]


def test_commit_in_the_place_of_another_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    commits = deposit_folder(bank, 1) / "commits"
    (commits / "1.json").write_bytes((commits / "2.json").read_bytes())
    inside = deposit_folder(bank, 1).relative_to(bank.path)
    assert problems(bank) == [(f"{inside}/commits/1.json", "changed")]


def test_seal_that_leaves_out_a_block_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    seal = deposit_folder(bank, 0) / "commits" / "seal.json"
    document = json.loads(seal.read_text())
    del document["objects"]["logprobs/c/1/0"]
    seal.write_bytes(documents.signed(document, document))
    (damage,) = verify(bank)
    assert damage.path.endswith("commits/seal.json")
    assert "seal.json lists other objects or rows" in damage.detail


def test_what_no_bank_has_above_deposits_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (bank.path / "README.md").write_text("of the Hub")
    strange = ["run.sh", "org%2Fmodel/run.sh", "other/file", "org%2Fmodel/main/0/q-other/run.sh"]
    strange += ["heads/note.txt", f"heads/{HEAD}/note.txt"]
    for name in strange:
        (bank.path / name).parent.mkdir(exist_ok=True)
        (bank.path / name).write_text("x")
    assert sorted(problems(bank)) == sorted((name, "foreign") for name in strange)


def test_links_pipes_and_folders_in_place_of_files_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    deposit = deposit_folder(bank, 0)
    own = deposit.relative_to(bank.path).as_posix()
    links = (f"{own}/more", f"{own}/logprobs/c/9", f"{own}/scores/9.parquet")
    for name, to in zip(links, (tmp_path, tmp_path, "/nowhere"), strict=True):
        (bank.path / name).symlink_to(to)
    table = "prompts/other-0123456789ab.parquet"
    os.mkfifo(bank.path / table)
    (bank.path / f"{table}.sha256").mkdir()
    expected = [(name, "foreign") for name in (*links, table, f"{table}.sha256")]
    assert sorted(problems(bank)) == sorted(expected)


def test_damaged_attributes_and_moved_deposits_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    rewrite(
        deposit_folder(bank, 0) / "zarr.json",
        lambda told: told["attributes"]["logitbank"].pop("model"),
    )
    deposit_folder(bank, 1).parent.rename(bank.path / "org%2Fmodel" / "main" / "9")
    found = verify(bank)
    assert [damage.problem for damage in found] == ["changed", "changed"]
    assert "does not describe a deposit" in found[0].detail
    assert "it was moved or swapped" in found[1].detail


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float16"},
        {"vocab": 64},
        {"codec": "zstd"},
        {"queries": 3, "block_rows": 3},
    ],
)
def test_attributes_and_arrays_that_disagree_are_named_though_signed_again(
    tmp_path: Path, change: dict[str, object]
) -> None:
    bank = bank_of_two(tmp_path / "b")
    folder = deposit_folder(bank, 0)
    rewrite(folder / "zarr.json", lambda about: about["attributes"]["logitbank"].update(change))
    recommit(folder, "zarr.json")
    inside = str(folder.relative_to(bank.path))
    assert {damage.deposit for damage in verify(bank)} == {inside}


def test_scores_of_another_step_are_named_though_signed_again(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    part = deposit_folder(bank, 0) / "scores" / "all.parquet"
    pl.read_parquet(part).with_columns(step=pl.lit(77, pl.Int64)).write_parquet(part)
    recommit(deposit_folder(bank, 0), "scores/all.parquet")
    (damage,) = verify(bank)
    assert damage.path.endswith("scores/all.parquet")
    assert "its step is 77" in damage.detail


def shifted(file: Path) -> None:
    """The rows of a shard, one further."""
    grid = Grid(QUERIES, VOCAB, "float32", BLOCK_ROWS)
    deposit = Bank.open(file.parents[7]).deposits()[0]
    write_shard(file, grid, np.roll(deposit.logprobs(list(deposit.layout.rows(1))), 1, axis=0))


def with_scores(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    return lambda file: change(pl.read_parquet(file)).write_parquet(file)


def not_finite(file: Path) -> None:
    grid = Grid(QUERIES, VOCAB, "float32", BLOCK_ROWS)
    write_shard(file, grid, np.full((BLOCK_ROWS, VOCAB), np.nan, np.float32))


FORGED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "metadata": (
        "logprobs/zarr.json",
        lambda file: file.write_text(file.read_text().replace('"NaN"', "0.0")),
        "lists other objects or rows",
    ),
    "NaN": ("logprobs/c/1/0", not_finite, "a number that is not finite"),
    "shifted rows": ("logprobs/c/1/0", shifted, "nats from that of its score"),
    "doubled scores": ("scores/all.parquet", with_scores(lambda s: pl.concat([s, s])), "twice"),
    "shifted scores": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(pl.col("query") + 1)),
        "each query of 0 to 9",
    ),
    "scores without a query": (
        "scores/all.parquet",
        with_scores(lambda s: s.filter(pl.col("query") != 3)),
        "each query of 0 to 9",
    ),
    "negative ranks": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(rank=pl.lit(-5, pl.Int32))),
        "impossible rank -5",
    ),
    "ranks beyond the row": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(ties=pl.lit(VOCAB, pl.Int32))),
        "impossible rank 1, or impossible ties",
    ),
    "padding among nothing": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(padding_above=pl.lit(1, pl.Int32))),
        "impossible rank",
    ),
    "infinite": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(logit=pl.lit(float("inf"), pl.Float32))),
        "not finite",
    ),
    "other types": (
        "scores/all.parquet",
        with_scores(lambda s: s.with_columns(token=pl.lit("he"))),
        "not a table of scores",
    ),
    "other log-sum-exp": (
        "logsumexp/c/0",
        lambda file: file.write_bytes(zarrays.logsumexp_chunk(np.zeros(QUERIES))),
        "other values than the scores",
    ),
    "short log-sum-exp": (
        "logsumexp/c/0",
        lambda file: file.write_bytes(zarrays.logsumexp_chunk(np.zeros(QUERIES - 1))),
        "all have 40",
    ),
}
"""What a maker has signed again: object, change, and what `verify` says."""


@pytest.mark.parametrize("forgery", FORGED)
def test_what_readers_refuse_is_named_though_signed_again(tmp_path: Path, forgery: str) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = small_banks.fill(bank, spec(0))
    name, change, detail = FORGED[forgery]
    change(deposit.path / name)
    recommit(deposit.path, name)
    found = verify(bank)
    assert {damage.deposit for damage in found} == {str(deposit.path.relative_to(bank.path))}
    assert detail in found[0].detail
    with pytest.raises(DamagedError):
        merge(tmp_path / "m", bank.path)


def test_a_table_of_prompts_changes_by_a_revision_alone(tmp_path: Path) -> None:
    """Another answer of a stored prompt, and a table in the place of another."""
    bank = new_bank(tmp_path / "b")
    bank.add_prompts("own", prompt_table(topic="a"))
    small_banks.fill(bank, spec(0))
    before = bank_digest(bank.path)
    other = prompt_table(topic="a").with_columns(answer=pl.lit("no"))
    for revision in (0, 1):
        table = other.with_columns(table_revision=pl.lit(revision, pl.Int64)) if revision else other
        path = bank.path / "prompts" / f"own-{content_digest(table)}.parquet"
        write_table(bank.path, path, table, {})
        (damage,) = verify(bank)
        assert (damage.problem, damage.remedy) == ("foreign", Remedy.REMOVE)
        assert "prompt 'p0' has another 'answer' in own-" in damage.detail
        assert bank_digest(bank.path) != before
        for file in (path, path.with_name(f"{path.name}.sha256")):
            file.unlink()
        assert bank_digest(bank.path) == before
    (first,) = bank.path.glob("prompts/own-*.parquet")
    write_table(bank.path, path, other.with_columns(table_revision=pl.lit(1, pl.Int64)), {})
    for file in (first, first.with_name(f"{first.name}.sha256")):
        file.unlink()
    assert (f"prompts/{first.name}", "missing") in problems(bank)
