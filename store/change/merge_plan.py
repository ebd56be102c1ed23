"""Plan a merge: compare everything, and list what each source adds, before anything is copied."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.bank import Bank
from logitbank.store.care.metadata import check_commit, check_metadata
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import committed_parts, read_scores
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits
from logitbank.store.format.attributes import ARRAY, DIGESTS, compared, describe_states, unlike
from logitbank.store.format.commits import Committed
from logitbank.store.format.index import Objects
from logitbank.store.format.schema import SCORES_SCHEMA, Json
from logitbank.store.share.selection import deposit_objects


class Addition(NamedTuple):
    """What one deposit of another bank adds."""

    source: Deposit
    folder: str
    """The deposit's folder, relative to either bank."""
    objects: Objects
    """Commits and their objects, by path in either bank."""
    unfinished: Deposit | None
    """A part of the deposit in the target, which the whole one replaces."""

    @property
    def bytes(self) -> int:
        return sum(value.digest.bytes for value in self.objects.values())


def plan(target: Bank | None, sources: Sequence[Bank]) -> list[Addition]:
    """What whole deposits of each source add to the target and to the sources before it.

    Raises
    ------
    BankError
        Two deposits differ in a field that must be equal.
    DamagedError
        A source differs from the format or from its commits.
    """
    stored: dict[str, list[Deposit]] = {}
    unfinished: dict[str, Deposit] = {}
    siblings: dict[str, list[Deposit]] = {}  # of one checkpoint
    for folder, deposit in _deposits(target):
        siblings.setdefault(deposit.checkpoint.path, []).append(deposit)
        if deposit.sealed:
            stored[folder] = [deposit]
        elif deposit.committed():
            unfinished[folder] = deposit
    additions = []
    for bank in sources:
        for folder, deposit in _deposits(bank):
            if not deposit.sealed:
                continue
            check_metadata(deposit)
            _check_weights(deposit, siblings.setdefault(deposit.checkpoint.path, []))
            siblings[deposit.checkpoint.path].append(deposit)
            before = stored.setdefault(folder, [])
            part = unfinished.pop(folder, None)
            for other in (*before, *([part] if part else [])):
                _check_same_layout(other, deposit)
                _check_equal(other, deposit)
            if addition := _addition(before, part, deposit):
                additions.append(addition)
            before.append(deposit)
    return additions


def _deposits(bank: Bank | None) -> Iterator[tuple[str, Deposit]]:
    for deposit in [] if bank is None else bank.deposits():
        yield f"{deposit.checkpoint.path}/{deposit.query_set}", deposit


def _check_weights(deposit: Deposit, siblings: Sequence[Deposit]) -> None:
    """One checkpoint has one config and one set of weights in all its deposits."""
    for other in siblings:
        if different := unlike(other.spec.provenance, deposit.spec.provenance):
            raise _conflict(other, deposit, f"{different[0]} differ")


def _addition(
    before: Sequence[Deposit], unfinished: Deposit | None, source: Deposit
) -> Addition | None:
    state, folder = source.state(), commits.relative_folder(source.path)
    holders = {name: deposit for deposit in before for name in deposit.state().options}
    options = tuple(name for name in state.options if name not in holders)
    for name in state.options:
        if name in holders:
            _check_options(holders[name], source, name)
    if before and not options:
        return None
    for name in state.names:
        check_commit(source, name)
    objects = deposit_objects(source, Committed(not before, frozenset(), options))
    if before:
        del objects[f"{folder}/zarr.json"]
    return Addition(source, folder, objects, unfinished)


def _check_same_layout(stored: Deposit, new: Deposit) -> None:
    """Refuse deposits whose weights, settings or layout differ, with a BankError."""
    theirs, ours = (_compared(deposit) for deposit in (stored, new))
    for name, value in ours.items():
        if theirs[name] == value:
            continue
        if name in (*DIGESTS, ARRAY):
            raise _conflict(stored, new, f"{name} differ")
        advice = " Run `logitbank shrink` on the larger bank first." if name == "keep" else ""
        raise _conflict(stored, new, f"{name} is {value}, not {theirs[name]}", advice)


