"""What each field of a prompt file may hold, and the value that it becomes.

It knows single values, not which of them stand together.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from logitbank.engine.prompts.sentences import Span
from logitbank.engine.prompts.values import Option, Scalar, Turn
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown

ABOUT = ("text", "messages", "sentence", "pair")
"""The fields that a prompt is about; each prompt has one of them."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "options": ("text", "messages"),
    "target": ("text", "messages"),
    "answer": ("text", "messages", "pair"),
    "order_seed": ("text", "messages"),
    "mask": ("text", "messages"),
    "spans": ("sentence",),
}
"""The other fields, each with those beside which it stands."""
GOOD = "good"
"""Label of the sentence of a pair that should be the more probable."""
FIELDS = ("id", *ABOUT, *BESIDE)
CONDITION = "condition"
"""A column that beside a text names the prompt whose scores may be taken away."""
TEXTS = frozenset({*FIELDS, CONDITION}) - {"pair", "order_seed", "mask"}
"""Fields whose cells are never numbers."""


def text_of(value: Any, name: str) -> str:
    """A text; an `id`, of a prompt or its condition, may be a whole number too."""
    if name in ("id", CONDITION) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise PromptError(f"no {name}; give every prompt one")
    if not isinstance(value, str):
        raise PromptError(f"{name} is {shown(value)}; it must be a text")
    return value


def whole(value: Any, name: str) -> int | None:
    """A whole number, or nothing."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise PromptError(f"{name} is {shown(value)}; it must be a whole number")


def scalar(value: Any, name: str) -> Scalar:
    """What a further column may hold."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    near = get_close_matches(name, FIELDS, n=1, cutoff=0.7)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else "further columns hold texts, numbers or true/false"
    )
    raise PromptError(f"column {name!r} holds {shown(value)}; {hint}")


def messages(value: Any) -> Iterator[Turn]:
    """The turns of a conversation."""
    if isinstance(value, str):
        value = json_value(value, "messages")
    if value is not None and not (isinstance(value, list) and value):
        raise PromptError(f"messages are {shown(value)}; give a list of them")
    for entry in value or []:
        if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
            raise PromptError(
                f'message {shown(entry)} is no {{"role": ..., "content": ...}}; write it so'
            )
        yield Turn(text_of(entry["role"], "role"), text_of(entry["content"], "content"))


def options(value: Any, name: str = "options") -> Iterator[Option]:
    """Options with their labels."""
    if isinstance(value, str):
        value = _in_a_cell(value, name)
    if isinstance(value, dict):
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"{name} are {shown(value)}; give a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(
                text_of(entry["label"], "label"), text_of(entry["text"], "an option's text")
            )
        else:
            raise PromptError(
                f'option {shown(entry)} is neither a text nor {{"label": ..., "text": ...}}'
            )


def pair(value: Any) -> tuple[Option, Option]:
    """Two sentences with their labels, which are `good` and `bad` where none are given."""
    listed = tuple(options(value, "pair")) if isinstance(value, str | list | dict) else ()
    if len(listed) != 2:
        raise PromptError(
            f'pair is {shown(value)}; give two sentences, as {{"good": ..., "bad": ...}}'
        )
    one, other = listed
    if (one.label, other.label) == (one.text.strip(), other.text.strip()):
        return Option(GOOD, one.text), Option("bad", other.text)
    return one, other


def spans(value: Any, text: str) -> Iterator[Span]:
    """The places of words in a text, and places that are written as such."""
    if isinstance(value, str):
        value = _in_a_cell(value, "spans")
    if not isinstance(value, list) or not value:
        raise PromptError(f"spans are {shown(value)}; give a list of words, or of [start, end]")
    for entry in value:
        if isinstance(entry, str):
            yield _place(entry, text)
        elif isinstance(entry, list) and len(entry) == 2 and {type(at) for at in entry} == {int}:
            yield entry[0], entry[1]
        else:
            raise PromptError(f"span {shown(entry)} is neither a word nor [start, end]")


def _place(word: str, text: str) -> Span:
    found = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    if len(found) == 1 and word:
        return found[0]
    times = f"{len(found)} times" if found and word else "nowhere"
    raise PromptError(
        f"span {word!r} is {times} in the sentence as a word of its own, and should be there once; "
        "give its place, as [start, end]"
    )


def _in_a_cell(cell: str, name: str) -> Any:
    """JSON, or texts between `|`."""
    return json_value(cell, name) if cell.lstrip()[:1] in ("[", "{") else cell.split("|")


def answer(value: Any, listed: tuple[Option, ...]) -> str | None:
    """The label of the answer, which may be written as the option's continuation too."""
    if value is None:
        return None
    given = text_of(value, "answer")
    labels = [option.label for option in listed]
    written = [option.label for option in listed if option.text == given]
    return written[0] if given not in labels and len(written) == 1 else given


def json_value(text: str, what: str) -> Any:
    """What a text says as JSON, in which no object names a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except PromptError:
        raise
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = error.msg if isinstance(error, json.JSONDecodeError) else reason
        raise PromptError(f"{what} {shown(text)} is broken JSON ({reason})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise PromptError(f"{key!r} is there twice; rename one")
        members[key] = value
    return members
