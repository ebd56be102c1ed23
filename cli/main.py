"""The command line: the app, and what its failures look like."""

import os
import re
import sys
from typing import Annotated, Any, NoReturn

import typer

from logitbank.cli import analyze
from logitbank.cli.commands import banks, debias, prompts, sharing
from logitbank.cli.commands.care import verify
from logitbank.cli.commands.demo import demo
from logitbank.cli.commands.export import export
from logitbank.cli.commands.extract import extract
from logitbank.cli.commands.fetch import fetch
from logitbank.cli.commands.query import query
from logitbank.cli.commands.report import report
from logitbank.cli.commands.show import show
from logitbank.cli.commands.suites import suites
from logitbank.cli.options import new_app

COMMANDS = {
    "Try it": (demo,),
    "Run models": (extract, fetch, suites),
    "Analyse": (banks.info, report, show, query, export, banks.compare),
    "Share": (banks.describe, sharing.push, sharing.pull),
    "Maintain": (verify, banks.merge, banks.shrink, banks.rescore),
}
"""Panels of the help, in order, and their commands."""

app = new_app("Store the logits of every checkpoint once, and run all later analyses offline.")
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(prompts.app, name="prompts", rich_help_panel="Run models")
app.add_typer(analyze.app, name="analyze", rich_help_panel="Analyse")
app.add_typer(debias.app, name="debias", rich_help_panel="Analyse")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from logitbank.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: as `run`, but what was interrupted ends at once.

    Python takes all of its modules apart at its end. After an extraction it has transformers among
    them, which took 24 s where other work wanted both cores, long after all was said and written.
    """
    from logitbank.errors import INTERRUPTED

    try:
        run()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def _told(error: OSError) -> str:
    """What the system refused, and of which file; of one on its way, what it was to become."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    if isinstance(error, FileExistsError | NotADirectoryError):
        what = "a file is there, where a folder is needed; choose another name"
    else:
        what = f"{error.strerror or error}; check the path, its rights and the disk"
    return re.sub(r"(^|/)\.([^/:]+)\.part\b", r"\1\2", f"{where}{what}")


def run() -> None:
    """Do what the arguments say: expected failures print one line and end with their exit code."""
    from logitbank.cli.plain import encode_anything
    from logitbank.errors import INTERRUPTED, LogitbankError

    encode_anything()
    try:
        # Standalone, Typer draws a box around its errors and is silent about Ctrl-C.
        code = app(standalone_mode=False, prog_name="logitbank")
        sys.stdout.flush()
    except LogitbankError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _refuse(error)
    except BrokenPipeError:  # whoever reads the output has enough of it, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(_told(error), 1)
    except Exception as error:
        # What cannot be read while a query runs comes from Polars; it is imported by then.
        if not type(error).__module__.startswith("polars."):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        _fail(f"a table could not be read ({first}); run `logitbank verify` on the bank", 1)
    if code == _KEYBOARD_INTERRUPT:
        _fail("interrupted; the same command goes on from there", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


_KEYBOARD_INTERRUPT = 130
"""What Typer makes of KeyboardInterrupt."""


def _refuse(error: typer.TyperException) -> NoReturn:
    """End a call that does not parse, naming the help of the command that it was for."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed by then
        sys.exit(2)
    context = getattr(error, "ctx", None)  # absent where an option lacks a value
    command = "logitbank" if context is None else context.command_path
    if (
        near := getattr(error, "possibilities", None)
    ) is not None:  # of an option that is not there
        message = (
            f"{error.message}; did you mean {' or '.join(sorted(near))}?" if near else error.message
        )
    elif given := _no_command(error.format_message()):
        message = f"{given} is no command, and stands after one: {command} COMMAND {given}"
    elif repeated := _to_repeat(error.format_message(), context):
        message = repeated
    else:
        message = error.format_message().strip().replace(": Value error, ", ": ")
        message = message.replace(". Did you mean", "; did you mean")
    _fail(f"{message.rstrip('.')}{'' if message.endswith('?') else ';'} see `{command} --help`", 2)


def _no_command(message: str) -> str:
    """The path that stands where a command should, as of a bank; else nothing."""
    absent = re.match(r"No such command '(.+?)'", message)
    return absent[1] if absent and os.path.exists(absent[1]) else ""


def _to_repeat(message: str, context: Any) -> str:
    """What to write where an option that may be repeated was given several values at once.

    Empty where something else is wrong. What was too much is told by the message alone.
    """
    extra = re.search(r"unexpected extra arguments?.*? \((.*)\)", message)
    arguments = sys.argv[1:]
    ends = [i for i, each in enumerate(arguments) if extra and extra[1].endswith(each)]
    start = end = ends[-1] if ends else 0
    while start > 0 and not arguments[start].startswith("-"):
        start -= 1
    name, values = arguments[start], arguments[start + 1 : end + 1]
    if len(values) < 2 or not any(
        name in each.opts for each in context.command.params if getattr(each, "multiple", False)
    ):
        return ""
    return f"{name} takes one value at a time; write {name} {values[0]} {name} {values[1]}"


def _fail(message: str, code: int) -> NoReturn:
    from logitbank.cli.plain import say_error

    say_error(f"logitbank: {message}")
    sys.exit(code)
