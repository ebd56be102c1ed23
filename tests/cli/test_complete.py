"""What a shell offers at a Tab: tables of a command, prompt sets and models of a bank."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import polars as pl
import pytest

import logitbank
from logitbank.cli.complete import tables_of_function
from tests.analysis.test_curves import parity
from tests.cli.test_same_names import COMMANDS

STUDIES = sorted(
    name
    for name, callback in COMMANDS.items()
    if "table" in get_type_hints(callback, include_extras=True)
)


@pytest.mark.parametrize("name", STUDIES)
def test_tables_that_are_offered_are_those_of_the_result(name: str) -> None:
    (result,) = get_args(get_type_hints(getattr(logitbank, name))["return"])
    hints = get_type_hints(result)
    fields = [f.name for f in dataclasses.fields(result) if hints[f.name] is pl.DataFrame]
    assert tables_of_function(name) == fields
    assert fields


def offered(line: str) -> tuple[list[str], bool]:
    """What bash is given for a line whose last word is being typed; whether polars was imported."""
    program = (
        "import sys\nfrom logitbank.cli.main import app\n"
        "try:\n    app(prog_name='logitbank')\n"
        "finally:\n    print('polars' in sys.modules, file=sys.stderr)\n"
    )
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ, "_LOGITBANK_COMPLETE": "complete_bash",
            "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.split(), done.stderr.split()[-1] == "True"


def test_a_tab_knows_tables_prompt_sets_and_models(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b.zarr").path
    assert offered(f"logitbank analyze fairness {bank} --table jsd") == (["jsd_parts"], False)
    assert offered(f"logitbank analyze curves {bank} --prompts pa") == (["parity"], False)
    assert offered(f"logitbank report {bank} --model org") == (["org/model"], False)
