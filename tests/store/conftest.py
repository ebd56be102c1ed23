"""Places of banks: servers of S3, of the Hub and of files, and where reads from them are kept."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dataset_hub import TOKEN, DatasetHub
from tests.support.file_server import FileServer
from tests.support.s3_server import BUCKET, S3Server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test alone."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries try again at once, and not after one, two and four seconds."""
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    """What is in `www` of the test's folder, at a URL."""
    (tmp_path / "www").mkdir()
    with FileServer(tmp_path / "www") as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as running:
        yield running


@pytest.fixture(scope="session")
def hub_server() -> Iterator[DatasetHub]:
    with DatasetHub() as running:
        yield running


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place of the S3 server, which the environment names."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3_server.behave()
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/bank"


@pytest.fixture
def hub(hub_server: DatasetHub, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a dataset that the hub does not have yet."""
    monkeypatch.setenv("HF_ENDPOINT", hub_server.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    hub_server.behave()
    return f"hf://datasets/lab/{uuid.uuid4().hex}"
