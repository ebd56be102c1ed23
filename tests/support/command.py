"""The type of the fixture `call`, and a walk of all commands."""

from collections.abc import Callable, Iterator
from typing import Any

import typer.main

from logitbank.cli.main import app

Call = Callable[..., tuple[int, str, str]]
"""Arguments of `logitbank`; exit code, stdout and stderr."""


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command and group of commands with the words that call it, `logitbank` first."""
    yield from _below(("logitbank",), typer.main.get_command(app))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _below((*words, name), each)
