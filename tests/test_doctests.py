"""Every example in a docstring of `analysis` and `store` says what comes out."""

import doctest
import importlib
import pkgutil

import pytest

from logitbank import analysis, store

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (analysis, store)
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
