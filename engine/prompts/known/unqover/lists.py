"""UnQover's word lists and Refine-LM's parts of them: their home, and how to read them.

Sources: Li et al. 2020 for the lists, Qureshi et al. 2024 for the parts. Published parts are
disjoint: names for gender, contexts and attributes for the others (METRICS §10.2). Files have the
names of their home, followed by `.txt`. Blank lines and lines that begin with `#` are skipped.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from logitbank.engine.prompts.datasets import dataset_folder, published
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.rows import lines_of
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown

DATASET = published("unqover/unqover-original")
DATASET_OF_PARTS = published("unqover/refine-lm")
_TERM = re.compile(r"\[([a-z_:-]+)\](?:\s*([^|]+?)\s*\|)?\s*([^|]*[^|\s])\s*")
_PLACEHOLDER = re.compile(r"\[([^\[\]]*)\]")
_REMEDY = "Use UnQover's own file."
T = TypeVar("T")
_CONTEXTS = ({"subj1", "subj2"}, {"subj1:dem", "subj2:dem"})


class Attribute(NamedTuple):
    """A statement about one of two subjects, and its negation."""

    kind: str
    text: str
    negated: str
    group: str | None
    """Such as rude or poor."""


class Slot(NamedTuple):
    """A context and the statement or question after it, with their placeholders."""

    context: str
    plain: str
    negated: str
    kind: str
    """Kind of the attributes that fill it, such as p_act-single."""
    block: int
    """Blocks of a file are separated by blank lines, and counted from 0."""


class _Term(NamedTuple):
    kind: str
    group: str | None
    text: str


def read_subjects(path: Path, *, kind: str = "subj", group: str | None = None) -> list[str]:
    """The terms of one kind, `subj` or `subj:dem`, in their order.

    Raises
    ------
    PromptError
        A line is not a subject, or has another group than `group`.
    """

    def parse(line: tuple[str, int]) -> _Term:
        term = _term(line)
        if term.kind not in ("subj", "subj:dem") or term.group != group:
            raise PromptError(f"{shown(line[0])} is not a subject of its list")
        return term

    return [term.text for term in _read(path, parse) if term.kind == kind]


def read_attributes(path: Path) -> list[Attribute]:
    """Every plain attribute with its negation: the k-th negated line of a kind has the k-th.

    Raises
    ------
    PromptError
        A line is not an attribute, or does not fit its negation.
    """
    terms = _read(path, _term)
    attributes: list[Attribute] = []
    for kind in dict.fromkeys(term.kind.removesuffix(":neg") for term in terms):
        plain = [term for term in terms if term.kind == kind]
        negated = [term for term in terms if term.kind == f"{kind}:neg"]
        if [term.group for term in plain] != [term.group for term in negated]:
            raise PromptError(f"{path}: [{kind}] and [{kind}:neg] do not correspond. {_REMEDY}")
        pairs = zip(plain, negated, strict=True)
        attributes += [Attribute(kind, term.text, other.text, term.group) for term, other in pairs]
    return attributes


def read_slots(path: Path, *, masked: bool) -> list[Slot]:
    """Contexts with statements that have a mask, or with questions, which have none.

    Raises
    ------
    PromptError
        A line does not have three columns with the right placeholders.
    """
    return _read(path, partial(_slot, masked=masked))


def _slot(line: tuple[str, int], *, masked: bool) -> Slot:
    text, block = line
    context, plain, negated, *more = (column.strip() for column in f"{text}\t\t".split("\t"))
    kind = next((name for name in _PLACEHOLDER.findall(plain) if name != "mask"), "")
    mask = ["mask"] if masked else []
    if (
        any(more)
        or set(_PLACEHOLDER.findall(context)) not in _CONTEXTS
        or context.index("[subj1") > context.index("[subj2")
        or sorted(_PLACEHOLDER.findall(plain)) != sorted([*mask, kind])
        or sorted(_PLACEHOLDER.findall(negated)) != sorted([*mask, f"{kind}:neg"])
    ):
        raise PromptError(
            f"{shown(text)} needs a context with [subj1] before [subj2], a statement with one "
            "attribute, and its negation"
        )
    return Slot(context, plain, negated, kind, block)


def _term(line: tuple[str, int]) -> _Term:
    """`[kind] text` or `[kind] group | text`, with any white space between."""
    if (match := _TERM.fullmatch(line[0])) is None:
        raise PromptError(f"{shown(line[0])} is not '[kind] text' or '[kind] group | text'")
    return _Term(*match.groups())


def _read(path: Path, parse: Callable[[tuple[str, int]], T]) -> list[T]:
    """Results of `parse` for text and block of each line that is no comment."""
    return read_each(path, _blocks(path), parse, what="lines", remedy=_REMEDY)


def _blocks(path: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    block, blank, previous = -1, True, 0
    for number, line in lines_of(path):
        blank |= number > previous + 1
        previous = number
        if not line.startswith("#"):
            block += blank
            blank = False
            yield number, (line, block)


Category = Literal["gender", "nationality", "ethnicity", "religion"]
Part = Literal["train", "test"]
_LISTS: dict[Category, tuple[str, str]] = {
    "gender": ("gender", "occupation_rev1"),
    "nationality": ("country", "biased_country"),
    "ethnicity": ("ethnicity", "biased_ethnicity"),
    "religion": ("religion", "biased_religion"),
}
"""Names of the lists of slots and subjects, and of attributes."""
_TEST = {
    "biased_country": "biased_country-TEST",
    "biased_ethnicity": "biased_ethnicity-TEST",
    "biased_religion": "biased_religion",  # its test part; there is no -TEST
}
_LISTED = ("{}_bert.txt", "{}_roberta.txt")
"""Files with the subjects that are one token of either model."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A person or group in the questions."""

    name: str
    demonym: str | None
    """People of a country."""
    gender: str | None
    part: Part | None
    """Part of the lists that a name is from; None for groups."""
    listed: bool
    """Whether the subject is one token of BERT or RoBERTa, as published."""


