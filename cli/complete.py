"""What a shell completes; nothing slow is imported."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import typer

BANKS = ("bank", "banks", "sources", "a", "b")
"""What commands call the banks among their arguments, which they read."""


def suite_names(incomplete: str) -> list[str]:
    """Suites known by name that begin so."""
    from logitbank.engine.suites.catalogue import known_suites

    return _beginning(incomplete, (suite.name for suite in known_suites()))


def prompt_set_names(incomplete: str) -> list[tuple[str, str]]:
    """Prompt sets known by name that begin so, each with a line about it."""
    from logitbank.engine.prompts.registry import known_sets

    about = {name: each.about for each in known_sets() for name in each.names()}
    return [(name, about[name]) for name in _beginning(incomplete, about)]


def bank_prompts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Prompt sets of the banks on the line that begin so; none of a bank at a URL."""
    files = (file for bank in banks_of(ctx) for file in bank.glob("prompts/*-*.parquet"))
    return _beginning(incomplete, sorted({unquote(f.name.rpartition("-")[0]) for f in files}))


def bank_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models of the banks on the line that begin so; none of a bank at a URL."""
    groups = (group.parent for bank in banks_of(ctx) for group in bank.glob("*/zarr.json"))
    return _beginning(incomplete, sorted({unquote(group.name) for group in groups}))


def banks_of(ctx: typer.Context) -> Iterator[Path]:
    """The banks on the line, and what may stand among them, such as tables of others."""
    # An option without its value, at which the Tab is, may leave the arguments unparsed.
    for given in (*(ctx.params.get(name) or () for name in BANKS), ctx.args):
        yield from map(Path, given if isinstance(given, list | tuple) else [given])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
