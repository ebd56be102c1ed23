"""What a shell completes: prompt sets and models of a bank."""

import os
import subprocess
import sys
from pathlib import Path

from tests.analysis.test_options import parity


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


def test_a_tab_knows_prompt_sets_and_models(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b.zarr").path
    assert offered(f"logitbank analyze options {bank} --prompts pa") == (["parity"], False)
    assert offered(f"logitbank report {bank} --model org") == (["org/model"], False)
