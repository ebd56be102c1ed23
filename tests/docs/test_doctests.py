"""Every example in a docstring of `analysis` and `store` says what comes out."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

from logitbank import analysis, store

MODULES = [
    module.name
    for package in (analysis, store)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


ROOMS = [Path(package.__path__[0]) for package in (analysis, store)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_modules_in_folders_are_among_them() -> None:
    """Those of a flat package alone would be found by an iteration that enters no folder."""
    names = {f"logitbank.{p.name}.{s.stem}" for p in ROOMS for s in p.rglob("*.py")}
    assert {name.rpartition(".")[2] for name in MODULES} >= {
        name.rpartition(".")[2] for name in names
    } - {"__init__"}
