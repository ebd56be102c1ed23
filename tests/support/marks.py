"""Marks of some cases of a parametrised test."""

from typing import Any

import pytest


def whole(*values: Any) -> Any:
    """A case that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.whole)


def long(*values: Any) -> Any:
    """A case that `make long` alone runs."""
    return pytest.param(*values, marks=pytest.mark.long)
