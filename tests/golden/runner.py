"""Makes the golden files of a group, and compares them with the recorded files."""

import contextlib
import io
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

import logitbank
from logitbank import analysis
from logitbank.cli import output as tables
from logitbank.cli.main import run
from logitbank.cli.screen import progress
from logitbank.engine.workers.events import Estimate
from tests.golden.cases import GROUPS
from tests.support.command import every_command

EXPECTED = Path(__file__).with_name("expected")
HELP = "help"
"""The group of the help of every command."""
NAMES = (*GROUPS, HELP)
Files = dict[str, str]
"""The content of each file, by its path below `expected`."""
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_PASSING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z]*"), "TIME"),
    (re.compile(r"^reading [^\n]* \(\d+ s\)\n", re.MULTILINE), ""),  # after 5 s of work
    (re.compile(r"\b[\d.]+(e-\d+)? s\b"), "SECONDS"),
    (re.compile(r"Digest of the bank: [0-9a-f]{64}"), "Digest of the bank: DIGEST"),
    (re.compile(r"\bGPU-hours [\d.e-]+|\b[\d.,e+]+ (?:tokens|rows)/s"), "SPEED"),
    (
        re.compile(r"^[^\n:]*: [\d.,]+(?: \w?B)? of [\d.,]+(?: \w?B)?\n", re.MULTILINE),
        "",
    ),  # progress
)


def made(group: str) -> Files:
    """The current output of the calls of a group."""
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(os, "fsync"),
        tempfile.TemporaryDirectory() as scratch,
        contextlib.chdir(scratch),  # what a call writes is found here
    ):
        if group == HELP:
            calls = [" ".join([*words[1:], "--help"]) for words, _ in every_command()]
            return dict(texts(calls, HELP))
        for make in GROUPS[group].made:
            make(Path(scratch))
        return dict(texts(GROUPS[group].calls, group))


def texts(calls: Sequence[str], group: str) -> Iterator[tuple[str, str]]:
    """The files of some calls: printed text, and the tables of the study."""
    for number, line in enumerate(calls, 1):
        name = file_name(line) if group == HELP else f"{number:02}-{file_name(line)}"
        before = written()
        if line.endswith(")"):
            printed, studies = evaluated(line)
            yield f"{group}/{name}.txt", f">>> {line}\n{printed}"
        else:
            printed, studies = called(shlex.split(line))
            yield f"{group}/{name}.txt", f"$ logitbank {line}\n{printed}"
        for study in studies if not {"--table", "--format"} & {*line.split()} else ():
            for table, frame in study.tables.items():
                yield f"{group}/{name}/{table}.csv", csv(frame)
            yield f"{group}/{name}/findings.txt", "".join(f"{s}\n" for s in study.summary)
        for path in sorted(written() - before):
            yield f"{group}/{name}/{path}", lasting(path.read_text())


def written() -> set[Path]:
    """CSV and JSON files in this folder, but for those of banks."""
    found: set[Path] = set()
    for folder, inner, names in os.walk("."):
        inner[:] = [name for name in inner if not name.endswith(".zarr")]
        found |= {Path(folder, name) for name in names if name.endswith((".csv", ".json"))}
    return found


def file_name(line: str) -> str:
    words = [word for word in line.split() if not word.startswith("-")]
    return re.sub(r"\W+", "-", "-".join(words[:3]).replace("--help", "")) or "logitbank"


def called(arguments: Sequence[str]) -> tuple[str, list[Any]]:
    """The printed text and exit code of a call, and its studies."""
    studies: list[Any] = []
    print_study = tables.print_study

    def seen(study: Any, **options: Any) -> None:
        studies.append(study)
        print_study(study, **options)

    out, err = io.StringIO(), io.StringIO()
    tables.out.width = 200  # as in a pipe, also if this is a terminal
    with (
        mock.patch.object(sys, "argv", ["logitbank", *arguments]),
        mock.patch.object(tables, "print_study", seen),
        mock.patch("logitbank.engine.run.measure", _estimate),
        mock.patch.object(progress, "FIRST_S", 3600.0),  # no lines that only slow machines print
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = ended()
    parts = [lasting(out.getvalue())]
    errors = lasting(err.getvalue())
    parts += [f"[stderr]\n{errors}"] if errors else []
    parts += [f"[exit code {code}]\n"] if code else []
    return "".join(parts), studies


def _estimate(*_: object, workers: int, models: int) -> Estimate:
    """Stands in for the measurement of a dry run, which starts an engine."""
    return Estimate(10.0 * models, 3.0, 0.9, 3, 90, workers, rows=2, sample_s=15.0)


def evaluated(call: str) -> tuple[str, list[Any]]:
    """The study of a call in Python, for settings that are not options of a command."""
    function, _, arguments = call.removesuffix(")").partition("(")
    package = logitbank if function in logitbank.__all__ else analysis
    names = {"function": getattr(package, function), "Training": analysis.Training}
    study = eval(f"function({arguments})", names)
    return "".join(f"{line}\n" for line in study.summary), [study]


def ended() -> int:
    try:
        run()
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("a command ends with an exit code")


def lasting(text: str) -> str:
    """A text without this folder, times and speeds."""
    text = text.replace(str(Path.cwd()), "HERE")
    for pattern, word in _PASSING:
        text = pattern.sub(word, text)
    return text


def csv(frame: pl.DataFrame) -> str:
    """Floats in the fewest digits that give back every bit; lists as JSON."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    flat = frame.with_columns(
        pl.col(name).map_elements(lambda value: json.dumps(list(value)), pl.String)
        for name in nested
    )
    return flat.write_csv()


def recorded(group: str) -> Files:
    """The recorded files of a group."""
    files = sorted(path for path in (EXPECTED / group).rglob("*") if path.is_file())
    return {path.relative_to(EXPECTED).as_posix(): path.read_text() for path in files}


def changed(expected: Files, found: Files) -> list[str]:
    """Files that differ, or that only one of both has."""
    return [
        name
        for name in sorted({*expected, *found})
        if name not in expected or name not in found or not same(expected[name], found[name])
    ]


def differences(expected: Files, found: Files) -> Iterator[str]:
    """The lines of a diff, file by file."""
    for name in changed(expected, found):
        before, after = (files.get(name, "").splitlines() for files in (expected, found))
        if len(before) == len(after):
            pairs = zip(before, after, strict=True)
            after = [line if same(line, other) else other for line, other in pairs]
        yield from unified_diff(
            before, after, f"expected/{name}", f"found/{name}", n=0, lineterm=""
        )


def same(expected: str, found: str) -> bool:
    """Whether texts are equal, and their numbers to 9 significant digits.

    The last bits of a sum depend on the machine.
    """
    before, after = _NUMBER.split(expected), _NUMBER.split(found)
    return len(before) == len(after) and all(map(_same_part, before, after))


def _same_part(expected: str, found: str) -> bool:
    if expected == found:
        return True
    numbers = _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found)
    if not numbers or "." not in expected + found:  # whole numbers and digests are exact
        return False
    return math.isclose(float(expected), float(found), rel_tol=1e-9, abs_tol=1e-12)
