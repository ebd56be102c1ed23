"""Pages of the command line, made from the commands: one for each, and a list of all."""

from collections.abc import Iterator
from typing import Any

import typer

import logitbank
from logitbank.cli.main import COMMANDS, app
from logitbank.engine.prompts.registry import known_sets

FOLDER = "commands"
"""Folder of the pages."""


def command_pages() -> dict[str, str]:
    """File names in `FOLDER` and texts in Markdown, for every command without sub-commands."""
    return {_file(words): _page(context) for words, context in _leaves()}


def commands_list() -> str:
    """Every command with its first sentence, under the headings of `logitbank --help`."""
    root, lines = typer.main.get_command(app), []
    leaves = list(_leaves())
    for heading in COMMANDS:
        commands = root.commands.items()  # type: ignore[attr-defined]
        names = [name for name, each in commands if each.rich_help_panel == heading]
        lines += [f"## {heading}", "", "| Command | |", "|---|---|"]
        lines += [
            f"| [`{context.command_path}`]({FOLDER}/{_file(words)}) | {_first_sentence(context)} |"
            for name in names
            for words, context in leaves
            if words[0] == name
        ]
        lines.append("")
    files = [f"{FOLDER}/{_file(words).removesuffix('.md')}" for words, _ in leaves]
    return "\n".join([*lines, "```{toctree}", ":hidden:", *files, "```", ""])


def prompt_sets_table() -> str:
    """A row for each known prompt set, as `logitbank prompts` has, with its options."""
    names = ("Name", "Content", "Prompts", "License", "`analyze`", "Options, with their defaults")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for known in known_sets():
        name = known.pattern.replace("|", "\\|")
        options = "<br>".join(f"`{o.name}={o.default}`: {o.about}" for o in known.options)
        cells = (f"`{name}`", known.about, known.size, known.license, known.analysis, options)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    command = typer.main.get_command(app)
    yield from _below(
        command, typer.Context(command, info_name="logitbank", **command.context_settings), ()
    )


def _below(
    command: Any, context: Any, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    commands = getattr(command, "commands", {})
    if not commands:
        yield words, context
    for name in command.list_commands(context) if commands else ():
        inner = typer.Context(commands[name], info_name=name, parent=context)
        yield from _below(commands[name], inner, (*words, name))


def _page(context: Any) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"# {context.command_path}", "", command.help, "", "```text", usage, "```", ""]
    function = _function_name(context.command_path)
    if hasattr(logitbank, function):
        lines += [f"In Python: {{py:func}}`logitbank.{function}`.", ""]
    sections: dict[str, list[str]] = {"": []}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            names = record[0].replace(", -", "`, `-")
            panel = getattr(parameter, "rich_help_panel", None) or ""
            sections.setdefault(panel, []).append(f"* `{names}`: {record[1]}")
    for head, rows in sections.items():
        lines += [*([f"## {head}", ""] if head else []), *rows, ""]
    return "\n".join(lines)


def _function_name(command_path: str) -> str:
    words = command_path.split()[1:]
    return "_".join(words[words[0] == "analyze" :]).replace("-", "_")


def _file(words: tuple[str, ...]) -> str:
    return "-".join(words) + ".md"


def _first_sentence(context: Any) -> str:
    return str(context.command.help).split("\n\n")[0].replace("\n", " ")
