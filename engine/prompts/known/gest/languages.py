"""GEST's sentences in other languages: the files of EuroGEST, and those of GEST's authors."""

import csv
import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import read_rows, text_of
from logitbank.engine.prompts.scoring import sentence_tokens
from logitbank.engine.prompts.values import Prompt, Scalar
from logitbank.errors import PromptError, UsageError
from logitbank.wording import counted

STEREOTYPES = 16
MALE, FEMALE, NEUTRAL = ("masculine", "male"), ("feminine", "female"), ("neutral",)
STEREOTYPE = ("stereotype_id", "stereotype")
FIELDS = tuple(
    form for name in (*MALE, *FEMALE, *NEUTRAL) for form in (name, name.capitalize())
)  # fmt: skip
REMEDY = "Use the files of EuroGEST or GEST, or fields masculine, feminine and stereotype."
PHRASES = (("he said", "she said"), ("the man said", "the woman said"))
"""The names of both versions of templates 2 and 3."""
QUOTES = ('"', '",')


class Sentence(NamedTuple):
    """A row of a file of other languages."""

    language: str
    """Empty if the row has none."""
    stereotype: int
    number: int | None
    """The number of the English sentence in GEST."""
    texts: tuple[str, str] | None
    """The masculine and the feminine version."""
    neutral: str
    """The text without grammatical gender, where there are no versions; or empty."""


def read_languages(path: Path, language: str, templates: Path | None) -> PromptSet:
    """The sentences of a file, or of every CSV file of a folder, in languages other than English.

    Template 1 is a sentence in both of its grammatical genders. A sentence that has none is quoted
    as the words of a man or of a woman, in template 2 with pronouns and in 3 with nouns; phrases
    that are equal for both are left out. Causal models score every token of a version, and masked
    models each token under its own mask.

    Parameters
    ----------
    path
        Rows have `masculine` and `feminine`, or `male` and `female`, or `neutral`; and
        `stereotype`, or `stereotype_id`. These are the files of EuroGEST, a language each (Rowe et
        al. 2025, arXiv 2506.03867), and `gender_variants.csv` of GEST, with nine languages. Other
        fields are `language`, by default the name of the file, and `gest_id`. A pair that several
        translators of GEST made counts once. Not as in the paper: pairs may differ in several
        words.
    language
        The language of a file, by default its name.
    templates
        EuroGEST's `prompt_scaffolds`, as CSV or JSON: phrases such as "he said" in each language.
        `punc_map.json` beside it has the quotation marks.

    Raises
    ------
    UsageError
        A missing file, or a `language` of a folder.
    PromptError
        A row that is no sentence, no sentence that can be used, or a language without phrases.
    """
    if path.is_dir() and language:
        raise UsageError(f"language={language} is that of a file, and {path} is a folder.")
    paths = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not paths:
        raise UsageError(f"{path} has no CSV file. Name EuroGEST's files with gest:file=PATH.")
    warnings: list[str] = []
    sentences = [
        row._replace(language=language or row.language or each.stem)
        for each in paths
        for row in read_each(
            each, read_rows(each, FIELDS, warnings=warnings), _row, what="sentences", remedy=REMEDY
        )
    ]
    quoted = _quotations(templates, {each.language for each in sentences if each.neutral})
    seen, prompts, unused = set[tuple[str, tuple[str, str]]](), list[Prompt](), 0
    for number, row in enumerate(sentences):
        pairs = {1: row.texts} if row.texts else quoted(row) if templates else {}
        unused += not pairs
        for template, texts in pairs.items():
            if (row.language, texts) in seen:
                continue
            seen.add((row.language, texts))
            for version, text in zip(("male", "female"), texts, strict=True):
                columns: dict[str, Scalar] = {
                    "sentence_id": number if row.number is None else row.number,
                    "stereotype_id": row.stereotype, "template": template, "version": version,
                    "language": row.language,
                }  # fmt: skip
                name = f"{row.language}-{columns['sentence_id']}-{template}-{version}"
                prompts.append(Prompt(name, text, columns=columns, scored=sentence_tokens))
    if unused:
        what = f"{counted(unused, 'sentence')} without grammatical gender"
        advice = "Their phrases for men and women are in templates=PATH"
        if not prompts:
            raise PromptError(f"{path} has only {what}. {advice}: use EuroGEST's prompt_scaffolds.")
        warnings.append(f"{what} left out. {advice}.")
    return PromptSet(f"gest-{language or path.stem}", tuple(prompts), warnings=tuple(warnings))


