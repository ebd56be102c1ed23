"""Each command is a function of `logitbank` of the same name, which it calls."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

import logitbank
from logitbank.analysis.family import families
from logitbank.cli.main import app
from tests.support.paths import ROOT

OTHERS = {
    "info": "logitbank.open(",  # prints what the bank's methods `info` and `provenance` give
    "rescore": "logitbank.Bank.open(bank, prompts=[]).rescore(",
    "suites": "logitbank.known_suites(",
    "all": "analyses(",
}
"""Commands of no function of their name, and what they call."""


def commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Names of functions, and what the commands run; `analyze` only groups the families."""
    for name, each in group.commands.items():
        path = (*above, *([] if name == "analyze" else [name]))
        if hasattr(each, "commands"):
            yield from commands(each, *path)
        else:
            yield "_".join(path).replace("-", "_"), each.callback


def choices(hint: Any) -> set[str]:
    """The texts that a type allows, of one value or of a list; none of other types."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {each.value for each in hint}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {text for inner in get_args(hint) for text in choices(inner)}


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_commands_are_found_however_deep() -> None:
    assert {"extract", "fairness", "pairs", "debias_train", "prompts_show"} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(families())))
def test_a_command_calls_the_public_function_of_its_name(name: str) -> None:
    assert (name in logitbank.__all__) == (name not in OTHERS)
    called = OTHERS.get(name, f"logitbank.{name}(")
    assert called in inspect.getsource(inspect.getmodule(inspect.unwrap(COMMANDS[name])))


@pytest.mark.parametrize("name", families())
def test_a_family_s_command_has_the_settings_of_its_function(name: str) -> None:
    function = getattr(logitbank, name)
    assert families()[name].analyze is function
    common = {"banks", "prompts", "model", "by", "out", "width", "colors", "table", "form"}
    own = set(inspect.signature(inspect.unwrap(COMMANDS[name])).parameters) - common
    assert own == set(families()[name].settings())
    assert own <= set(inspect.signature(function).parameters)


def hints(name: str) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(COMMANDS[name]), include_extras=True)


CHOICES = [
    (command, option)
    for command in COMMANDS
    for option, hint in hints(command).items()
    if choices(hint) and option not in ("form", "width", "return")
]


def test_commands_have_choices() -> None:
    assert {("stereoset", "score"), ("extract", "engine"), ("debias_train", "preset")} <= {*CHOICES}


@pytest.mark.parametrize(("command", "option"), CHOICES)
def test_a_command_offers_the_choices_that_its_function_takes(command: str, option: str) -> None:
    """They are spelt twice, since commands import nothing heavy before they are run."""
    if command in families():
        taken = families()[command].settings()[option].annotation
    elif command == "extract":
        taken = get_type_hints(logitbank.ExtractRequest)[option]
    else:
        taken = get_type_hints(getattr(logitbank, command))[option]
    assert choices(hints(command)[option]) == choices(taken)


def options(group: Any) -> Iterator[str]:
    for parameter in group.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for each in getattr(group, "commands", {}).values():
        yield from options(each)


def test_every_option_that_an_analysis_names_exists() -> None:
    known = {"--help", *options(typer.main.get_command(app))}
    named = {
        (option, path.relative_to(ROOT).as_posix())
        for folder in ("analysis", "cli")
        for path in (ROOT / folder).rglob("*.py")
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text())
    }
    assert {each for each in named if each[0] not in known} == set()
