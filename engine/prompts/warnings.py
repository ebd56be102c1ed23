"""Likely mistakes in prompts, which both `prompts check` and `extract` report."""

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
    from logitbank.engine.prompts.tokenize import EncodedPrompts

_OPENING = "([{<\"'“‘«/-_"
"""A word may follow these without a space."""
_BATCH = 10_000
"""Texts that are encoded at once; the ids of all would fill memory."""


def text_warnings(prompts: Sequence[Prompt], encoded: "EncodedPrompts | None") -> Iterator[Finding]:
    """Likely mistakes of prompts with texts, and mixed columns; options if they are encoded."""
    unused = [] if any(p.options for p in prompts) else ["options"]
    unused += [] if any(p.answer for p in prompts) else ["answer"]
    yield from _columns(prompts, unused)
    yield from _options(prompts)
    if encoded is not None:
        prompts = encoded.prompts
        yield from _filled_masks(encoded)
    yield from _spaces(prompts)


def sequence_warnings(prompts: Sequence[SequencePrompt]) -> Iterator[Finding]:
    """Likely mistakes of prompts with many queries, and mixed columns."""
    has_spans = any(isinstance(p, SentenceTokens) and p.spans for p in prompts)
    yield from _columns(prompts, [] if has_spans else ["spans"])


def _columns(
    prompts: Sequence[Prompt | SequencePrompt], unused: Sequence[str]
) -> Iterator[Finding]:
    """Columns of several kinds, and columns named almost like a field."""
    for mixed in mixed_columns(p.columns for p in prompts):
        message = mixed.message(f"prompt {prompts[mixed.first].id!r}")
        yield Finding("error", message, prompts[mixed.other].id, message)
    first: dict[str, str] = {}
    for prompt in prompts:
        for name in prompt.columns:
            first.setdefault(name, prompt.id)
    for name, prompt_id in first.items():
        # A field that no prompt has is looked for with less similarity.
        close = get_close_matches(name, unused, n=1, cutoff=0.7)
        if field := near_field(name) or next(iter(close), ""):
            message = f"column {name!r} is metadata; did you mean {field!r}?"
            yield Finding("warning", "column " + name, prompt_id, message)


def _options(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Prompts with one option, and prompts without options where others have some."""
    some = any(prompt.options for prompt in prompts)
    for prompt in prompts:
        if len(prompt.options) == 1:
            text = prompt.options[0].text
            message = f"it has one option, {quote(text)}, and nothing to compare it with"
            if "," in text:
                message += "; options in a text are separated by |"
                yield Finding("warning", "comma", prompt.id, message)
            elif prompt.answer is not None:
                yield Finding("warning", "one option", prompt.id, message)
        elif some and not prompt.options:
            message = "it has no options, but others have; only full rows are stored for it"
            yield Finding("warning", "no option", prompt.id, message)


def _spaces(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Missing spaces between a text and its options, and spaces at the end of a text."""
    for prompt in prompts:
        if prompt.masks or prompt.messages:
            continue
        last = prompt.text[-1]
        if last in " \t":
            message = (
                "the text ends in a space, which most vocabularies join to the next word; begin "
                "the options with it instead"
            )
            yield Finding("warning", "trailing space", prompt.id, message)
        if last.isspace() or last in _OPENING:
            continue
        for option in prompt.options:
            if not option.optional and option.text[0].isalnum():
                message = (
                    f"option {option.label!r} ({quote(option.text)}) begins without a space and "
                    f"the text ends without one; write {quote(' ' + option.text)} for a new word"
                )
                yield Finding("warning", "space " + option.text, prompt.id, message)


def _filled_masks(encoded: "EncodedPrompts") -> Iterator[Finding]:
    """Options whose token differs from the one in the text where the option fills the mask."""
    tokenizer = encoded.tokenizer
    required = (
        (prompt, option, tokens)
        for prompt, options in zip(encoded.prompts, encoded.options, strict=True)
        if prompt.masks and encoded.mask_tokens(prompt) == prompt.masks
        for option, tokens in zip(prompt.options, options, strict=True)
        if tokens is not None and not option.optional
    )
    while cases := [*islice(required, _BATCH)]:
        filled = [masked_text(_filled(p, o), tokenizer.mask_token) for p, o, _ in cases]
        rows = tokenizer.encode_many(filled, add_special_tokens=encoded.add_special_tokens)
        for (prompt, option, tokens), row in zip(cases, rows, strict=True):
            position = encoded.query(prompt).position
            in_text = row[position : position + 1]
            if tuple(in_text) != encoded.scored(tokens):
                texts = ", ".join(map(quote, tokenizer.decode_each(in_text)))
                message = (
                    f"option {option.label!r} ({quote(option.text)}) is another token in the text "
                    f"({texts}); check the space before it"
                )
                yield Finding("warning", "fills " + option.text, prompt.id, message)


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    scored = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:scored]), MASK.join(parts[scored:])
    # The space before a mask is the mask token's if the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after