def _compared(deposit: Deposit) -> dict[str, Json]:
    layout = deposit.layout
    states = describe_states(deposit.spec) if layout.keep.array == "hidden" else None
    fields = compared(deposit.spec)
    return fields | {"keep": str(layout.keep), "block_rows": layout.block_rows, "states": states}


def _conflict(stored: Deposit, new: Deposit, difference: str, advice: str = "") -> BankError:
    """The error of two deposits that cannot be merged."""
    advice = advice or " Run `logitbank compare` to see how they differ."
    return BankError(
        f"Cannot merge {new}: {difference} ({new.path} and {stored.path}). Nothing was"
        f" copied.{advice}"
    )


def _committed_scores(deposit: Deposit, state: Committed, rows: np.ndarray) -> pl.DataFrame:
    """Scores of committed rows, without those of options that were scored later."""
    blocks = frozenset(np.unique(rows // deposit.layout.block_rows).tolist())
    part = replace(state, blocks=state.blocks if state.sealed else blocks, options=())
    scores = _read(deposit, committed_parts(deposit.path, part, name=str(deposit)))
    return scores.filter(pl.col("query").is_in(pl.Series(rows, dtype=pl.Int32).implode()))


def _read(deposit: Deposit, files: Mapping[Path, Digest]) -> pl.DataFrame:
    try:
        return pl.concat([read_scores(file, digest) for file, digest in files.items()])
    except FileNotFoundError as error:
        raise DamagedError(
            f"{deposit}: {error.filename} is missing. Run `logitbank verify`."
        ) from error


def _check_options(stored: Deposit, new: Deposit, name: str) -> None:
    """Require equal scores of options that were scored later in both deposits."""
    part = Committed(sealed=False, blocks=frozenset(), options=(name,))
    theirs, ours = (
        committed_parts(deposit.path, part, name=str(deposit)) for deposit in (stored, new)
    )
    if list(theirs.values()) != list(ours.values()) and not _read(stored, theirs).equals(
        _read(new, ours)
    ):
        raise _conflict(stored, new, f"scores/{name}.parquet differ")


def _check_equal(stored: Deposit, new: Deposit) -> None:
    """Require equal values in all blocks that a stored deposit has; `new` is whole."""
    states, blocks = (stored.state(), new.state()), sorted(stored.committed())
    theirs, ours = (
        commits.committed_digests(deposit.path, state)
        for deposit, state in zip((stored, new), states, strict=True)
    )

    def same(paths: Sequence[str]) -> bool:
        return all(path in ours and theirs.get(path) == ours[path] for path in paths)

    if not same(states[1].score_parts):
        _check_scores(stored, new, states, blocks)
    for block in blocks:
        if same(new.layout.shards(block)):
            continue
        rows = np.array(new.layout.rows(block))
        if not np.array_equal(stored.stored_rows(rows), new.stored_rows(rows)):
            rows_named = f"rows {rows[0]}–{rows[-1]}"
            raise _conflict(stored, new, f"{new.layout.keep.array} of {rows_named} differ")


def _check_scores(
    stored: Deposit, new: Deposit, states: tuple[Committed, Committed], blocks: Sequence[int]
) -> None:
    """Require that `stored` has each score of `new`. It may have more."""
    rows = np.concatenate([new.layout.rows(block) for block in blocks])
    theirs, ours = (
        _committed_scores(deposit, state, rows)
        for deposit, state in zip((stored, new), states, strict=True)
    )
    different = ours.join(theirs, on=list(SCORES_SCHEMA), how="anti")
    if stored.layout.keep.has_full_rows:  # the others can be read from its rows
        different = different.filter("exact")
    if not different.is_empty():
        query, token = different.select("query", "token").row(0)
        first = f"the first of query {query}, token {token}"
        raise _conflict(stored, new, f"{len(different):,} scores differ, {first}")
