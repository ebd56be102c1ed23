"""Choices and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from logitbank.engine.backends.engine import engine_names
from logitbank.errors import UsageError
from logitbank.store.share.urls import shown_url


def new_app(text: str, *, no_args_is_help: bool = True) -> typer.Typer:
    """A Typer app whose errors `main` prints."""
    return typer.Typer(
        help=text,
        no_args_is_help=no_args_is_help,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


Form = Literal["table", "csv", "json", "jsonl", "parquet", "latex"]
StoredDtype = Literal["float16", "float32", "bfloat16"]
if TYPE_CHECKING:
    Engine = str
else:
    Engine = Literal[("auto", *engine_names())]  # the folders of engines

BankPath = Annotated[
    Path, typer.Argument(help="Folder of the bank, or a URL to read.", show_default=False)
]
BankFolder = Annotated[Path, typer.Argument(help="Folder of the bank.", show_default=False)]
Banks = Annotated[list[Path], typer.Argument(help="Banks: folders or URLs.", show_default=False)]
Format = Annotated[Form, typer.Option("--format", help="Output format.")]
Out = Annotated[Path | None, typer.Option(help="Folder for tables, charts and the report.")]
Width = Annotated[
    Literal["single", "double"],
    typer.Option(help="Width of saved charts: one column of a paper (3.3 in) or two (7 in)."),
]
Colors = Annotated[
    list[str] | None,
    typer.Option(help="Colours of saved charts, such as male=#0072b2,female=#d55e00; repeatable."),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="Models to include; repeatable."),
]
PromptSet = Annotated[
    str | None,
    typer.Option("--prompts", help="Prompt set; needed if the bank has several."),
]
PromptSets = Annotated[
    list[str] | None,
    typer.Option("--prompts", help="Prompt sets to include; repeatable."),
]
Steps = Annotated[
    str | None, typer.Option(help="Steps to include: log, START:STOP:STRIDE, a list, or release.")
]
Table = Annotated[str | None, typer.Option(help="Table to print instead of the findings.")]
Columns = Annotated[
    str | None, typer.Option(help="Columns of the table, separated by commas; by default all.")
]


def address(bank: Path) -> str:
    """The folder or URL of a bank. A `Path` of a URL has only one slash after the scheme."""
    return shown_url(bank) or str(bank)


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse texts NAME=VALUE, or several in one text, separated by commas.

    Raises
    ------
    UsageError
        A text that is not NAME=VALUE.
    """
    values = {}
    for text in [part for each in texts or () for part in each.split(",")]:
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise UsageError(f"{option} {text!r} is invalid: use NAME=VALUE.")
        values[name] = value
    return values
