"""From banks to tables, sentences and a report, on banks made from arrays."""

import importlib
import inspect
import pkgutil
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import logitbank.analysis
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.family import families
from logitbank.cli.screen.brief import OTHERS
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


def test_every_result_that_is_no_family_s_says_which_of_its_own_tables_people_see() -> None:
    modules = pkgutil.walk_packages(logitbank.analysis.__path__, "logitbank.analysis.")
    results = {
        name: {field.name for field in fields(value)}
        for module in modules
        for name, value in vars(importlib.import_module(module.name)).items()
        if is_dataclass(value) and callable(getattr(value, "tables", None))
    }
    assert set(results) - {own.result.__name__ for own in families().values()} == set(OTHERS)
    for name, tables in OTHERS.items():
        assert set(tables) <= results[name], name
