"""What the author of prompts may not have meant.

It knows prompts and their ids, and no sets of them: both `prompts check` and `extract` tell it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Literal

from logitbank.engine.prompts.encoded import Encoded, OptionTokens, Remark
from logitbank.engine.prompts.files.misspelt import misspelt_columns, misspelt_message
from logitbank.engine.prompts.sentences import SentenceTokens
from logitbank.engine.prompts.sequences import SequencePrompt
from logitbank.engine.prompts.values import (
    MASK,
    Option,
    Prompt,
    masked_text,
    mixed_columns,
    quote,
)

_OPENING = "([{<\"'“‘«/-_"
"""A word may follow these without a space."""
_BATCH = 10_000
"""Texts that are encoded at once; the ids of all would fill memory."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a prompt set that stops it, or that its author may not have meant."""

    level: Literal["error", "warning"]
    prompt_id: str
    """The first prompt that has it."""
    message: str


def told_once(remarks: Sequence[Remark]) -> list[Finding]:
    """Each thing once, for the first prompt that has it, with the number of other prompts."""
    count = Counter((r.level, r.about) for r in remarks)
    first = {(r.level, r.about): r for r in reversed(remarks)}
    return [
        Finding(level, first[level, about].prompt.id, first[level, about].message + _others(n - 1))
        for (level, about), n in count.items()
    ]


def warning_lines(name: str, remarks: Iterable[Remark]) -> tuple[str, ...]:
    """The warnings among remarks about the set `name`, each once, for people to read."""
    return tuple(
        f"{name}: prompt {found.prompt_id!r}: {found.message}"
        for found in told_once([*remarks])
        if found.level == "warning"
    )


def remarks(
    prompts: Sequence[Prompt], encoded: Encoded | None, *, add_special_tokens: bool | None
) -> Iterator[Remark]:
    """What the author of these prompts may not have meant, in the ids of a tokenizer if given."""
    absent = [] if any(p.options for p in prompts) else ["options"]
    absent += [] if any(p.answer for p in prompts) else ["answer"]
    yield from column_remarks(prompts, absent)
    yield from _option_remarks(prompts)
    if encoded is not None:
        prompts = encoded.prompts
        yield from _mask_remarks(encoded, add_special_tokens)
    yield from _space_remarks(prompts)


def sequence_remarks(prompts: Sequence[SequencePrompt]) -> Iterator[Remark]:
    """What the author of these prompts of many queries may not have meant."""
    spanned = any(isinstance(p, SentenceTokens) and p.spans for p in prompts)
    yield from column_remarks(prompts, [] if spanned else ["spans"])


def column_remarks(
    prompts: Sequence[Prompt | SequencePrompt], absent: Sequence[str]
) -> Iterator[Remark]:
    """Columns of several kinds, or named almost like a field, or a bit like one that is absent."""
    for mixed in mixed_columns(p.columns for p in prompts):
        message = mixed.message(f"prompt {prompts[mixed.first].id!r}")
        yield Remark("error", message, prompts[mixed.other], message)
    misspelt = misspelt_columns(p.columns for p in prompts)
    for name, field in misspelt.items():
        first = next(p for p in prompts if name in p.columns)
        yield Remark("warning", "column " + name, first, misspelt_message(name, field))
    names = dict.fromkeys(name for p in prompts for name in p.columns if name not in misspelt)
    for field in absent:
        for name in get_close_matches(field, names, cutoff=0.7):
            message = f"no prompt has {field!r}; is the column {name!r} meant?"
            yield Remark("warning", "column " + name, prompts[0], message)


def _option_remarks(prompts: Sequence[Prompt]) -> Iterator[Remark]:
    """Prompts without options where others have some, and with one that may be several, or is the
    answer to nothing."""
    some = any(prompt.options for prompt in prompts)
    for prompt in prompts:
        if len(prompt.options) == 1:
            text = prompt.options[0].text
            message = f"it has one option, {quote(text)}, and nothing to compare it with"
            if "," in text:
                yield Remark("warning", "comma", prompt, f"{message}; | parts options in a text")
            elif prompt.answer is not None:
                yield Remark("warning", "one option", prompt, message)
        elif some and not prompt.options:
            message = "it has no options, and others have: nothing of it is scored but full rows"
            yield Remark("warning", "no option", prompt, message)


def _others(count: int) -> str:
    if not count:
        return ""
    return f" (and {count} other prompt{'s' if count > 1 else ''})"


def _space_remarks(prompts: Sequence[Prompt]) -> Iterator[Remark]:
    for prompt in prompts:
        if prompt.masks or prompt.messages:
            continue
        last = prompt.text[-1]
        if last in " \t":
            message = (
                "the text ends in a space, which most vocabularies join to the next word; "
                "begin the options with it instead"
            )
            yield Remark("warning", "trailing space", prompt, message)
        if last.isspace() or last in _OPENING:
            continue
        for option in _required(prompt):
            if option.text[0].isalnum():
                message = (
                    f"option {option.label!r} ({quote(option.text)}) begins without a space and "
                    f"the text ends without one; write {quote(' ' + option.text)} if a new word "
                    "is meant"
                )
                yield Remark("warning", "space " + option.text, prompt, message)


def _mask_remarks(encoded: Encoded, add_special_tokens: bool | None) -> Iterator[Remark]:
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
            yield Remark("warning", "space before mask", prompt, message)
    filled = _filled_masks(masked)
    while cases := [*islice(filled, _BATCH)]:
        texts = [masked_text(text, tokenizer.mask_token) for *_, text in cases]
        rows = tokenizer.encode_many(texts, add_special_tokens=add_special_tokens)
        for (prompt, option, tokens, _), row in zip(cases, rows, strict=True):
            position = encoded.query(prompt).position
            if tuple(row[position : position + 1]) != encoded.scored(tokens):
                pieces = tokenizer.pieces(row[position : position + 1])
                message = (
                    f"option {option.label!r} ({quote(option.text)}) is another token when it "
                    f"stands in the text ({', '.join(map(quote, pieces))}); check the space before "
                    "it"
                )
                yield Remark("warning", "fills " + option.text, prompt, message)


def _filled_masks(
    masked: Sequence[tuple[Prompt, OptionTokens]],
) -> Iterator[tuple[Prompt, Option, tuple[int, ...], str]]:
    """Each option that is required, with its tokens and the text in which it fills the mask."""
    for prompt, options in masked:
        for option, tokens in zip(prompt.options, options, strict=True):
            if tokens is not None and not option.optional:
                yield prompt, option, tokens, _filled(prompt, option)


def _required(prompt: Prompt) -> list[Option]:
    return [option for option in prompt.options if not option.optional]


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    at = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:at]), MASK.join(parts[at:])
    # The space before a mask is the mask token's where the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after
