"""Scores of many deposits as one frame: files of sealed ones are read by one scan.

A scan of its own for each of 5,000 deposits took most of a query's time and half a gigabyte.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.sealed_scores import File, checked_files
from logitbank.store.format.parquet import PARQUET_ERRORS
from logitbank.store.format.schema import SCORES_SCHEMA
from logitbank.store.tables.lazily import lazily

DEPOSIT = "deposit"
"""The column that counts the deposits, in the order in which they were given."""
"""Of a cluster, for one frame: a deposit each, or several where there are more."""
COMPUTED = 4
"""Deposits of a filtered bank whose scores are computed at once."""
_COLUMNS = "ARROW:schema"
"""Where a file's metadata has the names and types of its columns."""


def option_scores(deposits: Sequence[Deposit]) -> pl.LazyFrame:
    """Committed scores of options: columns of `scores_schema` and `DEPOSIT`, in no fixed order.

    Parameters
    ----------
    deposits
        At least one, all of a bank or all of a filtered one.

    Raises
    ------
    DamagedError
        Bytes of one are not what was committed.
    """
    schema, sealed = deposits[0].scores_schema, checked_files(deposits, hold=True)
    checked = sealed is not None
    files = _alike(sealed or [None] * len(deposits), schema)
    frames = [
        deposit.option_scores(checked=checked)
        .select(SCORES_SCHEMA.names())
        .with_columns(pl.lit(at, pl.UInt32).alias(DEPOSIT))
        for at, (deposit, file) in enumerate(zip(deposits, files, strict=True))
        if file is None
    ]
    if not deposits[0].scores_as_stored:
        frames = [_in_turn(frames[at::COMPUTED]) for at in range(min(COMPUTED, len(frames)))]
    if any(file is not None for file in files):
        frames.append(_together(files, schema))
    return pl.concat(frames)


def _in_turn(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """The same rows, one frame after the other.

    Polars reads those that it has as several all at once. Of 20 filtered banks the memory
    was 0.6 GB more; a lock around each would wait for itself, as whoever holds it may be given the
    next one to read.
    """

    def read(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        for frame in frames:
            part = frame if predicate is None else frame.filter(predicate)
            yield part.select(columns).collect()

    return lazily(frames[0].collect_schema(), read)


def _together(files: Sequence[File | None], schema: pl.Schema) -> pl.LazyFrame:
    """Scores of options in the files that there are, each with its place among all."""
    present = [(at, file) for at, file in enumerate(files) if file is not None]
    held = [file.data for _, file in present if file.data is not None]
    if len(held) == len(present):  # bytes have no name: what tells them apart is how many rows came
        places, rows = zip(*((at, file.rows) for at, file in present), strict=True)
        of_row = pl.Series(np.repeat(np.array(places, np.uint32), rows))
        frame = _scan(held, schema, row=DEPOSIT)
        deposit = pl.lit(of_row).gather(DEPOSIT)
    else:
        # Every deposit has a name, so that the number of a file's is the number of its deposit.
        names = [f"{at}" if file is None else str(file.path) for at, file in enumerate(files)]
        frame = _scan([file.path for _, file in present], schema, file=DEPOSIT)
        deposit = pl.col(DEPOSIT).cast(pl.Enum(names)).to_physical().cast(pl.UInt32)
    options = frame.filter(pl.col("kind") == "option")
    return options.select(*SCORES_SCHEMA.names(), deposit.alias(DEPOSIT))


def _alike(files: Sequence[File | None], schema: pl.Schema) -> list[File | None]:
    """Those that have the columns of scores in their types, as other writers' may not.

    Of files that say the same of their columns one is looked at, in its footer: a third of the
    time that all of them take.
    """
    columns = [None if file is None else _columns(file) for file in files]
    examples = {said: file for said, file in zip(columns, files, strict=True) if said is not None}
    as_ours = {said for said, file in examples.items() if file and _is_as_ours(file, schema)}
    return [file if said in as_ours else None for said, file in zip(columns, files, strict=True)]


def _columns(file: File) -> str | None:
    """What a file says of its columns; None of one that is no table."""
    try:
        return pl.read_parquet_metadata(*_source(file)).get(_COLUMNS, str(file.path))
    except PARQUET_ERRORS:
        return None


def _source(file: File) -> list[Path] | list[bytes]:
    return [file.path] if file.data is None else [file.data]


def _is_as_ours(file: File, schema: pl.Schema) -> bool:
    try:
        _scan(_source(file), schema).filter(
            pl.col("query") < 0
        ).collect()  # no query is, so no row is read
    except PARQUET_ERRORS:
        return False
    return True


def _scan(
    sources: list[Path] | list[bytes],
    schema: pl.Schema,
    *,
    file: str | None = None,
    row: str | None = None,
) -> pl.LazyFrame:
    return pl.scan_parquet(
        sources,
        glob=False,
        schema=schema,
        extra_columns="ignore",
        include_file_paths=file,
        row_index_name=row,
        use_statistics=row is None,  # of held files: a fifth of the time, and nothing to leave out
        # Columns that a filter needs first, and the others then, took twice the time of 5,000 small
        # files, and as much of 154 large ones.
        parallel="row_groups",
    )
