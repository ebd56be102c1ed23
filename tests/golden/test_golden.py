"""Every table and text equals the recorded one: `python -m tests.golden --update` records them."""

import pytest

from tests.golden.runner import NAMES, differences, made, recorded, same


@pytest.mark.parametrize("group", NAMES)
def test_tables_and_texts_are_as_they_were(group: str) -> None:
    expected = recorded(group)
    assert expected
    lines = list(differences(expected, made(group)))
    assert not lines, "\n".join(lines[:100])


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        ("a 0.30000000000000004 b", "a 0.3 b", True),
        ("a,1.2345678901", "a,1.2345678905", True),
        ("a,1.23456789", "a,1.23456799", False),
        ("2.5e-05,1", "2.5000000000001e-05,1", True),
        ("1e-17", "0.0", True),
        ("n = 7", "n = 8", False),
        ("q-12e45", "q-12e46", False),
        ("0.5 rows", "0.5 row", False),
        ("0.5\n0.5", "0.5", False),
    ],
)
def test_numbers_are_compared_to_nine_digits(expected: str, found: str, equal: bool) -> None:
    assert same(expected, found) is equal
