"""What stops an extraction before anything is run."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.plan.levels import level_sizes
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.suites.suites import Checkpoint
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import (
    DiskSpaceError,
    KeepLevelError,
    PromptError,
    SuiteError,
    UsageError,
)
from logitbank.store import Bank, Deposit
from logitbank.store.files.disk import existing
from logitbank.wording import readable_bytes


def check_options(
    bank: Bank, extraction: Extraction, tables: Sequence[tuple[str, pl.DataFrame]]
) -> None:
    """Refuse new options on stored queries whose full rows were not kept."""
    lower: dict[str, Deposit] = {}
    for checkpoint in extraction.suite.checkpoints:
        for deposit in bank.deposits(checkpoint.id):
            if not deposit.layout.keep.whole_rows and deposit.committed():
                lower.setdefault(deposit.query_set, deposit)
    if not lower:
        return
    named = [table.select("query_set", "row", "token", "option") for _, table in tables]
    requested = pl.concat(named).drop_nulls().unique(["query_set", "row", "token"])
    for name, deposit in lower.items():
        known = bank.option_tokens(name)
        part = requested.filter(query_set=name).select("row", "token", "option")
        for row, token, option in part.iter_rows():
            if token not in known.of(row):
                raise KeepLevelError(
                    f"option {option!r} is new, and {deposit.checkpoint} keeps "
                    f"{deposit.layout.keep}, not the full rows that it could be read from; "
                    "extract into a new bank"
                )


def check_source(deposit: Deposit, checkpoint: Checkpoint) -> None:
    """Refuse to take another model's deposit for this one's because their names are the same."""
    stored = deposit.spec.provenance.get("source")
    described = checkpoint.source.describe()
    if not isinstance(stored, dict):
        return
    for key in ("repo", "sample"):
        if key in stored and key in described and stored[key] != described[key]:
            raise SuiteError(
                f"the bank has {checkpoint.id} from another source ({key} {stored[key]}, not"
                f" {described[key]}); store this suite under another name with --model"
            )


def check_stored(deposit: Deposit, extraction: Extraction) -> None:
    """Refuse to go on with a deposit that is stored otherwise than asked."""
    layout, made = deposit.layout, deposit.spec.provenance
    if not layout.keep.covers(extraction.keep):
        raise KeepLevelError(
            f"{deposit.checkpoint} is in the bank at keep level {layout.keep}, less than "
            f"the {extraction.keep} asked for; use --keep {layout.keep} or a new bank"
        )
    if layout.keep.array != extraction.keep.array and extraction.keep.array is not None:
        raise KeepLevelError(
            f"{deposit.checkpoint} is in the bank at keep level {layout.keep}, not"
            f" {extraction.keep}, and one deposit has one kind of rows; use --keep {layout.keep}"
            " or a new bank"
        )
    computed = made.get("compute_dtype", extraction.settings.compute_dtype)
    for option, stored, requested in (
        ("dtype", layout.dtype, extraction.dtype),
        ("compute-dtype", computed, extraction.settings.compute_dtype),
    ):
        if stored != requested:
            raise UsageError(
                f"{deposit.checkpoint} is in the bank with --{option} {stored}, not {requested};"
                " ask for that, or extract into a new bank"
            )


def check_tokens(prompts: TokenizedPrompts, config: ModelConfig) -> None:
    """Refuse prompts over the model's limit and tokens beyond its vocabulary."""
    if config.max_length is not None:
        long = [i for i, q in enumerate(prompts.queries) if len(q.ids) > config.max_length]
        if long:
            names = prompts.table.filter(query=long[0])["prompt_id"]
            raise PromptError(
                f"prompt {names[0]!r} of {prompts.name!r} is {len(prompts.queries[long[0]].ids)} "
                f"tokens, the model takes at most {config.max_length}; queries over "
                f"it: {len(long)}. Nothing is cut: shorten or remove them"
            )
    tokens = prompts.table["token"].max()
    sequences = {id(q.ids): q.ids for q in prompts.queries}  # each position of one has the same
    beyond = max(map(max, sequences.values()))
    beyond = max(beyond, tokens if isinstance(tokens, int) else 0)
    if beyond >= config.vocab:
        raise SuiteError(
            f"the tokenizer gives id {beyond}, but the model has {config.vocab} entries; the "
            "tokenizer files are not this model's"
        )


def check_space(
    path: Path, prepared: Prepared, extraction: Extraction, *, downloads: int = 0
) -> None:
    """Refuse a plan larger than the free disk, naming the keep levels that fit.

    `downloads` is what checkpoints will take of the same disk, in bytes.
    """
    parent = existing(path)
    whole, needed = shutil.disk_usage(parent).free, prepared.plan.bytes
    free = max(0, whole - downloads)
    if needed <= free:
        return
    beside = (
        f", of which {readable_bytes(downloads)} are for checkpoints to download (--disk-budget "
        "limits them)"
        if downloads
        else ""
    )
    fits = [str(size) for size in level_sizes(prepared.plan.deposits) if size.bytes <= free]
    options = "; these fit: " + ", ".join(fits) if fits else "; no keep level fits"
    raise DiskSpaceError(
        f"the plan needs {readable_bytes(needed)} ({prepared.plan.rows:,} rows at keep level "
        f"{extraction.keep}, {extraction.dtype}) and {parent} has {readable_bytes(whole)} free"
        f"{beside}{options}. Or choose fewer --steps"
    )
