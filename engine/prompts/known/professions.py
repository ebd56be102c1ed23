"""Pronouns before professions, as fill-in-the-blank prompts: METRICS §7.1.

Source: Tang and Jiang 2022. Their released list of 923 professions is used unchanged: the article
follows the first letter ("an university president"), and the order is that of their matrices.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from logitbank.engine.prompts.datasets import dataset_folder, published
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import lines_of
from logitbank.engine.prompts.values import MASK, Option, Prompt, Scalar
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown

FILE = "923-professions.txt"
DATASET = published("professions")
TEMPLATES = {"is": MASK + " is {}.", "works as": MASK + " works as {}."}
"""Verb to sentence; `{}` is the profession with its article."""
_PROFESSION = re.compile(r"(?i:a|an|the) \S(.*\S)?")
PRIOR = f"a {MASK}"
"""Replaces the profession in prompts for the prior of a model."""
# At the start of a sentence each tokenizer has one entry for these, such as "he" in an uncased
# vocabulary and "He" without a leading space in RoBERTa's.
OPTIONS = (Option("he", "He"), Option("she", "She"))


def professions(data: Path | None = None) -> PromptSet:
    """Both pronouns before each of the 923 professions, with each verb, and the priors.

    The first mask is scored. Columns: `occupation` (with its article; `a [MASK]` for a prior),
    `verb` and `prior`.
    """
    listed = read_professions(dataset_folder(DATASET, data=data) / FILE)
    return pronoun_prompts("professions", listed)


def pronoun_prompts(name: str, occupations: Sequence[str]) -> PromptSet:
    """Prompts like those of `professions`, for any occupations, each with its article."""
    prompts = (
        _prompt(verb, template, occupation)
        for verb, template in TEMPLATES.items()
        for occupation in (PRIOR, *occupations)
    )
    return PromptSet(name, tuple(prompts))


def read_professions(path: Path) -> list[str]:
    """The professions of a list, one per line with its article, in the list's order."""
    remedy = "Write one profession per line, with its article."
    return read_each(path, lines_of(path), _profession, what="professions", remedy=remedy)


def _profession(line: str) -> str:
    if not _PROFESSION.fullmatch(line) or MASK in line:
        raise PromptError(f"{shown(line)} is not a profession")
    return line


def _prompt(verb: str, template: str, occupation: str) -> Prompt:
    prior = occupation == PRIOR
    columns: dict[str, Scalar] = {"occupation": occupation, "verb": verb, "prior": prior}
    name = f"{verb}: {'prior' if prior else occupation}"
    return Prompt(name, template.replace("{}", occupation), OPTIONS, columns=columns)


KNOWN = KnownSet(
    pattern="professions",
    about="he or she before 923 professions, and the priors, for masked models",
    size="1,848",
    license="none stated",
    analysis="fluctuation",
    make=professions,
)
