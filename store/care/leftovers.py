"""What nothing in a bank vouches for: its writer was interrupted, or its commit is gone."""

from logitbank.errors import BankError
from logitbank.store.bank import Bank
from logitbank.store.care.verify_deposits import files_of
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.format import commits, index


def leftovers(bank: Bank) -> dict[str, tuple[str, ...]]:
    """Data without a commit, by deposit, and digests of query sets that nothing needs.

    They are no damage: readers ignore them, and the next writer replaces them. What a seal has
    replaced is left out, and so is what `verify` names as damaged.
    """
    names_by_folder = {
        "queries": _without_table(bank, "queries"),
        **{folder: _uncommitted(bank, folder) for folder in catalog.deposit_folders(bank.path)},
    }
    return {folder: names for folder, names in names_by_folder.items() if names}


def _without_table(bank: Bank, folder: str) -> tuple[str, ...]:
    names = {entry.name for entry in objects.entries(bank.path / folder)}
    return tuple(
        sorted(
            name
            for name in names
            if name.endswith(".parquet.sha256") and name.removesuffix(".sha256") not in names
        )
    )


def _uncommitted(bank: Bank, folder: str) -> tuple[str, ...]:
    try:
        deposit = Deposit.open(bank.path, folder)
        paths = files_of(deposit.path)  # before the commits: some may be made meanwhile
        state = deposit.state()
        vouched = {p for name in state.names for p in commits.digests(deposit.path, name)}
    except (BankError, FileNotFoundError):  # damaged, or sealed just now
        return ()
    sealed = {f"{folder}/"} if state.sealed else set()
    return tuple(
        path
        for path in paths
        if path not in vouched
        and index.DATA.fullmatch(f"{folder}/{path}")
        and not index.is_replaced(f"{folder}/{path}", sealed)
    )
