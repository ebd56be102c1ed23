import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitbank.errors import BankError, DamagedError, UsageError
from logitbank.store import (
    Bank,
    CheckpointId,
    Deposit,
    Keep,
    OptionTokens,
    Query,
    QuerySet,
    describe,
    merge,
    rescore,
    verify,
)
from logitbank.store.format.layout import BlockData
from logitbank.store.share import copying
from tests.support.command import Call
from tests.support.small_banks import (
    QUERY_SET,
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

OTHER = QuerySet(TOKENIZER, tuple(Query((9, row), 1) for row in range(10)))


def part(
    path: Path, blocks: tuple[int, ...] = (0, 1, 2), *, step: int = 0, **options: object
) -> Bank:
    """A bank with some blocks of one deposit; sealed where it has all three."""
    bank = Bank.open(path) if path.exists() else new_bank(path)
    with bank.begin(spec(step, **options)) as writer:  # type: ignore[arg-type]
        for block in blocks[: writer.layout.blocks]:
            writer.write(block, block_data(writer.layout, block, seed=step))
        writer.seal()
    return bank


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
        if p.is_file()
    }


def scores(bank: Bank) -> pl.DataFrame:
    return bank.scan("parity").collect().sort("model", "step", "prompt_id", "option")


def deposit_folder(bank: Bank, step: int = 0) -> Path:
    return next(bank.path.glob(f"org%2Fmodel/main/{step}/q-*"))


