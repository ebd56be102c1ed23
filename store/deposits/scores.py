"""Score files of one deposit: verified against their commits, then scanned or read."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits
from logitbank.store.format.commits import Committed
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA

DEPOSIT = "deposit"
"""Column with the index of a score's deposit, where scores of several deposits are one frame."""
VERIFY = "run `logitbank verify`"


def committed_parts(deposit: Path, state: Committed, *, name: str) -> dict[Path, Digest]:
    """The files with a deposit's scores, with the digests that they were committed with.

    Raises FileNotFoundError: a seal has just replaced a commit.
    Raises DamagedError: a commit is damaged, or does not name its part; the deposit is called
    `name`.
    """
    vouched = commits.committed_digests(deposit, state)
    try:
        return {objects.plain_path(deposit, p): vouched[p] for p in state.score_parts}
    except KeyError as error:
        raise DamagedError(f"{name}: no commit names {error.args[0]}; {VERIFY}") from error


def scan_parts(parts: Mapping[Path, Digest], state: Committed) -> pl.LazyFrame:
    """All parts of a deposit's scores as one frame.

    Raises FileNotFoundError: a seal has just removed a part.
    Raises DamagedError: one is not what was committed, or no such table.
    """
    if not parts:
        return pl.LazyFrame(schema=SCORES_SCHEMA)
    if state.sealed:
        verified.require(parts)
        scan = pl.concat([scan_scores(part) for part in parts])
    else:  # read now: a seal may remove these parts before the frame is collected
        scan = pl.concat([read_scores(part, digest) for part, digest in parts.items()]).lazy()
    return one_per_token(scan) if state.options else scan


def scan_scores(part: Path) -> pl.LazyFrame:
    """A part as it is read later; other writers may have left `kind` a plain string.

    Its footer is read now: a file cut short lacks it. Raises as `read_scores`.
    """
    frame = pl.scan_parquet(part, glob=False)
    try:
        check_rows(part)
        schema = frame.collect_schema()
        if SCORES_SCHEMA.items() <= schema.items():
            return frame if schema == SCORES_SCHEMA else frame.select(SCORES_SCHEMA.names())
        cast = frame.select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
        cast.collect_schema()
    except PARQUET_ERRORS as error:
        raise DamagedError(f"{part} is no table of scores ({error}); {VERIFY}") from error
    return cast


def read_scores(part: Path, expected: Digest) -> pl.DataFrame:
    """A scores part, read now.

    Raises FileNotFoundError: it is not there.
    Raises DamagedError: it is not what was committed, or no such table.
    """
    verified.require({part: expected})
    try:
        check_rows(part)
        return pl.read_parquet(part, glob=False).select(
            pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items()
        )
    except PARQUET_ERRORS as error:
        raise DamagedError(f"{part} is no table of scores ({error}); {VERIFY}") from error


def logsumexp_of(scores: pl.LazyFrame) -> tuple[np.ndarray, np.ndarray]:
    """The queries (n,) that scores are of, ascending, and the log-sum-exp (n,) float64 of each."""
    frame = scores.select("query", "logsumexp").unique("query").sort("query").collect()
    return frame["query"].to_numpy(), frame["logsumexp"].to_numpy()


def one_per_token(scores: pl.LazyFrame) -> pl.LazyFrame:
    """One row for each token: of one that is in several parts, the exact row."""
    return scores.sort("exact", descending=True, maintain_order=True).unique(
        SCORE_KEY, keep="first", maintain_order=True
    )
