"""A table that a bank had and has no more is damage; one that it never had is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from logitbank.cli.complete import BANKS
from logitbank.cli.main import app
from logitbank.errors import DamagedError
from logitbank.store import Bank, Damage, leftovers, repair, verify
from logitbank.store.change.merge import merge
from logitbank.store.change.shrink import shrink
from logitbank.store.sharing.transfer import pull, push
from tests.support.command import Call
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    prompt_table,
    spec,
    token_table,
)


def bank_of(path: Path, *, config: str | None = "c0" * 8, steps: tuple[int, ...] = (0,)) -> Bank:
    """As an extraction makes it, whose provenance has `config`; or, without, as others do."""
    bank = Bank.create(path)
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("parity", prompt_table())
    bank.add_tokens(TOKENIZER, token_table())
    for step in steps:
        made = spec(step) if config is None else spec(step, config=config)
        with bank.begin(made) as writer:
            for block in range(3):
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
    return bank


def damaged(bank: Bank) -> list[tuple[str, str]]:
    return [(each.path, each.problem) for each in verify(bank)]


@pytest.mark.parametrize("folder", ["prompts", "tokens"])
@pytest.mark.parametrize("config", [None, "c0" * 8])
def test_table_whose_digest_is_left_is_missing(
    tmp_path: Path, folder: str, config: str | None
) -> None:
    bank = bank_of(tmp_path / "b", config=config)
    (table,) = (bank.path / folder).glob("*.parquet")
    data = table.read_bytes()
    table.unlink()
    (damage,) = verify(bank)
    assert damage == Damage(
        f"{folder}/{table.name}",
        "missing",
        "the digest beside it is there, and the table is not; the same `logitbank extract` or "
        "`merge` writes it again, or take it from another copy of the bank",
    )
    assert leftovers(bank) == {}
    assert repair(bank, [damage]) == ({}, ())
    with pytest.raises(DamagedError, match=rf"{table.name} is missing \(the digest beside it"):
        push(bank.path, tmp_path / "pushed")
    assert not (tmp_path / "pushed").exists()
    table.write_bytes(data)
    assert verify(bank) == ()


def test_prompts_and_texts_that_left_no_trace_are_missed_by_what_extractions_say(
    tmp_path: Path,
) -> None:
    bank = bank_of(tmp_path / "b")
    for folder in ("prompts", "tokens"):
        shutil.rmtree(bank.path / folder)
    assert damaged(bank) == [
        ("prompts/*.parquet", "missing"),
        (f"tokens/{TOKENIZER}-*.parquet", "missing"),
    ]
    assert f"no table of prompts asks the queries of {QUERY_SET.name}; the same" in str(
        verify(bank)[0]
    )
    with pytest.raises(DamagedError, match=r"prompts/\*\.parquet is missing"):
        push(bank.path, tmp_path / "pushed")
    bank.add_prompts("parity", prompt_table())
    assert damaged(bank) == [(f"tokens/{TOKENIZER}-*.parquet", "missing")]
    bank.add_tokens(TOKENIZER, token_table())
    assert verify(bank) == ()


def test_one_extraction_among_deposits_of_other_writers_tells(tmp_path: Path) -> None:
    """Whatever its place in training: others may have brought their logits to the same bank."""
    bank = bank_of(tmp_path / "b", steps=(8,))
    for step in (0, 16):
        with bank.begin(spec(step)) as writer:
            for block in range(3):
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
    assert verify(bank) == ()
    for folder in ("prompts", "tokens"):
        shutil.rmtree(bank.path / folder)
    assert damaged(bank) == [
        ("prompts/*.parquet", "missing"),
        (f"tokens/{TOKENIZER}-*.parquet", "missing"),
    ]


def test_a_bank_of_other_writers_or_versions_may_have_neither(tmp_path: Path) -> None:
    bank = bank_of(tmp_path / "b", config=None)
    for folder in ("prompts", "tokens"):
        shutil.rmtree(bank.path / folder)
    assert verify(bank) == ()
    push(bank.path, tmp_path / "pushed")


def test_a_bank_without_the_queries_of_a_deposit_is_not_pushed(tmp_path: Path) -> None:
    bank = bank_of(tmp_path / "b")
    (bank.path / f"queries/{QUERY_SET.name}.parquet").unlink()
    with pytest.raises(DamagedError, match=f"queries/{QUERY_SET.name}.parquet is missing"):
        push(bank.path, tmp_path / "pushed")


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
    assert "index.json lists commits/seal.json and 8 more objects of it; take it" in damage.detail
    assert repair(pushed, [damage]) == ({}, ())
    index = pushed.path / "index.json"
    index.write_bytes(index.read_bytes()[:100])
    assert damaged(pushed) == [("index.json", "unreadable")]


def test_a_bank_that_was_sealed_or_grew_after_it_was_pushed_is_whole(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    bank.add_query_set(QUERY_SET)
    writer = bank.begin(spec(0))
    for block in range(3):
        writer.write(block, block_data(writer.layout, block))
    push(bank.path, tmp_path / "pushed")
    with Bank.open(tmp_path / "pushed").begin(spec(0)) as there:
        there.seal()
    assert not list((tmp_path / "pushed").glob("*/*/*/*/commits/0.json"))
    assert verify(tmp_path / "pushed") == ()


@pytest.mark.parametrize("folder", ["prompts", "tokens"])
def test_what_is_made_of_a_bank_is_not_made_without_its_tables(tmp_path: Path, folder: str) -> None:
    bank = bank_of(tmp_path / "b")
    shutil.rmtree(bank.path / folder)
    new = tmp_path / "new"
    with pytest.raises(DamagedError, match=rf"b/{folder}/.*\.parquet is missing .*; the same"):
        merge(new, bank.path)
    with pytest.raises(DamagedError, match=rf"b/{folder}/.*\.parquet is missing .*; the same"):
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


def test_a_target_that_has_lost_a_table_takes_what_comes(tmp_path: Path) -> None:
    bank, other = bank_of(tmp_path / "a", steps=(8,)), bank_of(tmp_path / "b", config=None)
    for path in (bank.path, other.path):
        shutil.rmtree(path / "tokens")
    assert merge(bank.path, other.path).deposits == 1
    assert damaged(bank) == [(f"tokens/{TOKENIZER}-*.parquet", "missing")]


def test_a_query_set_of_a_source_is_missed_though_another_bank_has_it(tmp_path: Path) -> None:
    bank, other = bank_of(tmp_path / "a"), bank_of(tmp_path / "b", steps=(8,))
    (bank.path / f"queries/{QUERY_SET.name}.parquet").unlink()
    with pytest.raises(DamagedError, match=f"a/queries/{QUERY_SET.name}.parquet is missing"):
        merge(tmp_path / "new", bank.path, other.path)
    assert not (tmp_path / "new").exists()


def test_a_merge_brings_query_sets_back_and_repair_is_not_said_to(
    tmp_path: Path, call: Call
) -> None:
    bank, copy = bank_of(tmp_path / "b"), bank_of(tmp_path / "copy")
    (bank.path / f"queries/{QUERY_SET.name}.parquet").unlink()
    for command in (["verify"], ["verify", "--repair"]):
        code, printed, _ = call(*command, bank.path)
        assert code == 1
        assert f"queries/{QUERY_SET.name}.parquet: missing" in printed
        assert "drops what is damaged" not in printed
        assert (
            "--repair brings no lost table back: the same `logitbank extract` writes it again, and "
            f"so does `logitbank merge {bank.path} COPY` of another copy of the bank\n"
        ) in printed
    merge(bank.path, copy.path)
    assert verify(bank) == ()


def test_each_kind_of_damage_has_its_next_step(tmp_path: Path, call: Call) -> None:
    bank = bank_of(tmp_path / "b")
    lines = {
        "drop": f"`logitbank verify --repair {bank.path}` drops what is damaged; extract then",
        "lost": "--repair brings no lost table back",
        "foreign": "--repair leaves what is foreign where it is; remove it yourself",
        "rest": "--repair brings none of the rest back; take it from another copy of the bank",
    }

    def told(*command: str) -> set[str]:
        printed = call(*command, bank.path)[1]
        return {name for name, line in lines.items() if line in printed}

    assert told("verify") == set()
    (bank.path / "foo").touch()
    assert told("verify") == {"foreign"}
    next(bank.path.glob("tokens/*.parquet")).unlink()
    assert told("verify") == {"foreign", "lost"}
    (scores,) = bank.path.glob("*/*/*/*/scores/all.parquet")
    scores.write_bytes(scores.read_bytes()[:-1])
    assert told("verify") == {"foreign", "lost", "drop"}
    assert told("verify", "--repair") == {"foreign", "lost"}
    (bank.path / "index.json").write_text("{")
    assert told("verify") == {"foreign", "lost", "rest"}


def test_pull_takes_what_is_left_and_says_what_is_lost(tmp_path: Path, call: Call) -> None:
    bank = bank_of(tmp_path / "b")
    assert pull(bank.path, tmp_path / "whole").lost == {}
    shutil.rmtree(bank.path / "tokens")
    how = "deposits name this tokenizer, and its tokens have no texts"
    table = f"tokens/{TOKENIZER}-*.parquet"
    assert pull(bank.path, tmp_path / "pulled").lost == {table: how}
    code, _, told = call("pull", bank.path, tmp_path / "again")
    assert code == 0
    assert f"again/{table} is missing ({how}); `logitbank verify` says what to do" in told
    assert damaged(Bank.open(tmp_path / "again")) == [(table, "missing")]


def test_pull_takes_a_part_of_a_bank_that_is_whole(tmp_path: Path) -> None:
    bank = bank_of(tmp_path / "b", steps=(0, 8))
    pull(bank.path, tmp_path / "part", steps="0")
    assert verify(tmp_path / "part") == ()


def test_commands_that_read_say_in_a_line_what_is_lost(tmp_path: Path, call: Call) -> None:
    bank = bank_of(tmp_path / "b")
    shutil.rmtree(bank.path / "tokens")
    line = (
        f"{bank.path}/tokens/{TOKENIZER}-*.parquet is missing (deposits name this tokenizer, and"
        " its tokens have no texts); `logitbank verify` says what to do\n"
    )
    for command in (["show", "--top-tokens", "2", "--prompt", "p0"], ["analyze", "options"]):
        code, _, told = call(*command, bank.path)
        assert (code, told.count(line)) == (0, 1), told
    code, printed, told = call("verify", bank.path)
    assert (code, told.count("is missing")) == (1, 0)
    assert "1 damaged object in" in printed
    bank.add_tokens(TOKENIZER, token_table())
    assert "is missing" not in call("analyze", "options", bank.path)[2]


OTHERS = {"into", "out", "view", "folder", "target", "url", "by", "sql", "prompts"}
"""What else is among the arguments of commands: what they write to, and what is no bank."""
TELL_THEMSELVES = {"extract", "push", "report", "shrink", "verify"}


def commands(group: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, *above, name)
        else:
            yield (*above, name), each


COMMANDS = {
    words: [p for p in each.params if p.param_type_name == "argument"]
    for words, each in commands(typer.main.get_command(app))
}


def test_what_commands_call_a_bank_that_they_read_is_known() -> None:
    names = {argument.name for arguments in COMMANDS.values() for argument in arguments}
    assert names == {*BANKS, *OTHERS}


@pytest.mark.parametrize(
    "words",
    [
        words
        for words, arguments in COMMANDS.items()
        if {argument.name for argument in arguments} & {*BANKS} and words[0] not in TELL_THEMSELVES
    ],
    ids=" ".join,
)
def test_every_command_that_reads_a_bank_says_what_that_has_lost(
    words: tuple[str, ...], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it does anything else: here most refuse what they are asked then."""
    bank = bank_of(tmp_path / "b")
    shutil.rmtree(bank.path / "tokens")
    monkeypatch.chdir(tmp_path)
    given = [bank.path if argument.name in BANKS else "x" for argument in COMMANDS[words]]
    required = ["--out", "x"] if words == ("debias", "train") else []
    told = call(*words, *given, *required)[2]
    lines = [
        line for line in told.splitlines() if line.endswith("`logitbank verify` says what to do")
    ]
    assert [line.partition(" is missing")[0] for line in lines] == [
        f"{bank.path}/tokens/{TOKENIZER}-*.parquet"
    ], told
