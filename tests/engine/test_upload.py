"""Copies to and from a GPU, on a system that gives page-locked memory and on one that does not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.run import run
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights import upload
from logitbank.engine.weights.upload import page_locked, page_locked_refusal, to_device, to_host
from tests.engine.test_extract import questions, write_series
from tests.support.checkpoints import VOCAB
from tests.support.fakes import FakeBackend, InProcess

REFUSED = "CUDA error: out of memory"


class System:
    """Gives memory that is said to be page-locked, as long as `gives`; notes every copy of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gives, self.error = True, f"{REFUSED}\nmore of it"
        self.locked: set[int] = set()
        self.begun: list[bool] = []
        empty, copy = torch.empty, torch.Tensor.copy_

        def played(shape: Any, *, pin_memory: bool = False, **named: Any) -> torch.Tensor:
            if pin_memory and not self.gives:
                raise RuntimeError(self.error)
            made = empty(shape, **named)
            if pin_memory:
                self.locked.add(made.data_ptr())
            return made

        def copied(to: torch.Tensor, of: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
            self.begun.append(non_blocking)
            return copy(to, of)

        monkeypatch.setattr(torch, "empty", played)
        monkeypatch.setattr(torch.Tensor, "copy_", copied)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda t: t.data_ptr() in self.locked)
        monkeypatch.setattr(upload, "_refusals", [])


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def test_a_copy_to_the_host_is_begun_into_page_locked_memory(system: System) -> None:
    assert to_host(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert system.begun == [True]
    assert page_locked_refusal() == ""


def test_where_there_is_no_page_locked_memory_a_copy_is_waited_for(system: System) -> None:
    system.gives = False
    assert to_host(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert system.begun == [False], "what is not page-locked may not be there yet"
    assert page_locked_refusal() == REFUSED


def test_any_other_error_is_raised(system: System) -> None:
    system.gives, system.error = False, "CUDA error: device-side assert triggered"
    with pytest.raises(RuntimeError, match="assert triggered"):
        page_locked((2,), torch.float32)
    assert page_locked_refusal() == ""


@pytest.mark.parametrize("gives", [True, False])
def test_what_is_sent_to_a_gpu_is_what_the_host_has(
    system: System, monkeypatch: pytest.MonkeyPatch, gives: bool
) -> None:
    sent: list[tuple[list[int], bool]] = []

    def to(host: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        sent.append((host.tolist(), host.is_pinned()))
        return host

    monkeypatch.setattr(torch.Tensor, "to", to)
    system.gives = gives
    to_device(torch.tensor([[1, 2], [3, 4]]).T, torch.device("cuda"))
    assert sent == [([[1, 3], [2, 4]], gives)]


def test_a_run_says_in_one_line_that_copies_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_refusals", [REFUSED])
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    suite = resolve_suite(str(write_series(tmp_path / "tiny", "step0", "step1")))
    settings = EngineSettings("transformers", canary_every=0)
    summary = run(tmp_path / "b.zarr", Extraction(suite, (questions(" the"),), settings))
    assert summary.notes == [
        f"tiny step 0: copies wait, as the system gives no page-locked memory: {REFUSED}"
    ]
