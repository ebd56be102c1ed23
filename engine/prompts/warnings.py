"""Likely mistakes in prompts, which both `prompts check` and `extract` report."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logitbank.engine.prompts.characters import Odd, named, needs_space, odd_characters
from logitbank.engine.prompts.findings import Finding, once_per_kind
from logitbank.engine.prompts.rows import near_field
from logitbank.engine.prompts.values import Prompt, quote

if TYPE_CHECKING:
    from logitbank.engine.prompts.prompt_set import PromptSet

_OPENING = "([{<\"'“‘«/-_"
"""A word may follow these without a space."""
_KNOWN = 10_000
"""Largest number of texts whose characters are remembered."""


def likely_mistakes(
    prompt_set: "PromptSet", scored: Sequence[Prompt] | None = None, tokens: Iterable[Finding] = ()
) -> list[str]:
    """Warnings about a prompt set, one line for each kind.

    Parameters
    ----------
    scored
        The prompts that a tokenizer scores; by default all.
    tokens
        Mistakes that were found in their tokens.
    """
    findings = text_warnings(prompt_set.prompts, scored, tokens)
    return [*prompt_set.warnings, *once_per_kind(findings)]


def text_warnings(
    prompts: Sequence[Prompt],
    scored: Sequence[Prompt] | None = None,
    tokens: Iterable[Finding] = (),
) -> Iterator[Finding]:
    """Likely mistakes: odd characters, columns named almost like a field, options, and spaces.

    A tokenizer scores some of the prompts, `scored`, and finds mistakes of `tokens`.
    """
    yield from _characters(prompts)
    first: dict[str, Prompt] = {}
    for prompt in prompts:
        for name, value in prompt.columns.items():
            if value is not None:
                first.setdefault(name, prompt)
    bare = not any(prompt.options or prompt.scored is not None for prompt in prompts)
    for name, prompt in first.items():
        if field := near_field(name):
            message = f"column {name!r} is metadata; did you mean {field!r}?"
            yield Finding("column " + name, prompt.id, message)
        elif bare and (name.lower().startswith("opt") or "|" in str(prompt.columns[name])):
            message = f"no prompt has options; is column {name!r} meant to be 'options'?"
            yield Finding("column " + name, prompt.id, message)
    yield from _options(prompts)
    yield from tokens
    yield from _spaces(prompts if scored is None else scored)


def _characters(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Characters that give other tokens than a reader expects."""
    known: dict[tuple[str, str], list[Odd]] = {}  # texts and options recur
    for prompt in prompts:
        # Options may follow a line end, but not with a space of their own.
        continues = any(not o.text[0].isspace() for o in prompt.options)
        texts: list[tuple[str, str, str | None]]
        texts = [
            ("its text", prompt.text, "" if continues else "\r\n"),
            *((o.label, o.text, None) for o in prompt.options),
        ]
        for name, text, ends in texts:
            is_option = ends is None
            what = f"option {name!r} ({quote(text)})" if is_option else name
            key = text, prompt.text if is_option and not text.isascii() else ""
            if (odd := known.get(key)) is None:
                odd = [*odd_characters(*key)]
                if len(known) < _KNOWN:
                    known[key] = odd
            for kind, message in odd:
                at_end = kind if kind in ("escape", "entity", "mojibake") else (kind, is_option)
                yield Finding(f"character {at_end}", prompt.id, f"{what} {message}")
            last = text[len(text.rstrip(ends)) :][-1:]
            if last and text.strip() and f"unseen {last}" not in dict(odd):
                message = f"{what} ends in {named(last)}; remove it"
                yield Finding(f"ends {last} in {is_option}", prompt.id, message)


def _options(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Prompts with one option, and prompts without options where others have some."""
    some = any(prompt.options for prompt in prompts)
    for prompt in prompts:
        if len(prompt.options) == 1:
            text = prompt.options[0].text
            message = f"it has one option, {quote(text)}, and nothing to compare it with"
            if "," in text:
                message += "; options in a text are separated by |"
                yield Finding("comma", prompt.id, message)
            elif prompt.answer is not None:
                yield Finding("one option", prompt.id, message)
        elif some and not prompt.options:
            message = "it has no options, but others have; only full rows are stored for it"
            yield Finding("no option", prompt.id, message)


def _spaces(prompts: Sequence[Prompt]) -> Iterator[Finding]:
    """Missing spaces between a text and its options, and spaces at the end of a text."""
    for prompt in prompts:
        if prompt.masks or prompt.scored is not None:
            continue
        last = prompt.text[-1]
        if last in " \t":
            message = (
                "the text ends in a space, which most vocabularies join to the next word; begin "
                "the options with it instead"
            )
            yield Finding("trailing space", prompt.id, message)
        if last.isspace() or last in _OPENING:
            continue
        for option in prompt.options:
            if not option.optional and needs_space(last, option.text[0]):
                message = (
                    f"option {option.label!r} ({quote(option.text)}) begins without a space and "
                    f"the text ends without one; write {quote(' ' + option.text)} for a new word"
                )
                yield Finding("space " + option.text, prompt.id, message)