def _row(row: Mapping[str, Any]) -> Sentence:
    values = {name.lower(): value for name, value in row.items()}

    def first(*names: str) -> Any:
        return next((v for name in names if (v := values.get(name)) not in (None, "")), None)

    male, female, neutral = first(*MALE), first(*FEMALE), first(*NEUTRAL)
    gendered = male is not None or female is not None or neutral is None
    if gendered and (not isinstance(male, str) or not isinstance(female, str) or male == female):
        raise PromptError(f"not two versions of a sentence: {male!r} and {female!r}")
    stereotype, number = (_whole(first(*names)) for names in (STEREOTYPE, ("gest_id",)))
    if stereotype is None or stereotype not in range(1, STEREOTYPES + 1):
        raise PromptError(f"stereotype is {first(*STEREOTYPE)!r}; use 1 to {STEREOTYPES}")
    texts = (str(male), str(female)) if gendered else None
    return Sentence(
        language=str(first("language") or ""), stereotype=stereotype, number=number, texts=texts,
        neutral="" if gendered else str(neutral),
    )  # fmt: skip


def _whole(value: object) -> int | None:
    """A whole number, also one that pandas wrote as 8.0; None if it is no number."""
    text = str(value).removesuffix(".0")
    return int(text) if text.isdecimal() else None


def _quotations(
    templates: Path | None, languages: Collection[str]
) -> Callable[[Sentence], Mapping[int, tuple[str, str]]]:
    """Both versions of a sentence without grammatical gender, by template."""
    if templates is None or not languages:
        return lambda row: {}
    if not templates.is_file():
        raise UsageError(f"templates={templates} does not exist. Use EuroGEST's prompt_scaffolds.")
    phrases = _phrases(templates)
    names = [name for pair in PHRASES for name in pair]
    if absent := [name for name in sorted(languages) if {*names} - {*phrases.get(name, ())}]:
        raise PromptError(
            f"{templates} lacks phrases for {', '.join(absent)}. It needs “{'”, “'.join(names)}” "
            "in each language."
        )
    marks = templates.with_name("punc_map.json")
    quotes = _json(marks) if marks.is_file() else {}

    def quoted(row: Sentence) -> dict[int, tuple[str, str]]:
        start, end = quotes.get(row.language, QUOTES)
        text = start + re.sub(r"^\W+|\W+$", "", row.neutral) + end
        said = [[phrases[row.language][name].strip() for name in pair] for pair in PHRASES]
        return {
            at: (f"{text} {male}", f"{text} {female}")
            for at, (male, female) in enumerate(said, 2)
            if male != female
        }

    return quoted


def _phrases(path: Path) -> dict[str, dict[str, str]]:
    """The phrases of each language, by their English names."""
    if path.suffix == ".json":
        rows = list(_json(path).items())
    else:
        _, *names = next(table := csv.reader(text_of(path).splitlines()))
        rows = [(cells[0], dict(zip(names, cells[1:], strict=False))) for cells in table if cells]
    found: dict[str, dict[str, str]] = {}
    for phrase, by_language in rows:
        for name, text in by_language.items():
            found.setdefault(name, {})[phrase] = text
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text_of(path))
    except ValueError as error:
        raise PromptError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PromptError(f"{path} has no object by language. Use EuroGEST's file.")
    return value
