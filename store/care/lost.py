"""Tables that deposits were sealed with and that are missing."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits
from logitbank.store.format.commits import SEAL
from logitbank.store.tables import query_tables

_REASON = "a seal lists it"


def missing_tables(
    root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()
) -> dict[str, str]:
    """Paths of the tables that a bank has lost, each with the reason why it needs the table.

    A copy of a bank may have only some prompts of a deposit. So prompts are missing only if the
    bank has none of those in the seal. Tables in one of the banks `others` are not missing.

    Raises
    ------
    DamagedError
        A seal cannot be read.
    """
    missing: dict[str, str] = {}
    for deposit in deposits:
        queries = f"queries/{deposit.query_set}.parquet"
        if not query_tables.query_file(root, deposit.query_set).exists():
            missing[queries] = "deposits need its queries"
        if not deposit.state().sealed:
            continue
        tables = [str(table) for table in commits.read(deposit.path, SEAL).get("tables", [])]
        prompts = [table for table in tables if table.startswith("prompts/")]
        absent = [t for t in tables if not any((each / t).exists() for each in (root, *others))]
        missing |= {table: _REASON for table in absent if table not in prompts}
        if prompts and set(prompts) <= set(absent):
            missing |= dict.fromkeys(prompts, _REASON)
    return missing


def require_tables(root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()) -> None:
    """Refuse a bank that has lost a table of its deposits, with a DamagedError."""
    for path, reason in missing_tables(root, deposits, others=others).items():
        raise DamagedError(
            f"{root}/{path} is missing ({reason}). Run the same `logitbank extract` or `merge`"
            " again, or copy the file from another copy of the bank."
        )
