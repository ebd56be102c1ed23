"""From a row of a prompt file to the prompt that it is."""

from collections.abc import Mapping
from typing import Any

from logitbank.engine.prompts.files.fields import (
    ABOUT,
    BESIDE,
    CONDITION,
    FIELDS,
    GOOD,
    answer,
    messages,
    options,
    pair,
    scalar,
    spans,
    text_of,
    whole,
)
from logitbank.engine.prompts.files.rows import Row
from logitbank.engine.prompts.sentences import SentencePair, SentenceTokens
from logitbank.engine.prompts.values import Option, Prompt, Scalar
from logitbank.errors import PromptError

TARGET = "target"
"""Label of the one option of a prompt with a target."""


def prompt_of(row: Row, *, default_id: str) -> Prompt | SentenceTokens | SentencePair:
    """The prompt of a row.

    Raises
    ------
    PromptError
        The row is none; the message names its place.
    """
    try:
        about = _about(row.values)
        grouped = about != "pair" and row.values.get("pair") is not None
        own = set(FIELDS) - ({"pair"} if grouped else set())
        columns = {k: scalar(v, k) for k, v in row.values.items() if k not in own}
        name = text_of(row.values.get("id", default_id), "id")
        if about == "sentence":
            return _sentence(name, row.values, columns)
        return (_pair if about == "pair" else _prompt)(name, row.values, columns)
    except PromptError as error:
        raise PromptError(f"{row.place}: {error}") from None


def _about(values: Mapping[str, Any]) -> str:
    """The field that a row is about, with nothing beside it that belongs to another."""
    given = [name for name in ABOUT if values.get(name) is not None]
    # Beside others, `pair` is a column that says which sentences belong together.
    if len(given) > 1 and given[-1] == "pair" and not isinstance(values["pair"], list | dict):
        given.pop()
    if not given:
        missing = next((name for name in ABOUT if name in values), "text")
        raise PromptError(f"no {missing}; give every prompt one")
    if len(given) > 1:
        raise PromptError(f"it has both a {given[0]} and {_an(given[1])}; give one of them")
    for name, beside in BESIDE.items():
        if values.get(name) is not None and given[0] not in beside:
            raise PromptError(
                f"{name} stands beside {_an(beside[0])}, and this prompt has {_an(given[0])}; "
                "leave one out"
            )
    return given[0]


def _an(field: str) -> str:
    return field if field == "messages" else f"a {field}"


def _prompt(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> Prompt:
    listed = tuple(options(values.get("options")))
    right = values.get("answer")
    if (target := values.get("target")) is not None:
        if listed or right is not None:
            other = "options" if listed else "an answer"
            raise PromptError(f"it has both a target and {other}; give one of them")
        listed, right = (Option(TARGET, text_of(target, "target")),), TARGET
    if (condition := values.get(CONDITION)) is not None:
        columns = {**columns, CONDITION: text_of(condition, CONDITION)}
    turns = tuple(messages(values.get("messages")))
    return Prompt(
        id=name,
        text="" if turns else text_of(values.get("text"), "text"),
        messages=turns,
        options=listed,
        answer=answer(right, listed),
        order_seed=whole(values.get("order_seed"), "order_seed"),
        mask=whole(values.get("mask"), "mask"),
        columns=columns,
    )


def _sentence(
    name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]
) -> SentenceTokens:
    text = text_of(values["sentence"], "sentence")
    places = () if values.get("spans") is None else tuple(spans(values["spans"], text))
    return SentenceTokens(name, text, columns, places)


def _pair(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> SentencePair:
    one, other = both = pair(values["pair"])
    right = values.get("answer")
    if right is None and GOOD in (one.label, other.label):
        right = GOOD
    sentences = (one.label, one.text), (other.label, other.text)
    return SentencePair(name, sentences, answer(right, both), columns)
