"""The command `demo`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import Engine


def demo(
    out: Annotated[Path, typer.Argument(help="New or empty folder for all files.")] = Path("demo"),
    engine: Annotated[
        Engine, typer.Option(help="Engine; auto uses vLLM if it is installed.")
    ] = "auto",
) -> None:
    """Train tiny models whose bias changes at a known step, evaluate them, and report."""
    raise typer.Exit(logitbank.demo(out, engine=engine))
