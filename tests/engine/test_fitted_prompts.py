"""Options and prompts that a set allows to be left out, for one tokenizer."""

import pytest

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError

HE, NURSE = Option("he", " he"), Option("nurse", " nurse")
SPLIT = Option("xylophone", " xylophone")


def continuations(prompt_set: PromptSet, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return tokenize(prompt_set, tokenizer).table.select("prompt_id", "continuation").rows()


def test_optional_options_go_where_they_are_several_tokens_or_repeat_one(
    causal: Tokenizer, masked: Tokenizer
) -> None:
    options = (
        Option("1", " He", optional=True),
        HE,
        Option("2", "He", optional=True),
        Option("3", " nurse", optional=True),
        Option("4", "nurse", optional=True),
        Option("5", " xylophone", optional=True),
    )
    uncased = PromptSet("p", (Prompt("p", "[MASK] said", options),))
    assert continuations(uncased, masked) == [("p", " he"), ("p", " nurse")]
    assert tokenize(uncased, masked).notes == ()
    cased = PromptSet("p", (Prompt("p", "the nurse said", options),))
    assert continuations(cased, causal) == [("p", " he"), ("p", " nurse")]


def test_an_unknown_token_is_no_option(masked: Tokenizer) -> None:
    options = (HE, Option("unknown", " 漢", optional=True))  # the vocabulary has no such letter
    prompts = PromptSet("p", (Prompt("p", "[MASK] said", options),))
    assert masked.encode(" 漢", add_special_tokens=False) == [1]
    assert continuations(prompts, masked) == [("p", " he")]


def test_optional_options_are_not_warned_of(causal: Tokenizer, masked: Tokenizer) -> None:
    options = (HE, Option("bare", "nurse", optional=True), Option("part", "a", optional=True))
    prompts = PromptSet("p", (Prompt("p", "the nurse said", options),))
    assert tokenize(prompts, causal).warnings == ()
    required = (HE, Option("part", "a"))
    made = tokenize(PromptSet("p", (Prompt("p", "the nurse said", required),)), causal)
    assert "begins without a space" in made.warnings[0]
    filled = PromptSet("p", (Prompt("p", "she said[MASK]", (HE, options[1])),))
    assert tokenize(filled, masked).warnings == ()


def test_drop_split_excludes_prompts_with_a_split_option(causal: Tokenizer) -> None:
    prompts = (
        Prompt("1", "the nurse said", (HE, NURSE)),
        Prompt("2", "the nurse said", (HE, SPLIT)),
        Prompt("3", "the clerk said", (NURSE,)),
    )
    made = tokenize(PromptSet("mine", prompts, drop_split=True), causal)
    assert made.table["prompt_id"].unique().sort().to_list() == ["1", "3"]
    (note,) = made.notes
    assert note.startswith("mine: 1 of 3 prompts")
    assert note.endswith('" xylophone"')
    with pytest.raises(PromptError, match=r"'xylophone' \(\" xylophone\"\) has \d+ tokens"):
        tokenize(PromptSet("mine", prompts), causal)


def test_many_split_options_are_counted_and_none_left_is_an_error(causal: Tokenizer) -> None:
    words = ("xylophone", "zeppelin", "quartz", "jukebox", "vortex")
    split = [Prompt(w, "the nurse said", (Option(w, f" {w}"), HE)) for w in words]
    some = PromptSet("mine", (*split, Prompt("he", "the nurse said", (HE,))), drop_split=True)
    found = tokenize(some, causal)
    assert found.table["prompt_id"].unique().to_list() == ["he"]
    (note,) = found.notes
    assert note.endswith('" xylophone", " zeppelin", " quartz" and 2 more')
    with pytest.raises(PromptError, match="mine: 5 of 5 prompts"):
        tokenize(PromptSet("mine", tuple(split), drop_split=True), causal)
