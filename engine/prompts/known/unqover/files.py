"""Readers of UnQover's word lists (Li et al. 2020), one file at a time.

Blank lines and lines that begin with `#` say nothing. It knows lines and makes no prompts.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.prompts.datasets import text_of_file
from logitbank.errors import PromptError

_TERM = re.compile(r"\[([a-z_:-]+)\](?:\s*([^|]+?)\s*\|)?\s*([^|]*[^|\s])\s*")
_PLACEHOLDER = re.compile(r"\[([^\[\]]*)\]")
_REMEDY = "give UnQover's own file"
_CONTEXTS = ({"subj1", "subj2"}, {"subj1:dem", "subj2:dem"})


class Attribute(NamedTuple):
    """Something said of one of two subjects, and its negation."""

    kind: str
    text: str
    negated: str
    group: str | None
    """Such as rude or poor."""


class Slot(NamedTuple):
    """A context and what is said or asked after it, with their placeholders."""

    context: str
    plain: str
    negated: str
    kind: str
    """Kind of the attributes that go into it, such as p_act-single."""
    block: int
    """Blank lines part a file into blocks, counted from 0."""


class _Line(NamedTuple):
    place: str
    """`file:line`, for messages."""
    text: str
    block: int


class _Term(NamedTuple):
    place: str
    kind: str
    group: str | None
    text: str


def read_subjects(path: Path, *, kind: str = "subj", group: str | None = None) -> list[str]:
    """The terms of one kind, `subj` or `subj:dem`, in their order.

    Raises
    ------
    PromptError
        A line that is no subject, has another group than `group`, or is there twice.
    """
    subjects: list[str] = []
    for term in _terms(path):
        if term.kind not in ("subj", "subj:dem") or term.group != group:
            wanted = "[subj] NAME" if group is None else f"[subj] {group} | NAME"
            raise PromptError(f"{term.place} is no subject of its list; write {wanted!r}")
        if term.kind == kind and term.text in subjects:
            raise PromptError(f"{term.place}: {term.text!r} is there twice; remove one")
        subjects += [term.text] if term.kind == kind else []
    return subjects


def read_attributes(path: Path) -> list[Attribute]:
    """Every plain attribute with its negation: the k-th negated line of a kind has the k-th.

    Raises
    ------
    PromptError
        A line that is no attribute or is there twice, or one whose negation is not there or of
        another group.
    """
    terms = list(_terms(path))
    attributes: list[Attribute] = []
    for kind in dict.fromkeys(term.kind.removesuffix(":neg") for term in terms):
        plain = [term for term in terms if term.kind == kind]
        negated = [term for term in terms if term.kind == f"{kind}:neg"]
        if len(plain) != len(negated):
            raise PromptError(
                f"{path}: {len(plain)} [{kind}] and {len(negated)} [{kind}:neg]; the k-th of "
                "these negates the k-th of those"
            )
        seen: set[str] = set()
        for term, other in zip(plain, negated, strict=True):
            if term.group != other.group:
                raise PromptError(
                    f"{other.place}: {other.group!r} negates {term.group!r} of {term.place}"
                )
            if term.text in seen:
                raise PromptError(f"{term.place}: {term.text!r} is there twice; remove one")
            seen.add(term.text)
            attributes.append(Attribute(kind, term.text, other.text, term.group))
    return attributes


def read_slots(path: Path, *, masked: bool) -> list[Slot]:
    """Contexts with statements that have a mask, or with questions, which have none.

    Raises
    ------
    PromptError
        A line of other than three columns, or with other placeholders.
    """
    return [_slot(line, masked=masked) for line in _lines(path)]


def _slot(line: _Line, *, masked: bool) -> Slot:
    columns = [column.strip() for column in line.text.split("\t")]
    if len(columns) != 3:
        raise PromptError(
            f"{line.place}: {len(columns)} columns between tabs; write context, statement and "
            "negated statement"
        )
    context, plain, negated = columns
    placeholders = [name for name in _PLACEHOLDER.findall(plain) if name != "mask"]
    expected = [*(["mask"] if masked else []), *placeholders[:1]]
    if (
        set(_PLACEHOLDER.findall(context)) not in _CONTEXTS
        or context.index("[subj1") > context.index("[subj2")
        or len(placeholders) != 1
        or sorted(_PLACEHOLDER.findall(plain)) != sorted(expected)
        or negated.count(f"[{placeholders[0]}:neg]") != 1
        or negated.count("[") != len(expected)
        or negated.count("[mask]") != masked
    ):
        mask = "[mask] " if masked else ""
        raise PromptError(
            f"{line.place}: {line.text!r} is no slot; its columns need [subj1] before [subj2] (or "
            f"both with :dem), {mask}and one attribute, and {mask}and that attribute with :neg"
        )
    return Slot(context, plain, negated, placeholders[0], line.block)


def _terms(path: Path) -> Iterator[_Term]:
    """`[kind] text` or `[kind] group | text`, with any white space between."""
    for line in _lines(path):
        if (match := _TERM.fullmatch(line.text)) is None:
            raise PromptError(
                f"{line.place}: {line.text!r} is no entry; write '[kind] text' or "
                "'[kind] group | text'"
            )
        yield _Term(line.place, match[1], match[2], match[3])


def _lines(path: Path) -> Iterator[_Line]:
    """Lines that say something; a file needs one."""
    lines = text_of_file(path, remedy=_REMEDY).splitlines()
    block, blank = -1, True
    for number, line in enumerate(lines, 1):
        if not line.startswith("#") and line.strip():
            block += blank
            yield _Line(f"{path}:{number}", line, block)
            blank = False
        blank = blank or not line.strip()
    if block < 0:
        raise PromptError(f"{path} is empty; {_REMEDY}")
