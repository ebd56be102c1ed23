"""What engines leave behind in a process, a hub, and tokenizers of tests about prompts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from logitbank.engine.suites.hub import Hub
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from tests.support.checkpoints import VOCAB, write_masked_tokenizer, write_tokenizer
from tests.support.fakes import FakeBackend, InProcess, write_series
from tests.support.hub_server import HubServer


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
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    return fake


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Three checkpoints for the fake engine."""
    return write_series(tmp_path / "tiny", "step0", "step1", "step2")


@pytest.fixture
def server(root: Path) -> Iterator[HubServer]:
    """A hub that serves the folder of the fixture `root`."""
    with HubServer(root, gated={"lab/closed"}) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return Hub(server.endpoint, tmp_path / "cache")


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
