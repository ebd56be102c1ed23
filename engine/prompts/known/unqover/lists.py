"""UnQover's word lists and Refine-LM's parts of them: their home, and how to read them.

Sources: Li et al. 2020 for the lists, Qureshi et al. 2024 for the parts. Published parts are
disjoint: names for gender, contexts and attributes for the others (METRICS §10.2). Files have the
names of their home, followed by `.txt`. Blank lines and lines that begin with `#` are skipped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from logitbank.engine.prompts.datasets import Dataset, dataset_folder, digests, read_data_text
from logitbank.errors import PromptError

DATASET = Dataset(
    name="unqover/unqover-original",
    base_url=(
        "https://raw.githubusercontent.com/allenai/unqover/"
        "3e47969b78acc0de436f9d17c9ab1b2f6a108ff0/word_lists"
    ),
    files=digests(
        """
a7b92310efeec39dd11583d0df137f0f8907938c89cb7df8f4ac6f0af8d8043f biased_country.txt
c7152d144ccf983316f4f7a47d8e3457f6c2670d35efce16bd0fba5fb5013592 biased_ethnicity.txt
c7152d144ccf983316f4f7a47d8e3457f6c2670d35efce16bd0fba5fb5013592 biased_religion.txt
2922baf88fa18267c46776c36fb09d30a21112abe4e15b867973d8585773ea77 occupation_rev1.txt
""",
        "activities/",
    )
    | digests(
        """
4806e08b279f099f56e1ba5859f71e4360c24260b7fd0b456aac1ac252d85281 country.txt
9a9d4d99f1739454d4861dbe70e4bc46f9b30425cada3bf0d951b57c5dbd4436 country_bert.txt
1918e48ade75b630521143054f084ca69b4ebaa090acde9ac701aea8e080806d country_roberta.txt
a2008f4362cde3d48d99ad000471fdd5aa8b3d05f1e4a114b321413b0dd89158 ethnicity.txt
ff5379801c2c9b3c20dccdc6d77e91e6f646fdb6d08e215fd9b77364578ab7ce ethnicity_bert.txt
ff5379801c2c9b3c20dccdc6d77e91e6f646fdb6d08e215fd9b77364578ab7ce ethnicity_roberta.txt
40aed064f32bb31b8675832b52fc9782c6064759b4d42d3e8b37c5271cf3cc88 female.txt
c069ba753e29bdedb69cc37a74e5c2a716fe1b4ab2551ef4ba63062f17f174d7 female_bert.txt
d61a78d03b6e644903f122da4eb5f5d2b330ed5b923bf993567a0be0102861f1 female_roberta.txt
c358a107602926bcd60e8e48baa75ca6acfbc6094c5b7fe42fc8a5680e366a47 male.txt
a8154d642e06a34851a89b9871c0d8be8142aaa0d2f2070d3d93e7ed00604727 male_bert.txt
137c94631ffe515eabc4cb382445c6356cfc8fc6b3a16a8fa5039737c1f465f7 male_roberta.txt
6b22fa2e9fa1e212d75290f0063d822e23db28eaeae58d0e3f51b641f483f4eb religion.txt
6b22fa2e9fa1e212d75290f0063d822e23db28eaeae58d0e3f51b641f483f4eb religion_bert.txt
0c0589d5b7a3a1c28352f35ba8e99cca7d91d9fe3778fdb6b265c59b48acfa3f religion_roberta.txt
""",
        "nouns/subjects/",
    )
    | digests(
        """
95c5260ee32c463846e26896ec476df69ecc67874a90743a36668430441fa287 country_noact.txt
73a3eaad4c8c13b2da3e411df6822cb4bbe98fb3d4f92f990add4c22f0e6d61f country_noact_lm.txt
8ee8da4f0fff82d31959a464adc6cf495c17d2dea81949e8daa027063f5f9e5d ethnicity_noact.txt
543abaedf193ec966ab42355e11ec0bded7b2341ad116552da62e61f88ed6ec0 ethnicity_noact_lm.txt
d575a912dde76fdacf4e083a3cbf42a0e64c7c79b8ce6f5a11db3fda657a46ea gender_noact.txt
63d3840805c700eedb7f37ab96e9bd3da304137e41f6df5d93a75415df13c992 gender_noact_lm.txt
2bb683ebab729554e11aca02de511b443ade6d186f70f61c52a151220df113fa religion_noact.txt
f32a75b7c77b5108f9f233b0f0b8f92041b159a79020ac9ab1f8cde8fd062d74 religion_noact_lm.txt
""",
        "slots/",
    ),
    suffix=".txt",
)
DATASET_OF_PARTS = Dataset(
    name="unqover/refine-lm",
    base_url=(
        "https://raw.githubusercontent.com/rameez-mrq/refine-lm-submission/"
        "e3c0bae505cf87d410d19b99cf631e0d03b53600/word_lists"
    ),
    files=digests(
        """
