"""What a shell offers at a Tab; nothing slow is imported.

Names in a bank are those of its files, names of tables those of fields in the source.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import typer

import logitbank

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


def table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tables of the command's result that begin so."""
    return _beginning(incomplete, tables_of_function(function_name(ctx.command_path)))


def function_name(command_path: str) -> str:
    """The public function of a command, by its whole path; `analyze` only groups the families.

    >>> function_name("logitbank debias train"), function_name("logitbank analyze crows-pairs")
    ('debias_train', 'crows_pairs')
    """
    words = command_path.split()[1:]
    return "_".join(words[words[0] == "analyze" :]).replace("-", "_")


def tables_of_function(name: str) -> list[str]:
    """The frames of the result of a public function, which gives a `Study` of it.

    From the source: importing an analysis takes 1.3 s of a CPU, for which nobody waits at a Tab.
    """
    function = next(
        node
        for node in ast.walk(_source(name))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    assert isinstance(function.returns, ast.Subscript)  # Study[…]
    result = ast.unparse(function.returns.slice)
    fields = next(
        node.body
        for node in ast.walk(_source(result))
        if isinstance(node, ast.ClassDef) and node.name == result
    )
    return [
        ast.unparse(field.target)
        for field in fields
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "pl.DataFrame"
    ]


def _source(name: str) -> ast.Module:
    """The module that a public name comes from."""
    _, *module = logitbank._HOMES[name].split(".")
    path = Path(logitbank.__file__).parent.joinpath(*module).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def banks_of(ctx: typer.Context) -> Iterator[Path]:
    """The banks on the line, and what may stand among them, such as tables of others."""
    # An option without its value, at which the Tab is, may leave the arguments unparsed.
    for given in (*(ctx.params.get(name) or () for name in BANKS), ctx.args):
        yield from map(Path, given if isinstance(given, list | tuple) else [given])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
