"""Commands, their help, their functions in Python, and shell completion."""

import inspect
import os
import re
import subprocess
import sys
from enum import Enum
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import logitbank
from logitbank.analysis.families import families
from logitbank.engine.backends.engine import engine_names
from tests.support.command import Call, every_command
from tests.support.paths import ROOT

HEAVY = ("torch", "transformers", "vllm", "polars", "numpy", "zarr", "scipy", "altair")
OTHERS = {
    "demo": "def demo(",  # the command is the public function
    "info": "logitbank.open(",  # prints the bank's `info` and `provenance`
    "suites": "logitbank.engine.known_suites(",
    "debias_apply": "logitbank.store.apply_filter(",
    "all": "analyses(",
}
"""Commands without a function of the same name, and what they call."""
DOORS = {"debias": "analysis.", "prompts": "engine."}
"""Packages with the functions of groups of commands."""


COMMANDS = {
    "_".join(word for word in words[1:] if word != "analyze").replace("-", "_"): command
    for words, command in every_command()
    if not hasattr(command, "commands")
}
"""Commands by the name of their function; `analyze` only groups the families."""


def test_every_command_and_parameter_has_help() -> None:
    assert {"extract", "fairness", "pairs", "debias_train", "prompts_show"} <= set(COMMANDS)
    for name, command in COMMANDS.items():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(families())))
def test_a_command_calls_the_public_function_of_its_name(name: str) -> None:
    path = DOORS.get(name.partition("_")[0], "") + name
    if name not in OTHERS:
        assert callable(attrgetter(path)(logitbank))
    called = OTHERS.get(name, f"logitbank.{path}(")
    assert called in inspect.getsource(inspect.getmodule(COMMANDS[name].callback))


@pytest.mark.parametrize("name", families())
def test_the_command_of_a_family_has_the_settings_of_its_function(name: str) -> None:
    function = getattr(logitbank, name)
    assert families()[name].analyze is function
    common = {
        "banks",
        "prompts",
        "model",
        "by",
        "out",
        "width",
        "colors",
        "table",
        "columns",
        "form",
    }
    settings = set(inspect.signature(COMMANDS[name].callback).parameters) - common
    assert settings == set(families()[name].settings())
    assert settings <= set(inspect.signature(function).parameters)


def choices(hint: Any) -> set[str]:
    """The texts that a type allows, for one value or for a list."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {each.value for each in hint}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {text for inner in get_args(hint) for text in choices(inner)}


def test_a_command_offers_the_choices_of_its_function() -> None:
    """They are spelt twice, because commands import nothing heavy before they run."""
    compared = set()
    for name, command in COMMANDS.items():
        hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
        for option, hint in hints.items():
            if not choices(hint) or option in ("form", "width", "return"):
                continue
            if name in families():
                expected = families()[name].settings()[option].annotation
            elif option == "engine":  # those of the folders
                expected = Literal[("auto", *engine_names())]
            elif name == "extract":
                expected = get_type_hints(logitbank.engine.ExtractRequest)[option]
            else:
                expected = get_type_hints(
                    attrgetter(DOORS.get(name.partition("_")[0], "") + name)(logitbank)
                )[option]
            assert choices(hint) == choices(expected), f"{name} {option}"
            compared.add((name, option))
    assert {("stereoset", "score"), ("extract", "engine"), ("debias_train", "preset")} <= compared


@pytest.mark.parametrize("arguments", [[], ["analyze"], ["debias"]])
def test_without_arguments_the_help_is_shown_with_exit_code_2(
    call: Call, arguments: list[str]
) -> None:
    code, out, error = call(*arguments)
    assert (code, error) == (2, "")
    what = "[NAME] BANK" if arguments == ["analyze"] else "COMMAND"
    assert f"Usage: {' '.join(['logitbank', *arguments])} [OPTIONS] {what}" in out


def test_version_and_short_help(call: Call) -> None:
    assert call("--version") == (0, logitbank.__version__ + "\n", "")
    assert call("analyze", "fairness", "-h") == call("analyze", "fairness", "--help")


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_of_every_command_fits_a_screen(
    call: Call, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words, _ in every_command():
        code, printed, error = call(*words[1:], "--help")
        assert (code, error) == (0, ""), words
        assert max(map(len, printed.splitlines())) <= columns, words


def run_light(*arguments: str, **environment: str) -> str:
    """The output of `logitbank` in a process that must not import heavy packages."""
    code = (
        "import atexit, sys; from logitbank.cli.main import run; sys.argv[0] = 'logitbank';"
        f"atexit.register(lambda: print([m for m in {HEAVY} if m in sys.modules],"
        " file=sys.stderr)); run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={n: v for n, v in os.environ.items() if n != "FORCE_COLOR"} | environment,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    return done.stdout


def test_help_is_plain_in_a_narrow_pipe_and_loads_no_heavy_package() -> None:
    printed = run_light("extract", "--help", COLUMNS="60", NO_COLOR="1")
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 60


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("logitbank ana", ["analyze"]),
        ("logitbank extract b --suite pythia-160", ["pythia-160m", "pythia-160m-deduped"]),
        ("logitbank extract b --prompts winob", ["winobias", "winobias-not"]),
    ],
)
def test_a_shell_completes_names_without_heavy_packages(line: str, expected: list[str]) -> None:
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    printed = run_light(_LOGITBANK_COMPLETE="complete_bash", **variables)
    assert [name for name in printed.split() if name in expected] == expected


def test_make_help_names_every_target() -> None:
    done = subprocess.run(["make", "-C", str(ROOT), "-s", "help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(re.findall(r"make ([\w-]+)", done.stdout)) == set(phony[1].split())
