"""A table that a deposit was sealed with and that is gone is damage."""

import re
import shutil
from pathlib import Path

import pytest

from logitbank.errors import DamagedError
from logitbank.store import Bank, repair, verify
from logitbank.store.care.damage import Remedy
from logitbank.store.change.merge import merge
from logitbank.store.change.shrink import shrink
from logitbank.store.share.push import push
from tests.support.command import Call
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    fill,
    prompt_table,
    spec,
    token_table,
)


def bank_of(path: Path, *, steps: tuple[int, ...] = (0,)) -> Bank:
    bank = Bank.create(path)
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("parity", prompt_table())
    bank.add_tokens(TOKENIZER, token_table())
    for step in steps:
        fill(bank, spec(step), seed=step)
    return bank


def damaged(bank: Bank) -> list[tuple[str, str]]:
    return [(each.path, each.problem) for each in verify(bank)]


@pytest.mark.parametrize("folder", ["prompts", "tokens"])
@pytest.mark.parametrize("digest_left", [True, False])
def test_a_table_that_a_seal_names_is_missing(
    tmp_path: Path, folder: str, *, digest_left: bool
) -> None:
    bank = bank_of(tmp_path / "b")
    (table,) = (bank.path / folder).glob("*.parquet")
    digest = table.with_name(f"{table.name}.sha256")
    data, line = table.read_bytes(), digest.read_bytes()
    table.unlink()
    if not digest_left:
        digest.unlink()
    (damage,) = verify(bank)
    assert (damage.path, damage.problem) == (f"{folder}/{table.name}", "missing")
    assert repair(bank, [damage]) == ((), (), ())
    with pytest.raises(DamagedError, match=rf"{table.name} is missing"):
        push(bank.path, tmp_path / "pushed")
    assert not (tmp_path / "pushed").exists()
    table.write_bytes(data)
    digest.write_bytes(line)
    assert verify(bank) == ()


def test_some_of_the_prompts_that_a_seal_names_are_enough(tmp_path: Path) -> None:
    """As in a copy of one prompt set."""
    bank = Bank.create(tmp_path / "b")
    bank.add_query_set(QUERY_SET)
    for name in ("parity", "other"):
        bank.add_prompts(name, prompt_table())
    fill(bank, spec(0))
    for file in (bank.path / "prompts").glob("other-*"):
        file.unlink()
    assert verify(bank) == ()
    shutil.rmtree(bank.path / "prompts")
    assert {problem for _, problem in damaged(bank)} == {"missing"}
    assert len(damaged(bank)) == 2


def test_a_checkpoint_that_was_removed_is_missed_where_an_index_lists_it(tmp_path: Path) -> None:
    bank = bank_of(tmp_path / "b", steps=(0, 8))
    push(bank.path, tmp_path / "pushed")
    pushed = Bank.open(tmp_path / "pushed")
    assert verify(pushed) == ()
    for place in (bank, pushed):
        shutil.rmtree(place.path / "org%2Fmodel/main/8")
    assert verify(bank) == ()
    folder = f"org%2Fmodel/main/8/{QUERY_SET.name}"
    (damage,) = verify(pushed)
    assert (damage.path, damage.problem) == (folder, "missing")
    assert repair(pushed, [damage]) == ((), (), ())
    index = pushed.path / "index.json.gz"
    index.write_bytes(index.read_bytes()[:100])
    assert damaged(pushed) == [("index.json.gz", "changed")]
    push(bank.path, pushed.path)
    assert verify(pushed) == ()


@pytest.mark.parametrize("folder", ["prompts", "tokens"])
def test_what_is_made_of_a_bank_is_not_made_without_its_tables(tmp_path: Path, folder: str) -> None:
    bank = bank_of(tmp_path / "b")
    shutil.rmtree(bank.path / folder)
    new = tmp_path / "new"
    with pytest.raises(DamagedError, match=rf"b/{folder}/.*\.parquet is missing"):
        merge(new, bank.path)
    with pytest.raises(DamagedError, match=rf"b/{folder}/.*\.parquet is missing"):
        shrink(bank.path, new, keep="topk:2")
    assert not new.exists()


@pytest.mark.parametrize("folder", ["prompts", "tokens"])
@pytest.mark.parametrize("digest_left", [True, False])
def test_a_table_that_another_bank_of_a_merge_has_is_not_missed(
    tmp_path: Path, folder: str, *, digest_left: bool
) -> None:
    whole, lost = bank_of(tmp_path / "a"), bank_of(tmp_path / "b", steps=(8,))
    (table,) = (lost.path / folder).glob("*.parquet")
    table.unlink()
    if not digest_left:
        table.with_name(f"{table.name}.sha256").unlink()
    merge(tmp_path / "ab", lost.path, whole.path)
    assert verify(tmp_path / "ab") == ()
    merge(whole.path, lost.path)
    assert verify(whole) == ()
    merge(lost.path, whole.path)
    assert verify(lost) == ()


def test_a_query_set_of_a_source_is_missed_though_another_bank_has_it(tmp_path: Path) -> None:
    bank, other = bank_of(tmp_path / "a"), bank_of(tmp_path / "b", steps=(8,))
    (bank.path / f"queries/{QUERY_SET.name}.parquet").unlink()
    for make in (
        lambda to: merge(to, bank.path, other.path),
        lambda to: merge(to, bank.path),
        lambda to: push(bank.path, to),
    ):
        with pytest.raises(DamagedError, match=f"a/queries/{QUERY_SET.name}.parquet is missing"):
            make(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_each_remedy_is_printed_with_what_it_is_for(tmp_path: Path, call: Call) -> None:
    bank, copy = bank_of(tmp_path / "b"), bank_of(tmp_path / "copy")

    def remedies(*command: str) -> set[str]:
        printed = call(*command, bank.path)[1].splitlines()
        return {line for line in printed if re.match(r"(object|table|anything)\b[^/]*: ", line)}

    repairs, extract, copies, yours = (
        remedy.format(bank=bank.path)
        for remedy in (Remedy.DROP_DEPOSIT, Remedy.EXTRACT, Remedy.MERGE, Remedy.REMOVE)
    )
    assert remedies("verify") == set()
    (bank.path / "foo").touch()
    (bank.path / f"queries/{QUERY_SET.name}.parquet").unlink()
    (scores,) = bank.path.glob("*/*/*/*/scores/all.parquet")
    scores.write_bytes(scores.read_bytes()[:-1])
    left = {f"table: {extract}", f"anything else: {yours}"}
    assert remedies("verify") == left | {f"object of a deposit: {repairs}"}
    assert left <= remedies("verify", "--repair")
    assert remedies("verify") == left
    (tokens,) = bank.path.glob("tokens/*.parquet")
    tokens.write_bytes(tokens.read_bytes()[:-1])
    assert left | {f"table: {copies}"} <= remedies("verify", "--repair")
    (bank.path / "foo").unlink()
    tokens.unlink()
    merge(bank.path, copy.path)
    assert verify(bank) == ()


def test_pull_names_the_tables_that_the_bank_has_lost(tmp_path: Path, call: Call) -> None:
    bank = bank_of(tmp_path / "b")
    shutil.rmtree(bank.path / "tokens")
    code, _, error = call("pull", bank.path, tmp_path / "pulled")
    assert code == 0
    assert re.search(r"pulled/tokens/.* is missing", error)
