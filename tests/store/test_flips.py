"""A flipped bit in a bank or in a cache: the truth, or refused."""

from collections.abc import Iterator

import pytest

from tests.support.flips import KINDS, PLACES, Places, Tally
from tests.support.marks import long, whole

pytest.importorskip("obstore")

COUNTS = {"bank": 75, "cache": 25, "server": 25}
MANY = {"bank": 3000, "cache": 1000, "server": 500}
SLOW = ("cache", "server")
CASES = [
    *((place, COUNTS[place]) for place in PLACES if place not in SLOW),
    *(whole(place, COUNTS[place]) for place in SLOW),
    *(long(place, MANY[place]) for place in PLACES),
]
"""Places, and how many bits are flipped there."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGITBANK_CACHE", "")
        made = Places(tmp_path_factory.mktemp("flips"))
        yield made
        made.close()


@pytest.mark.parametrize(("place", "count"), CASES)
def test_a_flipped_bit_is_refused_or_changes_no_answer(
    places: Places, place: str, count: int
) -> None:
    tally = places.flip(place, count, seed=0)
    assert tally.wrong == []
    assert tally.right.total() + tally.refused.total() == count
    assert _kinds(tally) <= set(KINDS)
    if place == "bank":
        assert tally.refused.total() > count / 3, "the flips reach what is read"


def test_every_kind_of_file_is_flipped(places: Places) -> None:
    kinds = {place: set(places.files(place)) for place in PLACES}
    assert set().union(*kinds.values()) == set(KINDS)
    for place, found in kinds.items():  # which are taken in turn
        assert len(found) <= COUNTS[place], place


def _kinds(tally: Tally) -> set[str]:
    return {*tally.right, *tally.refused}
