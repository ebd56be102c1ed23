"""What every family of metrics promises, whichever it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.family import Family, families, family_of
from logitbank.analysis.frames.apart import ColumnsOf
from logitbank.analysis.frames.expected import expected_pieces
from logitbank.analysis.report.sections import planned
from logitbank.analysis.report.words import cautions
from logitbank.analysis.results.study import Study
from logitbank.store import Bank
from tests.support import stereoset_cases, unqover_cases
from tests.support.evaluation_banks import whole_bank
from tests.support.fluctuation_cases import professions_bank
from tests.support.paths import ROOT
from tests.support.small_banks import logits, new_bank, spec

NAMES = sorted(families())


def own_bank(path: Path) -> None:
    """One checkpoint over prompts that no family knows."""
    bank, asked = new_bank(path), spec(8)
    bank.deposit(logits(8), checkpoint=asked.checkpoint, query_set=asked.query_set)


MAKE: dict[str, Callable[[Path], Any]] = {
    "fluctuation": professions_bank,
    "stereoset": stereoset_cases.make_bank,
    "unqover": unqover_cases.make_bank,
    "options": own_bank,
}


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Bank]:
    """A bank with prompts of each family."""
    folder = tmp_path_factory.mktemp("families")
    whole_bank(folder / "whole")
    for name, make in MAKE.items():
        make(folder / name)
    return {name: Bank.open(folder / (name if name in MAKE else "whole")) for name in NAMES}


@pytest.fixture(scope="module")
def studies(banks: Mapping[str, Bank]) -> Mapping[str, Study[Any]]:
    plans = {
        plan.family: plan
        for bank in banks.values()
        for plan in planned(bank, bank.prompt_sets, bootstrap=20)
    }
    return {name: plan.study() for name, plan in plans.items()}


def test_families_are_the_folders() -> None:
    folders = {
        path.parent.name.replace("_", "-")
        for path in (ROOT / "analysis" / "families").glob("*/__init__.py")
        if "def family()" in path.read_text()
    }
    assert set(NAMES) == folders
    assert len({family.place for family in families().values()}) == len(NAMES)
    assert family_of(pl.DataFrame()) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_study_gives_the_result_of_its_family(
    name: str, studies: Mapping[str, Study[Any]]
) -> None:
    own = family_of(studies[name].result)
    assert own is families()[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_of_models_and_has_columns_that_people_see(
    name: str, studies: Mapping[str, Study[Any]]
) -> None:
    tables, brief = studies[name].result.tables(), families()[name].brief
    assert {column for table in tables.values() for column in table.columns} >= {"model"}
    assert bool(brief) == (name != "options")  # `show` draws the tables of options
    for table, columns in brief.items():
        assert set(columns) <= set(tables[table].columns), table


@pytest.mark.parametrize("name", NAMES)
def test_a_family_says_what_it_asks_and_what_it_does_not_say(
    name: str, studies: Mapping[str, Study[Any]]
) -> None:
    family, summary = families()[name], studies[name].summary
    assert family.asks.endswith(".")
    assert summary.cautions == family.cautions
    assert set(family.cautions) <= set(cautions([name, name]))
    assert family.cautions
    assert len(set(summary)) == len(summary)


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_in_the_section_of_the_report(name: str, banks: Mapping[str, Bank]) -> None:
    bank = banks[name]
    (plan,) = (
        plan for plan in planned(bank, bank.prompt_sets, bootstrap=20) if plan.family == name
    )
    found = plan.study().summary
    assert plan.title.split()[0] == families()[name].title.split()[0]
    assert any(character.isdigit() for character in found.findings[0])
    assert found.notes
    assert not set(found.notes) & set(found.findings)


@pytest.mark.parametrize("family", families().values(), ids=lambda family: family.name)
def test_headlines_and_gaps_are_curves_over_checkpoints(
    family: Family[Any], banks: Mapping[str, Bank]
) -> None:
    bank = banks[family.name]
    if family.headline:
        ((prompts,),) = family.prompts(ColumnsOf([bank]))
        values = family.headline([bank.scan(prompts)], expected_pieces([bank], prompts))
        assert values.columns == ["model", "run", "step", "metric", "group", "value"]
        assert values.drop("value").is_unique().all()
        assert values["value"].is_not_null().all()
    for gap in family.gaps.values():
        curve = gap.curve([bank], gap.prompts, None, 20)
        assert {"model", "run", "step", "value"} <= set(curve.columns)
        assert len(curve) > 1
