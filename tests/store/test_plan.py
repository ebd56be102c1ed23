"""Planning: where queries go and which blocks are still to be run."""

import numpy as np
import polars as pl

from logitbank.engine.plan.levels import level_sizes
from logitbank.engine.plan.plan import DepositPlan, assign_queries, needed_blocks, with_query_rows
from logitbank.engine.weights.heads import HeadSize
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId, Keep, Query

A, B, C = Query((1, 2), 1), Query((1, 3), 1), Query((2,), 0)


def test_known_queries_are_found_and_new_ones_sorted_into_one_set() -> None:
    stored = QuerySet("tok", (B,))
    placement = assign_queries([C, B, A, C], "tok", {stored.name: stored})
    (new_set,) = placement.new
    assert new_set.queries == (A, C)
    new = new_set.name
    assert placement.query_rows.rows() == [(new, 1), (stored.name, 0), (new, 0), (new, 1)]


def test_queries_of_another_tokenizer_are_not_the_same_queries() -> None:
    stored = QuerySet("other", (A,))
    placement = assign_queries([A], "tok", {stored.name: stored})
    assert placement.new == (QuerySet("tok", (A,)),)


def test_nothing_new_makes_no_query_set() -> None:
    stored = QuerySet("tok", (A, B))
    assert assign_queries([B], "tok", {stored.name: stored}).new == ()


def test_only_blocks_with_wanted_rows_that_are_not_committed_are_needed() -> None:
    layout = Layout.plan(queries=40, vocab=10, dtype="float16", keep=Keep("full"), block_rows=8)
    assert needed_blocks(np.array([0, 7, 9, 39]), layout, {1}) == (0, 4)
    assert needed_blocks(np.array([], int), layout, set()) == ()


def test_a_placed_table_points_into_the_bank_and_keeps_its_own_columns() -> None:
    row = {name: None for name in PROMPTS_SCHEMA if name not in ("query_set", "row")}
    table = pl.DataFrame(
        [row | {"prompt_id": "p", "query": 1, "split": "dev"}],
        schema_overrides={"query": pl.Int32},
    )
    found = with_query_rows(table, pl.DataFrame({"query_set": ["q-a", "q-b"], "row": [5, 7]}))
    assert found.columns == [*PROMPTS_SCHEMA, "split"]
    assert found.select("query_set", "row", "split").row(0) == ("q-b", 7, "dev")


def test_smaller_keep_levels_are_offered_when_they_fit() -> None:
    def fitting(free: int) -> list[str]:
        return [str(size) for size in level_sizes([planned()]) if size.bytes <= free]

    # 1,000 rows × 50,304 × 2 bytes = 100.6 MB and 2.7 MB of top-64 scores
    assert fitting(2 * 10**8)[0] == "--keep full --dtype float16"
    assert fitting(10**7) == ["--keep topk:64", "--keep options"]
    assert fitting(10) == []


def test_states_take_their_width_and_each_head_once() -> None:
    head = HeadSize(512, 50304 * 512 * 2)
    plans = [planned(head=head), planned(name="q-b", head=head), planned(step=1, head=head)]
    sizes = {str(size): size for size in level_sizes(plans)}
    # 160 bytes of scores a row; two checkpoints, each with a head of 51.5 MB
    states = sizes["--keep hidden --dtype float32"]
    assert states == (
        Keep("hidden"),
        "float32",
        3000 * (512 * 4 + 160) + 2 * 51_511_296,
        103_022_592,
    )
    assert sizes["--keep hidden --dtype float16"].bytes == states.bytes - 3000 * 512 * 2
    there = [planned(head=head._replace(bytes=0))]
    assert level_sizes(there)[2].heads == 0, "the bank has it"
    assert all(size.keep.array != "hidden" for size in level_sizes([planned()])), (
        "of no known width"
    )


def planned(
    step: int = 0,
    *,
    rows: int = 1000,
    vocab: int = 50304,
    name: str = "q-a",
    head: HeadSize | None = None,
) -> DepositPlan:
    layout = Layout.plan(queries=rows, vocab=vocab, dtype="float16", keep=Keep("options"))
    blocks = tuple(range(layout.blocks))
    return DepositPlan(CheckpointId("m", step=step), name, layout, blocks, head)


def test_equal_contexts_are_one_row() -> None:
    placement = assign_queries(
        [Query((1, 2, 3), 1), Query((1, 2), 1), Query((1, 2, 3), 2)], "tok", {}
    )
    (new_set,) = placement.new
    assert placement.query_rows["row"].to_list() == [0, 0, 1]
    assert new_set.has_causal_contexts


def test_masks_and_contexts_of_a_language_have_sets_of_their_own() -> None:
    language, mask = Query((1, 2), 1, language="de"), Query((1, 2), 1, "mask")
    contexts, others = assign_queries([A, language, mask], "tok", {}).new
    assert contexts.queries == (A,)
    assert others.queries == (mask, language)


def tree(*contexts: tuple[int, ...]) -> dict[str, QuerySet]:
    query_set, _ = QuerySet.from_contexts("tok", [Query(ids, len(ids) - 1) for ids in contexts])
    return {query_set.name: query_set}


LARGE = tree((1,), (1, 2), (1, 2, 3), (4,), (4, 5))
((LARGE_NAME, _),) = LARGE.items()


def test_contexts_that_are_half_of_a_stored_set_are_taken_from_it() -> None:
    asked = [Query((1, 2, 9), 0), Query((1, 2, 9), 1), Query((1, 2, 3, 9), 2), Query((8,), 0)]
    placement = assign_queries(asked, "tok", LARGE)
    assert placement.query_rows.rows()[:3] == [(LARGE_NAME, 0), (LARGE_NAME, 1), (LARGE_NAME, 2)]
    assert [query_set.queries for query_set in placement.new] == [(Query((8,), 0),)]


def test_a_stored_set_that_has_everything_is_taken_and_one_that_has_a_little_is_not() -> None:
    assert assign_queries([Query((1, 2, 9), 1)], "tok", LARGE).new == ()
    (new_set,) = assign_queries([Query((1, 2, 9), 1), Query((8,), 0)], "tok", LARGE).new
    assert len(new_set) == 2


def test_the_sets_that_a_prompt_set_is_in_already_are_its_home() -> None:
    asked = [Query((1, 2, 9), 1), Query((8,), 0)]
    placement = assign_queries(asked, "tok", LARGE, [LARGE_NAME])
    assert placement.query_rows.row(0) == (LARGE_NAME, 1)
    assert [query_set.queries for query_set in placement.new] == [(Query((8,), 0),)]
    later = LARGE | tree((1, 2), (8,))
    assert assign_queries(asked, "tok", later, [LARGE_NAME]).query_rows.row(0) == (LARGE_NAME, 1)
