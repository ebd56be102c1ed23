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
from logitbank.store.format.parquet import PARQUET_ERRORS, check_size
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA
from logitbank.wording import VERIFY

DEPOSIT = "deposit"
"""Column with the number of a score's deposit, in frames of several deposits."""


def committed_parts(deposit: Path, state: Committed, *, name: str) -> dict[Path, Digest]:
    """Score files of a deposit with their committed digests.

    Raises FileNotFoundError if a seal has just replaced a commit, and DamagedError if a commit is
    damaged or does not list a file; the message calls the deposit `name`.
    """
    digests = commits.committed_digests(deposit, state)
    try:
        return {objects.plain_path(deposit, p): digests[p] for p in state.score_parts}
    except KeyError as error:
        raise DamagedError(f"{name}: no commit names {error.args[0]}; {VERIFY}") from error


def scan_parts(parts: Mapping[Path, Digest], state: Committed) -> pl.LazyFrame:
    """All score files of a deposit as one frame.

    Raises FileNotFoundError if a seal has just removed a file, and DamagedError if a file is
    damaged.
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
    """A score file that is read later; its footer is read now. Raises as `read_scores`.

    Other writers may have written `kind` as text.
    """
    frame = pl.scan_parquet(part, glob=False)
    try:
        check_size(part)
        schema = frame.collect_schema()
        if SCORES_SCHEMA.items() <= schema.items():
            return frame if schema == SCORES_SCHEMA else frame.select(SCORES_SCHEMA.names())
        cast = frame.select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
        cast.collect_schema()
    except PARQUET_ERRORS as error:
        raise DamagedError(f"{part} is not a table of scores ({error}); {VERIFY}") from error
    return cast


def read_scores(part: Path, expected: Digest) -> pl.DataFrame:
    """A score file, read now.

    Raises FileNotFoundError, or DamagedError if it is damaged or not a table of scores.
    """
    verified.require({part: expected})
    try:
        check_size(part)
        return pl.read_parquet(part, columns=SCORES_SCHEMA.names(), glob=False).select(
            pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items()
        )
    except PARQUET_ERRORS as error:
        raise DamagedError(f"{part} is not a table of scores ({error}); {VERIFY}") from error


def query_logsumexp(scores: pl.LazyFrame) -> tuple[np.ndarray, np.ndarray]:
    """The queries (n,) of scores, ascending, and the log-sum-exp (n,) float64 of each."""
    frame = scores.select("query", "logsumexp").unique("query").sort("query").collect()
    return frame["query"].to_numpy(), frame["logsumexp"].to_numpy()


def one_per_token(scores: pl.LazyFrame) -> pl.LazyFrame:
    """One row per token: the exact one if it is in several files."""
    return scores.sort("exact", descending=True, maintain_order=True).unique(
        SCORE_KEY, keep="first", maintain_order=True
    )
