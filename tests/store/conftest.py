"""Banks at a URL, and where what is read of them is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.file_server import FileServer


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test alone."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    """What is in `www` of the test's folder, at a URL."""
    (tmp_path / "www").mkdir()
    with FileServer(tmp_path / "www") as server:
        yield server
