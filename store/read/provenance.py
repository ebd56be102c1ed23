"""Provenance of a bank's deposits as a table."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import polars as pl

from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.format import index, zarrays
from logitbank.store.format.index import Objects
from logitbank.store.format.schema import Json
from logitbank.store.read.copied_weights import MATRICES
from logitbank.wording import plain_step

_ROWS = pl.Schema(
    {
        "model": pl.String,
        "run": pl.String,
        "field": pl.String,  # with dots for nested objects: source.revision
        "value": pl.String,  # text, or any other value as JSON
        "step": pl.Int64,  # null for a release
    }
)


def provenance_table(deposits: Iterable[Deposit]) -> pl.DataFrame:
    """How deposits were made, with equal values in one row; `info --provenance` prints it.

    Returns
    -------
    One row per model, run, field and value: columns model, run, field (`engine`,
    `source.revision`, …), value (text; anything else as JSON), deposits (number), first_step,
    last_step (null for a release).
    """
    rows = [
        (d.checkpoint.model, d.checkpoint.run, field, value, d.checkpoint.step)
        for d in deposits
        for field, value in _fields(d)
    ]
    table = pl.DataFrame(rows, schema=_ROWS, orient="row")
    step = pl.col("step")
    return table.group_by("model", "run", "field", "value", maintain_order=True).agg(
        deposits=pl.len().cast(pl.Int64), first_step=step.min(), last_step=last_step()
    )


def last_step() -> pl.Expr:
    """The last of the column `step`: null if it has a release, which comes after all steps."""
    step = pl.col("step")
    return pl.when(step.null_count() == 0).then(step.max())


def name_releases(table: pl.DataFrame, *steps: str) -> pl.DataFrame:
    """A table for people, in which columns of steps have the name of a release instead of null."""
    names = [name for name in steps if name in table and table[name].null_count()]
    return table.with_columns(pl.col(names).cast(pl.String).fill_null(plain_step(None)))


def _fields(deposit: Deposit) -> Iterator[tuple[str, str]]:
    provenance = deposit.spec.provenance
    yield from _flat({name: value for name, value in provenance.items() if name != MATRICES})


def _flat(fields: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def bank_digest(root: Path) -> str:
    """SHA-256 that identifies a bank: of all documents of deposits, and digests of tables.

    It is that of the lines that `sha256sum` prints for them, in the order of their paths. Title,
    license and citation are not a part of it.
    """
    files = [
        f"{folder}/{file.name}.sha256"
        for folder in catalog.TABLE_FOLDERS
        for entry in objects.entries(root / folder)
        if index.is_table(f"{folder}/{entry.name}") and (file := Path(entry.path)).is_file()
    ]
    for folder in catalog.deposit_folders(root):
        with suppress(FileNotFoundError):  # a writer is creating it
            deposit = Deposit.open(root, folder)
            arrays = zarrays.array_metadata(deposit.layout)
            files += [f"{folder}/zarr.json", *(f"{folder}/{array}/zarr.json" for array in arrays)]
            files += [f"{folder}/commits/{name}.json" for name in deposit.state().names]
    present = [file for file in files if (root / file).exists()]
    return lines_digest({file: objects.digest(root / file).sha256 for file in present})


def index_digest(listed: Objects) -> str:
    """`bank_digest` of the bank that an index lists."""
    texts = {path: value for path, value in listed.items() if value.text is not None}
    return lines_digest({path: v.digest.sha256 for path, v in texts.items() if is_decisive(path)})


def is_decisive(path: str) -> bool:
    """Whether the text of a document is a part of the digest of a bank."""
    return path.endswith(".sha256") or index.object_deposit(path) is not None


def lines_digest(digests: Mapping[str, str]) -> str:
    """SHA-256 of the lines of `sha256sum` for files, by path."""
    lines = (f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
