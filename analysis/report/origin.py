"""Where the numbers of a page come from: banks, what they hold, and how that was made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from logitbank.store import Bank
from logitbank.store.format.about import own_fields, sources_of
from logitbank.store.read.provenance import commits_digest


@dataclass(frozen=True, slots=True)
class Origin:
    """Banks and other tables, as the last section but one of a page tells of them."""

    title: str
    about: Mapping[str, str] = field(default_factory=dict)
    """Title, licence and so on; blank ones are left out."""
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """What there is and how it was made; the first is open."""
    opening: Sequence[str] = ()
    """How each bank is opened, as one writes it in Python."""


def origin_of(banks: Sequence[Bank], files: Sequence[pl.DataFrame]) -> Origin:
    """Of a study: all that its banks hold, and tables about what else was read."""
    names = [bank_name(bank) for bank in banks]
    several = len(banks) > 1
    about = {
        f"{name}: {key}" if several else key: text
        for name, bank in zip(names, banks, strict=True)
        for key, text in about_bank(bank).items()
    }
    tables = {
        "checkpoints": [holdings(bank.info()) for bank in banks],
        "how it was made": [bank.provenance() for bank in banks],
    }
    joined = {kind: _together(own, names) for kind, own in tables.items() if own}
    if files:
        joined["files"] = pl.concat(files, how="diagonal_relaxed")
    titles = {0: "What was read", 1: "The bank, and how it was made"}
    title = titles.get(len(banks), "The banks, and how they were made")
    return Origin(title, about, joined, [opening(bank) for bank in banks])


def _together(tables: Sequence[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
    if len(tables) == 1:
        return tables[0]
    named = zip(tables, names, strict=True)
    return pl.concat(table.select(pl.lit(name).alias("bank"), pl.all()) for table, name in named)


def bank_name(bank: Bank) -> str:
    """What a page calls a bank: a view by its name, others by that of their folder or URL."""
    if bank.filter is not None:
        return bank.name
    return stem(bank.url or bank.path)


def opening(bank: Bank) -> str:
    """How a reader opens the bank, by its URL or the name of its folder."""
    where = bank.name if bank.filter is not None else bank.url or bank.path.resolve().name
    return f"logitbank.open({json.dumps(where, ensure_ascii=False)})"


def stem(source: Path | str) -> str:
    """The name of a bank without its folder, revision and ending.

    >>> stem("banks/pythia.zarr/"), stem("hf://datasets/me/pythia@v1")
    ('pythia', 'pythia')
    """
    name = str(source).rstrip("/").rsplit("/", maxsplit=1)[-1].partition("@")[0]
    name = Path(source).resolve().name if name in (".", "..") else name
    return name.removesuffix(".zarr") or "bank"


def about_bank(bank: Bank) -> dict[str, str]:
    """What a bank says of itself, and of those that it came from."""
    about = dict(own_fields(bank.attributes))
    if isinstance(bank, Bank):
        about["SHA-256 of its commits"] = commits_digest(bank.path, bank.deposits())
    for source in sources_of(bank.attributes):
        texts = "; ".join(source[name] for name in own_fields({}) if source[name])
        about[f"from ({', '.join(source['models'])})"] = texts
    return about


def holdings(info: pl.DataFrame) -> pl.DataFrame:
    """One row for each model, run and query set, as hundreds of checkpoints are alike."""
    keys = ["model", "run", "query_set", "keep", "dtype", "engine"]
    return info.group_by(keys, maintain_order=True).agg(
        checkpoints=pl.len(),
        first_step=pl.col("step").min(),
        last_step=pl.col("step").max(),
        queries=pl.col("queries").first(),
        incomplete=(pl.col("committed") < pl.col("queries")).sum(),
        unsealed=(~pl.col("sealed")).sum(),
        bytes=pl.col("bytes").sum(),
    )
