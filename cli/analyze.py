"""The commands of `analyze`, one per family of metrics, built from its public function."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperGroup

from logitbank.analysis.families import BUILT_IN, families
from logitbank.analysis.family import SHARED_TABLES, Family
from logitbank.cli.options import (
    Banks,
    Colors,
    Columns,
    Format,
    Models,
    Out,
    PromptSets,
    Table,
    Width,
    new_app,
    pairs,
)
from logitbank.errors import DrawingError, UsageError
from logitbank.store.steps import parse_count

if TYPE_CHECKING:
    from logitbank.analysis.study import Study


class Families(TyperGroup):
    """`analyze BANK` is short for `analyze all BANK`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_bank = args and (Path(args[0]).exists() or set("/.") & set(args[0]))
        if is_bank and self.get_command(ctx, args[0]) is None:
            return "all", self.get_command(ctx, "all"), args
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            close = get_close_matches(args[0], names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Analyses: {', '.join(names)}."
            raise UsageError(f"{args[0]!r} is neither an analysis nor a bank. {hint}")
        return super().resolve_command(ctx, args)


app = new_app("Compute one family of metrics, or all.")
app.info.cls, app.info.subcommand_metavar = Families, "[NAME] BANK..."


@app.command("all")
def analyze_all(
    banks: Banks,
    prompts: PromptSets = None,
    model: Models = None,
    out: Out = None,
    width: Width = "single",
    form: Format = "table",
) -> None:
    """Run every analysis that the prompt sets of the banks allow."""
    from logitbank.analysis.everything import FAILURES, analyses, failure_message
    from logitbank.cli.output import exit_with, print_studies
    from logitbank.cli.screen.progress import busy

    if form not in ("table", "json"):
        raise UsageError(f"--format {form} needs one analysis: `logitbank analyze NAME BANK`.")
    studies: dict[str, Study[Any]] = {}
    problems: dict[str, str] = {}
    for analysis in analyses(banks, prompts=prompts, models=model):
        try:
            with busy(analysis.title):
                study = analysis.run()
        except FAILURES as error:
            problems[analysis.title] = failure_message(error)
            continue
        studies[analysis.title] = study
        if out is not None:
            try:
                study.save(out / analysis.folder, width=width)
            except DrawingError as error:
                problems[analysis.title] = str(error)
    print_studies(studies, form=form)
    exit_with(problems)


def _command(family: Family) -> Callable[..., None]:
    """The command of a family: common options, and one option per annotated setting."""
    settings = family.settings()

    def command(**values: Any) -> None:
        from logitbank.cli.output import named_table, print_study, require_table, say
        from logitbank.cli.screen.progress import busy

        out, colors = values["out"], pairs("--colors", values["colors"])
        if colors and out is None:
            raise UsageError("--colors needs saved charts. Fix: add --out FOLDER.")
        names = known_tables(family)
        table = named_table(values["table"], names or (), family.screen)
        form = values["form"]
        if values["columns"] is not None and table is None:
            raise UsageError("--columns needs --table.")
        if names is not None:
            require_table(table, form, names)
        with busy(f"analyzing {family.title}"):
            study = family.analyze(
                values["banks"] or (),
                prompts=values["prompts"] or family.parameters["prompts"].default,
                models=values["model"],
                **{name: _value(values[name], setting) for name, setting in settings.items()},
            )
        undrawn = None
        if out is not None:
            try:
                page = study.save(out, width=values["width"], colors=colors)
                say(f"Report: {page}")
            except DrawingError as error:
                undrawn = error
        print_study(study, table=table, form=form, columns=values["columns"])
        if undrawn is not None:
            raise undrawn

    parameters = [
        _parameter("banks", *_banks(family)),
        _parameter("prompts", *_prompts(family)),
        _parameter("model", Models, None),
        *(_parameter(name, *_option(setting)) for name, setting in settings.items()),
        _parameter("out", Out, None),
        _parameter("width", Width, "single"),
        _parameter("colors", Colors, None),
        _parameter("table", Table, None),
        _parameter("columns", Columns, None),
        _parameter("form", Format, "table"),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = " ".join((family.analyze.__doc__ or "").partition("\n\n")[0].split())
    return command


def known_tables(family: Family) -> list[str] | None:
    """The names of its tables, if they are known before an analysis.

    They are those of the class of the result that its function returns in a `Study`, which
    `logitbank.analysis` has; or those of measures and of the screen. Tables that a family of
    others adds are not known before.
    """
    from logitbank import analysis
    from logitbank.analysis.results.tables import table_names

    text = str(inspect.signature(family.analyze).return_annotation)
    returned = re.fullmatch(r"Study\[(\w+)\]", text)
    if returned and returned[1] == "Measured":
        if family.name not in BUILT_IN and (family.tables or family.settings()):
            return None
        own = ["measures", "change_points", *family.views, *family.screen]
        return [*dict.fromkeys(own), *SHARED_TABLES]
    result = getattr(analysis, returned[1], None) if returned else None
    return None if result is None else [*table_names(result), *SHARED_TABLES]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _banks(family: Family) -> tuple[Any, Any]:
    """The argument for banks, which is optional if the public function has a default."""
    if family.parameters["banks"].default is inspect.Parameter.empty:
        return Banks, inspect.Parameter.empty
    help_text = "Banks: folders or URLs. Optional if files are given."
    return Annotated[list[Path] | None, typer.Argument(help=help_text, show_default=False)], None


def _prompts(family: Family) -> tuple[Any, Any]:
    """The option `--prompts`, repeatable if the family takes several sets at once."""
    default = family.parameters["prompts"].default
    several = family.several_prompts
    option = typer.Option(
        help=f"Prompt set to analyse{'' if default else ', by default found by its columns'}"
        f"{'; repeatable' if several else ''}.",
        show_default=default or False,
    )
    return Annotated[(list[str] if several else str) | None, option], None


def _option(setting: inspect.Parameter) -> tuple[Any, Any]:
    """The type and default of an option, from a parameter annotated with its help text."""
    kind, optional = _without_none(setting)
    if _is_pair(kind):
        kind = str
    if _is_repeated(kind):
        item: Any = str if get_origin(kind) is Mapping else get_args(kind)[0]
        if get_origin(item) is Literal:
            # Typer does not support lists of a Literal, but lists of an enumeration.
            choices: Any = StrEnum
            item = choices(setting.name, {value: value for value in get_args(item)})
        kind, optional = list[item], True
        default = None
    else:
        default = setting.default
    names = [_name(setting)] if kind is bool and not default else []
    help_text = get_args(setting.annotation)[1]
    option = typer.Option(*names, help=help_text, show_default=default not in (None, False, ""))
    return Annotated[kind | None if optional else kind, option], default


def _name(setting: inspect.Parameter) -> str:
    return f"--{setting.name.replace('_', '-')}"


def _is_repeated(kind: Any) -> bool:
    return get_origin(kind) in (list, Sequence, Mapping)


def _is_pair(kind: Any) -> bool:
    """Whether a setting is two steps, written with a comma."""
    return bool(kind == tuple[int, int])


def _without_none(setting: inspect.Parameter) -> tuple[Any, bool]:
    """The type of a setting without None, and whether None is allowed."""
    kind = get_args(setting.annotation)[0]
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return kind, True


def _value(value: Any, setting: inspect.Parameter) -> Any:
    """The argument of the public function for the value of an option."""
    if value is None:
        return setting.default
    kind, _ = _without_none(setting)
    if get_origin(kind) is Mapping:
        return pairs(_name(setting), value)
    if _is_pair(kind):
        steps = [parse_count(part.strip()) for part in value.split(",")]
        if len(steps) != 2 or None in steps:
            raise UsageError(f"{_name(setting)} {value!r} is invalid: use two steps, as 2000,1000.")
        return tuple(steps)
    if isinstance(value, list):
        return [item.value if isinstance(item, StrEnum) else item for item in value]
    return value


for _family in families().values():
    app.command(_family.name.replace("_", "-"))(_command(_family))
