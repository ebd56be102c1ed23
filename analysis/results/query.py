"""SQL over a bank, and its result in a file."""

from pathlib import Path

import polars as pl

from logitbank.analysis.results.csv_text import without_formulas
from logitbank.analysis.results.files import require_outside
from logitbank.errors import UsageError
from logitbank.store import Bank, open_bank
from logitbank.store.read.sql import query_errors
from logitbank.whole_files import whole_file

_SINKS = {
    ".csv": "sink_csv",
    ".parquet": "sink_parquet",
    ".jsonl": "sink_ndjson",
}


def query(
    bank: str | Path | Bank,
    sql: str,
    *,
    out: str | Path | None = None,
) -> pl.LazyFrame:
    """Query a bank in SQL, as `Bank.sql` does, and write the result to `out` if given.

    Parameters
    ----------
    sql
        A SELECT over checkpoints, prompts, options and scores.
    out
        New file for the result, which need not fit in memory: .csv, .parquet or .jsonl.

    Returns
    -------
    pl.LazyFrame
        The result, which is computed when it is collected.

    Raises
    ------
    UsageError
        The file is there already, its folder is not, or its ending is none of these.
    LogitbankError
        What `Bank.sql` refuses.
    """
    result = open_bank(bank).sql(sql)
    if out is not None:
        write(result, Path(out))
    return result


def write(result: pl.LazyFrame, out: Path) -> None:
    """Write rows to a new file in batches; the suffix selects the format.

    Raises
    ------
    UsageError
        The file is there already, its folder is not, or its ending is unknown.
    """
    if (sink := _SINKS.get(out.suffix.lower())) is None:
        raise UsageError(
            f"{out} ends in none of {', '.join(_SINKS)}; name the format by the ending"
        )
    if out.exists():
        raise UsageError(f"{out} is there already; choose another name or remove it")
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be written: there is no folder {out.parent}; make it first")
    if sink == "sink_csv":
        result = without_formulas(result)
    require_outside(out)
    with whole_file(out) as part, query_errors():
        getattr(result, sink)(part)
