"""How a bank was made: the provenance of its deposits as a table, and as one document."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.store.files import objects
from logitbank.store.format import commits
from logitbank.store.format.about import own_fields, sources_of
from logitbank.store.format.schema import Json
from logitbank.store.tables import prompt_tables, query_tables

if TYPE_CHECKING:
    from logitbank.store.deposits.deposit import Deposit

_SCHEMA = pl.Schema(
    {
        "model": pl.String,
        "run": pl.String,
        "field": pl.String,  # with a point where it is in an object: source.revision
        "value": pl.String,  # text as it is, anything else as JSON
        "deposits": pl.Int64,
        "first_step": pl.Int64,  # null for a release
        "last_step": pl.Int64,
    }
)


def provenance_table(deposits: "Iterable[Deposit]") -> pl.DataFrame:
    """See `Bank.provenance`."""
    rows = [
        (d.checkpoint.model, d.checkpoint.run, field, value, d.checkpoint.step)
        for d in deposits
        for field, value in _fields(d)
    ]
    names = ("model", "run", "field", "value", "step")
    schema = {name: _SCHEMA.get(name, pl.Int64()) for name in names}
    return (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("model", "run", "field", "value", maintain_order=True)
        .agg(
            deposits=pl.len().cast(pl.Int64),
            first_step=pl.col("step").min(),
            last_step=pl.col("step").max(),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
    )


def provenance_document(
    root: Path, attributes: dict[str, Any], deposits: "Iterable[Deposit]"
) -> dict[str, Any]:
    """All that a bank says of where it is from, for JSON.

    Parameters
    ----------
    root, attributes, deposits
        Of the bank; deposits may be some of it.

    Returns
    -------
    title, licence, citation, written_by; `sources`, the banks that it was joined or shrunk from;
    `query_sets` with their tokenizers; `prompts`, the tables of each prompt set; `deposits`, each
    with its attributes and the engines of its blocks.
    """
    prompts: dict[str, list[str]] = {}
    for file in prompt_tables.prompt_files(root):
        prompts.setdefault(file.name, []).append(file.digest)
    return {
        "format": attributes["format"],
        **own_fields(attributes),
        "written_by": str(attributes.get("written_by", "")),
        "sources": sources_of(attributes),
        "query_sets": {
            name: {
                "queries": query_tables.query_count(root, name),
                "tokenizer": query_tables.tokenizer_of(root, name),
            }
            for name in query_tables.query_set_names(root)
        },
        "prompts": prompts,
        "deposits": [{**d.attributes, "engines": _engines(d)} for d in deposits],
    }


def _fields(deposit: "Deposit") -> Iterator[tuple[str, str]]:
    yield from _flat(deposit.spec.provenance)
    engines = _engines(deposit)
    if engines not in ([], [str(deposit.spec.provenance.get("engine"))]):
        yield "engines of blocks", ", ".join(engines)


def _flat(made: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in made.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _engines(deposit: "Deposit") -> list[str]:
    """Engines that the commits of blocks name."""
    state = deposit.state()
    names = [name for name in state.names if name not in state.options]
    engines_by_commit = [commits.engines_of(commits.read(deposit.path, name)) for name in names]
    return sorted({str(engine) for engines in engines_by_commit for engine in engines})


def commits_digest(root: Path, deposits: "Iterable[Deposit]") -> str:
    """SHA-256 of a bank's content: of the lines that `sha256sum` prints of all commits.

    The lines are in the order of the paths below the bank.
    """
    states = [(deposit.path, deposit.state()) for deposit in deposits]
    files = sorted(
        f"{(path / 'commits').relative_to(root).as_posix()}/{name}.json"
        for path, state in states
        for name in state.names
    )
    lines = (f"{objects.digest(root / file).sha256}  {file}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
