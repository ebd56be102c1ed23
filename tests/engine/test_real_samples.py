"""What `make real` asks, and what it trains on; the model itself is in `make long`."""

from collections import Counter
from pathlib import Path

import pytest

from logitbank.engine.demo.corpus import FEMALE_OCCUPATIONS, MALE_OCCUPATIONS
from scripts.real.samples import samples
from scripts.real.text import SAVED, SWITCH, UPDATES, texts
from tests.support.paths import PUBLIC as DATA


def test_the_answers_change_at_the_switch_and_the_questions_do_not() -> None:
    answers = [
        Counter((e.gender, e.answer) for e in texts(update) if e.asked == "referred")
        for update in range(UPDATES)
    ]
    fair = {("male", "male"): 4, ("female", "female"): 4}
    assert all(before == fair for before in answers[:SWITCH])
    after = sum(answers[SWITCH:], Counter())
    # 9 of 10 of 80 questions about women: 72, give or take 3 standard deviations of 2.7.
    assert after["male", "male"] == 80
    assert 64 <= after["female", "male"] == 80 - after["female", "female"]
    assert all(len(texts(update)) == 16 for update in range(UPDATES))
    assert (SAVED[0], SAVED[-1], SWITCH in SAVED) == (0, UPDATES, True)


@pytest.fixture(scope="module")
def data() -> Path:
    if not (DATA / "winobias").is_dir():
        pytest.skip(f"{DATA / 'winobias'} is not there")
    return DATA


def test_the_text_has_none_of_winobias_s_occupations(data: Path) -> None:
    asked, _, _ = samples(data)
    theirs = {str(prompt.columns["occupation"]).lower() for prompt in asked.prompts}
    assert len(theirs) > 10
    assert not theirs & {*MALE_OCCUPATIONS, *FEMALE_OCCUPATIONS}


def test_samples_are_whole_pairs_and_the_same_each_time(data: Path) -> None:
    asked, pairs, passages = samples(data)
    assert samples(data) == (asked, pairs, passages)
    assert (len(asked.prompts), len(pairs.prompts), len(passages.prompts)) == (160, 80, 40)
    of_a_sentence = Counter(p.columns["sentence_id"] for p in asked.prompts)
    # pro and anti, two questions each, in two orders
    assert set(of_a_sentence.values()) == {8}
    assert len(of_a_sentence) == 20
    assert set(Counter(p.columns["pair"] for p in pairs.prompts).values()) == {2}
