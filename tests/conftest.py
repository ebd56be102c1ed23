"""Fixtures of several test files."""

import atexit
import gc
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import huggingface_hub.constants  # noqa: F401  read now: it would keep a test's HF_HUB_OFFLINE
import pytest
import typer.main
from hypothesis import settings

from logitbank.analysis.charts import chart
from logitbank.cli.main import run
from tests.support.command import Call
from tests.support.drawing import SAVE_CHARTS, drawn_once
from tests.support.preloaded import Preloaded
from tests.support.shared import share

gc.disable()  # until all tests are collected: importing their modules leaves no garbage

# The tests' models are tiny. Where other processes want the cores too, threads wait for each other
# at every operation: 60 updates of the demo's model took 20 s with one thread, and more than 280 s
# with two. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What tests fetch and remember is no part of the user's own cache.
if "LOGITBANK_CACHE" not in os.environ:
    os.environ["LOGITBANK_CACHE"] = tempfile.mkdtemp(prefix="logitbank-tests-")
    atexit.register(shutil.rmtree, os.environ["LOGITBANK_CACHE"], ignore_errors=True)

share()

# A property is about values. How long an example takes depends on what else the machine does.
settings.register_profile("logitbank", deadline=None)
settings.load_profile("logitbank")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files, and tests within a file, in an order drawn from LOGITBANK_TEST_ORDER, if it is set.

    Tests of a file stay together, so that its fixtures are made once.
    """
    if seed := os.environ.get("LOGITBANK_TEST_ORDER"):
        draw = random.Random(int(seed))
        files: dict[Path, list[pytest.Item]] = {}
        for item in items:
            files.setdefault(item.path, []).append(item)
        chosen = draw.sample(list(files.values()), len(files))
        items[:] = [item for file in chosen for item in draw.sample(file, len(file))]


def pytest_collection_finish() -> None:
    """Modules are never garbage: without them a collection is quick."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Every call of `logitbank` would make all its commands, in 30 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """An engine that a test opens in this process sets variables, which later tests would have."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    try:
        result = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if result.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {result.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session", autouse=True)
def charts_are_drawn_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        drawn_once(patch.setattr)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """What a test writes need not survive a power cut: 9 deposits of a bank sync 190 times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def charts_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies draw their charts, as they do for everybody else."""
    monkeypatch.setattr(chart, "save_charts", SAVE_CHARTS)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `logitbank` with arguments in this process: exit code, stdout, stderr."""

    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["logitbank", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            run()
        captured = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, captured.out, captured.err

    return called


@pytest.fixture(scope="session")
def preloaded() -> Preloaded:
    """Starts processes of the engines without their imports."""
    return Preloaded()


@pytest.fixture
def quick_workers(preloaded: Preloaded) -> Iterator[None]:
    """Workers and canaries of the transformers engine start at once."""
    with preloaded.workers("transformers"):
        yield