def test_disjoint_deposits_are_copied_byte_for_byte(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1", host="ada"), part(tmp_path / "2", step=7, host="bob")
    before = digests(one.path), digests(two.path)
    seen: list[tuple[int, int]] = []
    made = merge(tmp_path / "m", one.path, two.path, progress=lambda *at: seen.append(at))
    merged = Bank.open(tmp_path / "m")
    assert verify(merged) == ()
    found = digests(merged.path)
    expected = {k: v for files in before for k, v in files.items()}
    del expected["zarr.json"], found["zarr.json"]
    assert found == expected
    assert made.deposits == 2
    assert made.tables == 2
    assert seen[-1][0] == seen[-1][1] >= made.bytes
    assert (digests(one.path), digests(two.path)) == before
    assert [d.committed() for d in merged.deposits()] == [{0, 1, 2}, {0, 1, 2}]


def test_deposits_in_progress_are_left_out_and_counted(tmp_path: Path, call: Call) -> None:
    one, two = part(tmp_path / "1", (0,)), part(tmp_path / "2", (1, 2))
    part(two.path, step=5)
    assert merge(tmp_path / "m", one.path, two.path)[::3] == (1, 2)
    assert Bank.open(tmp_path / "m").steps == [5]
    code, printed, _ = call("merge", tmp_path / "m", one.path)
    assert (code, printed.endswith(" copied. 1 incomplete deposit left out.\n")) == (0, True)


@pytest.mark.parametrize("keep", [Keep("full"), Keep("topk", 2), Keep("options")])
def test_a_whole_deposit_replaces_a_part_of_it(tmp_path: Path, keep: Keep) -> None:
    whole = part(tmp_path / "whole", keep=keep, host="bob")
    one = part(tmp_path / "1", (1,), keep=keep)
    merge(one.path, whole.path)
    assert verify(one) == ()
    assert one.deposits()[0].sealed
    assert scores(one).equals(scores(whole))
    assert not list(one.path.rglob(".*"))


def test_a_part_that_another_process_writes_is_not_removed(tmp_path: Path) -> None:
    whole = part(tmp_path / "whole", host="bob")
    one = new_bank(tmp_path / "1")
    with one.begin(spec()) as writer:
        writer.write(0, block_data(writer.layout, 0))
        with pytest.raises(BankError, match=r"has written it meanwhile\. Run the same command"):
            merge(one.path, whole.path)
        assert writer.write(1, block_data(writer.layout, 1))
    merge(one.path, whole.path)
    assert one.deposits()[0].sealed
    assert verify(one) == ()


def test_equal_deposits_add_nothing(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1"), part(tmp_path / "2", host="bob")
    unsealed = new_bank(tmp_path / "3")
    with unsealed.begin(spec()) as writer:
        for block in range(3):
            writer.write(block, block_data(writer.layout, block))
    before = digests(one.path)
    assert merge(one.path, two.path, unsealed.path, two.path) == (0, 0, 0, 1)
    assert digests(one.path) == before


def conflicting(path: Path, what: str) -> Bank:
    if what in ("logits", "scores", "listed"):
        bank = new_bank(path)
        with bank.begin(spec()) as writer:
            first = block_data(writer.layout, 0)
            if what == "scores":
                rank = pl.when((pl.col("query") == 2) & (pl.col("token") == 4)).then(3).otherwise(1)
                changed = first.scores.with_columns(rank=rank.cast(pl.Int32))
                first = BlockData(first.rows, changed)
            if what == "listed":
                assert first.rows is not None
                logit = float(first.rows[0, 5]) + pl.col("logsumexp")
                more = first.scores.head(1).with_columns(
                    token=pl.lit(5, pl.Int32), logit=logit.cast(pl.Float32)
                )
                first = BlockData(first.rows, pl.concat([first.scores, more]))
            writer.write(0, first)
            writer.write(1, block_data(writer.layout, 1, seed=5 if what == "logits" else 0))
            writer.write(2, block_data(writer.layout, 2))
            writer.seal()
        return bank
    options: dict[str, object] = {
        "weights": {"weights": "cd" * 32},
        "dtype": {"dtype": "float16"},
        "compute": {"compute_dtype": "bfloat16"},
        "block_rows": {"block_rows": 5},
        "keep": {"keep": Keep("options")},
    }[what]  # type: ignore[assignment]
    return part(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("weights", "weights differ"),
        ("dtype", "dtype is float16, not float32"),
        ("compute", "compute_dtype is bfloat16, not None"),
        ("block_rows", "block_rows is 5, not 4"),
        ("keep", "keep is options, not full.*logitbank shrink"),
        ("logits", r"logprobs/c/1/0 differs .* remove one of the two folders"),
        ("scores", r"scores/all\.parquet differs"),
        ("listed", r"scores/all\.parquet differs"),
    ],
)
def test_a_conflict_names_the_deposit_and_copies_nothing(
    tmp_path: Path, what: str, message: str
) -> None:
    one = part(tmp_path / "1")
    other = conflicting(tmp_path / "2", what)
    extra = part(tmp_path / "3", step=9)  # comes first, and is not copied either
    before = digests(one.path)
    with pytest.raises(BankError, match=message) as error:
        merge(one.path, extra.path, other.path)
    for name in (deposit_folder(other), deposit_folder(one), "org/model step 0"):
        assert str(name) in str(error.value)
    assert digests(one.path) == before
    with pytest.raises(BankError, match=message) as error:
        merge(tmp_path / "new", one.path, other.path)
    for folder in (deposit_folder(one), deposit_folder(other)):
        assert str(folder) in str(error.value), "the folders that exist"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("mine", "made", "message"),
    [
        ({}, {"weights": "cd" * 32}, "weights differ"),
        ({"config": "1" * 16}, {"weights": "ab" * 32, "config": "2" * 16}, "config differ"),
    ],
)
def test_a_checkpoint_has_one_model_and_one_set_of_weights_in_all_query_sets(
    mine: dict[str, str], made: dict[str, str], message: str, tmp_path: Path
) -> None:
    one, two = part(tmp_path / "1", **mine), Bank.create(tmp_path / "2")
    two.add_query_set(OTHER)
    two.add_prompts("others", prompt_table(OTHER))  # as an extraction, which says config, has them
    for bank in (one, two):
        bank.add_tokens(TOKENIZER, token_table())
    values = np.zeros((10, 6), np.float32)
    checkpoint = CheckpointId("org/model", step=0)
    provenance = made | {"tokenizer": TOKENIZER}
    two.deposit(values, checkpoint=checkpoint, query_set=OTHER.name, provenance=provenance)
    with pytest.raises(BankError, match=message):
        merge(one.path, two.path)


