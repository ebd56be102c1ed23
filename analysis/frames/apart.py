"""Banks that are analysed together hold different checkpoints of what they are asked about."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from logitbank.analysis.family import ChoosePrompts
from logitbank.analysis.frames.same_prompts import same_table
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, Deposit, open_bank

OneBank = str | Path | Bank
"""A bank: its folder or URL, or an open one."""
Banks = OneBank | Sequence[OneBank]


def banks_and_files(
    banks: Banks, is_file: Callable[[Path], bool]
) -> tuple[list[OneBank], list[Path]]:
    """Banks, and the files that are named among them."""
    named, files = list[OneBank](), list[Path]()
    for each in listed_banks(banks):
        if isinstance(each, str | Path) and is_file(Path(each)):
            files.append(Path(each))
        else:
            named.append(each)
    return named, files


def open_banks(
    banks: Banks,
    *,
    models: Sequence[str] | None = None,
    prompts: Sequence[str] | str | None = None,
    family: ChoosePrompts | None = None,
    rows: bool = False,
) -> list[Bank]:
    """Open banks, each of which may be named once.

    Parameters
    ----------
    models, prompts
        Models and prompt sets whose scores are copied from a bank at a URL; all if None.
    family
        Chooses the prompt sets if `prompts` is None.
    rows
        Also copy full rows.

    Raises
    ------
    UsageError
        Two are the same one.
    LogitbankError
        As `open_bank`.
    """
    opened: list[Bank] = []
    named: set[tuple[Path, str]] = set()
    for given in listed_banks(banks):
        bank = _open(given, models, prompts, family, rows=rows)
        key = bank.path.resolve(), bank.name
        if key in named:
            raise UsageError(f"{bank.address} is named twice; name each bank once")
        named.add(key)
        opened.append(bank)
    return opened


def _open(
    bank: OneBank,
    models: Sequence[str] | None,
    prompts: Sequence[str] | str | None,
    family: ChoosePrompts | None,
    *,
    rows: bool,
) -> Bank:
    if prompts is None and family is None:
        names = None
    else:
        tables = open_bank(bank, models=[])  # no scores: a family is known by its columns
        wanted = [prompts] if isinstance(prompts, str) else prompts
        if wanted is None and family is not None:
            wanted = own_names(family, [tables])
        names = [name for name in wanted or () if name in tables.prompt_sets]
        if not names:  # another bank may have them; the analysis reports what none has
            return tables
    try:
        return open_bank(bank, models=models, prompts=names, rows=rows)
    except AbsentError:  # no such model in this bank
        return open_bank(bank, models=[])


def listed_banks(banks: Banks) -> Sequence[OneBank]:
    """Banks as a sequence, also one alone."""
    return [banks] if isinstance(banks, str | Path | Bank) else banks


class ColumnsOf(Mapping[str, frozenset[str]]):
    """The columns of the prompt sets of banks, each read when it is asked for."""

    def __init__(self, banks: Sequence[Bank], names: Collection[str] | None = None) -> None:
        self._banks = banks
        self._names = sorted(
            {n for bank in banks for n in bank.prompt_sets} if names is None else names
        )

    def __getitem__(self, name: str) -> frozenset[str]:
        if name not in self._names:
            raise KeyError(name)
        holding = [bank for bank in self._banks if name in bank.prompt_sets]
        return frozenset(
            column for bank in holding for column in bank.prompts(name).collect_schema().names()
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def own_names(fitting: ChoosePrompts, banks: Sequence[Bank]) -> list[str]:
    """The prompt sets of banks that a family takes for its own."""
    return [name for names in fitting(ColumnsOf(banks)) for name in names]


def check_checkpoints_apart(
    banks: Sequence[Bank], prompts: str, deposits: Sequence[Iterable[Deposit]]
) -> None:
    """Raise UsageError where two banks have all scores of one checkpoint on the same prompts.

    `deposits` are those of each bank that are analysed.
    """
    by_key = [{(d.checkpoint, d.query_set): d for d in ours} for ours in deposits]
    for (one, ours), (other, theirs) in combinations(zip(banks, by_key, strict=True), 2):
        common = [key for key in ours if key in theirs]
        if not common or not same_table(one, other, prompts):
            continue
        query_sets = set(one.prompts(prompts).select("query_set").unique().collect().to_series())
        for checkpoint, name in common:
            both = ours[checkpoint, name], theirs[checkpoint, name]
            if name in query_sets and all(deposit.complete for deposit in both):
                raise UsageError(
                    f"{checkpoint} is scored on {prompts!r} in both {one.address} and"
                    f" {other.address}; leave out one of the banks, or put them together with"
                    " `logitbank merge`"
                )
