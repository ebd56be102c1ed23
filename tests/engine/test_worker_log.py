"""The log that the workers of a run share: kept where it tells something, and never a sibling's."""

from pathlib import Path

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run, log_path


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
