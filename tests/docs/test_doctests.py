"""Every example in a docstring says what comes out."""

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


def test_modules_of_every_room_are_among_them() -> None:
    """A search that enters no folder would find none of them."""
    rooms = {name.split(".")[1] for name in MODULES if name.count(".") > 2}
    assert rooms >= {"analysis", "cli", "engine", "store"}
