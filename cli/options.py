"""Choices and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from logitbank.cli.complete import bank_models, bank_prompts

if TYPE_CHECKING:
    from logitbank.store import Bank


def new_app(text: str) -> typer.Typer:
    """A Typer application whose failures `main` prints."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


Form = Literal["table", "csv", "json", "jsonl", "parquet", "latex"]
StoredDtype = Literal["float16", "float32", "bfloat16"]
Engine = Literal["auto", "vllm", "transformers"]


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
    typer.Option(help="Colours of saved charts, such as male=#0072b2,female=#d55e00."),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="Only these models.", autocompletion=bank_models)
]
PromptSet = Annotated[
    str | None,
    typer.Option(
        "--prompts", help="Prompt set; needed if the bank has several.", autocompletion=bank_prompts
    ),
]
PromptSets = Annotated[
    list[str] | None,
    typer.Option("--prompts", help="Only these prompt sets.", autocompletion=bank_prompts),
]
Steps = Annotated[
    str | None, typer.Option(help="Only these steps: log, START:STOP:STRIDE, a list, or release.")
]
Table = Annotated[str | None, typer.Option(help="Table to print in place of the findings.")]
FilterFile = Annotated[
    Path | None,
    typer.Option(
        "--filter",
        help="Debiasing filter applied while the banks are read (a file of `debias train`).",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with public data; by default LOGITBANK_DATA, or a download."),
]


def filtered(bank: Path, by: Path | None) -> "Path | Bank":
    """A bank as it looks through a filter; a file of scores among the banks stays as it is."""
    if by is None or bank.is_file():
        return bank
    from logitbank.store import Filter, open_bank

    return open_bank(bank, rows=True).filtered(Filter.load(by))


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """The names and values of NAME=VALUE, given repeatedly or with commas between them.

    Raises
    ------
    UsageError
        A text that is not NAME=VALUE.
    """
    from logitbank.errors import UsageError

    found = {}
    for text in [part for each in texts or () for part in each.split(",")]:
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise UsageError(f"{option} {text!r} is invalid: use NAME=VALUE.")
        found[name] = value
    return found
