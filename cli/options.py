"""Choices and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from logitbank.cli.complete import bank_models, bank_prompts

if TYPE_CHECKING:
    from logitbank.store import Bank


Default = TypeVar("Default")


def new_app(text: str) -> typer.Typer:
    """A Typer application whose failures `main` prints."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def once(option: str, values: list[float] | None, default: Default) -> float | Default:
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
    return values[0] if values else default


Form = Literal["table", "csv", "json", "jsonl", "parquet", "latex"]
StoredDtype = Literal["float16", "float32", "bfloat16"]
Engine = Literal["auto", "vllm", "transformers"]


BankPath = Annotated[
    Path, typer.Argument(help="Folder of the bank, or a URL to read.", show_default=False)
]
BankFolder = Annotated[Path, typer.Argument(help="Folder of the bank.", show_default=False)]
Banks = Annotated[list[Path], typer.Argument(help="Banks: folders or URLs.", show_default=False)]
Format = Annotated[Form, typer.Option("--format", help="How tables are printed.")]
Out = Annotated[Path | None, typer.Option(help="Folder for tables, figures and the report.")]
Width = Annotated[
    Literal["single", "double"],
    typer.Option(help="Figures of --out as wide as one column of a paper, or two."),
]
Style = Annotated[
    str | None,
    typer.Option(
        help="A style file of Matplotlib for figures of --out, or the name of one of its styles.",
        metavar="FILE",
    ),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="Only these models.", autocompletion=bank_models)
]
Prompts = Annotated[str, typer.Option(help="Prompt set to analyse.", autocompletion=bank_prompts)]
FromStep = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="First step of the search for change points.",
        show_default="the first after the untrained phase",
    ),
]
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
    typer.Option(help="Folder with public data; else LOGITBANK_DATA, else downloaded."),
]


def filtered(bank: Path, by: Path | None) -> "Path | Bank":
    """A bank as it looks through a filter; a file of scores among the banks stays as it is."""
    if by is None or bank.is_file():
        return bank
    from logitbank.store import Filter, open_bank

    return open_bank(bank, rows=True).filtered(Filter.load(by))
