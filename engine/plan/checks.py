"""Refuse an extraction that cannot work, before anything is run."""

import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.engine.plan.levels import level_sizes
from logitbank.engine.plan.plan import Plan
from logitbank.engine.suites.suites import Checkpoint
from logitbank.errors import (
    DiskSpaceError,
    KeepLevelError,
    SuiteError,
    UsageError,
)
from logitbank.store import Bank, Deposit
from logitbank.store.files.disk import existing
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId
from logitbank.store.tables.prompt_tables import option_tokens
from logitbank.wording import readable_bytes


def check_options(
    bank: Bank,
    present: Mapping[CheckpointId, Sequence[Deposit]],
    tables: Sequence[tuple[str, pl.DataFrame]],
) -> None:
    """Refuse new options of stored queries whose full rows were not kept."""
    without_rows: dict[str, Deposit] = {}
    for deposit in chain.from_iterable(present.values()):
        if not deposit.layout.keep.has_full_rows and deposit.committed():
            without_rows.setdefault(deposit.query_set, deposit)
    if not without_rows:
        return
    named = [table.select("query_set", "row", "token", "option") for _, table in tables]
    requested = pl.concat(named).drop_nulls().unique(["query_set", "row", "token"])
    for name, deposit in without_rows.items():
        known = option_tokens(bank.path, name)
        rows = np.repeat(np.arange(len(known.offsets) - 1), np.diff(known.offsets))
        stored = pl.DataFrame({"row": rows.astype(np.int32), "token": known.tokens})
        part = requested.filter(query_set=name).join(stored, on=["row", "token"], how="anti")
        for option in part["option"].head(1):
            raise KeepLevelError(
                f"Option {option!r} is new, but {deposit.checkpoint} keeps {deposit.layout.keep}"
                " and no full rows to read it from. Extract into a new bank."
            )


def check_source(deposit: Deposit, checkpoint: Checkpoint) -> None:
    """Refuse a deposit of another model with the same name."""
    stored = deposit.spec.provenance.get("source")
    described = checkpoint.source.describe()
    if not isinstance(stored, dict):
        return
    for key in ("repo", "sample"):
        if key in stored and key in described and stored[key] != described[key]:
            raise SuiteError(
                f"The bank has {checkpoint.id} from another source ({key} {stored[key]}, not"
                f" {described[key]}). Store this suite under another name with --model."
            )


def same_model(bank: Bank, checkpoint: Checkpoint) -> str:
    """The model under whose name the bank has this run, step and source; empty if none."""
    place, source = (checkpoint.id.run, checkpoint.id.step), checkpoint.source.describe()
    same = (
        deposit.checkpoint.model
        for deposit in bank.deposits()
        if (deposit.checkpoint.run, deposit.checkpoint.step) == place
        and deposit.spec.provenance.get("source") == source
    )
    return next(same, "")


def check_stored(deposit: Deposit, planned: Layout, compute_dtype: str) -> None:
    """Refuse to continue a deposit with another keep level or dtype than requested."""
    stored = deposit.layout
    if not stored.keep.covers(planned.keep):
        raise KeepLevelError(
            f"{deposit.checkpoint} is in the bank at keep level {stored.keep}, which does not"
            f" include {planned.keep}. Use --keep {stored.keep}, or a new bank."
        )
    if stored.keep.array != planned.keep.array and planned.keep.array is not None:
        raise KeepLevelError(
            f"{deposit.checkpoint} is in the bank at keep level {stored.keep}, not"
            f" {planned.keep}. A deposit has one kind of rows. Use --keep {stored.keep}, or a new"
            " bank."
        )
    computed = deposit.spec.provenance.get("compute_dtype", compute_dtype)
    for option, value, requested in (
        ("dtype", stored.dtype, planned.dtype),
        ("compute-dtype", computed, compute_dtype),
    ):
        if value != requested:
            raise UsageError(
                f"{deposit.checkpoint} is in the bank with --{option} {value}, not {requested}."
                f" Use --{option} {value}, or a new bank."
            )


def check_engine(deposit: Deposit, engine: str) -> None:
    """Refuse to continue a deposit with another engine, whose last digits differ."""
    stored = deposit.spec.provenance.get("engine", engine)
    if stored != engine:
        raise UsageError(
            f"{deposit.checkpoint} was begun with --engine {stored}, not {engine}. Use --engine"
            f" {stored}, or a new bank."
        )


def check_space(path: Path, plan: Plan, *, downloads: int = 0) -> None:
    """Refuse a plan larger than the free disk, and name the keep levels that fit.

    `downloads` is the size of downloaded checkpoints on the same disk, in bytes.
    """
    parent = existing(path)
    disk, needed = shutil.disk_usage(parent).free, plan.bytes
    free = max(0, disk - downloads)
    if needed <= free:
        return
    layout = plan.deposits[0].layout
    reserved = ""
    if downloads:
        reserved = (
            f", of which {readable_bytes(downloads)} are for checkpoints to download (limit them "
            "with --disk-budget)"
        )
    fits = [str(size) for size in level_sizes(plan.deposits) if size.bytes <= free]
    raise DiskSpaceError(
        f"The plan needs {readable_bytes(needed)} ({plan.rows:,} results at keep level "
        f"{layout.keep}, {layout.dtype}), but {parent} has {readable_bytes(disk)} free{reserved}."
        f" Choose fewer --steps{''.join(f', or {fit}' for fit in fits)}."
    )
