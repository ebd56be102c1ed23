"""Query sets of contexts: one row a context, one node a token, and files that are none refused."""

import random
from pathlib import Path

import polars as pl
import pytest

from logitbank.errors import DamagedError, UsageError
from logitbank.store import Bank, Query, QuerySet, repair, verify
from logitbank.store.format.contexts import CONTEXTS_SCHEMA
from logitbank.store.tables.query_tables import TOKENIZER_KEY
from logitbank.store.tables.table_files import write_table
from tests.support.small_banks import new_bank

ASKED = [Query((5, 7, 9), 2), Query((5, 7), 1), Query((5, 8), 1), Query((4, 1), 0)]


def own(query: Query) -> tuple[int, ...]:
    return query.ids[: query.position + 1]


def random_queries(seed: int) -> list[Query]:
    draw = random.Random(seed)
    return [
        Query(ids, draw.randrange(len(ids)))
        for _ in range(draw.randrange(1, 60))
        for ids in [tuple(draw.randrange(3) for _ in range(draw.randrange(1, 9)))]
    ]


@pytest.mark.parametrize("seed", range(20))
def test_each_context_has_one_row_by_its_tokens(seed: int) -> None:
    queries = random_queries(seed)
    query_set, rows = QuerySet.of_contexts("toy", queries)
    assert [own(query) for query in query_set.queries] == sorted({*map(own, queries)})
    assert [own(query_set.queries[row]) for row in rows] == [*map(own, queries)]
    assert query_set.tree is not None
    beginnings = {own(query)[:end] for query in queries for end in range(1, len(own(query)) + 1)}
    assert len(query_set.tree.token) == len(beginnings)
    assert [*query_set.tree.contexts()] == [(q.ids, q.position) for q in query_set.queries]
    back = QuerySet.from_stored("toy", query_set.stored())
    assert (back.queries, back.name) == (query_set.queries, query_set.name)


def test_the_name_is_that_of_the_contexts_however_they_are_asked() -> None:
    others = [Query((4,), 0), Query((5, 8, 1, 2), 1), Query((5, 7, 9, 3), 2), Query((5, 7, 1), 1)]
    ours, theirs = (QuerySet.of_contexts("toy", some)[0] for some in (ASKED, others))
    assert theirs == ours
    assert theirs.name == ours.name
    assert QuerySet.of_contexts("other", ASKED)[0].name != ours.name


def test_a_document_of_many_positions_has_one_node_a_token(tmp_path: Path) -> None:
    ids = tuple(random.Random(0).randrange(50_000) for _ in range(2_000))
    query_set, _ = QuerySet.of_contexts("toy", [Query(ids, at) for at in range(len(ids))])
    assert query_set.stored().height == 2_000
    assert {query.ids for query in query_set.queries} == {ids}
    bank = new_bank(tmp_path / "b")
    bank.add_query_set(query_set)
    assert (bank.path / "queries" / f"{query_set.name}.parquet").stat().st_size < 40_000


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query((1, 2), 1, "mask"), "of head mask is no context"),
        (Query((1, 2), 1, language="de"), "is no context"),
        (Query((1, 2), 2), "position 2 of 2 tokens"),
        (Query((1, -2), 1), "token id -2"),
        (Query((1, 2**31), 1), "token ids that are none"),
    ],
)
def test_what_is_no_context_is_refused(query: Query, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QuerySet.of_contexts("toy", [query])


def test_no_context_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one query"):
        QuerySet.of_contexts("toy", [])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "no node"),
        ([(1, 4, True)], "goes on"),
        ([(0, 4, True), (2, 5, True)], "goes on"),
        ([(0, 4, True), (-1, 5, True)], "goes on"),
        ([(0, 4, True), (0, 4, True)], "not above the one beside it"),
        ([(0, 5, True), (1, 6, True), (0, 4, True)], "not above the one beside it"),
        ([(0, 4, True), (1, 5, False)], "nothing is asked at node 1"),
        ([(0, 4, False), (0, 5, True)], "nothing is asked at node 0"),
        ([(0, None, True)], "lacks its depth"),
        ([(None, 4, True)], "lacks its depth"),
        ([(0, 4, None)], "lacks its depth"),
        ([(0, -1, True)], "lacks its depth"),
    ],
)
def test_a_file_that_is_no_tree_is_refused_by_name(
    tmp_path: Path, nodes: list[tuple[int | bool | None, ...]], message: str
) -> None:
    bank = new_bank(tmp_path / "b")
    path = bank.path / "queries" / f"q-{'0' * 16}.parquet"
    path.parent.mkdir(exist_ok=True)
    frame = pl.DataFrame(nodes, schema=CONTEXTS_SCHEMA, orient="row")
    write_table(bank.path, path, frame, {TOKENIZER_KEY: "toy"})
    with pytest.raises(DamagedError, match=message) as caught:
        bank.query_set(path.stem)
    assert str(path) in str(caught.value)


def test_another_token_in_the_file_is_found(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    query_set, _ = QuerySet.of_contexts("toy", ASKED)
    bank.add_query_set(query_set)
    path = bank.path / "queries" / f"{query_set.name}.parquet"
    other = query_set.stored().with_columns(token=pl.col("token") + 1)
    path.unlink()
    path.with_name(f"{path.name}.sha256").unlink()
    write_table(bank.path, path, other, {TOKENIZER_KEY: "toy"})
    with pytest.raises(DamagedError, match="holds the queries of"):
        bank.query_set(query_set.name)


def test_a_lost_checksum_is_made_again(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    query_set, _ = QuerySet.of_contexts("toy", ASKED)
    bank.add_query_set(query_set)
    path = bank.path / "queries" / f"{query_set.name}.parquet"
    path.with_name(f"{path.name}.sha256").unlink()
    assert verify(bank) != ()
    repair(bank, verify(bank))
    assert verify(bank) == ()
    assert Bank.open(bank.path).query_set(query_set.name) == query_set


def test_positions_count_what_contexts_share_once() -> None:
    queries = [Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6, 8), 1), Query((9,), 0)]
    tree, _ = QuerySet.of_contexts("t", queries)
    assert tree.positions == 5  # 5 6 7, 8 and 9
    masks = [Query((5, 6, 7), at, head="mask") for at in (0, 1)]
    assert QuerySet("t", (*masks, Query((5, 6), 0, head="mask"))).positions == 5  # 5 6 7, 5 6
