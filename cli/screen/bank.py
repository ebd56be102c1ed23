"""Output of `info`, `describe` and `verify` about a bank."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from logitbank.cli.output import print_frame, print_lines, say
from logitbank.errors import UsageError
from logitbank.store.format.about import about_fields, bank_sources
from logitbank.store.read.copied_weights import copied_weights
from logitbank.store.read.provenance import (
    bank_digest,
    last_step,
    name_releases,
    provenance_table,
)
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.store import Bank, Damage, Repaired

_MOST_FIELDS = 16
"""Fields of the provenance that are printed; others are named."""
_FIRST_FIELDS = [
    *("source.repo", "source.revision", "source.path", "weights", "tokenizer", "config"),
    *("engine", "engine_version", "torch_version", "logitbank_version", "device", "compute_dtype"),
    *("head_dtype", "canary_difference", "host", "time"),
]
"""Fields that identify what was run come first."""
_MOST_VALUES = 4
"""Values of a provenance field that are printed; for more values, only their number."""


def print_bank(bank: "Bank", form: str, *, checkpoints: bool) -> None:
    """Print one row per model and run, or every deposit of each checkpoint."""
    if form == "table":
        print_about(bank)
        if unset := [name for name, value in about_fields(bank.attributes).items() if not value]:
            advice = "Set them with `logitbank describe`."
            if bank.url:
                advice = "Ask its publisher before you use or cite the data."
            print_lines([f"Not stored: {', '.join(unset)}. {advice}"])
    info = bank.info()
    table = info if checkpoints else by_run(info)
    if form == "table":
        table = name_releases(table, "step", "first", "last")
    print_frame(table, form)
    for copied in copied_weights(bank.deposits()):
        say(f"Note: {copied}")
    if info.is_empty():
        say(f"{bank.path} has no checkpoints. Run `logitbank extract` to add some.")


def by_run(info: pl.DataFrame) -> pl.DataFrame:
    """The rows of `Bank.info` of each model and run together.

    `first` and `last` are steps, null for a release, which comes after all steps. `results` are the
    stored results of contexts; `missing` are those that a deposit lacks.
    """
    step = pl.col("step")
    kinds = (pl.col(name).unique().sort().str.join(", ") for name in ("keep", "dtype", "engine"))
    return info.group_by("model", "run", maintain_order=True).agg(
        step.n_unique().alias("checkpoints"), step.min().alias("first"), last_step().alias("last"),
        pl.col("committed").sum().alias("results"),
        (pl.col("queries") - pl.col("committed")).sum().alias("missing"),
        pl.col("bytes").sum(), *kinds,
    )  # fmt: skip


def print_about(bank: "Bank") -> None:
    """Title, license and citation of the bank and of the banks that were merged into it."""
    about = about_fields(bank.attributes)
    print_lines(f"{name}: {value}" for name, value in about.items() if value)
    for source in bank_sources(bank.attributes):
        texts = "; ".join(source[name] for name in about if source[name])
        print_lines([f"from: {texts} ({', '.join(source['models'])})"])


def print_provenance(bank: "Bank", form: str) -> None:
    """One line per field on a screen; one row per distinct value in other formats."""
    table = provenance_table(bank.deposits())
    if form != "table":
        print_frame(table, form)
        return
    print_about(bank)
    brief = brief_provenance(table)
    print_lines(f"{field}: {value}" for field, value in brief.head(_MOST_FIELDS).iter_rows())
    if hidden := brief[_MOST_FIELDS:, "field"].to_list():
        print_lines([f"Also: {', '.join(hidden)}.", "All values: --format csv."])


def brief_provenance(table: pl.DataFrame) -> pl.DataFrame:
    """Each field with its values over all models and runs; for many values, only their number."""
    names = pl.DataFrame({"field": _FIRST_FIELDS}).with_row_index("place")
    values = table.group_by("field", maintain_order=True).agg(
        pl.col("value").unique(maintain_order=True)
    )
    text = (
        pl.when(pl.col("value").list.len() > _MOST_VALUES)
        .then(pl.format("{} different values", pl.col("value").list.len()))
        .otherwise(pl.col("value").list.join("; "))
    )
    placed = values.join(names, on="field", how="left", maintain_order="left")
    placed = placed.sort(pl.col("place").fill_null(len(names)), maintain_order=True)
    return placed.select("field", value=text)


def print_damage(bank: "Bank", damage: "Sequence[Damage]", *, repair: bool) -> None:
    """Print each damaged object, their number, and what to do; else what is undamaged."""
    path, deposits = bank.path, bank.deposits()
    print_lines(map(str, damage))
    if damage:
        print_lines([f"{counted(len(damage), 'damaged object')} in {path}."])
        if not repair:
            _print_remedies(path, damage, repaired=False)
    else:
        print_lines([f"No damage in {path}: {counted(len(deposits), 'deposit')}."])
        if deposits:
            print_lines([f"Digest of the bank: {bank_digest(path)}"])


def print_remote(bank: "Bank", damage: "Sequence[Damage]") -> None:
    """Print what was checked of a bank at a URL, and how large a copy is that has the rest."""
    from logitbank.store.format import index

    print_lines(map(str, damage))
    listed = index.parse((bank.path / index.NAME).read_bytes(), where=bank.address)
    size = readable_bytes(sum(value.digest.bytes for value in listed.values()))
    number = counted(len(bank.deposits()), "deposit")
    if damage:
        found = counted(len(damage), "damaged object")
        print_lines([f"{found} at {bank.address}. Ask its publisher to verify and push again."])
    else:
        print_lines([f"Documents and tables of {bank.address} are sound: {number}."])
        print_lines([f"Digest of the bank: {bank_digest(bank.path)}"])
    print_lines([
        f"Scores and rows need a copy of {size}: run `logitbank pull {bank.address} FOLDER`, then"
        " `logitbank verify FOLDER`."
    ])  # fmt: skip


def print_digest(bank: "Bank", published: str) -> bool:
    """Compare the digest of a bank with a published one, and print the result."""
    if not re.fullmatch(r"[0-9a-f]{12,64}", published):
        raise UsageError(f"{published!r} is not a digest. Use its 64 hex digits, or the first 12.")
    digest = bank_digest(bank.path)
    if is_same := digest.startswith(published):
        print_lines(["This is the published bank: the digests are equal."])
    else:
        print_lines([f"This is not the published bank: its digest is {digest}, not {published}."])
    return is_same


def print_repaired(path: Path, done: "Repaired", left: "Sequence[Damage]") -> None:
    """Print what was restored or removed, and what is still damaged."""
    print_lines(f"restored: {name}" for name in done.restored)
    print_lines(f"removed: {folder}" for folder in done.removed)
    print_lines(f"To compute them again, run {command}" for command in done.commands)
    # The index of a published bank lists removed objects until extract has written them again.
    left = [each for each in left if each.path not in done.removed]
    print_lines(f"still damaged: {each.path}" for each in left)
    _print_remedies(path, left, repaired=True)


def _print_remedies(path: Path, damage: "Sequence[Damage]", *, repaired: bool) -> None:
    """One line per remedy, with the kinds of objects that it repairs."""
    kinds: dict[str, set[str]] = {}
    for each in damage:
        remedy = each.remedy_after_repair if repaired else each.remedy
        kinds.setdefault(remedy.format(bank=path), set()).add(each.check.kind)
    print_lines(f"{', '.join(sorted(names))}: {remedy}" for remedy, names in kinds.items())


def print_incomplete(bank: "Bank") -> None:
    """Print the number of incomplete deposits, if there are any."""
    if incomplete := sum(not d.complete for d in bank.deposits()):
        print_lines([
            f"{counted(incomplete, 'incomplete deposit')}."
            f" See `logitbank info --checkpoints {bank.path}`."
        ])  # fmt: skip
