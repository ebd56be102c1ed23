"""A GPU that torch cannot use is refused; its run does not go on on the CPU."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.gpus import nvidia_smi
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.errors import DeviceError
from logitbank.store import Bank
from tests.support.checkpoints import make_checkpoint
from tests.support.fakes import TEXTS, questions, request_for
from tests.support.resolved import run

LISTING = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1f)"
SCRIPT = f"""#!/bin/sh
case "$1" in
  --list-gpus) echo '{LISTING}' ;;
  --query-gpu=compute_cap*) echo '9.0, 80000' ;;
  --query-gpu=driver_version) echo 535.104.05 ;;
esac
"""


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An H100 with an old driver, as nvidia-smi describes it."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvidia_smi.cache_clear()
    yield
    nvidia_smi.cache_clear()


@pytest.mark.usefixtures("card", "quick_workers")
def test_a_run_on_a_card_that_torch_cannot_use_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("torch can use a GPU here")
    make_checkpoint(tmp_path / "tiny" / "step0", seed=1)
    make_checkpoint(tmp_path / "tiny" / "step1", seed=2)
    request = request_for(tmp_path / "tiny", questions(*TEXTS))
    summary = run(tmp_path / "b.zarr", request)
    assert summary.aborted, "the other checkpoints would also fail"
    (failure,) = summary.failed
    assert "driver 535.104.05" in failure.message
    assert not Bank.open(tmp_path / "b.zarr").deposits()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(tmp_path / "b.zarr", request).complete, "on the CPU on purpose"


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
@pytest.mark.parametrize(
    ("cuda", "cause", "remedy"),
    [
        (None, "is a CPU build", "install a CUDA build of torch (LOGITBANK_GPU=1 make dev)"),
        ("13.0", "is a build for CUDA 13.0", "update the driver (CUDA 13 needs 580 or later)"),
    ],
)
def test_the_error_names_driver_build_and_remedies(
    engine: EngineName,
    cuda: str | None,
    cause: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    settings = replace(EngineSettings(engine), max_length=16)
    with pytest.raises(DeviceError) as error:
        open_backend(tmp_path / "step0", settings)
    for part in ("driver 535.104.05", torch.__version__, cause, remedy, "CUDA_VISIBLE_DEVICES= "):
        assert part in str(error.value)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    nvidia_smi.cache_clear()
    with pytest.raises(DeviceError, match="no driver found by nvidia-smi"):
        open_backend(tmp_path / "step0", settings)
