"""Every table and text equals the recorded one: `python -m tests.golden --update` records them."""

import pytest

from tests.golden.runner import NAMES, differences, made, recorded


@pytest.mark.parametrize("group", NAMES)
def test_tables_and_texts_are_as_they_were(group: str) -> None:
    expected = recorded(group)
    assert expected
    lines = list(differences(expected, made(group)))
    assert not lines, "\n".join(lines[:100])
