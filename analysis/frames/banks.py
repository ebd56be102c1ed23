"""Banks that are analysed together: opening, checks and the choice of prompt sets."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from logitbank.analysis.frames.choose import ChoosePrompts
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, open_bank
from logitbank.store.tables.prompt_checks import changed_prompt
from logitbank.store.tables.prompt_tables import prompt_files

OneBank = str | Path | Bank
"""A bank: its folder or URL, or an open one."""
Banks = OneBank | Sequence[OneBank]
N = TypeVar("N", bound=str)


def require_bank(banks: Banks, **choices: object) -> None:
    """Raise UsageError if something is chosen from banks and none is given."""
    if not listed_banks(banks) and (made := [name for name, each in choices.items() if each]):
        raise UsageError(f"--{made[0]} chooses from a bank, and there is none. Leave it out.")


def split_files(banks: Banks, is_file: Callable[[Path], bool]) -> tuple[list[OneBank], list[Path]]:
    """Banks, and the files among them."""
    others, files = list[OneBank](), list[Path]()
    for bank in listed_banks(banks):
        if isinstance(bank, str | Path) and is_file(Path(bank)):
            files.append(Path(bank))
        else:
            others.append(bank)
    return others, files


def open_banks(
    banks: Banks,
    *,
    models: Sequence[str] | None = None,
    prompts: Sequence[str] | None = None,
    rows: bool = False,
) -> list[Bank]:
    """Open banks, none of which may be given twice.

    Parameters
    ----------
    models, prompts
        Models and prompt sets whose scores are copied from a bank at a URL; all if None.
    rows
        Also copy full rows.

    Raises
    ------
    UsageError
        Two are the same one.
    LogitbankError
        As `open_bank`.
    """
    opened: dict[Path, Bank] = {}
    for location in listed_banks(banks):
        bank = open_bank(location, prompts=[])
        names = prompts and [name for name in prompts if name in bank.prompt_sets]
        if names or prompts is None:  # else another bank has them
            with suppress(AbsentError):  # this bank has none of the models
                bank = open_bank(location, models=models, prompts=names, rows=rows)
        if opened.setdefault(bank.path.resolve(), bank) is not bank:
            raise UsageError(f"{bank.address} is given twice. Name each bank once.")
    return list(opened.values())


def listed(names: Sequence[N] | N | None) -> Sequence[N] | None:
    """Names as a sequence; a text is one name, not the letters of it."""
    return [names] if isinstance(names, str) else names


def listed_banks(banks: Banks) -> Sequence[OneBank]:
    """Banks as a sequence."""
    return [banks] if isinstance(banks, str | Path | Bank) else banks


class PromptColumns(Mapping[str, frozenset[str]]):
    """The columns of the prompt sets of banks; each set is read when it is looked up."""

    def __init__(self, banks: Sequence[Bank], names: Collection[str] | None = None) -> None:
        self._banks = banks
        self._names = prompt_sets(banks) if names is None else sorted(names)

    def __getitem__(self, name: str) -> frozenset[str]:
        if name not in self._names:
            raise KeyError(name)
        tables = [bank.prompts(name) for bank in self._banks if name in bank.prompt_sets]
        return frozenset(column for rows in tables for column in rows.collect_schema().names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def chosen_by(family: ChoosePrompts, banks: Sequence[Bank]) -> list[str]:
    """The prompt sets of banks that a family chooses."""
    return [name for names in family(PromptColumns(banks)) for name in names]


def no_prompts(
    banks: Sequence[Bank],
    name: str = "",
    *,
    family: str = "",
    available: Sequence[str] = (),
    example: str = "",
) -> str:
    """The error that banks do not have a prompt set, or any of a family, with `available` ones.

    `example` is a prompt set that `extract` can make.
    """
    addresses = ", ".join(bank.address for bank in banks)
    known = ", ".join(available or prompt_sets(banks)) or "none"
    what = f"Prompt set {name!r} is" if name else f"Prompts of {family} are"
    text = f"{what} not in {addresses}. Available: {known}."
    if not example:
        return text
    command = f"logitbank extract {banks[0].address} --suite … --prompts {example}"
    return f"{text} Fix: {command}"


def no_model(model: str, models: Collection[str], source: str) -> str:
    """The error that a model is missing, with the available ones."""
    return f"Model {model!r} is not in {source}. Available: {', '.join(sorted(models)) or 'none'}."


def select_models(
    available: Sequence[Collection[str]], models: Sequence[str] | None, source: str
) -> list[list[str] | None]:
    """For each source of models, those of `models` that it has; None for all without `models`.

    Raises
    ------
    AbsentError
        No source has one of the models. `source` describes the sources.
    """
    if models is None:
        return [None] * len(available)
    known = {name for names in available for name in names}
    if unknown := [model for model in models if model not in known]:
        raise AbsentError(no_model(unknown[0], known, source))
    return [[model for model in models if model in names] for names in available]


def check_same_prompts(banks: Sequence[Bank], prompts: str) -> None:
    """Raise UsageError if two banks have other content of one prompt, as `merge` does."""
    tables = [
        (bank, {file.digest for file in prompt_files(bank.path) if file.name == prompts})
        for bank in banks
        if prompts in bank.prompt_sets
    ]
    for (first, digests), (second, other_digests) in combinations(tables, 2):
        if digests == other_digests:
            continue
        rows = [bank.prompts(prompts).collect() for bank in (second, first)]
        if (changed := changed_prompt(*rows)) is not None:
            raise UsageError(
                f"Prompt {changed} of {prompts!r} differs in column {changed.column!r} between "
                f"{first.address} and {second.address}. Analyse the banks one at a time, or change "
                "the ids of changed prompts."
            )


def prompt_sets(banks: Sequence[Bank], requested: Collection[str] | None = None) -> list[str]:
    """The names of the prompt sets of banks, or the requested ones among them, sorted.

    Raises
    ------
    UsageError
        No bank has a requested one.
    """
    available = sorted({name for bank in banks for name in bank.prompt_sets})
    for name in requested or ():
        if name not in available:
            raise UsageError(no_prompts(banks, name))
    return [name for name in available if requested is None or name in requested]
