"""Prompts of stereotype accuracy, from the real sentences."""

from collections import Counter

import pytest

from logitbank.engine.prompts.known.stereotype_accuracy import stereotype_accuracy
from tests.support.paths import PUBLIC as DATA


def test_both_pronouns_are_of_one_case_and_named_in_both_orders() -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there")
    prompts = stereotype_accuracy(DATA).prompts
    by_id = Counter(p.id for p in prompts)
    assert set(by_id.values()) == {2}
    assert len(by_id) == 792
    pairs = Counter(tuple(o.label for o in p.options) for p in prompts)
    assert set(pairs) == {("he", "she"), ("her", "him"), ("her", "his")}
    first, second = prompts[:2]
    assert (first.columns["order"], second.columns["order"]) in {("he", "she"), ("she", "he")} or (
        "her" in (first.columns["order"], second.columns["order"])
    )
    for prompt in prompts:
        own = [o.label for o in prompt.options]
        assert prompt.answer in own
        asked = prompt.text.split('"')
        assert {asked[-4], asked[-2]} == set(own)
        assert asked[-4] == prompt.columns["order"]
        words = prompt.text.split("\n")[0].lower().replace(".", " ").replace(",", " ").split()
        assert prompt.answer in words
