"""Plan a merge: compare everything, and list what each source adds, before anything is copied."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.bank import Bank
from logitbank.store.care.metadata import check_metadata
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import VERIFY, read_scores
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits
from logitbank.store.format.attributes import compared, states_of, unlike
from logitbank.store.format.commits import Committed
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA

_CHUNK_BYTES = 64 * 2**20


class Addition(NamedTuple):
    """What one deposit of another bank adds."""

    source: Deposit
    folder: str
    """The deposit's folder, relative to either bank."""
    blocks: tuple[int, ...]
    options: tuple[str, ...]
    """Commits of further options."""
    whole: bool
    """All of it, sealed as it is, rather than block by block."""
    objects: dict[str, Digest]
    """What is copied, by path in the deposit."""


def plan(target: Bank | None, sources: Sequence[Bank]) -> list[Addition]:
    """What each source adds to the target and to the sources before it.

    Raises
    ------
    BankError
        Two deposits differ in a field that must be equal.
    DamagedError
        A source differs from what the format and its commits say.
    """
    stored: dict[str, list[Deposit]] = {}
    siblings: dict[str, list[Deposit]] = {}  # of one checkpoint
    for folder, deposit in _deposits(target):
        stored[folder] = [deposit]
        siblings.setdefault(deposit.checkpoint.path, []).append(deposit)
    additions = []
    for bank in sources:
        bank.query_sets()  # each is read, and its content compared with its name
        for folder, deposit in _deposits(bank):
            check_metadata(deposit)
            _check_model(deposit, siblings.setdefault(deposit.checkpoint.path, []))
            siblings[deposit.checkpoint.path].append(deposit)
            before = stored.setdefault(folder, [])
            if addition := _addition(before, deposit, folder):
                additions.append(addition)
            before.append(deposit)
    return additions


def _deposits(bank: Bank | None) -> Iterator[tuple[str, Deposit]]:
    for deposit in [] if bank is None else bank.deposits():
        yield f"{deposit.checkpoint.path}/{deposit.query_set}", deposit


def _check_model(deposit: Deposit, siblings: Sequence[Deposit]) -> None:
    """One checkpoint has one config and one set of weights in all its deposits."""
    for other in siblings:
        different = unlike(other.spec.provenance, deposit.spec.provenance)
        if different is not None:
            name, theirs, own = different
            raise conflict(other, deposit, f"its {name} is {own}, not {theirs}")


def _addition(before: Sequence[Deposit], source: Deposit, folder: str) -> Addition | None:
    blocks = missing_blocks(before, source)
    options = _missing_options(before, source)
    if not (blocks or options):
        return None
    state = source.state()
    digests = commits.committed_digests(source.path, state)
    whole = state.sealed and bool(blocks) and _continues(before, digests)
    taken = [f"scores/{name}.parquet" for name in options]
    if whole:
        taken += ["logsumexp/c/0", "scores/all.parquet"]
    elif not state.sealed:
        taken += [f"scores/{block}.parquet" for block in blocks]
    taken += source.layout.shards(*blocks)
    if missing := [path for path in taken if path not in digests]:
        raise DamagedError(f"{source.path}: no commit names {missing[0]}; {VERIFY}")
    return Addition(source, folder, blocks, options, whole, {p: digests[p] for p in taken})


def _continues(before: Sequence[Deposit], sealed: dict[str, Digest]) -> bool:
    """Whether a seal also holds for these deposits: same attributes, same shards."""
    for deposit in before:
        if objects.digest(deposit.path / "zarr.json") != sealed.get("zarr.json"):
            return False
        state = deposit.state()
        vouched = commits.committed_digests(deposit.path, state)
        shards = {path: vouched.get(path) for path in deposit.layout.shards(*state.blocks)}
        if any(sealed.get(path) != digest for path, digest in shards.items()):
            return False
    return True


