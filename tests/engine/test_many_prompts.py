"""A million own prompts, from the file to a table."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import logitbank
from tests.support.checkpoints import WORDS, make_series

pytestmark = pytest.mark.long

COUNT = 1_000_000
PLAN = """
import resource, sys
import logitbank

if __name__ == "__main__":
    bank, suite, prompts = sys.argv[1:]
    logitbank.extract(
        bank, suites=suite, prompts=prompts, engine="transformers", keep="options", dry_run=True
    )
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_prompts(path: Path, count: int) -> Path:
    chosen = random.Random(0)
    words = [word for word in WORDS if word.isalpha()]
    with path.open("w") as file:
        for number in range(count):
            text = " " + " ".join(chosen.choices(words, k=8))
            row = {"text": text, "options": [" he", " she"], "answer": number % 2}
            file.write(json.dumps(row) + "\n")
    return path


def test_a_million_prompts(tmp_path: Path) -> None:
    suite = make_series(tmp_path / "suite", steps=(0,))
    (tmp_path / "plan.py").write_text(PLAN)
    peaks = []
    for name, count in (("few", 1_000), ("many", COUNT)):
        prompts = write_prompts(tmp_path / f"{name}.jsonl", count)
        call = [sys.executable, "plan.py", "bank.zarr", str(suite), str(prompts)]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] - peaks[0] <= 1_500 * COUNT
    bank = tmp_path / "bank.zarr"
    logitbank.extract(
        bank, suites=str(suite), prompts=str(tmp_path / "many.jsonl"), engine="transformers",
        keep="options",
    )  # fmt: skip
    study = logitbank.options(bank, prompts="many")
    assert study.tables["answers"]["items"].to_list() == [COUNT]
