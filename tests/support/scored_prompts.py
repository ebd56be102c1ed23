"""Prompts of each way of scoring that has parts, for tests."""

from collections.abc import Mapping

from logitbank.engine.prompts.scoring import (
    blank_tokens,
    next_sentence_tokens,
    sentence_tokens,
    shared_tokens,
    target_tokens,
)
from logitbank.engine.prompts.values import Prompt, Scalar, Way

Columns = Mapping[str, Scalar]


def _prompt(name: str, text: str, way: Way, columns: Columns | None, **parts: str | None) -> Prompt:
    return Prompt(name, text, columns=columns or {}, scored=way, parts=parts)


def sentence(name: str, text: str, columns: Columns | None = None) -> Prompt:
    return _prompt(name, text, sentence_tokens, columns)


def continuation(name: str, context: str, target: str, columns: Columns | None = None) -> Prompt:
    return _prompt(name, context + target, target_tokens, columns, context=context, target=target)


def blank_word(
    name: str, text: str, context: str, word: str | None, columns: Columns | None = None
) -> Prompt:
    return _prompt(name, text, blank_tokens, columns, context=context, word=word)


def shared(name: str, text: str, other: str, *, first: bool = True) -> Prompt:
    one, two = (text, other) if first else (other, text)
    return _prompt(name, text, shared_tokens, None, first=one, second=two)


def next_sentence(
    name: str, context: str, following: str, columns: Columns | None = None
) -> Prompt:
    text = f"{context} {following}"
    return _prompt(name, text, next_sentence_tokens, columns, context=context, sentence=following)
