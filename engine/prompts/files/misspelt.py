"""Columns of prompts that are spelt almost like a field of prompt files.

Any further column is its author's own, so that a misspelt field is no error; it is worth a line.
"""

from collections.abc import Iterable, Mapping

from logitbank.engine.prompts.files.fields import CONDITION, FIELDS
from logitbank.engine.prompts.values import Scalar

_SHORT = 4
"""Letters of a field up to which another letter makes another word: `task` is no misspelt `mask`.
"""


def misspelt_columns(columns: Iterable[Mapping[str, Scalar]]) -> dict[str, str]:
    """Of the columns of prompts, those within one edit or swap of a field, with that field."""
    names = dict.fromkeys(name for of_prompt in columns for name in of_prompt)
    near = {name: near_field(name) for name in names}
    return {name: field for name, field in near.items() if field}


def misspelt_message(column: str, field: str) -> str:
    return f"column {column!r} is kept as your own; did you mean {field!r}?"


def near_field(name: str) -> str:
    """The field that a name is one letter more, less or other than, or two letters swapped.

    Empty where it is none, or a field itself.

    >>> [near_field(name) for name in ("otpions", "anwser", "targt", "Answer", "answer", "task")]
    ['options', 'answer', 'target', 'answer', '', '']
    """
    fields = [field for field in (*FIELDS, CONDITION) if field != "id"]  # which has a default
    if name in (*fields, "id"):
        return ""
    return next((field for field in fields if _one_edit(name.lower(), field)), "")


def _one_edit(name: str, field: str) -> bool:
    """Whether a name is a field, or becomes it by one letter or by a swap of neighbours."""
    if name == field:
        return True
    shorter, longer = sorted((name, field), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
    if len(longer) != len(shorter):
        return False
    at = [i for i, (a, b) in enumerate(zip(name, field, strict=True)) if a != b]
    if len(at) == 1:
        return len(field) > _SHORT
    return at[1:] == [at[0] + 1] and name[at[0]] == field[at[1]] and name[at[1]] == field[at[0]]