def _missing_options(before: Sequence[Deposit], source: Deposit) -> tuple[str, ...]:
    missing = []
    for name in source.state().options:
        holders = [deposit for deposit in before if name in deposit.state().options]
        if not holders:
            missing.append(name)
        elif not _same_part(holders[0], source, name):
            raise conflict(holders[0], source, f"other scores in scores/{name}.parquet")
    return tuple(missing)


def _same_part(stored: Deposit, new: Deposit, name: str) -> bool:
    theirs, ours = (commits.digests(deposit.path, name) for deposit in (stored, new))
    part = f"scores/{name}.parquet"
    if part not in theirs or part not in ours:
        raise DamagedError(f"{new}: no commit names {part}; {VERIFY}")
    if theirs[part] == ours[part]:
        return True
    first, second = (
        read_scores(objects.plain_path(deposit.path, part), digests[part])
        for deposit, digests in ((stored, theirs), (new, ours))
    )
    return first.equals(second)


def missing_blocks(stored: Sequence[Deposit], new: Deposit) -> tuple[int, ...]:
    """Committed blocks of `new` whose rows none of `stored` has.

    Rows that several have must have equal values. `stored` may list more scores than `new`.

    Raises
    ------
    BankError
        Two deposits differ, or the further rows of `new` cannot be added. Names both.
    DamagedError
        A committed object is missing.
    """
    if not stored:
        return tuple(sorted(new.committed()))
    owner = stored[0]
    for name, here in compared(new.spec).items():
        if (theirs := compared(owner.spec)[name]) != here:
            raise conflict(owner, new, f"its {name} is {here}, not {theirs}")
    arrays = owner.layout.keep.array, new.layout.keep.array
    if None not in arrays and arrays[0] != arrays[1]:
        raise conflict(
            owner,
            new,
            f"it keeps {new.layout.keep}, not {owner.layout.keep}; run `logitbank shrink"
            " --keep full` on the bank of states first",
        )
    if arrays[0] == arrays[1] == "hidden" and states_of(owner.spec) != states_of(new.spec):
        states = f"{states_of(new.spec)}, not of {states_of(owner.spec)}"
        raise conflict(owner, new, f"its states are of {states}")
    if not owner.layout.keep.covers(new.layout.keep):
        raise conflict(
            owner,
            new,
            f"it keeps {new.layout.keep}, which is more than {owner.layout.keep}; name the bank"
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
            raise conflict(owner, new, f"its {name} is {wanted}, not {was}; it has further rows")
    return tuple(b for b in sorted(new.committed()) if not have[new.layout.rows(b).start])


def conflict(stored: Deposit, new: Deposit, what: str) -> BankError:
    return BankError(
        f"{new.path} cannot be joined with {stored.path} ({new}): {what}. Nothing was copied."
        " Run `logitbank compare` to see how they differ"
    )


def committed_scores(deposit: Deposit, state: Committed, rows: np.ndarray) -> pl.DataFrame:
    """Scores of committed rows (sorted) without those of options that were named later."""
    blocks = np.unique(rows // deposit.layout.block_rows).tolist()
    restricted = replace(
        state, blocks=state.blocks if state.sealed else frozenset(blocks), options=()
    )
    try:
        parts = deposit.committed_scores(restricted)
        scores = pl.concat([read_scores(part, digest) for part, digest in parts.items()])
    except FileNotFoundError as error:
        raise DamagedError(
            f"{deposit}: a committed object is missing ({error}); {VERIFY}"
        ) from error
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
            theirs, ours = (d.row_reader.read(rows) for d in (stored, new))
            if not np.array_equal(theirs, ours):
                what = f"other {new.layout.keep.array} in rows {rows[0]}–{rows[-1]}"
                raise conflict(stored, new, what)


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
    """Compare exact scores: `stored` must have each one of `new`, and may have more."""
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
            f"it has {len(absent):,} further scores, the first of query {query}, token {token};"
            " name the bank with more scores first",
        )
