"""Values are made ahead of their use, one at a time, in order."""

from collections.abc import Iterator

import pytest

from logitbank.store.files.threads import ahead


def test_one_value_is_made_ahead_and_an_error_comes_after_the_values_before_it() -> None:
    made = list[int]()

    def values() -> Iterator[int]:
        for value in range(5):
            if value == 3:
                raise ValueError("three")
            made.append(value)
            yield value

    following = ahead(values())
    for used in range(3):
        assert next(following) == used
        assert len(made) <= used + 2
    with pytest.raises(ValueError, match="three"):
        next(following)
    assert made == [0, 1, 2]


def test_what_is_left_half_way_is_not_made() -> None:
    made = list[int]()

    def values() -> Iterator[int]:
        for value in range(100):
            made.append(value)
            yield value

    for value in ahead(values()):
        if value == 3:
            break
    assert len(made) <= 5
