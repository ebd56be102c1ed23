"""Processes of workers: their log, and the messages of a killed one."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers import reference_check
from logitbank.engine.workers.events import Cause, CheckpointDone, CheckpointFailed, Job
from logitbank.engine.workers.pool import LocalPool
from logitbank.engine.workers.reference_check import ReferenceProcess
from logitbank.engine.workers.worker_process import WorkerProcess, log_path, worker_environment
from logitbank.errors import EngineError
from logitbank.store import CheckpointId

SETTINGS = EngineSettings("transformers")


@pytest.mark.parametrize(
    ("shared_log", "existed", "text", "kept"),
    [
        (False, False, "a traceback", True),
        (False, False, "", False),
        (True, False, "", True),
        (False, True, "", True),
    ],
)
def test_an_empty_new_log_is_deleted_unless_other_runs_write_to_it(
    tmp_path: Path, shared_log: bool, existed: bool, text: str, kept: bool
) -> None:
    log = log_path(tmp_path / "b.zarr")
    if existed:
        log.touch()
    with LocalPool(tmp_path / "b.zarr", SETTINGS.start, 2, shared_log=shared_log):
        log.write_text(text)
    assert log.exists() == kept


def test_a_job_with_other_settings_gets_a_new_engine(tmp_path: Path) -> None:
    id, started = CheckpointId("m", step=0), list[EngineSettings]()
    connection = Mock(**{"recv.return_value": CheckpointDone(id, 1.0)})

    def start() -> None:
        assert worker._settings is not None
        started.append(worker._settings)
        worker._process, worker._connection = Mock(), connection

    worker = WorkerProcess(tmp_path / "b.zarr", SETTINGS.start)
    worker._start = start  # type: ignore[method-assign]
    less = replace(SETTINGS, max_batch_tokens=512)
    for settings in (SETTINGS, SETTINGS, less, less):
        list(worker.run(Job(id, tmp_path, (), 10, 10, {}, settings, {})))
    assert started == [SETTINGS, less]


@pytest.mark.parametrize(
    ("cause", "is_clean"),
    [("checkpoint", True), ("fatal", True), ("load", False), ("engine", False), ("crash", False)],
)
def test_a_process_whose_engine_may_be_broken_is_not_used_again(
    tmp_path: Path, cause: Cause, is_clean: bool
) -> None:
    id = CheckpointId("m", step=0)
    failed = CheckpointFailed(id, "it failed", cause)
    worker = WorkerProcess(tmp_path / "b.zarr", SETTINGS.start)
    worker._process, worker._connection = Mock(), Mock(**{"recv.return_value": failed})
    (event,) = worker.run(Job(id, tmp_path, (), 10, 10, {}, SETTINGS, {}))
    assert isinstance(event, CheckpointFailed)
    assert (worker._process is not None) == is_clean


@pytest.mark.usefixtures("quick_workers")
def test_a_killed_worker_leaves_a_line_in_the_log(tmp_path: Path) -> None:
    job = Job(CheckpointId("m", step=0), tmp_path, (), 10, 10, {}, SETTINGS, {})
    with WorkerProcess(tmp_path / "b.zarr", SETTINGS.start) as worker:
        worker.start()
        assert worker._process is not None
        os.kill(worker._process.pid, signal.SIGKILL)
        (failed,) = worker.run(job)
    assert isinstance(failed, CheckpointFailed)
    assert (failed.cause, failed.out_of_memory) == ("crash", True)
    assert "killed by signal 9 (out of memory?)" in failed.message
    assert log_path(tmp_path / "b.zarr").read_text().splitlines()[-1].endswith(failed.message)


def test_threads_of_a_worker_do_not_spin_unless_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert worker_environment(SETTINGS.start)["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert worker_environment(SETTINGS.start)["OMP_WAIT_POLICY"] == "active"


def test_a_reference_process_gives_freed_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """glibc keeps it in a worker: 1.5 GB of freed tensors stay there."""
    variables = {
        n: v for n, v in worker_environment(SETTINGS.start).items() if n.startswith("MALLOC")
    }
    assert variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)  # as in a worker
    monkeypatch.setenv("OTHER", "kept")
    popen = Mock()
    monkeypatch.setattr(reference_check, "subprocess", Mock(Popen=popen))
    ReferenceProcess(log=tmp_path / "log")
    environment = popen.call_args.kwargs["env"]
    assert environment["OTHER"] == "kept"
    assert [name for name in environment if name.startswith("MALLOC")] == []


@pytest.mark.usefixtures("quick_workers")
def test_a_killed_reference_process_names_its_memory(tmp_path: Path) -> None:
    process = ReferenceProcess(log=tmp_path / "log")
    os.kill(process._process.pid, signal.SIGKILL)
    process._process.wait()
    with pytest.raises(EngineError, match="killed by signal 9 .*float32.*--canary-every 0"):
        reference_check._references(process.reply(), tmp_path / "log")
    process.close()
