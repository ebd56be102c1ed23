"""From banks to tables, sentences and a report, on banks made from arrays."""

import inspect
from pathlib import Path

import pytest

import logitbank.analysis
from logitbank.analysis.families.fairness import fairness
from tests.support.evaluation_banks import winobias_bank

pytestmark = pytest.mark.numerical


def test_paths_may_be_texts(tmp_path: Path) -> None:
    bank = winobias_bank(tmp_path / "b.zarr", steps=2)
    page = fairness(str(bank), bootstrap=0).save(str(tmp_path / "out"))
    assert page == tmp_path / "out" / "report.html"
    assert page.is_file()
    for name in dir(logitbank.analysis):
        function = getattr(logitbank.analysis, name)
        if inspect.isfunction(function) and not {"models", "bank", "banks"}.isdisjoint(
            inspect.signature(function).parameters
        ):
            for parameter in inspect.signature(function).parameters.values():
                taken = str(parameter.annotation)
                assert "Path" not in taken or "str" in taken, f"{name}: {parameter}"
