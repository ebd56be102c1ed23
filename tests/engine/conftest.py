"""What engines leave behind in a process, and tokenizers of tests about prompts."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from logitbank.engine.plan import share
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from tests.support.checkpoints import VOCAB, write_masked_tokenizer, write_tokenizer
from tests.support.fakes import FakeBackend, InProcess, write_series


@pytest.fixture(autouse=True)
def no_engine_before() -> Iterator[None]:
    """No test's engine is as that of the test before it, which set variables and switches.

    A process of an engine has the one engine; here are many, and the processes that they start.
    """
    with patch.dict(os.environ):
        yield
    if torch := sys.modules.get("torch"):
        torch.use_deterministic_algorithms(False)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The fake engine, which the runs of this test have in this process."""
    fake = FakeBackend(VOCAB)
    monkeypatch.setattr(InProcess, "backend", fake)
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    return fake


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Three checkpoints for the fake engine."""
    return write_series(tmp_path / "tiny", "step0", "step1", "step2")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a driver's tool first in PATH that lists GPUs as it is told, a line of CSV for each."""

    def told(listing: str) -> None:
        share.nvidia_smi.cache_clear()
        lines = [line.split(", ") for line in listing.splitlines()]
        gpus = "\n".join(f"GPU {number}: {name} (UUID: {uuid})" for number, uuid, name, *_ in lines)
        tool = tmp_path / "driver" / "nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(
            '#!/bin/sh\ncase "$1" in\n'
            f"--list-gpus) cat <<'END'\n{gpus}\nEND\n;;\n"
            f"--query-gpu=*) cat <<'END'\n{listing}\nEND\n;;\nesac\n"
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    yield told
    share.nvidia_smi.cache_clear()


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("causal")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("masked")
    write_masked_tokenizer(folder)
    return Tokenizer.load(folder)
