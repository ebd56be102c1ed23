"""The command line: the app, its error messages and its exit codes."""

import os
import re
import sys
from typing import Annotated, NoReturn

import typer

from logitbank.cli import analyze
from logitbank.cli.commands import banks, debias, inputs, results
from logitbank.cli.commands.demo import demo
from logitbank.cli.commands.extract import extract
from logitbank.cli.options import new_app
from logitbank.errors import INTERRUPTED, LogitbankError
from logitbank.version import __version__
from logitbank.wording import without_credentials

COMMANDS = {
    "Try it": (demo,),
    "Run models": (extract, inputs.fetch, inputs.suites),
    "Analyse": (banks.info, results.report, results.show, results.query, results.export,
                results.compare),
    "Share": (banks.describe, banks.push, banks.pull),
    "Maintain": (banks.verify, banks.merge, banks.shrink),
}  # fmt: skip
"""Panels of the help, in order, and their commands."""

app = new_app("Store the logits of every checkpoint once, and run all later analyses offline.")
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(inputs.app, name="prompts", rich_help_panel="Run models")
app.add_typer(analyze.app, name="analyze", rich_help_panel="Analyse")
app.add_typer(debias.app, name="debias", rich_help_panel="Analyse")

_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_TYPER_INTERRUPTED = 130
"""The exit code that Typer returns for KeyboardInterrupt."""


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: `run`, except that an interrupted process ends without Python's cleanup.

    After an extraction the cleanup of imported modules took up to 24 s on a busy machine.
    """
    try:
        run()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def run() -> None:
    """Run the command that the arguments name, and exit. Expected errors print one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of terminals without UTF-8
    for argument in sys.argv[1:]:
        if _NOT_UTF8.search(argument):  # Python keeps such bytes as halves of surrogate pairs
            _fail(f"Argument {argument!a} is not UTF-8. Rename the file, or correct it.", 2)
    try:
        # In standalone mode Typer draws a box around errors and prints nothing after Ctrl-C.
        code = app(standalone_mode=False, prog_name="logitbank")
        sys.stdout.flush()
    except LogitbankError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _fail_usage(error)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(_system_error(error), 1)
    except Exception as error:
        if not type(error).__module__.startswith("polars."):
            raise
        # Polars reports files that cannot be read only while a query runs.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        _fail(f"A table cannot be read ({reason}). Run `logitbank verify` on the bank.", 1)
    if code == _TYPER_INTERRUPTED:
        _fail("Interrupted. Run the same command to resume.", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    from logitbank.cli.output import say

    say(f"logitbank: {without_credentials(message)}")
    sys.exit(code)


def _fail_usage(error: typer.TyperException) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":  # Typer has printed the help
        sys.exit(2)
    context = getattr(error, "ctx", None)
    command = "logitbank" if context is None else context.command_path
    message = error.format_message().strip().replace("Value error, ", "")  # of pydantic
    end = "" if message.endswith((".", "?")) else "."
    _fail(f"{message}{end} See `{command} --help`.", 2)


def _system_error(error: OSError) -> str:
    """The reason of the operating system and the path, without the suffix of unfinished files."""
    path = os.fsdecode(error.filename) if error.filename else ""
    if path and isinstance(error, FileExistsError | NotADirectoryError):
        text = f"{path} is a file, but a folder is needed. Choose another name."
    else:
        reason = f"{path}: {error.strerror or error}" if path else error.strerror or str(error)
        text = f"{reason}. Check the path, its permissions and the free disk space."
    return re.sub(r"(^|/)\.([^/:]+?)(?:\.\d+)?\.part\b", r"\1\2", text)
