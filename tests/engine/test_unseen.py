"""Characters that nobody sees are named, in every kind of prompt file."""

import unicodedata
from pathlib import Path

import pytest

from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from tests.support.scored_prompts import sentence

UNSEEN = "\xa0\u2009\u200b\u200d\xad\ufeff\u2028\u2029\u0085\u202e\u3000\r\x07"


def warnings(text: str, option: str) -> list[str]:
    options = (Option("he", option), Option("she", " she"))
    prompts = PromptSet("jobs", (Prompt("nurse", text, options, columns={}),))
    return [line for line in prompts_check(prompts).lines if line.startswith("warning")]


@pytest.mark.parametrize("character", UNSEEN)
def test_an_unseen_character_is_named_with_its_prompt(character: str) -> None:
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "")
    for text, option in (
        (f"The{character}nurse said that", " he"),
        ("The nurse said that", f" h{character}e"),
        ("The nurse said that", f" he{character}"),
    ):
        found = [line for line in warnings(text, option) if code in line]
        assert len(found) == 1
        assert "'nurse'" in found[0]
        assert name in found[0]
    sentences = PromptSet("s", (sentence("nurse", f"The{character}nurse"),))
    assert code in prompts_check(sentences).lines[0]


@pytest.mark.parametrize("end", [" ", "\n", "\t", "\r\n"])
def test_white_space_at_the_end_of_an_option_is_named(end: str) -> None:
    (line,) = warnings("The nurse said that", f" he{end}")[-1:]
    assert "option 'he'" in line
    assert f"U+{ord(end[-1]):04X}" in line


def test_a_line_end_at_the_end_of_a_text_is_named_and_one_within_is_not() -> None:
    assert "U+000A LINE FEED" in warnings("The nurse said that\n", " he")[0]
    sentences = PromptSet("s", (sentence("nurse", "The nurse spoke.\n"),))
    assert "U+000A LINE FEED" in prompts_check(sentences).lines[0]
    options = (Option("he", "he"), Option("she", "she"))
    answers = PromptSet("jobs", (Prompt("nurse", "Who?\n", options),))
    assert prompts_check(answers).lines[0].startswith("jobs: 1 prompt, 0 errors, 0 warnings")
    assert warnings("One.\nThe nurse\tsaid that", " he") == []


def test_accents_and_other_scripts_are_seen() -> None:
    assert warnings("Die Ärztin sagte, 医者 врач", " él") == []


def test_space_before_a_bar_is_no_part_of_an_option(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("id,text,options,answer\nnurse,The nurse said that, he | she ,she\n")
    loaded = load_prompts(file)
    assert isinstance(loaded, PromptSet)
    assert [(o.label, o.text) for o in loaded.prompts[0].options] == [
        ("he", " he"),
        ("she", " she"),
    ]
