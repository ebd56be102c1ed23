"""Each command is a function of `logitbank` of the same name, which it calls."""

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

import logitbank
from logitbank.cli.main import app

OTHERS = {
    "info": "logitbank.open(",  # prints what the bank's methods `info` and `provenance` give
    "rescore": "logitbank.Bank.open(bank, prompts=[]).rescore(",
    "suites": "logitbank.known_suites(",
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


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_calls_the_public_function_of_its_name(name: str) -> None:
    assert (name in logitbank.__all__) == (name not in OTHERS)
    called = OTHERS.get(name, f"logitbank.{name}(")
    assert called in inspect.getsource(inspect.getmodule(inspect.unwrap(COMMANDS[name])))


CHOICES = [
    (command, option)
    for command, callback in COMMANDS.items()
    for option, hint in get_type_hints(callback, include_extras=True).items()
    if choices(hint) and option not in ("form", "return")
]


def test_commands_have_choices() -> None:
    assert {("stereoset", "score"), ("fairness", "ties"), ("debias_train", "mode")} <= set(CHOICES)


@pytest.mark.parametrize(("command", "option"), CHOICES)
def test_a_command_offers_the_choices_that_its_function_takes(command: str, option: str) -> None:
    """They are spelt twice, since commands import nothing heavy before they are run."""
    taken = get_type_hints(getattr(logitbank, command)) | get_type_hints(logitbank.Paper)
    if command == "debias_train":
        taken |= get_type_hints(logitbank.Training)
    offered = get_type_hints(COMMANDS[command], include_extras=True)[option]
    assert choices(offered) == choices(taken[option])
