"""Where the numbers of a page come from: banks, what they contain, and how that was made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from logitbank.store import Bank
from logitbank.store.format.about import about_fields, bank_sources
from logitbank.store.read.copied_weights import CopiedWeights, copied_weights
from logitbank.store.read.provenance import (
    bank_digest,
    last_step,
    name_releases,
    provenance_table,
)
from logitbank.wording import step_name


@dataclass(frozen=True, slots=True)
class Origin:
    """A page's account of its banks and other files."""

    about: Mapping[str, str] = field(default_factory=dict)
    """Title, license and so on; blank ones are left out."""
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Tables of contents and of provenance; the first is open."""
    opening: Sequence[str] = ()
    """Python code that opens each bank."""


def page_origin(
    banks: Sequence[Bank],
    *,
    files: Sequence[pl.DataFrame] = (),
    prompts: Sequence[str] = (),
) -> Origin:
    """The contents of banks, tables about other files, and about these prompt sets."""
    names = [bank_name(bank) for bank in banks]
    tables = {
        "checkpoints": [_holdings(bank.info(), copied_weights(bank.deposits())) for bank in banks],
        "prompt sets": [_prompt_sets(bank, prompts) for bank in banks] if prompts else [],
        "provenance": [provenance_table(bank.deposits()) for bank in banks],
    }
    joined = {kind: _joined(own, names) for kind, own in tables.items() if own}
    if files:
        joined["files"] = pl.concat(files, how="diagonal_relaxed")
    about = {
        f"{name}: {key}" if len(banks) > 1 else key: text
        for name, bank in zip(names, banks, strict=True)
        for key, text in _about(bank).items()
        if text
    }
    return Origin(about, joined, [_opening(bank) for bank in banks])


def _joined(tables: Sequence[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
    if len(tables) == 1:
        return tables[0]
    named = zip(tables, names, strict=True)
    return pl.concat(table.select(pl.lit(name).alias("bank"), pl.all()) for table, name in named)


def bank_name(bank: Bank) -> str:
    """The name of a bank on a page: that of its folder or URL."""
    return stem(bank.url or bank.path)


def stem(source: Path | str) -> str:
    """The name of a bank without its folder, revision and ending.

    >>> stem("banks/pythia.zarr/"), stem("hf://datasets/me/pythia@v1")
    ('pythia', 'pythia')
    """
    name = str(source).rstrip("/").rsplit("/", maxsplit=1)[-1].partition("@")[0]
    name = Path(source).resolve().name if name in (".", "..") else name
    return name.removesuffix(".zarr") or "bank"


def _opening(bank: Bank) -> str:
    where = bank.url or bank.path.resolve().name
    return f"logitbank.open({json.dumps(where, ensure_ascii=False)})"


def _about(bank: Bank) -> dict[str, str]:
    about = dict(about_fields(bank.attributes))
    about["license"] = about["license"] or "not stored: ask the authors before you use the data"
    about["citation"] = about["citation"] or "not stored: cite the address and the digest"
    about["digest (SHA-256)"] = bank_digest(bank.path)
    for source in bank_sources(bank.attributes):
        texts = "; ".join(source[name] for name in about_fields({}) if source[name])
        about[f"from ({', '.join(source['models'])})"] = texts
    return about


def _holdings(info: pl.DataFrame, wrong: Sequence[CopiedWeights]) -> pl.DataFrame:
    """One row for each model, run and query set, as hundreds of checkpoints are alike.

    Checkpoints with weights of another one of their series are named.
    """
    keys = ["model", "run", "query_set", "keep", "dtype", "engine"]
    table = info.group_by(keys, maintain_order=True).agg(
        checkpoints=pl.len(),
        first_step=pl.col("step").min(),
        last_step=last_step(),
        queries=pl.col("queries").first(),
        incomplete=(pl.col("committed") < pl.col("queries")).sum(),
        unsealed=(~pl.col("sealed")).sum(),
        bytes=pl.col("bytes").sum(),
    )
    table = name_releases(table, "first_step", "last_step")
    if not wrong:
        return table
    named: dict[tuple[str, str], list[str]] = {}
    for each in wrong:
        own = each.checkpoint
        named.setdefault((own.model, own.run), []).append(
            f"{step_name(own.step)} has weights of {each.source}"
        )
    notes = ["; ".join(named.get(key, ())) for key in table.select("model", "run").iter_rows()]
    return table.insert_column(2, pl.Series("copied_weights", notes))


def _prompt_sets(bank: Bank, names: Sequence[str]) -> pl.DataFrame:
    rows = []
    for name in names:
        if name not in bank.prompt_sets:
            continue
        table = bank.prompts(name)
        counts = table.select(
            pl.col("prompt_id").n_unique(), pl.col("order_seed").n_unique(),
            pl.col("option").n_unique(),
        ).collect()  # fmt: skip
        rows.append((name, *counts.row(0), len(table.collect_schema())))
    columns = ("prompt set", "prompts", "option orders", "different options", "columns")
    return pl.DataFrame(rows, schema=columns, orient="row")
