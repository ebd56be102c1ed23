"""The log of a run: what it tells, and what a full disk leaves of it."""

import errno
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.run_log import plain
from logitbank.engine.workers.events import Summary
from logitbank.errors import EngineError
from logitbank.store import Bank, merge, shrink, verify
from logitbank.store.share.push import pull, push
from tests.support import fakes
from tests.support.fakes import TEXTS, FakeBackend, questions, write_series

Go = Callable[[], Summary]


@pytest.fixture
def go(tmp_path: Path, backend: FakeBackend) -> Go:
    series = write_series(tmp_path / "tiny", "step0", "step1")
    return lambda: fakes.go(tmp_path / "b.zarr", series, questions(*TEXTS))


def read_log(bank: Path) -> Path:
    (log,) = (bank / "runs").iterdir()
    return log


def run_lines(log: Path) -> list[dict[str, Any]]:
    """The whole lines of a log."""
    return [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]


def test_progress_of_a_run_is_printed_line_by_line(tmp_path: Path, go: Go) -> None:
    go()
    lines = run_lines(read_log(tmp_path / "b.zarr"))
    one = ["CheckpointStarted", "WeightsLoaded", *["BlockCommitted"] * 2, "CheckpointDone"]
    assert [line["event"] for line in lines] == ["Begin", *one, *one, "End"]
    begin, end = lines[0], lines[-1]
    assert begin["suites"][0]["settings"]["engine"] == "transformers"
    assert begin["plan"]["to_run"] == ["tiny step 0", "tiny step 1"]
    assert begin["versions"]["polars"]
    assert (end["done"], end["rows"]) == (["tiny step 0", "tiny step 1"], 6)
    assert end["error"] is None
    assert set(end["spent"]) >= {"swap", "score", "write", "wait"}
    assert verify(Bank.open(tmp_path / "b.zarr")) == ()


def test_a_run_with_nothing_to_do_leaves_no_log(tmp_path: Path, go: Go) -> None:
    go()
    go()
    read_log(tmp_path / "b.zarr")


def test_a_file_that_is_no_log_is_foreign(tmp_path: Path, go: Go) -> None:
    go()
    (tmp_path / "b.zarr" / "runs" / "notes.txt").write_text("mine")
    (damage,) = verify(Bank.open(tmp_path / "b.zarr"))
    assert (damage.path, damage.problem) == ("runs/notes.txt", "foreign")


def test_an_error_that_ends_a_run_is_in_its_log(
    tmp_path: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise EngineError("no more")

    monkeypatch.setattr("logitbank.engine.run._finish", fails)
    with pytest.raises(EngineError, match="no more"):
        go()
    assert run_lines(read_log(tmp_path / "b.zarr"))[-1]["error"] == "EngineError: no more"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("the disk of /d/b.zarr/tiny/main/0/q-1 is full", "the disk of tiny/main/0/q-1 is full"),
        ("/d/b.zarr is there", "b.zarr is there"),
        ("failed on /home/ann/hf/x/model.bin: no", "failed on model.bin: no"),
        ('File "/home/ann/venv/lib/a.py", line 3', 'File "a.py", line 3'),
        ("it is '/home/ann/t'; (~/x/y)", "it is 't'; (y)"),
        ("https://hub.org/a/b and //nas/c", "https://hub.org/a/b and //nas/c"),
        ("0.5 of 1/2 tokens, and/or lab/toy", "0.5 of 1/2 tokens, and/or lab/toy"),
        ("in:/home/ann/x, PATH=/opt/bin", "in:x, PATH=bin"),
        ("12 tokens / second", "12 tokens / second"),
    ],
)
def test_paths_are_written_without_the_folders_that_lead_to_them(text: str, written: str) -> None:
    assert plain({"a": [text, 3]}, Path("/d/b.zarr")) == {"a": [written, 3]}


def test_a_log_tells_of_failures_and_names_no_folder_outside_the_bank(
    tmp_path: Path, go: Go
) -> None:
    (tmp_path / "tiny" / "step1" / "model.safetensors").write_bytes(b"123")
    summary = go()
    assert str(tmp_path) in summary.failed[0].message, "the terminal may know where"
    data = read_log(tmp_path / "b.zarr").read_text()
    assert "model.safetensors is truncated or damaged (3 bytes" in data
    assert str(tmp_path) not in data


def opened_by(kind: type[io.FileIO]) -> Callable[..., object]:
    real = Path.open

    def opened(path: Path, mode: str = "r", *more: object, **named: object) -> object:
        if path.suffix == ".jsonl" and "x" in mode:
            return kind(str(path), "x")
        return real(path, mode, *more, **named)  # type: ignore[call-overload]

    return opened


@pytest.mark.parametrize("lines", [0, 3])
def test_a_log_that_cannot_be_written_hides_and_stops_nothing(
    tmp_path: Path, go: Go, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    class Full(io.FileIO):
        """A disk with room for some lines, and a part of the next."""

        def write(self, data: bytes) -> int:  # type: ignore[override]
            if not left:
                raise OSError(errno.ENOSPC, "No space left on device")
            left.pop()
            return super().write(data if left else data[:20])

    left = [None] * (lines + 1)
    monkeypatch.setattr(Path, "open", opened_by(Full))
    assert go().complete
    assert len(run_lines(read_log(tmp_path / "b.zarr"))) == lines
    assert verify(Bank.open(tmp_path / "b.zarr")) == ()


def test_logs_stay_with_the_bank_that_was_written_to(tmp_path: Path, go: Go) -> None:
    go()
    bank = tmp_path / "b.zarr"
    push(bank, tmp_path / "pushed")
    pull(tmp_path / "pushed", tmp_path / "pulled")
    merge(tmp_path / "merged", bank)
    shrink(bank, tmp_path / "small", keep="options")
    for name in ("pushed", "pulled", "merged", "small"):
        assert not (tmp_path / name / "runs").exists(), name
        assert verify(Bank.open(tmp_path / name)) == (), name
    assert push(tmp_path / "pulled", bank).objects == 0, "a bank with logs can be added to"
    assert len(Bank.open(bank).info()) == 2
