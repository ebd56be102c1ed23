"""The job script of the documentation: how it stops, and how it comes back."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCS = ROOT / "docs"


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def job_script(tmp_path: Path, programs: Path, extract: str) -> Path:
    """The script of the documentation, with programs that are played."""
    (script,) = re.findall(
        r"```bash\n(#!/bin/bash\n[^`]*--array.*?)```", (DOCS / "scale.md").read_text(), re.S
    )
    program(programs, "logitbank", extract)
    program(programs, "scontrol", f'echo "$@" >> {tmp_path / "requeued"}')
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    file = tmp_path / "extract.sbatch"
    file.write_text(script.replace("/shared/$USER", str(tmp_path)))
    return file


def ended(script: Path, *, restarts: int = 0, stop: bool = False) -> int:
    environment = os.environ | {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    process = subprocess.Popen(["bash", str(script)], env=environment)
    try:
        if stop:
            end = time.monotonic() + 300
            while not (script.parent / "started").exists():
                assert time.monotonic() < end
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
        return process.wait(60)
    finally:
        process.kill()
        process.wait()


STOPS = "trap 'sleep 0.5; touch {0}/stopped; exit 3' TERM\ntouch {0}/started\n"
STOPS += "while true; do sleep 0.05; done"


def test_the_job_script_passes_the_signal_on_and_requeues_itself(
    tmp_path: Path, programs: Path
) -> None:
    script = job_script(tmp_path, programs, STOPS.format(tmp_path))
    assert "#SBATCH --signal=B:TERM@60" in script.read_text()
    assert ended(script, stop=True) == 3
    assert (tmp_path / "stopped").exists(), "it was waited for"
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"


@pytest.mark.parametrize("code", [0, 1, 2, 137])
def test_the_job_script_does_not_come_back_for_nothing(
    tmp_path: Path, programs: Path, code: int
) -> None:
    assert ended(job_script(tmp_path, programs, f"exit {code}")) == code
    assert not (tmp_path / "requeued").exists()


def test_the_job_script_comes_back_a_limited_number_of_times(
    tmp_path: Path, programs: Path
) -> None:
    script = job_script(tmp_path, programs, "exit 3")
    assert ended(script, restarts=50) == 3
    assert not (tmp_path / "requeued").exists()
