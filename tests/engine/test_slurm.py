"""Jobs whose time is limited: when they end, how they stop, and how they come back."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from logitbank.engine.plan import parallel
from logitbank.engine.plan.parallel import ParallelConfig, job_end
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
FAR = "2099-01-02T03:04:05"
FAR_S = time.mktime((2099, 1, 2, 3, 4, 5, 0, 0, -1))


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_older_slurm_is_asked_for_the_end_of_this_task(programs: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    program(programs, "squeue", f'echo "$@ $SLURM_TIME_FORMAT" > {told}; echo {FAR}')
    job = {"SLURM_JOB_ID": "77", "SLURM_TIME_FORMAT": "relative"}
    assert ParallelConfig.here(environment=job).stop_at == FAR_S
    assert told.read_text().split() == ["--noheader", "--jobs=77", "--format=%e", "standard"]
    array = job | {"SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}
    assert job_end(array) == FAR_S
    assert "--jobs=70_3" in told.read_text(), "by its number alone, a task may stand for the array"


@pytest.mark.parametrize(
    "script",
    ["echo N/A", "echo NONE", "echo", "echo 10:00:00", "exit 1", "echo 2001-01-01T00:00:00"],
)
def test_a_job_without_an_end_has_none(programs: Path, script: str) -> None:
    program(programs, "squeue", script)
    assert job_end({"SLURM_JOB_ID": "77"}) is None


def test_nobody_is_asked_who_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_end({"SLURM_JOB_ID": "77"}) is None


def test_squeue_is_not_asked_outside_a_job_or_where_the_end_is_told(
    programs: Path, tmp_path: Path
) -> None:
    program(programs, "squeue", f"touch {tmp_path / 'asked'}; echo {FAR}")
    assert job_end({}) is None
    assert job_end({"SLURM_JOB_ID": "77", "SLURM_JOB_END_TIME": "4000000000"}) == 4e9
    assert not (tmp_path / "asked").exists()


def test_a_squeue_that_hangs_is_not_waited_for(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "squeue", "sleep 60")
    monkeypatch.setattr(parallel, "ANSWERS_S", 0.3)
    start = time.monotonic()
    assert job_end({"SLURM_JOB_ID": "77"}) is None
    assert time.monotonic() - start < 30


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