a8b2d1d4b0a2c100b5c14f62b2c2a73ce1a87ddf2caa6456782996ef73ebd785 biased_country-TEST.txt
5268aec5b9e134b1ca8333fb407e6c070f6fbb23e9842840b994da426bb0bf1a biased_ethnicity-TEST.txt
5268aec5b9e134b1ca8333fb407e6c070f6fbb23e9842840b994da426bb0bf1a biased_religion.txt
""",
        "activities/",
    )
    | digests(
        """
5fc93a2a7e8c45008d10141d2675d1e4bb2733964dedfc7e9319fe8e999305a0 female_bert_test.txt
967d17f8aa401f0f602cbf2e8b33d8a09a00be684276da6473580154cc896a3f female_bert_train.txt
81e94648c5651ae761717e64c90c7e0a9fdd34a34cef9d3311142a6139bfb2c4 female_roberta_test.txt
6aedab94046a683941b9c7c244916daab28b2de8b3410d8de774069e5361d325 male_bert_test.txt
484699c838f1b9b41572b2a60701acf21d2dad8d67e9c38ad8c604e9bf9278e0 male_bert_train.txt
f42c93095ba57e6e5bf84ba8f6c43d4453c3b3fa624108aa2e3b3a927f3ae134 male_roberta_test.txt
""",
        "nouns/subjects/",
    )
    | digests(
        """
5aad9919acc6018ac373d48dbcbb160721052cdb8bc8cfa161b21c2c374d3c23 country_noact_lm-TEST.txt
62b26028c524bd4849f33ded22f6607409d5909a66e4e146eada089fdc84a51d ethnicity_noact_lm-TEST.txt
f36d416b4dd60d28415ea2b5b43c677585b15695db1bbf3ed96ae8ee17a781c6 religion_noact_lm-TEST.txt
""",
        "slots/",
    ),
    suffix=".txt",
)
_TERM = re.compile(r"\[([a-z_:-]+)\](?:\s*([^|]+?)\s*\|)?\s*([^|]*[^|\s])\s*")
_PLACEHOLDER = re.compile(r"\[([^\[\]]*)\]")
_REMEDY = "Use UnQover's own file."
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
    line: str
    """`file:line`, for messages."""
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
    terms = [*_terms(path)]
    for term in terms:
        if term.kind not in ("subj", "subj:dem") or term.group != group:
            raise PromptError(f"{term.line} is not a subject of its list. {_REMEDY}")
    return [term.text for term in terms if term.kind == kind]


def read_attributes(path: Path) -> list[Attribute]:
    """Every plain attribute with its negation: the k-th negated line of a kind has the k-th.

    Raises
    ------
    PromptError
        A line is not an attribute, or does not fit its negation.
    """
    terms = [*_terms(path)]
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
    return [_slot(*line, masked=masked) for line in _lines(path)]


def _slot(line: str, text: str, block: int, *, masked: bool) -> Slot:
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
            f"{line}: {text!r} needs a context with [subj1] before [subj2], a statement with one "
            f"attribute, and its negation. {_REMEDY}"
        )
    return Slot(context, plain, negated, kind, block)


def _terms(path: Path) -> Iterator[_Term]:
    """`[kind] text` or `[kind] group | text`, with any white space between."""
    for line, text, _ in _lines(path):
        if (match := _TERM.fullmatch(text)) is None:
            raise PromptError(f"{line}: {text!r} is not '[kind] text' or '[kind] group | text'.")
        yield _Term(line, match[1], match[2], match[3])


def _lines(path: Path) -> Iterator[tuple[str, str, int]]:
    """`file:line`, text and block of each line that is neither blank nor a comment."""
    block, blank = -1, True
    for number, line in enumerate(read_data_text(path, remedy=_REMEDY).splitlines(), 1):
        if not line.startswith("#") and line.strip():
            block += blank
            yield f"{path}:{number}", line, block
            blank = False
        blank = blank or not line.strip()


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
