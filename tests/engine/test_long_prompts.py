"""Equal queries and contexts, whichever objects their ids are."""

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import Query


def test_equal_queries_are_one_whatever_was_hashed_before() -> None:
    ids, other = (5, 6, 7), (5, 6, 8)
    queries = [Query(ids, 1), Query(other, 1), Query((*ids,), 1), Query(ids, 2), Query(other, 1)]
    assert [*dict.fromkeys(queries)] == [queries[0], queries[1], queries[3]]
    assert hash(Query(ids, 1)) == hash(Query((*ids,), 1))
    assert QuerySet.from_contexts("toy", queries)[1].tolist() == [0, 0, 0, 1, 0]


def test_equal_sequences_that_are_several_objects_are_one_branch() -> None:
    queries = [Query((1, 2, 3), 0), Query((*[1, 2, 3],), 2), Query((1, 2, 4), 1), Query((9,), 0)]
    assert [*map(tuple, leaf_contexts(queries))] == [((1, 2, 3), [0, 2, 1]), ((9,), [3])]
