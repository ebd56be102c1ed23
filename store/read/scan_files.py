"""Scores of options of many deposits as one frame: one scan reads the files of sealed deposits.

One scan for each of 5,000 deposits took most of a query's time and half a gigabyte.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.errors import LogitbankError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT, committed_parts
from logitbank.store.files import verified
from logitbank.store.files.objects import Digest
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.format.schema import SCORES_SCHEMA


def option_scores(deposits: Sequence[Deposit]) -> pl.LazyFrame:
    """Committed scores of options: columns of `SCORES_SCHEMA` and `DEPOSIT`, in no fixed order.

    `deposits` are at least one. Raises DamagedError if a score file is missing or damaged.
    """
    files = _sealed_files(deposits)
    frames = [
        deposit.option_scores()
        .select(SCORES_SCHEMA.names())
        .with_columns(pl.lit(at, pl.UInt32).alias(DEPOSIT))
        for at, (deposit, file) in enumerate(zip(deposits, files, strict=True))
        if file is None
    ]
    if paths := [file for file in files if file is not None]:
        # Each deposit gets a name, also one without a file. A name's physical value in the Enum is
        # then the index of its deposit.
        names = [f"{at}" if file is None else str(file) for at, file in enumerate(files)]
        index = pl.col(DEPOSIT).cast(pl.Enum(names)).to_physical().cast(pl.UInt32)
        options = _scan(paths, include_file_paths=DEPOSIT).filter(pl.col("kind") == "option")
        frames.append(options.select(*SCORES_SCHEMA.names(), index.alias(DEPOSIT)))
    return pl.concat(frames)


def _sealed_files(deposits: Sequence[Deposit]) -> list[Path | None]:
    """The verified file with all scores of each deposit; None if its scores are in several files.

    All are None if a file is damaged, or if another program wrote it with other types. Each deposit
    then has a scan of its own, which casts the types and reports the damage.
    """
    parts: list[dict[Path, Digest]] = []
    try:
        for deposit in deposits:
            state = deposit.state()
            sealed = state.sealed
            part = committed_parts(deposit.path, state, name=str(deposit)) if sealed else {}
            parts.append(part if len(part) == 1 else {})
        if expected := {path: digest for part in parts for path, digest in part.items()}:
            verified.require(expected)
            check_rows(*expected)
            _scan([*expected]).filter(pl.col("query") < 0).collect()  # reads types, and no row
    except (FileNotFoundError, LogitbankError, *PARQUET_ERRORS):
        return [None] * len(deposits)
    return [next(iter(part), None) for part in parts]


def _scan(paths: list[Path], *, include_file_paths: str | None = None) -> pl.LazyFrame:
    # Polars reads the columns of a filter first, and the others afterwards, by default: that took
    # twice the time of 5,000 small files, and as much of 154 large ones.
    return pl.scan_parquet(
        paths,
        glob=False,
        schema=SCORES_SCHEMA,
        extra_columns="ignore",
        include_file_paths=include_file_paths,
        parallel="row_groups",
    )
