"""Shell completion of names. Nothing slow is imported."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import typer


def suite_names(incomplete: str) -> list[str]:
    """Known suites."""
    from logitbank.engine.suites.catalogue import known_suites

    return _matches(incomplete, (suite.name for suite in known_suites()))


def prompt_set_names(incomplete: str) -> list[tuple[str, str]]:
    """Known prompt sets, each with a line of help."""
    from logitbank.engine.prompts.registry import known_sets

    about = {name: each.about for each in known_sets() for name in each.names()}
    return [(name, about[name]) for name in _matches(incomplete, about)]


def bank_prompts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Prompt sets of the local banks among the arguments."""
    files = (file for bank in _banks(ctx) for file in bank.glob("prompts/*-*.parquet"))
    return _matches(incomplete, sorted({unquote(f.name.rpartition("-")[0]) for f in files}))


def bank_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models of the local banks among the arguments."""
    groups = (group.parent for bank in _banks(ctx) for group in bank.glob("*/zarr.json"))
    return _matches(incomplete, sorted({unquote(group.name) for group in groups}))


def _banks(ctx: typer.Context) -> Iterator[Path]:
    # An option whose value is being typed may leave the arguments unparsed, in `ctx.args`.
    for values in (*(ctx.params.get(name) or () for name in ("bank", "banks", "a", "b")), ctx.args):
        yield from map(Path, values if isinstance(values, list | tuple) else [values])


def _matches(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
