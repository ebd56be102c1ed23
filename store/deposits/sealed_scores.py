"""The scores of many deposits, looked at together before they are read."""

from collections.abc import Iterable
from pathlib import Path

from logitbank.errors import LogitbankError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import checked
from logitbank.store.files.objects import Digest
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.remote import fetching


def check_scores(deposits: Iterable[Deposit]) -> bool:
    """Look at the bytes and footers of all sealed deposits' scores at once: five times as fast.

    False where one of them is not as it should be; who reads it says what and where.
    """
    try:
        states = [(deposit, deposit.state()) for deposit in deposits]
        parts: dict[Path, Digest] = {}
        for deposit, state in states:
            parts |= deposit.vouched_scores(state) if state.sealed else {}
        fetching.ensure_here(*parts)
        checked.require(parts)
        if parts:
            check_rows(*parts)
    except (FileNotFoundError, LogitbankError, *PARQUET_ERRORS):
        return False
    return True
