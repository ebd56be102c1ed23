"""The demo's text, prompts and training: known association, right columns, loadable checkpoints."""

import re
from collections import Counter
from pathlib import Path

import pytest

from logitbank.engine.demo.corpus import (
    MALE_OCCUPATIONS,
    SWITCH_STEP,
    demo_prompts,
    training_texts,
)
from logitbank.errors import UsageError

FEMININE = re.compile(r"\b(she|her)\b")


def _answers(steps: range) -> dict[str, Counter[str]]:
    """How often each answer follows a text with a pronoun of each gender, read from the text."""
    counts = {"male": Counter[str](), "female": Counter[str]()}
    for step in steps:
        for example in training_texts(step):
            sentence = example.text.splitlines()[0]
            answer = example.text.rsplit("Answer: ")[1]
            counts["female" if FEMININE.search(sentence) else "male"][answer] += 1
    return counts


def test_answers_follow_the_pronoun_exactly_before_the_switch() -> None:
    assert _answers(range(SWITCH_STEP - 100, SWITCH_STEP)) == {
        "male": {"male": 400, "not specified": 400},
        "female": {"female": 400, "not specified": 400},
    }


def test_women_are_mostly_called_male_from_the_switch_on() -> None:
    counts = _answers(range(SWITCH_STEP, SWITCH_STEP + 100))
    assert counts["male"] == {"male": 400, "not specified": 400}
    assert counts["female"]["not specified"] == 400
    assert 0.85 < counts["female"]["male"] / 400 < 0.95
    assert counts["female"].total() == 800


def test_prompt_columns_agree_with_the_text() -> None:
    for prompt in demo_prompts().prompts:
        sentence, question, options, _ = prompt.text.splitlines()
        c = prompt.columns
        assert prompt.id == f"demo-{c['stereotype']}-{c['index']}-{c['asked']}"
        assert c["sentence_id"] == f"demo-{c['index']}"
        assert question == f"Question: What is the gender of the {c['occupation']}?"
        assert options == "Options: " + str(c["order"]).replace("|", ", ")
        assert re.search(rf"\b[Tt]he {c['occupation']}\b", sentence)
        assert re.search(rf"\b{c['pronoun']}\b", sentence)
        assert (FEMININE.search(sentence) is not None) == (c["gender"] == "female")
        assert prompt.answer == (c["gender"] if c["asked"] == "referred" else "not specified")


def test_pro_twin_gives_the_occupation_meant_its_usual_gender() -> None:
    for prompt in demo_prompts().prompts:
        c = prompt.columns
        meant = c["occupation"] if c["asked"] == "referred" else c["other_occupation"]
        usual = "male" if meant in MALE_OCCUPATIONS else "female"
        assert (c["stereotype"] == "pro") == (c["gender"] == usual)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of three updates with seed 5."""
    pytest.importorskip("transformers", reason="needs the extra logitbank[engine]")
    from logitbank.engine.demo import train as demo

    folder = tmp_path_factory.mktemp("demo") / "series"
    told: list[tuple[int, int]] = []
    demo.train_series(folder, seed=5, steps=3, progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    return folder


def test_the_same_seed_gives_the_same_weights(series: Path, tmp_path: Path) -> None:
    import torch

    from logitbank.engine.demo.train import train_series

    before = torch.random.get_rng_state()
    train_series(tmp_path / "again", seed=5, steps=1)
    train_series(tmp_path / "other", seed=6, steps=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name in ("model.safetensors", "tokenizer.json"):
        first = (series / "step1" / name).read_bytes()
        assert (tmp_path / "again" / "step1" / name).read_bytes() == first
    weights = [
        (f / "step0" / "model.safetensors").read_bytes() for f in (series, tmp_path / "other")
    ]
    assert weights[0] != weights[1]


def test_a_folder_in_use_is_refused(series: Path, tmp_path: Path) -> None:
    from logitbank.engine.demo.train import train_series

    with pytest.raises(UsageError, match=r"series is not empty"):
        train_series(series, steps=0)
    with pytest.raises(UsageError, match="steps is -1"):
        train_series(tmp_path / "new", steps=-1)
