"""The command `demo`."""

from pathlib import Path
from typing import Annotated

import typer

from logitbank.cli.options import Engine


def demo(
    out: Annotated[Path, typer.Argument(help="Folder to work in.")] = Path("demo"),
    engine: Annotated[Engine, typer.Option(help="auto takes vLLM if installed.")] = "auto",
) -> None:
    """Train a tiny model series whose bias changes at a known step, bank it, and report."""
    from logitbank.cli.demo import demo as run_demo

    raise typer.Exit(run_demo(out, engine=engine))
