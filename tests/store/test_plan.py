"""Planning: where queries go and which blocks are still to be run."""

import polars as pl

from logitbank.engine.plan.plan import fitting_levels, needed_blocks, place, placed
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import PROMPTS_SCHEMA, Keep, Query, QuerySet

A, B, C = Query((1, 2), 1), Query((1, 3), 1), Query((2,), 0)


def test_known_queries_are_found_and_new_ones_sorted_into_one_set() -> None:
    stored = QuerySet("tok", (B,))
    placement = place([C, B, A, C], "tok", {stored.name: stored})
    (new_set,) = placement.new
    assert new_set.queries == (A, C)
    new = new_set.name
    assert placement.places == ((new, 1), (stored.name, 0), (new, 0), (new, 1))


def test_queries_of_another_tokenizer_are_not_the_same_queries() -> None:
    stored = QuerySet("other", (A,))
    placement = place([A], "tok", {stored.name: stored})
    assert placement.new == (QuerySet("tok", (A,)),)


def test_nothing_new_makes_no_query_set() -> None:
    stored = QuerySet("tok", (A, B))
    assert place([B], "tok", {stored.name: stored}).new == ()


def test_only_blocks_with_wanted_rows_that_are_not_committed_are_needed() -> None:
    layout = Layout.plan(queries=40, vocab=10, dtype="float16", keep=Keep("full"), block_rows=8)
    assert needed_blocks([0, 7, 9, 39], layout, {1}) == (0, 4)
    assert needed_blocks([], layout, set()) == ()


def test_a_placed_table_points_into_the_bank_and_keeps_its_own_columns() -> None:
    row = {name: None for name in PROMPTS_SCHEMA if name not in ("query_set", "row")}
    table = pl.DataFrame(
        [row | {"prompt_id": "p", "query": 1, "split": "dev"}],
        schema_overrides={"query": pl.Int32},
    )
    found = placed(table, [("q-a", 5), ("q-b", 7)])
    assert found.columns == [*PROMPTS_SCHEMA, "split"]
    assert found.select("query_set", "row", "split").row(0) == ("q-b", 7, "dev")


def test_smaller_keep_levels_are_offered_when_they_fit() -> None:
    # 1,000 rows × 50,304 × 2 bytes = 100.6 MB and 2.7 MB of top-64 scores
    assert fitting_levels(1000, 50304, 10**9)[0] == "--keep full --dtype float16"
    assert fitting_levels(1000, 50304, 10**7) == ["--keep topk:64", "--keep options"]
    assert fitting_levels(1000, 50304, 10) == []
