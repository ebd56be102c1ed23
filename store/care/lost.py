"""Tables of prompts and tokens that deposits were sealed with, and which of them are gone."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits
from logitbank.store.format.commits import SEAL
from logitbank.store.tables import query_tables

AGAIN = (
    "run the same `logitbank extract` or `merge` again, or copy it from another copy of the bank"
)
_WHY = "a seal names it"


def missing_tables(
    root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()
) -> dict[str, str]:
    """Tables that a bank no longer has, relative to it, and how that is known.

    A copy may have some of the prompts of a deposit only, so prompts are missing where none of
    those that its seal names is there. What one of the banks `others` has is not missing.

    Raises
    ------
    DamagedError
        A seal cannot be read.
    """
    missing: dict[str, str] = {}
    for deposit in deposits:
        queries = f"queries/{deposit.query_set}.parquet"
        if not query_tables.query_file(root, deposit.query_set).exists():
            missing[queries] = "deposits are about its queries"
        if not deposit.state().sealed:
            continue
        tables = [str(table) for table in commits.read(deposit.path, SEAL).get("tables", [])]
        prompts = [table for table in tables if table.startswith("prompts/")]
        absent = [t for t in tables if not any((each / t).exists() for each in (root, *others))]
        missing |= {table: _WHY for table in absent if table not in prompts}
        if prompts and set(prompts) <= set(absent):
            missing |= dict.fromkeys(prompts, _WHY)
    return missing


def require_tables(root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()) -> None:
    """Refuse a bank that lacks a table of its deposits; parameters as of `missing_tables`.

    Raises
    ------
    DamagedError
        It does; names the table.
    """
    for path, how in missing_tables(root, deposits, others=others).items():
        raise DamagedError(f"{root}/{path} is missing ({how}); {AGAIN}")
