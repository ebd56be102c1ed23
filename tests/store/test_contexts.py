"""Query sets of contexts: one row a context, in an order and a file that only they decide."""

import random

import pytest

from logitbank.errors import UsageError
from logitbank.store import Query, QuerySet

ASKED = [Query((5, 7, 9), 2), Query((5, 7), 1), Query((5, 8), 1), Query((4, 1), 0)]


def context(query: Query) -> tuple[int, ...]:
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
    query_set, rows = QuerySet.from_contexts("toy", queries)
    assert [context(query) for query in query_set.queries] == sorted({*map(context, queries)})
    assert [context(query_set.queries[row]) for row in rows] == [*map(context, queries)]
    beginnings = {
        context(query)[:end] for query in queries for end in range(1, len(context(query)) + 1)
    }
    assert query_set.positions == len(beginnings)
    back = QuerySet.from_frame("toy", query_set.to_frame())
    assert (back.queries, back.name) == (query_set.queries, query_set.name)


def test_the_name_is_that_of_the_contexts_however_they_are_asked() -> None:
    others = [Query((4,), 0), Query((5, 8, 1, 2), 1), Query((5, 7, 9, 3), 2), Query((5, 7, 1), 1)]
    ours, theirs = (QuerySet.from_contexts("toy", some)[0] for some in (ASKED, others))
    assert theirs == ours
    assert theirs.name == ours.name
    assert QuerySet.from_contexts("other", ASKED)[0].name != ours.name


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query((1, 2), 1, "mask"), "head mask"),
        (Query((1, 2), 1, language="de"), "not a causal context"),
        (Query((1, 2), 2), "position"),
    ],
)
def test_what_is_no_context_is_refused(query: Query, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QuerySet.from_contexts("toy", [query])


def test_positions_count_what_contexts_share_once() -> None:
    queries = [Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6, 8), 1), Query((9,), 0)]
    tree, _ = QuerySet.from_contexts("t", queries)
    assert tree.positions == 5  # 5 6 7, 8 and 9
    masks = [Query((5, 6, 7), at, head="mask") for at in (0, 1)]
    assert QuerySet("t", (*masks, Query((5, 6), 0, head="mask"))).positions == 5  # 5 6 7, 5 6
