"""StereoSet's examples as prompts: words, conditions, and files that are not as they should be."""

import json
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.prompts.known.stereoset import REPROMPT, attribute_word
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.sequences import Candidate, Continuation, MaskedWord, NextSentence
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
    assert isinstance(first, Candidate)
    assert isinstance(first.masked, MaskedWord)
    assert (first.text, first.masked.context, first.masked.word) == (
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
    assert isinstance(intra, Candidate)
    assert isinstance(intra.masked, MaskedWord)
    assert intra.text == before + "A nurse is kind."
    assert (intra.masked.context, intra.masked.word) == (before + "A nurse is BLANK.", "kind")
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
        with pytest.raises(PromptError, match="3 sentences have no word where their context has"):
            prompt_set("stereoset-intra", data=data)


def test_an_example_without_the_three_labels_is_named(data: Path) -> None:
    odd = json.loads(json.dumps(INTRA))
    odd["sentences"][2]["gold_label"] = "stereotype"
    write(data, odd)
    with pytest.raises(PromptError, match="example e1 has the labels .*it needs one of each of"):
        prompt_set("stereoset-intra", data=data)


@pytest.mark.parametrize("field", ["id", "target", "bias_type", "context", "sentences"])
def test_an_example_of_another_form_is_named_with_the_number_of_such(
    data: Path, field: str
) -> None:
    for value in (5, None):
        write(data, INTRA | {field: value}, INTER)
        with pytest.raises(
            PromptError, match=r"1 of 1 intrasentence examples are not .*: example 0"
        ):
            prompt_set("stereoset-intra", data=data)
    odd = json.loads(json.dumps(INTRA))
    del odd["sentences"][1]["gold_label"]
    write(data, odd)
    with pytest.raises(PromptError, match="example 0: a sentence's gold_label is no text"):
        prompt_set("stereoset-intra", data=data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is broken JSON .*line 1 column 2"),
        ("[" * 100_000, "is broken JSON .nested too deeply"),
        ("[]", "has no list of intrasentence examples under data"),
        ('{"data": {"intrasentence": {"a": 1}}}', "has no list of intrasentence examples"),
    ],
)
def test_another_file_is_named(data: Path, content: str, message: str) -> None:
    (data / "stereoset" / "dev-english.json").write_text(content)
    with pytest.raises(PromptError, match=rf"dev-english.json {message}.*give StereoSet's own"):
        prompt_set("stereoset-intra", data=data)


def test_fields_that_would_fail_later_are_named(data: Path) -> None:
    odd = json.loads(json.dumps(INTRA))
    odd["sentences"][0]["word"] = 5
    write(data, odd)
    with pytest.raises(PromptError, match="example 0: a sentence's word is no text"):
        prompt_set("stereoset-intra", data=data)
    write(data, INTRA | {"target_english": ["nurse"]})
    with pytest.raises(PromptError, match="example 0: its target_english is no text"):
        prompt_set("stereoset-intra", data=data)
    twice = json.dumps({"data": {"intrasentence": [INTRA, INTRA]}})
    (data / "stereoset" / "dev-english.json").write_text(twice)
    with pytest.raises(PromptError, match=r"dev-english.json: intrasentence sentence \S+ is there"):
        prompt_set("stereoset-intra", data=data)
