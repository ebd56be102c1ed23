"""The commands of `analyze`: one for each family of metrics, made from its public function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperGroup

from logitbank.analysis.family import Family, families
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import (
    Banks,
    Colors,
    FilterFile,
    Format,
    Models,
    Out,
    PromptSets,
    Table,
    Width,
    filtered,
    new_app,
    pairs,
)

if TYPE_CHECKING:
    from logitbank.analysis.study import Study


class Families(TyperGroup):
    """`analyze BANK` without the name of a family runs all that apply."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_bank = args and (Path(args[0]).exists() or set("/.") & set(args[0]))
        if is_bank and self.get_command(ctx, args[0]) is None:
            return "all", self.get_command(ctx, "all"), args
        return super().resolve_command(ctx, args)


app = new_app("Compute one family of metrics, or all.")
app.info.cls = Families


@app.command("all")
def analyze_all(
    banks: Banks,
    prompts: PromptSets = None,
    model: Models = None,
    by: FilterFile = None,
    out: Out = None,
    width: Width = "single",
    form: Format = "table",
) -> None:
    """Run every analysis that the prompt sets of the banks allow."""
    from logitbank.analysis.everything import FAILURES, analyses, problem_of
    from logitbank.cli.output import exit_with, print_studies
    from logitbank.cli.screen.progress import busy

    opened = [filtered(bank, by) for bank in banks]
    studies: dict[str, Study[Any]] = {}
    problems: dict[str, str] = {}
    for family, title, _, run in analyses(opened, prompts=prompts, models=model):
        try:
            with busy(title):
                study = run()
        except FAILURES as error:
            problems[title] = problem_of(error)
            continue
        studies[title] = study
        if out is not None:
            study.save(out / family.name, width=width)
    print_studies(studies, form=form)
    exit_with(problems)


def _command(family: Family) -> Callable[..., None]:
    """The command of a family: common options, and one for each annotated setting of its own."""
    settings = family.settings()

    def command(**given: Any) -> None:
        from logitbank.cli.output import print_study
        from logitbank.cli.screen.progress import busy

        chart_colors = _colors(given["colors"], given["out"])
        own = {name: _value(given[name], settings[name]) for name in settings}
        banks = [filtered(bank, given["by"]) for bank in given["banks"] or ()]
        with busy(f"analyzing {family.title}"):
            study = family.analyze(
                banks, prompts=given["prompts"] or _default(family, "prompts"),
                models=given["model"], **own,
            )  # fmt: skip
        if given["out"] is not None:
            page = study.save(given["out"], width=given["width"], colors=chart_colors)
            typer.echo(f"Report: {page}", err=True)
        print_study(study, table=given["table"], form=given["form"])

    parameters = [
        _parameter("banks", *_banks(family)),
        _parameter("prompts", *_prompts(family)),
        _parameter("model", Models, None),
        _parameter("by", FilterFile, None),
        *(_parameter(name, *_option(each)) for name, each in settings.items()),
        _parameter("out", Out, None),
        _parameter("width", Width, "single"),
        _parameter("colors", Colors, None),
        _parameter("table", Table, None),
        _parameter("form", Format, "table"),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = (family.analyze.__doc__ or "").partition("\n")[0]
    return command


def _colors(given: list[str] | None, out: Path | None) -> dict[str, str]:
    from logitbank.errors import UsageError

    if given and out is None:
        raise UsageError("--colors is about saved charts: add --out FOLDER.")
    return pairs("--colors", given)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _default(family: Family, name: str) -> Any:
    return inspect.signature(family.analyze).parameters[name].default


def _banks(family: Family) -> tuple[Any, Any]:
    """The banks, which may be none if the public function has a default."""
    if _default(family, "banks") is inspect.Parameter.empty:
        return Banks, inspect.Parameter.empty
    help_text = "Banks: folders or URLs. None if files are given."
    return Annotated[list[Path] | None, typer.Argument(help=help_text, show_default=False)], None


def _prompts(family: Family) -> tuple[Any, Any]:
    """The option `--prompts`: it can be repeated, if the family takes several sets at once."""
    default = _default(family, "prompts")
    several = family.several_prompts
    text = f"Prompt set to analyse{'; repeatable' if several else ''}."
    kind = list[str] if several else str
    option = typer.Option(
        help=text, autocompletion=bank_prompts, show_default=default or "found by its columns"
    )
    return Annotated[kind | None, option], None


def _option(setting: inspect.Parameter) -> tuple[Any, Any]:
    """The type and default of an option, from a parameter annotated with its help text."""
    kind, help_text = get_args(setting.annotation)
    plain, optional = _without_none(kind)
    repeated = get_origin(plain) in (list, tuple, Sequence, Mapping) and not _fixed(plain)
    if repeated:
        item: Any = str if get_origin(plain) is Mapping else get_args(plain)[0]
        if get_origin(item) is Literal:
            choices: Any = StrEnum  # Typer takes no list of a Literal, but of an enumeration
            item = choices(setting.name, {value: value for value in get_args(item)})
        plain, optional = list[item], True
    names = [f"--{setting.name.replace('_', '-')}"] if plain is bool and not setting.default else []
    default = None if repeated else setting.default
    option = typer.Option(*names, help=help_text, show_default=default not in (None, False, ""))
    return Annotated[plain | None if optional else plain, option], default


def _fixed(kind: Any) -> bool:
    """Whether a type is a tuple of a fixed length, such as two steps."""
    return get_origin(kind) is tuple and Ellipsis not in get_args(kind)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        (plain,) = (each for each in get_args(kind) if each is not NoneType)
        return plain, True
    return kind, False


def _value(given: Any, setting: inspect.Parameter) -> Any:
    """What the family gets: its own default for a repeated option that was not given."""
    plain, _ = _without_none(get_args(setting.annotation)[0])
    if given is None:
        return setting.default
    if get_origin(plain) is Mapping:
        return pairs(f"--{setting.name.replace('_', '-')}", given)
    return (
        [each.value if isinstance(each, StrEnum) else each for each in given]
        if isinstance(given, list)
        else given
    )


for _family in families().values():
    app.command(_family.name.replace("_", "-"))(_command(_family))
