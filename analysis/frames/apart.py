"""Banks that are analysed together hold different checkpoints of what they are asked about."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path

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
    rows: bool = False,
) -> list[Bank]:
    """Open banks, each of which may be named once.

    Of a bank at a URL, the scores of these models and prompt sets are copied, all if None; with
    `rows`, full rows as well.

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
        try:
            bank = open_bank(given, models=models, prompts=prompts, rows=rows)
        except AbsentError:  # another bank may have it; the analysis reports what none has
            bank = open_bank(given, models=[])
        key = bank.path.resolve(), bank.name
        if key in named:
            raise UsageError(f"{place_of(bank)} is named twice; name each bank once")
        named.add(key)
        opened.append(bank)
    return opened


def listed_banks(banks: Banks) -> Sequence[OneBank]:
    """Banks as a sequence, also one alone."""
    return [banks] if isinstance(banks, str | Path | Bank) else banks


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
                    f"{checkpoint} is scored on {prompts!r} in both {place_of(one)} and"
                    f" {place_of(other)}; leave out one of the banks, or put them together with"
                    " `logitbank merge`"
                )


def place_of(bank: Bank) -> str:
    """Where a person finds a bank: a folder or a URL."""
    return bank.url or str(bank.path)
