"""A document of many positions: its tokens are gone through a few times, not at each position."""

from collections.abc import Callable
from typing import Self

import pytest

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import Query


class Counted(tuple[int, ...]):
    """Tokens that count how often all of them are hashed."""

    hashed: list[int]

    @classmethod
    def of(cls, length: int) -> Self:
        ids = cls(range(length))
        ids.hashed = []
        return ids

    def __hash__(self) -> int:
        self.hashed.append(len(self))
        return super().__hash__()


def distinct(queries: list[Query]) -> None:
    assert len(dict.fromkeys(queries)) == len(queries)


def ran(queries: list[Query]) -> None:
    (branch,) = leaf_contexts(queries)
    assert branch.queries == [*range(len(queries))]


@pytest.mark.parametrize("use", [distinct, ran])
def test_tokens_are_hashed_as_often_for_many_positions_as_for_few(
    use: Callable[[list[Query]], None],
) -> None:
    times = []
    for length in (10, 200):
        ids = Counted.of(length)
        use([Query(ids, at) for at in range(length)])
        times.append(len(ids.hashed))
    assert times[1] <= times[0]


def test_equal_queries_are_one_whatever_was_hashed_before() -> None:
    ids, other = (5, 6, 7), (5, 6, 8)
    queries = [Query(ids, 1), Query(other, 1), Query((*ids,), 1), Query(ids, 2), Query(other, 1)]
    assert [*dict.fromkeys(queries)] == [queries[0], queries[1], queries[3]]
    assert hash(Query(ids, 1)) == hash(Query((*ids,), 1))
    assert QuerySet.of_contexts("toy", queries)[1] == [0, 0, 0, 1, 0]


def test_equal_sequences_that_are_several_objects_are_one_branch() -> None:
    queries = [Query((1, 2, 3), 0), Query((*[1, 2, 3],), 2), Query((1, 2, 4), 1), Query((9,), 0)]
    assert [*map(tuple, leaf_contexts(queries))] == [((1, 2, 3), [0, 2, 1]), ((9,), [3])]
