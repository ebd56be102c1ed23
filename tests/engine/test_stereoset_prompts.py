"""StereoSet's examples as prompts: words, conditions, and files that are not as they should be."""

import json
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.prompts.known.stereoset import REPROMPT, attribute_word
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.sequences import BlankWord, Continuation, NextSentence
from logitbank.errors import PromptError

LABELS = ("stereotype", "anti-stereotype", "unrelated")


def example(context: str, sentences: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    return {
        "id": "e1",
        "target": "nurse",
        "bias_type": "profession",
        "context": context,
        "sentences": [
            {"id": f"c{i}", "sentence": sentence, "gold_label": label}
            for i, (sentence, label) in enumerate(zip(sentences, LABELS, strict=True))
        ],
    } | fields


INTRA = example("A nurse is BLANK.", ("A nurse is kind.", "A nurse is rude.", "A nurse is blue."))
INTER = example("He met a nurse.", ("She was kind.", "She was rude.", "Fish swim."))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path, INTRA, INTER)
    return tmp_path


def write(data: Path, intra: dict[str, Any], inter: dict[str, Any] = INTER) -> None:
    (data / "stereoset").mkdir(exist_ok=True)
    content = {"data": {"intrasentence": [intra], "intersentence": [inter]}}
    for name in ("english", "german"):
        (data / "stereoset" / f"dev-{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("context", "sentence", "word"),
    [
        ("She is BLANK.", "She is kind.", "kind"),
        ("BLANK men walk", "Tall men walk", "Tall"),
        ("He BLANKed it", "He walked it", "walked"),
        ("It is BLANK", "It", None),
        ("no place", "no place", None),
    ],
)
def test_the_attribute_word_stands_where_the_blank_is(
    context: str, sentence: str, word: str | None
) -> None:
    assert attribute_word(context, sentence) == word


def test_an_intra_sentence_candidate_is_a_masked_word_or_a_sentence(data: Path) -> None:
    found = prompt_set("stereoset-intra", data=data)
    assert found.name == "stereoset-intra"
    first = found.prompts[0]
    assert isinstance(first, BlankWord)
    assert (first.text, first.context, first.word) == (
        "A nurse is kind.",
        "A nurse is BLANK.",
        "kind",
    )
    assert first.columns == {
        "example": "e1",
        "target": "nurse",
        "target_english": "nurse",
        "domain": "profession",
        "label": "stereotype",
        "language": "en",
        "condition": "plain",
    }


@pytest.mark.parametrize(
    ("name", "language"), [("stereoset-{}-prefix", "en"), ("stereoset-{}-de-prefix", "de")]
)
def test_the_prefix_stands_before_every_text_with_one_space(
    data: Path, name: str, language: str
) -> None:
    before = REPROMPT[language] + " "
    (intra, *_) = prompt_set(name.format("intra"), data=data).prompts
    assert isinstance(intra, BlankWord)
    assert intra.text == before + "A nurse is kind."
    assert (intra.context, intra.word) == (before + "A nurse is BLANK.", "kind")
    (inter, *_) = prompt_set(name.format("inter"), data=data).prompts
    assert isinstance(inter, NextSentence)
    assert (inter.context, inter.sentence) == (before + "He met a nurse.", "She was kind.")
    found = prompt_set(name.format("inter-causal"), data=data)
    assert found.name == name.format("inter-causal")
    (causal, *_) = found.prompts
    assert isinstance(causal, Continuation)
    assert (causal.context, causal.target) == (before + "He met a nurse.", " She was kind.")
    assert causal.columns["condition"] == "prefix"
    assert causal.columns["language"] == language


def test_sentences_without_a_word_at_the_blank_are_named_with_their_number(data: Path) -> None:
    short = ("A nurse", "A nurse is rude.", "A")
    write(data, example("A nurse is BLANK.", short))
    with pytest.raises(PromptError, match=r"2 sentences have no word .*'A nurse' \(c0\)"):
        prompt_set("stereoset-intra", data=data)
    for context in ("A nurse is.", "A nurse is unBLANK."):
        write(data, example(context, ("A nurse is a.", "A nurse is b.", "A nurse is c.")))
        with pytest.raises(PromptError, match="3 sentences have no word"):
            prompt_set("stereoset-intra", data=data)


@pytest.mark.parametrize("value", [5, None])
@pytest.mark.parametrize("field", ["id", "target", "bias_type", "context", "sentences"])
def test_an_example_of_another_form_is_refused(data: Path, field: str, value: object) -> None:
    write(data, INTRA | {field: value})
    with pytest.raises(PromptError, match="dev-english.json"):
        prompt_set("stereoset-intra", data=data)


@pytest.mark.parametrize(
    ("index", "change", "named"),
    [
        (1, {"gold_label": None}, "dev-english.json"),
        (0, {"word": 5}, "dev-english.json"),
        (2, {"gold_label": "stereotype"}, "example e1 needs one sentence of each label"),
        (1, {"id": "c0"}, "'c0' is repeated"),
    ],
)
def test_a_sentence_of_another_form_is_refused(
    data: Path, index: int, change: dict[str, object], named: str
) -> None:
    odd = json.loads(json.dumps(INTRA))
    odd["sentences"][index].update(change)
    write(data, odd)
    with pytest.raises(PromptError, match=named):
        prompt_set("stereoset-intra", data=data)
