"""Errors and likely mistakes of prompts, collected and reported once for each kind."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from logitbank.errors import PromptError
from logitbank.wording import counted

_LINES = 10
"""Largest number of other lines that an error lists."""
_LISTED = 20
"""Largest number of errors in one message."""
_VALUE = re.compile(r"""(column )?('(\\.|[^'\\])*'|"(\\.|[^"\\])*")|\d[\d,]*""")
"""Differing parts of errors of one kind: quoted values and numbers, but not column names."""
V = TypeVar("V")
T = TypeVar("T")


class Finding(NamedTuple):
    """An error of a prompt, or a warning about a likely mistake of its author."""

    kind: str
    """Findings of one kind are reported once."""
    at: str | int
    """Id of the prompt; in a file its line."""
    message: str


def once_per_kind(findings: Iterable[Finding], path: Path | None = None) -> list[str]:
    """The first finding of each kind, and how many others there are; in a file with their lines."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return [_report(*of_kind, path=path) for of_kind in kinds.values()]


def _report(first: Finding, *others: Finding, path: Path | None) -> str:
    if path is None:
        prompts = {other.at for other in others} - {first.at}
        more = f" (and {counted(len(prompts), 'other prompt')})" if prompts else ""
        return f"prompt {first.at!r}: {first.message}{more}"
    unit, colon = ("row", ": row ") if path.suffix.lower() == ".parquet" else ("line", ":")
    also = also_in(unit, [other.at for other in others if isinstance(other.at, int)])
    return f"{path}{colon}{first.at}: {first.message}{also}"


def also_in(unit: str, numbers: Sequence[int]) -> str:
    """The numbers of other lines or rows in brackets, the first ten of them; empty without any.

    >>> also_in("line", [3]), also_in("line", [])
    (' (also in line 3)', '')
    """
    more = f" and {len(numbers) - _LINES:,} more" if len(numbers) > _LINES else ""
    listed = ", ".join(f"{number:,}" for number in numbers[:_LINES])
    return f" (also in {unit}{'s' * (len(numbers) > 1)} {listed}{more})" if numbers else ""


def refuse(what: str, errors: Sequence[str], remedy: str = "") -> None:
    """One PromptError for all errors: the only one, or a list with one on each line.

    `remedy` is its last sentence.
    """
    if len(errors) == 1:
        raise PromptError(errors[0] + (f". {remedy}" if remedy else ""))
    if errors:
        first = f", the first {_LISTED}:" if len(errors) > _LISTED else ":"
        listed = [f"  {error}" for error in errors[:_LISTED]]
        head = f"{what} has {len(errors):,} errors{first}"
        raise PromptError("\n".join([head, *listed, *([remedy] if remedy else [])]))


def read_each(
    path: Path,
    rows: Iterable[tuple[int, V | PromptError]],
    parse: Callable[[V], T],
    *,
    what: str = "prompts",
    remedy: str = "",
) -> list[T]:
    """Results of `parse` for each numbered row or line of a file.

    Parameters
    ----------
    what
        Name of the rows, for an error about a file without any.
    remedy
        Last sentence of errors, such as "Use LAMBADA's own file."

    Raises
    ------
    PromptError
        Every error of the rows and of `parse`, each kind once with its lines; or no rows.
    """
    made: list[T] = []
    errors = []
    for line, row in rows:
        try:
            if isinstance(row, PromptError):
                raise row
            made.append(parse(row))
        except PromptError as error:
            kind = _VALUE.sub(lambda match: match[0] if match[1] else "", str(error))
            errors.append(Finding(kind, line, str(error)))
    refuse(str(path), once_per_kind(errors, path), remedy)
    if not made:
        raise PromptError(f"{path} has no {what}. {remedy}".rstrip())
    return made
