"""Output of `info`, `describe` and `verify` about a bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from logitbank.cli.output import print_frame, print_lines, print_table, say
from logitbank.store.format.about import about_fields, bank_sources
from logitbank.store.read.copied_weights import copied_weights
from logitbank.store.read.provenance import provenance_table
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.store import Bank, Damage, Repaired

_MOST_VALUES = 4
"""Values of a provenance field that are printed; for more values, only their number."""


def print_bank(bank: "Bank", form: str, *, checkpoints: bool) -> None:
    """Print one row per model and run, or every deposit of each checkpoint."""
    if form == "table":
        print_about(bank)
        if unset := [name for name, value in about_fields(bank.attributes).items() if not value]:
            print_lines([f"Not stored: {', '.join(unset)}. Set them with `logitbank describe`."])
    info = bank.info()
    print_frame(info if checkpoints else by_run(info), form)
    for copied in copied_weights(bank.deposits()):
        say(f"Note: {copied}")
    if info.is_empty():
        say(f"{bank.path} has no checkpoints. Run `logitbank extract` to add some.")


def by_run(info: pl.DataFrame) -> pl.DataFrame:
    """The rows of `Bank.info` of each model and run together.

    `results` are the stored results of contexts; `missing` are those that a deposit lacks.
    """
    step = pl.col("step")
    kinds = (pl.col(name).unique().sort().str.join(", ") for name in ("keep", "dtype", "engine"))
    return info.group_by("model", "run", maintain_order=True).agg(
        step.n_unique().alias("checkpoints"), step.min().alias("first"), step.max().alias("last"),
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
    """One row per distinct value of a field."""
    table = provenance_table(bank.deposits())
    if form != "table":
        print_frame(table, form)
        return
    print_about(bank)
    table = _with_counts(table)
    print_table(table, limit=len(table))


def _with_counts(table: pl.DataFrame) -> pl.DataFrame:
    """Replace many values of a field, such as digests of weights, by their number."""
    keys = ["model", "run", "field"]
    values = pl.len().over(keys)
    counts = (
        table.filter(values > _MOST_VALUES)
        .group_by(keys, maintain_order=True)
        .agg(
            value=pl.len().cast(pl.String) + " values; --format csv prints them",
            deposits=pl.col("deposits").sum(),
            first_step=pl.col("first_step").min(),
            last_step=pl.col("last_step").max(),
        )
    )
    return pl.concat([table.filter(values <= _MOST_VALUES), counts])


def print_damage(bank: "Bank", damage: "Sequence[Damage]", *, repair: bool) -> None:
    """Print each damaged object, their number, and what to do; else what is undamaged."""
    from logitbank.store.read.provenance import bank_digest

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
