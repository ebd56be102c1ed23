"""Processes of workers: the log that those of a run share, and what is told of a killed one."""

import os
import signal
from pathlib import Path

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers import worker_process
from logitbank.engine.workers.canary import Canary
from logitbank.engine.workers.cgroup import MemoryKills, memory_kills
from logitbank.engine.workers.events import CheckpointFailed
from logitbank.engine.workers.job import Job
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run, log_path
from logitbank.errors import EngineError
from logitbank.store import CheckpointId


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return tmp_path / "b.zarr"


def test_a_worker_without_a_job_leaves_its_sibling_s_words(bank: Path) -> None:
    """It was made first, when there was no log."""
    idle = WorkerProcess(bank, EngineSettings("transformers"))
    log_path(bank).write_text("a traceback")
    idle.kill()
    with idle:
        pass
    assert log_path(bank).read_text() == "a traceback"


@pytest.mark.parametrize(
    ("used", "text", "kept"),
    [
        (True, "a traceback", True),
        (True, "", False),
        (False, "INFO: imported", False),
        (False, "", False),
    ],
)
def test_a_log_that_a_run_began_stays_where_it_tells_of_work(
    bank: Path, used: bool, text: str, kept: bool
) -> None:
    with log_of_run(bank, alone=True) as use:
        log_path(bank).write_text(text)
        if used:
            use()
    assert log_path(bank).exists() == kept


def test_a_log_that_was_there_or_is_shared_with_other_runs_stays(bank: Path) -> None:
    with log_of_run(bank, alone=False):
        log_path(bank).touch()
    assert log_path(bank).exists()
    with log_of_run(bank, alone=True):
        pass
    assert log_path(bank).exists()


def test_a_run_without_a_log_ends_well(bank: Path) -> None:
    with log_of_run(bank, alone=True):
        pass
    assert not log_path(bank).exists()


# A worker that the system kills for memory leaves a line that says so, and what to do


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_kills_and_limit_are_those_of_the_group(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(tmp_path / "cgroup-of-self" / "cgroup", "0::/slurm/job_7\n")
    write(root / "slurm/job_7/memory.events", "low 0\noom 3\noom_kill 2\n")
    write(root / "slurm/job_7/memory.max", "48000000000\n")
    told = memory_kills(process=tmp_path / "cgroup-of-self", root=root)
    assert told == MemoryKills(2, 48_000_000_000)
    write(root / "slurm/job_7/memory.max", "max\n")
    assert memory_kills(process=tmp_path / "cgroup-of-self", root=root) == MemoryKills(2, None)


def test_the_first_version_of_groups_is_read_too(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(tmp_path / "me" / "cgroup", "9:cpuset:/\n4:memory:/slurm/job_7\n1:name=systemd:/x\n")
    folder = root / "memory/slurm/job_7"
    write(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    write(folder / "memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_kills(process=tmp_path / "me", root=root) == MemoryKills(1, None)


def test_a_system_that_does_not_tell_is_none(tmp_path: Path) -> None:
    assert memory_kills(process=tmp_path / "me", root=tmp_path) is None


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize(
    ("after", "message"),
    [
        (
            MemoryKills(6, 48_000_000_000),
            "by the system, for lack of memory, of which 48 GB are allowed; ask the scheduler for"
            " more, or use fewer --workers",
        ),
        (
            MemoryKills(5, 48_000_000_000),
            "killed by signal 9 (out of memory?)",
        ),
    ],
    ids=["by the system", "by somebody"],
)
def test_a_killed_worker_leaves_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: MemoryKills, message: str
) -> None:
    told = iter([MemoryKills(5, 48_000_000_000), after])
    monkeypatch.setattr(worker_process, "memory_kills", lambda: next(told))
    settings = EngineSettings("transformers")
    job = Job(CheckpointId("m", step=0), tmp_path, (), 10, 10, {}, settings, {})
    with WorkerProcess(tmp_path / "b.zarr", settings) as worker:
        worker.start()
        assert worker._process is not None
        os.kill(worker._process.pid, signal.SIGKILL)
        (failed,) = worker.run(job)
    assert isinstance(failed, CheckpointFailed)
    assert failed.out_of_memory
    assert failed.message.startswith("m step 0: the engine's process was killed by signal 9")
    assert failed.message.endswith(message)
    assert log_path(tmp_path / "b.zarr").read_text().splitlines()[-1].endswith(failed.message)


@pytest.mark.usefixtures("quick_workers")
def test_a_canary_that_is_killed_says_what_it_held(tmp_path: Path) -> None:
    canary = Canary(EngineSettings("transformers"), log=tmp_path / "log")
    os.kill(canary._process.pid, signal.SIGKILL)
    canary._process.wait()
    with pytest.raises(EngineError, match="killed by signal 9 .*float32.*--canary-every 0"):
        canary.answers()
    canary.close()
