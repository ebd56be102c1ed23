"""The command `demo`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import Engine


def demo(
    out: Annotated[Path, typer.Argument(help="Folder to work in.")] = Path("demo"),
    engine: Annotated[Engine, typer.Option(help="Engine; auto takes vLLM if installed.")] = "auto",
) -> None:
    """Train a tiny model series whose bias changes at a known step, bank it, and report."""
    raise typer.Exit(logitbank.demo(out, engine=engine))
