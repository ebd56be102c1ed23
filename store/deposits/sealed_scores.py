"""The scores of many deposits, looked at together before they are read."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from logitbank.errors import LogitbankError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import checked
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.remote import fetching


def check_scores(deposits: Iterable[Deposit]) -> bool:
    """Look at the bytes and footers of all sealed deposits' scores at once: five times as fast.

    False where one of them is not as it should be; who reads it says what and where.
    """
    return checked_files([*deposits]) is not None


def checked_files(deposits: Sequence[Deposit]) -> list[Path | None] | None:
    """Look at all as `check_scores` does; the one file that has all scores of each deposit.

    None of a deposit whose scores are put together of several, or change as they are read; and in
    place of the list where something is not as it should be.
    """
    try:
        files: list[Path | None] = []
        parts: dict[Path, Digest] = {}
        for deposit in deposits:
            state = deposit.state()
            vouched = deposit.vouched_scores(state) if state.sealed else {}
            parts |= vouched
            whole = deposit.scores_as_stored and len(vouched) == 1
            files.append(next(iter(vouched)) if whole else None)
        fetching.ensure_here(*parts)
        checked.require(parts)
        if parts:
            check_rows(*parts)
    except (FileNotFoundError, LogitbankError, *PARQUET_ERRORS):
        return None
    return files


def ready_files(deposits: Sequence[Deposit]) -> list[Path | None]:
    """The file with the scores of options that a view has computed, of each deposit that has one.

    None of all of them where one is no table: who reads them one by one says which to compute.
    """
    if all(deposit.scores_as_stored for deposit in deposits):
        return [None] * len(deposits)
    files = in_parallel(lambda deposit: deposit.ready_options(), deposits)
    try:
        if present := [file for file in files if file is not None]:
            check_rows(*present)
    except (FileNotFoundError, LogitbankError, *PARQUET_ERRORS):
        return [None] * len(deposits)
    return files