def test_prompts_are_a_union_and_their_options_are_read_from_full_rows(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1"), Bank.create(tmp_path / "2")
    two.add_query_set(QUERY_SET)
    two.add_prompts("third", prompt_table().with_columns(token=pl.lit(3, pl.Int32)).unique("row"))
    assert merge(one.path, two.path) == (0, 1, 0, 0)
    assert sorted(one.prompt_sets) == ["parity", "third"]
    rows = one.scan("third").collect()
    assert rows.height == 10
    assert not rows["exact"].any()
    assert verify(one) == ()
    assert merge(one.path, two.path) == (0, 0, 0, 0)


def test_other_prompts_under_one_id_are_a_conflict(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1"), Bank.create(tmp_path / "2")
    two.add_query_set(QUERY_SET)
    two.add_prompts("parity", prompt_table().with_columns(text=pl.lit("other")))
    message = r"two versions: .*2/prompts/parity-\w+.parquet and .*1/prompts/.* text 'other' in"
    with pytest.raises(BankError, match=message):
        merge(one.path, two.path)


def test_parts_with_further_options_are_copied(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1"), part(tmp_path / "2", step=4)
    rescore(one.deposits()[0], OptionTokens.build([[2, 5]] + [[]] * 9))
    rescore(two.deposits()[0], OptionTokens.build([[2]] + [[]] * 9))
    merge(tmp_path / "m", one.path, two.path)
    merged = Bank.open(tmp_path / "m")
    assert verify(merged) == ()
    assert [len(d.state().options) for d in merged.deposits()] == [1, 1]
    assert merge(merged.path, one.path, two.path).deposits == 0


def test_other_scores_of_the_same_further_options_are_a_conflict(tmp_path: Path) -> None:
    banks = [part(tmp_path / name) for name in "12"]
    for bank in banks:
        rescore(bank.deposits()[0], OptionTokens.build([[2, 5]] + [[]] * 9))
    (file,) = deposit_folder(banks[1]).glob("scores/options-*.parquet")
    pl.read_parquet(file).with_columns(exact=pl.lit(True)).write_parquet(file)
    recommit(deposit_folder(banks[1]), f"scores/{file.name}")
    with pytest.raises(BankError, match=rf"scores/{file.name} differs"):
        merge(banks[0].path, banks[1].path)


def test_licenses_are_kept(tmp_path: Path) -> None:
    one, two = part(tmp_path / "1"), part(tmp_path / "2", step=3)
    describe(two.path, license="CC-BY-4.0", citation="Bob 2026")
    merge(tmp_path / "m", one.path, two.path)
    merged = Bank.open(tmp_path / "m")
    assert merged.attributes["title"] == "small"
    assert merged.attributes["license"] == ""
    first, second = merged.attributes["sources"]
    assert first == {
        "title": "small", "license": "CC0-1.0", "citation": "", "models": ["org/model"]
    }  # fmt: skip
    assert (second["license"], second["citation"]) == ("CC-BY-4.0", "Bob 2026")
    merge(tmp_path / "again", merged.path)
    assert Bank.open(tmp_path / "again").attributes["sources"] == [first, second]
    merge(merged.path, two.path)
    assert Bank.open(merged.path).attributes["sources"] == [first, second]


def test_a_merge_of_nothing_or_of_the_bank_itself_is_refused(tmp_path: Path) -> None:
    bank = part(tmp_path / "1")
    for sources in ([], [tmp_path / "2" / ".." / "1"]):
        with pytest.raises(UsageError):
            merge(bank.path, *sources)


def link_out(deposit: Path) -> None:
    (deposit / "logprobs/c/1/0").rename(deposit.parents[4] / "secret")
    (deposit / "logprobs/c/1/0").symlink_to(deposit.parents[4] / "secret")


def name_object(name: str) -> Callable[[Path], object]:
    return lambda deposit: rewrite(
        deposit / "commits/seal.json",
        lambda told: told["objects"].update({name: told["objects"]["zarr.json"]}),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (link_out, "is a symbolic link"),
        (name_object("../../../../../secret"), "lists other objects or rows"),
        (name_object("logprobs/c/0/0/../1"), "lists other objects or rows"),
    ],
)
def test_a_hostile_source_is_refused(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    bank = part(tmp_path / "1")
    change(deposit_folder(bank))
    with pytest.raises(BankError, match=message):
        merge(tmp_path / "m", bank.path)
    assert not list((tmp_path / "m").rglob("seal.json"))


@pytest.mark.parametrize("host", ["ada", "bob"])
def test_a_merge_that_another_one_overtakes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The other one creates the deposit after the plan, with the same attributes or others."""
    one, two = part(tmp_path / "1", host="ada"), part(tmp_path / "2", host=host)
    target = new_bank(tmp_path / "m").path
    planned = copying.moves

    def overtaken(*banks: Any, **places: Any) -> Any:
        monkeypatch.setattr(copying, "moves", planned)
        plan = planned(*banks, **places)
        merge(target, two.path)
        return plan

    monkeypatch.setattr(copying, "moves", overtaken)
    if host == "bob":
        with pytest.raises(BankError, match=r"meanwhile\. Run the same command again"):
            merge(target, one.path)
    merge(target, one.path)
    bank = Bank.open(target)
    assert [file.name for file in (deposit_folder(bank) / "commits").iterdir()] == ["seal.json"]
    _check_values(bank.deposits()[0])
    assert verify(bank) == ()


@pytest.mark.whole
@settings(max_examples=12, deadline=None)
@given(
    shares=st.lists(
        st.dictionaries(st.sampled_from([0, 1, 2]), st.booleans(), min_size=1),
        min_size=1,
        max_size=3,
    ),
    data=st.data(),
)
def test_a_merge_is_the_union_of_whole_deposits_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory,
    shares: list[dict[int, bool]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("union")
    banks = []
    for i, share in enumerate(shares):
        for step, whole in share.items():
            blocks = (0, 1, 2) if whole else (1,)
            bank = part(folder / str(i), blocks, step=step, host=str(i))
        banks.append(bank.path)
    order = data.draw(st.permutations(banks))
    merge(folder / "m", *order)
    merged = Bank.open(folder / "m")
    assert verify(merged) == ()
    expected = {step for share in shares for step, whole in share.items() if whole}
    assert {d.checkpoint.step for d in merged.deposits()} == expected
    assert all(d.sealed for d in merged.deposits())
    for deposit in merged.deposits():
        _check_values(deposit)
    before = digests(merged.path)
    assert merge(merged.path, *banks).deposits == 0
    assert digests(merged.path) == before
    shutil.rmtree(folder)


def _check_values(deposit: Deposit) -> None:
    for block in deposit.committed():
        data = block_data(deposit.layout, block, seed=deposit.checkpoint.step or 0)
        rows = list(deposit.layout.rows(block))
        np.testing.assert_array_equal(deposit.logprobs(rows), data.rows)


@pytest.mark.parametrize(
    "name", ["logprobs/c/2/0", "scores/all.parquet", "commits/seal.json", "logsumexp/c/0"]
)
def test_a_damaged_source_is_refused_before_anything_is_copied(tmp_path: Path, name: str) -> None:
    sound, damaged = new_bank(tmp_path / "sound"), new_bank(tmp_path / "damaged")
    fill(sound, spec(0))
    fill(damaged, spec(0))
    deposit = fill(damaged, spec(1))
    file = deposit.path / name
    flip(file)
    with pytest.raises(DamagedError, match=r"damaged/.*\bchanged\b"):
        merge(tmp_path / "new", sound.path, damaged.path)
    assert not (tmp_path / "new").exists()
    before = sorted(sound.path.rglob("*"))
    with pytest.raises(DamagedError):
        merge(sound.path, damaged.path)
    assert sorted(sound.path.rglob("*")) == before


def test_a_source_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Its maker signed another model's name into the scores: all digests are right."""
    deposit = fill(new_bank(tmp_path / "b"), spec(0))
    part = deposit.path / "scores/all.parquet"
    pl.read_parquet(part).with_columns(model=pl.lit("other")).write_parquet(part)
    recommit(deposit.path, "scores/all.parquet")
    with pytest.raises(DamagedError, match="its model is 'other'"):
        merge(tmp_path / "new", tmp_path / "b")
    assert not (tmp_path / "new").exists()
