"""Tables that deposits were sealed with and that are missing."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits
from logitbank.store.format.commits import SEAL
from logitbank.store.tables import prompt_tables, query_tables, token_texts

_REASON = "a seal lists it"


def missing_tables(
    root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()
) -> dict[str, str]:
    """Paths of the tables that a bank has lost, each with the reason why it needs the table.

    A copy of a bank may have only some prompt sets of a deposit. So tables of prompts are missing
    if the bank has other tables of their set, or none of those in the seal. Token texts are missing
    if the bank has none of that tokenizer. Tables in one of the banks `others` are not missing.

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
        present = {_set(f"{each.parent.name}/{each.name}") for each in _tables(root)}
        for table in absent:
            if (_set(table) in present) == (table in prompts):
                missing[table] = _REASON
        if prompts and set(prompts) <= set(absent):
            missing |= dict.fromkeys(prompts, _REASON)
    return missing


def _tables(root: Path) -> list[Path]:
    files = [*prompt_tables.prompt_files(root), *token_texts.tokens_files(root)]
    return [file.path for file in files]


def _set(table: str) -> str:
    """The path of a table without its digest: folder, and prompt set or tokenizer."""
    return table.rpartition("-")[0]


def require_tables(root: Path, deposits: Iterable[Deposit], *, others: Sequence[Path] = ()) -> None:
    """Refuse a bank that has lost a table of its deposits, with a DamagedError."""
    for path, reason in missing_tables(root, deposits, others=others).items():
        raise DamagedError(
            f"{root}/{path} is missing ({reason}). Run the same `logitbank extract` or `merge`"
            " again, or copy the file from another copy of the bank."
        )
