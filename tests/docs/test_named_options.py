"""Options and commands that messages name exist: what they say to do next can be done."""

import ast
import re
from collections.abc import Iterator

import pytest
import typer.main

from logitbank.cli.main import app
from tests.support.paths import ROOT

FOLDERS = ("store", "engine", "analysis", "api", "cli")
OF_OTHERS = {
    "--address": "of ray start",
    "--jobs": "of squeue",
    "--noheader": "of squeue",
    "--list-gpus": "of nvidia-smi",
    "--query-gpu": "of nvidia-smi",
    "--check": "of sha256sum",
    "--log": "--log_samples of lm-evaluation-harness",
    "--local-dir": "of hf download",
    "--kl-divergence-base": "of llama.cpp's perplexity tool",
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Every command with its options."""
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        yield " ".join((*path, name)), options | {"--help"}


COMMANDS = dict(commands(typer.main.get_command(app)))
OPTIONS = {"--version"}.union(*COMMANDS.values())


def texts() -> Iterator[tuple[str, str]]:
    """Every text in the source, in the pieces that it is written in, and where it is."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value


def unknown(text: str) -> list[str]:
    """What a text names and the command line does not have."""
    found = [name for name in OPTION.findall(text) if name not in OPTIONS.union(OF_OTHERS)]
    for call in re.findall(r"`logitbank ([^`…]+)", text):
        words = re.findall(r"^[a-z]+(?: [a-z]+)?", call)
        names = [name for name in (*words, *(w.split()[0] for w in words)) if name in COMMANDS]
        if not names:
            found.append(call)
        else:
            found += [o for o in OPTION.findall(call) if o not in COMMANDS[names[0]]]
    return found


def test_every_option_and_command_that_a_text_names_exists() -> None:
    named = list(texts())
    assert sum(bool(OPTION.search(text)) for _, text in named) > 100
    assert [(where, name) for where, text in named for name in unknown(text)] == []


@pytest.mark.parametrize(
    "text",
    ["choose with --models", "run `logitbank mend`", "run `logitbank verify --keep full`"],
)
def test_what_does_not_exist_is_found(text: str) -> None:
    assert unknown(text)
    assert not unknown("run `logitbank verify --repair BANK`, or choose with --model")
