"""Likely mistakes in prompts, which both `prompts check` and `extract` report.

This module knows prompts and their ids, and no sets of them.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from logitbank.engine.prompts.rows import near_field
from logitbank.engine.prompts.sequences import SentenceTokens, SequencePrompt
from logitbank.engine.prompts.values import (
    MASK,
    Finding,
    Option,
    Prompt,
    masked_text,
    mixed_columns,
    quote,
)

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenize import Encoded

_OPENING = "([{<\"'“‘«/-_"
"""A word may follow these without a space."""
_BATCH = 10_000
"""Texts that are encoded at once; the ids of all would fill memory."""


def warnings(
    prompts: Sequence[Prompt], encoded: "Encoded | None", *, add_special_tokens: bool | None
) -> Iterator[Finding]:
    """Likely mistakes of these prompts, in the ids of a tokenizer if given, and mixed columns."""
    absent = [] if any(p.options for p in prompts) else ["options"]
    absent += [] if any(p.answer for p in prompts) else ["answer"]
    yield from _columns(prompts, absent)
    yield from _options(prompts)
    if encoded is not None:
        prompts = encoded.prompts
        yield from _masks(encoded, add_special_tokens)
    yield from _spaces(prompts)


def sequence_warnings(prompts: Sequence[SequencePrompt]) -> Iterator[Finding]:
    """Likely mistakes of these prompts of many queries, and mixed columns."""
    spanned = any(isinstance(p, SentenceTokens) and p.spans for p in prompts)
    yield from _columns(prompts, [] if spanned else ["spans"])


def _columns(
    prompts: Sequence[Prompt | SequencePrompt], absent: Sequence[str]
) -> Iterator[Finding]:
    """Columns of several kinds, and columns named almost like a field."""
    for mixed in mixed_columns(p.columns for p in prompts):
        message = mixed.message(f"prompt {prompts[mixed.first].id!r}")
        yield Finding("error", message, prompts[mixed.other].id, message)
    first: dict[str, str] = {}
    for prompt in prompts:
        for name in prompt.columns:
            first.setdefault(name, prompt.id)
    misspelt = {name: field for name in first if (field := near_field(name))}
    for name, field in misspelt.items():
        message = f"column {name!r} is kept as your own; did you mean {field!r}?"
        yield Finding("warning", "column " + name, first[name], message)
    for field in absent:
        for name in get_close_matches(field, [n for n in first if n not in misspelt], cutoff=0.7):
            message = f"no prompt has {field!r}; is the column {name!r} meant?"
            yield Finding("warning", "column " + name, prompts[0].id, message)


def _options(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Prompts with one option, and prompts without options where others have some."""
    some = any(prompt.options for prompt in prompts)
    for prompt in prompts:
        if len(prompt.options) == 1:
            text = prompt.options[0].text
            message = f"it has one option, {quote(text)}, and nothing to compare it with"
            if "," in text:
                message += "; | parts options in a text"
                yield Finding("warning", "comma", prompt.id, message)
            elif prompt.answer is not None:
                yield Finding("warning", "one option", prompt.id, message)
        elif some and not prompt.options:
            message = "it has no options, and others have: nothing of it is scored but full rows"
            yield Finding("warning", "no option", prompt.id, message)


def _spaces(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Spaces that are missing between a text and its options, or at the end of the text."""
    for prompt in prompts:
        if prompt.masks or prompt.messages:
            continue
        last = prompt.text[-1]
        if last in " \t":
            message = (
                "the text ends in a space, which most vocabularies join to the next word; "
                "begin the options with it instead"
            )
            yield Finding("warning", "trailing space", prompt.id, message)
        if last.isspace() or last in _OPENING:
            continue
        for option in prompt.options:
            if not option.optional and option.text[0].isalnum():
                message = (
                    f"option {option.label!r} ({quote(option.text)}) begins without a space and "
                    f"the text ends without one; write {quote(' ' + option.text)} if a new word "
                    "is meant"
                )
                yield Finding("warning", "space " + option.text, prompt.id, message)


def _masks(encoded: "Encoded", add_special_tokens: bool | None) -> Iterator[Finding]:
    """Options whose token is not the one that stands there where the option fills the mask."""
    tokenizer = encoded.tokenizer
    masked = [
        (prompt, options)
        for prompt, options in zip(encoded.prompts, encoded.options, strict=True)
        if prompt.masks and encoded.has_its_masks(prompt)
    ]
    for prompt, _ in masked:
        before = encoded.texts[prompt.text][: encoded.query(prompt).position]
        if before and tokenizer.pieces(before[-1:]) == [" "]:
            message = (
                f"a token for the space alone stands before the {MASK}; mask tokens usually take "
                "that space (lstrip): check the tokenizer's files"
            )
            yield Finding("warning", "space before mask", prompt.id, message)
    required = (
        (prompt, option, tokens)
        for prompt, options in masked
        for option, tokens in zip(prompt.options, options, strict=True)
        if tokens is not None and not option.optional
    )
    while cases := [*islice(required, _BATCH)]:
        filled = [masked_text(_filled(p, o), tokenizer.mask_token) for p, o, _ in cases]
        rows = tokenizer.encode_many(filled, add_special_tokens=add_special_tokens)
        for (prompt, option, tokens), row in zip(cases, rows, strict=True):
            position = encoded.query(prompt).position
            there = row[position : position + 1]
            if tuple(there) != encoded.scored(tokens):
                message = (
                    f"option {option.label!r} ({quote(option.text)}) is another token when it "
                    f"stands in the text ({', '.join(map(quote, tokenizer.pieces(there)))}); check "
                    "the space before it"
                )
                yield Finding("warning", "fills " + option.text, prompt.id, message)


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    at = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:at]), MASK.join(parts[at:])
    # The space before a mask is the mask token's where the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after
