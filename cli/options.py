"""Choices and options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def once(option: str, values: list[float] | None) -> float | None:
    """The value of an option that may be given once: the last of several would pass for all.

    Raises
    ------
    UsageError
        It was repeated.
    """
    from logitbank.errors import UsageError

    if values and len(values) > 1:
        given = ", ".join(f"{value:g}" for value in values)
        raise UsageError(f"{option} is given {len(values)} times ({given}); give it once")
    return values[0] if values else None


class Form(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


class StoredDtype(StrEnum):
    float16 = "float16"
    float32 = "float32"


BankPath = Annotated[
    Path, typer.Argument(help="Folder of the bank, or a URL to read.", show_default=False)
]
Banks = Annotated[list[Path], typer.Argument(help="Banks: folders or URLs.", show_default=False)]
Format = Annotated[Form, typer.Option("--format", help="How tables are printed.")]
Out = Annotated[Path | None, typer.Option(help="Folder for tables, figures and the report.")]
Models = Annotated[list[str] | None, typer.Option("--model", help="Only these models.")]
Prompts = Annotated[str, typer.Option(help="Prompt set to analyse.")]
Table = Annotated[str | None, typer.Option(help="Print this table instead of all.")]
SaveResults = Annotated[
    Path | None,
    typer.Option(
        help="Write result files in the layout of lm-evaluation-harness into this folder."
    ),
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Save also where some of the prompts are not scored.")
]
