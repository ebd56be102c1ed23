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


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("پرستار گفت که او می\u200cرود و", " می\u200cخندد"),
        ("नर्स ने कहा क्\u200dष", " वह"),
        ("The nurse sent", " 👩🏽\u200d⚕\ufe0f"),
        ("Press 1\ufe0f\u20e3 in", " 🏴\U000e0067\U000e0062\U000e007f"),
        ("看護師は\u3000こう言った。", "彼"),
        ("האחות\u200f אמרה ש", "הוא"),
        ("พยาบาล\u200bบอกว่า", "เขา"),
        ("Le prix\xa0: 10\u202f000\xa0€ «\xa0oui\xa0»", " non"),
        ("$\\nu \\neq \\theta$ in \\times", " he"),
        ("«CAFÉ» Straße” AT&T 5 μm", " he"),
        ("テストＡ１", "Ａ"),
        ("Она сказала, что", " сор"),
    ],
)
def test_characters_that_a_script_needs_are_no_mistakes(text: str, option: str) -> None:
    assert warnings(text, option) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("The nurse h\u0435", "U+0435 CYRILLIC SMALL LETTER IE, which looks like a Latin letter"),
        ("The nurse \u0441\u0430\u0440", "U+0441 CYRILLIC SMALL LETTER ES"),
        ("The nurse \uff48e", 'U+FF48 FULLWIDTH LATIN SMALL LETTER H, not "h"'),
        ("The \U0001d489", 'MATHEMATICAL BOLD ITALIC SMALL H, not "h"'),
        ("e\u0301tait", '"é" as two characters, the second U+0301'),
        ("The\u3164nurse", "U+3164 HANGUL FILLER, which nobody sees"),
        ("The\u2800nurse", "U+2800 BRAILLE PATTERN BLANK, which nobody sees"),
        ("The n\u034furse", "U+034F COMBINING GRAPHEME JOINER, which nobody sees"),
        ("The nurse\ufe0f said", "U+FE0F VARIATION SELECTOR-16, which nobody sees"),
        ("The\xa0nurse", "U+00A0 NO-BREAK SPACE, which looks like a space; write a space, unless"),
        ("Who?\\nAnswer:", r"contains \n as letters, not as a line end"),
        ("A &amp; B&#39;s", 'contains &amp;, which is HTML for "&"'),
        ("The caf\xc3\xa9", 'contains "Ã©", which is "é" in a wrong encoding'),
        ("The nurse\xe2\u20ac\u2122s", 'which is "’" in a wrong encoding'),
        ("The \ufffd", "U+FFFD REPLACEMENT CHARACTER instead of a character"),
    ],
)
def test_look_alikes_and_traces_of_other_formats_are_one_warning(text: str, named: str) -> None:
    (line,) = warnings(text, " he")
    assert named in line
    sentences = PromptSet("s", tuple(sentence(name, text) for name in ("nurse", "clerk")))
    (line, *_) = prompts_check(sentences).lines
    assert line.endswith("(and 1 other prompt)")


def test_only_words_of_spaced_scripts_need_a_space() -> None:
    assert "begins without a space" in warnings("Она сказала", "она")[0]
    for text, option in (("看護師は", "彼"), ("האחות אמרה ש", "הוא"), ("พยาบาล", "เขา")):
        assert warnings(text, option) == []


def test_space_before_a_bar_is_no_part_of_an_option(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("id,text,options,answer\nnurse,The nurse said that, he | she ,she\n")
    loaded = load_prompts(file)
    assert isinstance(loaded, PromptSet)
    assert [(o.label, o.text) for o in loaded.prompts[0].options] == [
        ("he", " he"),
        ("she", " she"),
    ]
