"""The lists of each of UnQover's categories, with the parts that Refine-LM made of them.

Source: Li et al. 2020 for the lists, Qureshi et al. 2024 for the parts. Published parts are
disjoint: of names for gender, of contexts and attributes for the others (METRICS §10.2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from logitbank.engine.prompts.datasets import dataset_folder
from logitbank.engine.prompts.known.unqover.files import (
    Attribute,
    Slot,
    read_attributes,
    read_slots,
    read_subjects,
)
from logitbank.engine.prompts.known.unqover.home import DATASET, DATASET_OF_PARTS
from logitbank.errors import PromptError

Category = Literal["gender", "nationality", "ethnicity", "religion"]
Part = Literal["train", "test"]
_LISTS: dict[Category, tuple[str, str]] = {
    "gender": ("gender", "occupation_rev1"),
    "nationality": ("country", "biased_country"),
    "ethnicity": ("ethnicity", "biased_ethnicity"),
    "religion": ("religion", "biased_religion"),
}
"""What slots and subjects, and attributes, are called."""
_TEST = {
    "biased_country": "biased_country-TEST",
    "biased_ethnicity": "biased_ethnicity-TEST",
    "biased_religion": "biased_religion",  # its test part; there is no -TEST
}
_LISTED = ("{}_bert.txt", "{}_roberta.txt")
"""What is one token of either model is in these files."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Someone whom questions are about."""

    name: str
    demonym: str | None
    """What people of a country are called."""
    gender: str | None
    part: Part | None
    """Part of the lists that a name is from; None of what is no name."""
    listed: bool
    """Whether the subject is one token of BERT or RoBERTa, as published."""


class Lists(NamedTuple):
    """The lists of one category, each in its order."""

    subjects: tuple[Subject, ...]
    slots: tuple[tuple[Slot, Part | None], ...]
    attributes: tuple[tuple[Attribute, Part | None], ...]


def read_lists(
    category: Category,
    data: Path | None = None,
    *,
    questions: bool = False,
    base_url: str = DATASET.base_url,
    parts_url: str = DATASET_OF_PARTS.base_url,
) -> Lists:
    """The lists of a category; its slots are statements with a mask, or `questions`.

    Raises
    ------
    UsageError
        A data folder that lacks files.
    PromptError
        A line that is none of UnQover's, or parts that are none of its lists.
    LogitbankError
        A failed download.
    """
    whole = dataset_folder(DATASET, data=data, base_url=base_url)
    parts = dataset_folder(DATASET_OF_PARTS, data=data, base_url=parts_url)
    named, said = _LISTS[category]
    attributes = read_attributes(whole / "activities" / f"{said}.txt")
    slots = read_slots(whole / "slots" / f"{named}_noact_lm.txt", masked=True)
    if category == "gender":
        subjects = [s for gender in ("female", "male") for s in _names(whole, parts, gender)]
        part_of_block: dict[int, Part | None] = {slot.block: None for slot in slots}
        of_attributes: Sequence[Part | None] = [None] * len(attributes)
    else:
        subjects = [*_groups(whole / "nouns/subjects", named)]
        of_attributes = _parts_of_attributes(attributes, parts / f"activities/{_TEST[said]}.txt")
        part_of_block = _parts_of_blocks(slots, parts / f"slots/{named}_noact_lm-TEST.txt")
    if questions:
        slots = read_slots(path := whole / "slots" / f"{named}_noact.txt", masked=False)
        if {slot.block for slot in slots} != set(part_of_block):
            raise PromptError(
                f"{path} is not in the {len(part_of_block)} blocks of the statements, between "
                "blank lines"
            )
    _check_fit(category, subjects, slots, attributes)
    return Lists(
        tuple(subjects),
        tuple((slot, part_of_block[slot.block]) for slot in slots),
        tuple(zip(attributes, of_attributes, strict=True)),
    )


def _names(whole: Path, parts: Path, gender: str) -> Iterator[Subject]:
    """Names in neither test list are for training; BERT's lists go before RoBERTa's."""
    folder, parted = whole / "nouns/subjects", parts / "nouns/subjects"
    listed = {
        name
        for file in _LISTED
        for name in read_subjects(folder / file.format(gender), group=gender)
    }
    train = read_subjects(parted / f"{gender}_bert_train.txt", group=gender)
    test = read_subjects(parted / f"{gender}_bert_test.txt", group=gender)
    if both := [name for name in train if name in test]:
        raise PromptError(f"{parted}: {both[0]!r} is in {gender}_bert_train and {gender}_bert_test")
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
        raise PromptError(
            f"{path}: {len(names)} [subj] and {len(demonyms)} [subj:dem]; the k-th of these "
            "belongs to the k-th of those"
        )
    for name, demonym in zip(names, demonyms, strict=True):
        yield Subject(name, demonym, None, None, name in listed)


def _parts_of_attributes(attributes: Sequence[Attribute], test: Path) -> list[Part]:
    tested = read_attributes(test)
    if unknown := [attribute for attribute in tested if attribute not in attributes]:
        raise PromptError(f"{test}: {unknown[0].text!r} is no attribute of the whole list")
    return ["test" if attribute in tested else "train" for attribute in attributes]


def _parts_of_blocks(slots: Sequence[Slot], test: Path) -> dict[int, Part | None]:
    """A block of slots is in one part: questions have the blocks of statements, not their text."""
    tested = {slot[:3] for slot in read_slots(test, masked=True)}
    if unknown := tested - {slot[:3] for slot in slots}:
        raise PromptError(f"{test}: {min(unknown)[0]!r} is no slot of the whole list")
    parts: dict[int, Part | None] = {}
    for slot in slots:
        part: Part = "test" if slot[:3] in tested else "train"
        if parts.setdefault(slot.block, part) != part:
            raise PromptError(
                f"{test} has some slots of a block and not {slot.context!r}; a block (between "
                "blank lines) is in one part"
            )
    return parts


def _check_fit(
    category: Category,
    subjects: Sequence[Subject],
    slots: Sequence[Slot],
    attributes: Sequence[Attribute],
) -> None:
    """Refuse slots that nothing can be put into."""
    known = dict.fromkeys(attribute.kind for attribute in attributes)
    for slot in slots:
        if slot.kind not in known:
            raise PromptError(
                f"{category}: slot {slot.context!r} needs attributes of kind {slot.kind!r}; there "
                f"are {', '.join(known)}"
            )
        if "[subj1:dem]" in slot.context and any(s.demonym is None for s in subjects):
            raise PromptError(
                f"{category}: slot {slot.context!r} needs demonyms, and the list of subjects has "
                "no [subj:dem]"
            )
