"""Whether two deposits of one checkpoint and query set can be one, and what the second adds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import VERIFY, read_scores
from logitbank.store.format import commits
from logitbank.store.format.attributes import compared, states_of
from logitbank.store.format.commits import Committed
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA

_CHUNK_BYTES = 64 * 2**20


def missing_blocks(stored: Sequence[Deposit], new: Deposit) -> tuple[int, ...]:
    """Committed blocks of `new` whose rows none of `stored` has; what several have must be equal.

    Equal are the same bytes, or else the same values. What `stored` lists beyond `new` is fine.

    Raises
    ------
    BankError
        They differ, or the rest of `new` cannot be added; names the deposit and what differs.
    DamagedError
        What was committed is not there.
    """
    if not stored:
        return tuple(sorted(new.committed()))
    owner = stored[0]
    for name, here in compared(new.spec).items():
        if (theirs := compared(owner.spec)[name]) != here:
            raise conflict(owner, new, f"{name} is {theirs} in the latter and {here} in the former")
    arrays = owner.layout.keep.array, new.layout.keep.array
    if None not in arrays and arrays[0] != arrays[1]:
        raise conflict(
            owner,
            new,
            f"the latter keeps {owner.layout.keep} and the former {new.layout.keep}; make full rows"
            " of the states with `logitbank shrink --keep full` first",
        )
    if arrays[0] == arrays[1] == "hidden" and states_of(owner.spec) != states_of(new.spec):
        states = f"{states_of(owner.spec)}, in the latter and {states_of(new.spec)}, in the former"
        raise conflict(owner, new, f"states are of {states}")
    if not owner.layout.keep.covers(new.layout.keep):
        raise conflict(
            owner,
            new,
            f"the latter keeps {owner.layout.keep} and the former {new.layout.keep}; name the bank"
            " that keeps more first",
        )
    have = np.zeros(new.layout.queries, bool)
    committed = new.committed_rows()
    for deposit in stored:
        common = deposit.claimed_rows() & committed & ~have
        if common.any():
            _check_equal(deposit, new, common)
        have |= common
    if not (committed & ~have).any():
        return ()
    for name in ("keep", "block_rows"):
        was, wanted = getattr(owner.layout, name), getattr(new.layout, name)
        if was != wanted:
            raise conflict(
                owner,
                new,
                f"{name} is {was} in the latter and {wanted} in the former, which has further rows",
            )
    return tuple(b for b in sorted(new.committed()) if not have[new.layout.rows(b).start])


def conflict(stored: Deposit, new: Deposit, what: str) -> BankError:
    return BankError(
        f"{new.path} cannot be joined with {stored.path} ({new}): {what}. Nothing was copied;"
        " `logitbank compare` says how they differ"
    )


def committed_scores(deposit: Deposit, state: Committed, rows: np.ndarray) -> pl.DataFrame:
    """Scores of committed rows (sorted) as they were deposited, without parts of later options."""
    blocks = np.unique(rows // deposit.layout.block_rows).tolist()
    restricted = replace(
        state, blocks=state.blocks if state.sealed else frozenset(blocks), options=()
    )
    try:
        parts = deposit.committed_scores(restricted)
        scores = pl.concat([read_scores(part, digest) for part, digest in parts.items()])
    except FileNotFoundError as error:
        raise DamagedError(f"{deposit}: a committed object is gone ({error}); {VERIFY}") from error
    return scores.filter(pl.col("query").is_in(pl.Series(rows, dtype=pl.Int32).implode()))


def _check_equal(stored: Deposit, new: Deposit, common: np.ndarray) -> None:
    states = stored.state(), new.state()
    digests = (
        commits.committed_digests(stored.path, states[0]),
        commits.committed_digests(new.path, states[1]),
    )
    same = {p for p, digest in digests[1].items() if digests[0].get(p) == digest}
    aligned = stored.layout == new.layout
    every = same.issuperset(states[1].score_parts) and states[0].sealed == states[1].sealed
    if not (aligned and every):
        _check_scores(stored, new, states, np.flatnonzero(common))
    if stored.layout.keep.whole_rows and new.layout.keep.whole_rows:
        for rows in _chunks(new, common):
            block = int(rows[0]) // new.layout.block_rows
            if aligned and same.issuperset(new.layout.shards(block)):
                continue
            for array in new.layout.grids:
                theirs, ours = (d.row_reader.read(rows, array=array) for d in (stored, new))
                if not np.array_equal(theirs, ours):
                    raise conflict(stored, new, f"other {array} in rows {rows[0]}–{rows[-1]}")


def _chunks(deposit: Deposit, common: np.ndarray) -> Iterator[np.ndarray]:
    """The rows in common, block after block, in pieces that fit memory."""
    layout = deposit.layout
    size = max(1, _CHUNK_BYTES // layout.array_bytes)
    for block in sorted(deposit.committed()):
        span = layout.rows(block)
        rows = span.start + np.flatnonzero(common[span.start : span.stop])
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


def _check_scores(
    stored: Deposit, new: Deposit, states: tuple[Committed, Committed], rows: np.ndarray
) -> None:
    """Every exact score of `new` is one of `stored`, who may list more."""
    theirs, ours = (
        committed_scores(d, s, rows) for d, s in zip((stored, new), states, strict=True)
    )
    unknown = ours.join(theirs, on=list(SCORES_SCHEMA), how="anti")
    listed = unknown.join(theirs, on=SCORE_KEY, how="semi").filter("exact")
    if not listed.is_empty():
        query, token = listed.select("query", "token").row(0)
        raise conflict(
            stored, new, f"{len(listed):,} other scores, the first of query {query}, token {token}"
        )
    absent = unknown.join(theirs, on=SCORE_KEY, how="anti")
    if stored.layout.keep.whole_rows:  # the rest can be read from its rows
        absent = absent.filter(pl.col("exact") & (pl.col("kind") == "option"))
    if not absent.is_empty():
        query, token = absent.select("query", "token").row(0)
        raise conflict(
            stored,
            new,
            f"the former has {len(absent):,} scores that the latter lacks, first query {query},"
            f" token {token}; name the bank with more scores first",
        )
