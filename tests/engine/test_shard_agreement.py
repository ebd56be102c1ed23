"""Shares of one extraction: equal rows, few checkpoints each, and together all of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.sharding import (
    Owners,
    Shard,
    blocks_of_shard,
    divide_rows,
    owners_of,
    spans_of,
)
from logitbank.engine.run import run
from logitbank.errors import DamagedError
from logitbank.store import Bank
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep
from tests.support.fakes import FakeBackend
from tests.support.run_driver import PROMPTS, extraction

Blocks = set[tuple[int, str, int]]
"""Checkpoint, query set and number."""


def plan(step: int, name: str, blocks: set[int], *, rows: int = 4, of: int = 30) -> DepositPlan:
    layout = Layout(of * rows, 10, "float16", Keep("options"), rows)
    return DepositPlan(CheckpointId("m", step=step), name, layout, tuple(sorted(blocks)))


def rows_of(shares: list[list[DepositPlan]]) -> list[int]:
    return [sum(deposit.rows for deposit in share) for share in shares]


def blocks_of(deposits: list[DepositPlan] | tuple[DepositPlan, ...]) -> Blocks:
    return {(d.checkpoint.step or 0, d.query_set, block) for d in deposits for block in d.blocks}


def test_shares_have_as_many_rows_whatever_the_bank_has_of_each_checkpoint() -> None:
    lacking = [plan(0, "a", {29}), plan(1, "a", set(range(10))), plan(2, "a", set(range(30)))]
    lacking.append(plan(2, "b", {5, 6, 7}))
    assert rows_of(divide_rows(lacking, 2)) == [88, 88]  # (1 + 10 + 30 + 3) blocks of 4 rows


def test_a_checkpoint_is_cut_only_where_its_end_is_too_far_away() -> None:
    whole = set(range(30))
    even = divide_rows([plan(step, "a", whole) for step in range(8)], 4)
    assert [[d.checkpoint.step for d in share] for share in even] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    odd = divide_rows([plan(step, "a", whole) for step in range(3)], 2)
    assert [[d.checkpoint.step for d in share] for share in odd] == [[0, 1], [1, 2]]
    nearly = divide_rows([plan(0, "a", whole), plan(1, "a", whole - {0, 1})], 2)
    assert rows_of(nearly) == [120, 112], "loading a checkpoint twice takes longer than two blocks"


def test_more_shares_than_blocks_leave_some_with_nothing() -> None:
    assert sorted(rows_of(divide_rows([plan(0, "a", {3, 4})], 4))) == [0, 0, 4, 4]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.integers(0, 29)), min_size=1, max_size=6), st.integers(1, 7), st.data())
def test_shares_leave_no_gap_whenever_they_start_and_whatever_happened_meanwhile(
    missing: list[set[int]], count: int, data: st.DataObject
) -> None:
    """Between two starts, others commit blocks and a repair drops some."""
    suite = [CheckpointId("m", step=step) for step in range(len(missing))]
    every = {(i, "a", block) for i in range(len(missing)) for block in range(30)}
    lacks = {(i, "a", block) for i, blocks in enumerate(missing) for block in blocks}
    agreed: Owners = owners_of(json.loads(json.dumps(spans_of(divide_rows(lacking(lacks), count)))))
    done: Blocks = set()
    dropped = data.draw(st.sets(st.sampled_from(sorted(every - lacks)))) if every - lacks else set()
    lacks |= dropped
    for shard in data.draw(st.permutations([Shard(i, count) for i in range(count)])):
        own = blocks_of(blocks_of_shard(lacking(lacks - done), agreed, shard, suite))
        assert not own & done
        done |= own
    assert done == lacks


def lacking(blocks: Blocks) -> list[DepositPlan]:
    steps = sorted({step for step, _, _ in blocks})
    return [plan(i, "a", {block for step, _, block in blocks if step == i}) for i in steps]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 5), st.sets(st.integers(0, 29), min_size=1))
def test_shares_that_see_other_block_sizes_leave_no_gap(count: int, missing: set[int]) -> None:
    """A deposit that nobody has begun may be planned with other blocks on another machine."""
    agreed = owners_of(spans_of(divide_rows([plan(0, "a", missing)], count)))
    suite, done = [CheckpointId("m", step=0)], set[int]()
    rows = {row for block in missing for row in range(4 * block, 4 * block + 4)}
    for index in range(count):
        size = 4 * (index + 1)
        other = plan(0, "a", {row // size for row in rows}, rows=size, of=-(-120 // size))
        for share in blocks_of_shard([other], agreed, Shard(index, count), suite):
            done |= {row for block in share.blocks for row in share.layout.rows(block)}
    assert rows <= done


def part(tmp_path: Path, series: Path, shard: Shard, *, dry_run: bool = False) -> int:
    parallel = ParallelConfig(shard=shard)
    return run(tmp_path / "b", extraction(series, parallel=parallel), dry_run=dry_run).plan.rows


def agreements(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("b.shares-*"))


@pytest.mark.whole
def test_what_shares_agreed_on_stays_until_the_bank_has_all(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    assert part(tmp_path, series, Shard(0, 2), dry_run=True) == 416
    assert agreements(tmp_path) == [], "a dry run leaves nothing"
    sampled = backend.scored  # by the dry run, which measures
    assert part(tmp_path, series, Shard(0, 2)) == 416  # 840 rows in blocks of 8
    assert len(agreements(tmp_path)) == 1
    assert part(tmp_path, series, Shard(1, 2)) == 424
    assert agreements(tmp_path) == []
    assert backend.scored - sampled == 3 * PROMPTS
    assert all(deposit.sealed for deposit in Bank.open(tmp_path / "b").deposits())


@pytest.mark.whole
def test_another_array_deals_anew_what_the_first_left(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    first, second = Shard(0, 2, "100"), Shard(0, 2, "200")
    assert part(tmp_path, series, first) == 416
    assert part(tmp_path, series, first) == 0, "a task that comes back does no more than its share"
    assert part(tmp_path, series, second) == 208, "424 rows are left"
    assert part(tmp_path, series, replace(second, index=1)) == 216
    assert backend.scored == 3 * PROMPTS


def test_an_agreement_that_was_changed_is_refused(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    part(tmp_path, series, Shard(0, 2))
    (file,) = agreements(tmp_path)
    file.write_text(file.read_text().replace("416", "8") + " ")
    with pytest.raises(DamagedError, match=r"shares-.* is not what the shares .* wrote there"):
        part(tmp_path, series, Shard(1, 2))
