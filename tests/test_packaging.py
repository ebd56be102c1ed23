"""The wheel has every package, the front door every name, and light imports stay light."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import logitbank

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "vllm")


def test_packages_in_pyproject_are_the_folders_on_disk() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"api"} | {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert set(setuptools["package-dir"].values()) == folders
    assert set(setuptools["package-dir"]) == set(setuptools["packages"])
    assert {p.parent.name for p in ROOT.glob("*/py.typed")} == folders


def test_the_front_door_gives_every_name_that_it_lists() -> None:
    for name in logitbank.__all__:
        assert getattr(logitbank, name) is not None
    assert sorted(logitbank.__all__) == dir(logitbank)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = logitbank.nothing


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert logitbank.__version__ == project["version"]


@pytest.mark.parametrize(
    "module",
    ["logitbank", "logitbank.store", "logitbank.analysis", "logitbank.analysis.study"],
)
def test_importing_it_does_not_pull_in_an_engine(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = (
        "import sys, logitbank.cli.main; "
        "print([m for m in ('torch', 'polars', 'zarr', 'scipy', 'rich.table') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_analysis_never_imports_an_engine() -> None:
    for source in (ROOT / "analysis").glob("*.py"):
        assert "logitbank.engine" not in source.read_text(), source.name
    for source in (ROOT / "store").glob("*.py"):
        for package in ("engine", "analysis", "cli"):
            assert f"logitbank.{package}" not in source.read_text(), source.name