class Lists(NamedTuple):
    """The lists of one category, each in its order."""

    subjects: tuple[Subject, ...]
    slots: tuple[tuple[Slot, Part | None], ...]
    attributes: tuple[tuple[Attribute, Part | None], ...]


def read_lists(category: Category, data: Path | None = None, *, questions: bool = False) -> Lists:
    """The lists of a category; its slots are statements with a mask, or `questions`.

    Raises
    ------
    UsageError
        A data folder is incomplete.
    PromptError
        A line is invalid, or the lists do not fit together.
    LogitbankError
        A download failed.
    """
    whole = dataset_folder(DATASET, data=data)
    parts = dataset_folder(DATASET_OF_PARTS, data=data)
    named, attribute_list = _LISTS[category]
    attributes = read_attributes(whole / "activities" / f"{attribute_list}.txt")
    slots = read_slots(whole / "slots" / f"{named}_noact_lm.txt", masked=True)
    if category == "gender":
        subjects = [s for gender in ("female", "male") for s in _names(whole, parts, gender)]
        block_parts: dict[int, Part | None] = {slot.block: None for slot in slots}
        attribute_parts: Sequence[Part | None] = [None] * len(attributes)
    else:
        subjects = [*_groups(whole / "nouns/subjects", named)]
        tested = read_attributes(parts / f"activities/{_TEST[attribute_list]}.txt")
        attribute_parts = ["test" if a in tested else "train" for a in attributes]
        test_slots = read_slots(parts / f"slots/{named}_noact_lm-TEST.txt", masked=True)
        block_parts = _block_parts(slots, test_slots)
        if not {*tested} <= {*attributes}:
            raise PromptError(f"{parts}: the test part of {attribute_list} is not part of it.")
    if questions:
        slots = read_slots(whole / "slots" / f"{named}_noact.txt", masked=False)
        if {slot.block for slot in slots} != set(block_parts):
            raise PromptError(f"{whole}: questions and statements of {named} differ in blocks.")
    kinds = {attribute.kind for attribute in attributes}
    demonyms = all(subject.demonym is not None for subject in subjects)
    for slot in slots:
        if slot.kind not in kinds or ("[subj1:dem]" in slot.context and not demonyms):
            raise PromptError(
                f"{whole}: slot {slot.context!r} of {category} has no attributes or demonyms."
            )
    return Lists(
        tuple(subjects),
        tuple((slot, block_parts[slot.block]) for slot in slots),
        tuple(zip(attributes, attribute_parts, strict=True)),
    )


def _names(whole: Path, parts: Path, gender: str) -> Iterator[Subject]:
    """Names in neither test list are for training; BERT's lists precede RoBERTa's."""
    folder, parted = whole / "nouns/subjects", parts / "nouns/subjects"
    listed = {
        name
        for file in _LISTED
        for name in read_subjects(folder / file.format(gender), group=gender)
    }
    train = read_subjects(parted / f"{gender}_bert_train.txt", group=gender)
    test = read_subjects(parted / f"{gender}_bert_test.txt", group=gender)
    if both := {*train} & {*test}:
        raise PromptError(f"{parted}: {min(both)!r} is in both parts of {gender}_bert.")
    later = read_subjects(parted / f"{gender}_roberta_test.txt", group=gender)
    tested = {*test, *(name for name in later if name not in train)}
    for name in read_subjects(folder / f"{gender}.txt", group=gender):
        yield Subject(name, None, gender, "test" if name in tested else "train", name in listed)


def _groups(folder: Path, named: str) -> Iterator[Subject]:
    path = folder / f"{named}.txt"
    listed = {name for file in _LISTED for name in read_subjects(folder / file.format(named))}
    names = read_subjects(path)
    demonyms: Sequence[str | None] = read_subjects(path, kind="subj:dem") or [None] * len(names)
    if len(names) != len(demonyms):
        raise PromptError(f"{path}: [subj] and [subj:dem] do not correspond. {_REMEDY}")
    for name, demonym in zip(names, demonyms, strict=True):
        yield Subject(name, demonym, None, None, name in listed)


def _block_parts(slots: Sequence[Slot], test_slots: Sequence[Slot]) -> dict[int, Part | None]:
    """The part of each block: questions have the blocks of statements, not their text."""
    tested = {slot[:3] for slot in test_slots}
    parts: dict[int, Part | None] = {}
    for slot in slots:
        part: Part = "test" if slot[:3] in tested else "train"
        if parts.setdefault(slot.block, part) != part:
            raise PromptError(f"The block of slot {slot.context!r} is in both parts. {_REMEDY}")
    if unknown := tested - {slot[:3] for slot in slots}:
        raise PromptError(f"Slot {min(unknown)[0]!r} is only in the test part. {_REMEDY}")
    return parts
