"""Examples in docstrings give the output that they show."""

import doctest
import importlib

import pytest

from scripts.source import modules

MODULES = [name for name, path in modules().items() if ">>> " in path.read_text()]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


def test_every_package_has_examples() -> None:
    """A search that enters no folder finds none."""
    rooms = {name.split(".")[1] for name in MODULES if name.count(".") > 2}
    assert rooms >= {"analysis", "cli", "engine", "store"}
