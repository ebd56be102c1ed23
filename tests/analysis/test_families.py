"""What every family of metrics promises, whichever it is."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from logitbank.analysis.charts.chart import chart_caption, chart_title
from logitbank.analysis.everything import analyses
from logitbank.analysis.families import families
from logitbank.analysis.frames.banks import PromptColumns
from logitbank.analysis.frames.choose import on_request
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.stats.summary import summarise
from logitbank.analysis.study import Study
from logitbank.cli.analyze import known_tables
from logitbank.store import Bank
from tests.support import bbq_cases, gest_cases, stereoset_cases, unqover_cases
from tests.support.evaluation_banks import HITS, add_specified, whole_bank
from tests.support.fluctuation_cases import professions_bank
from tests.support.lm_eval_banks import harness_bank
from tests.support.paths import ROOT
from tests.support.placebo_cases import with_pairs
from tests.support.preloaded import require_engine
from tests.support.small_banks import logits, new_bank, spec

NAMES = sorted(families())
FAMILIES = ROOT / "analysis" / "families"


def own_bank(path: Path) -> None:
    """One checkpoint over prompts that no family knows."""
    bank, asked = new_bank(path), spec(8)
    bank.deposit(logits(8), checkpoint=asked.checkpoint, query_set=asked.query_set)


MAKE: dict[str, Callable[[Path], Any]] = {
    "fluctuation": professions_bank,
    "bbq": bbq_cases.make_bank,
    "gest": gest_cases.make_bank,
    "stereoset": stereoset_cases.make_bank,
    "unqover": unqover_cases.make_bank,
    "options": own_bank,
    "distance": own_bank,
    "lm_eval": lambda path: harness_bank(path, ["weighted", "words"], steps=[*HITS]),
    "placebo": with_pairs,
}


pytestmark = pytest.mark.filterwarnings("ignore")  # those of what lm-evaluation-harness imports


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Bank]]:
    """A bank with prompts of each family."""
    require_engine()  # whose tokenizer makes the prompts
    folder = tmp_path_factory.mktemp("families")
    os.environ["LOGITBANK_TASKS"] = str(folder / "lm_eval" / "tasks")
    add_specified(Bank.open(whole_bank(folder / "whole")), steps=HITS)
    for name, make in MAKE.items():
        make(folder / name)
    own = {name: folder / (name if name in MAKE else "whole") for name in NAMES}
    own["lm_eval"] = own["lm_eval"] / "b.zarr"
    yield {name: Bank.open(path) for name, path in own.items()}
    del os.environ["LOGITBANK_TASKS"]


@pytest.fixture(scope="module")
def studies(banks: Mapping[str, Bank]) -> Mapping[str, Study[Any]]:
    plans = {
        plan.family.name: plan for bank in banks.values() for plan in analyses(bank, bootstrap=20)
    }
    found = {name: plan.run() for name, plan in plans.items()}
    alone = [family for name, family in families().items() if family.prompts is on_request]
    return found | {family.name: family.analyze(banks["options"]) for family in alone}


def test_families_are_the_folders_in_the_order_of_a_report() -> None:
    folders = [path.parent.name for path in FAMILIES.glob("*/__init__.py")]
    assert sorted(folders) == NAMES
    orders = [family.order for family in families().values()]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_has_at_most_five_modules_of_fixed_names(name: str) -> None:
    modules = {path.stem for path in (FAMILIES / name).glob("*.py")}
    assert modules <= {"__init__", "metric", "tables", "charts", "findings"}


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_of_models_and_have_the_columns_of_the_screen(
    name: str, studies: Mapping[str, Study[Any]]
) -> None:
    tables = studies[name].tables
    known = known_tables(families()[name])
    assert known is not None
    assert set(tables) <= {*known}, "--table would refuse it"
    assert {column for table in tables.values() for column in table.columns} >= {"model"}
    for table, columns in families()[name].screen.items():
        asked = {"group"} if name == "options" else set()  # with `group_by` only
        assert set(columns) - asked <= set(tables[table].columns), table


@pytest.mark.parametrize("name", NAMES)
def test_a_study_has_a_short_headline_findings_of_its_charts_and_cautions(
    name: str, studies: Mapping[str, Study[Any]]
) -> None:
    study = studies[name]
    assert study.family == name
    assert study.description.endswith(".")
    assert study.cautions
    first, *others = study.findings
    assert len(first.text.split()) <= 15, first.text
    assert any(finding.value is not None for finding in others)
    assert len(set(study.summary)) == len(study.summary)
    for finding in study.findings:
        assert finding.figure in ("", *study.charts), finding
    for chart in study.charts.values():
        assert chart_title(chart)
        assert re.search(r"n = \d", chart_caption(chart)), chart_caption(chart)


@pytest.mark.parametrize("name", [name for name in NAMES if families()[name].items])
def test_measures_are_means_of_items_at_every_checkpoint(
    name: str, banks: Mapping[str, Bank]
) -> None:
    """The columns of groups, and a number for every checkpoint that has a score."""
    bank, family = banks[name], families()[name]
    prompts = [each for names in family.prompts(PromptColumns([bank])) for each in names]
    assert family.items is not None
    for each in prompts or bank.prompt_sets:
        items = family.items(Scores([bank], (each,)))
        assert items.values.shape == (len(items.checkpoints), len(items.axes))
        assert items.axes.is_unique().all()
        summary = summarise(items, family.measures)
        keys = ["model", "run", "step", *items.groups, "measure"]
        assert summary.select(keys).is_unique().all()
        assert set(summary["measure"]) <= {measure.key for measure in family.measures}
        assert len(summary) == 0 or summary["value"].is_not_nan().any()
        assert summary["missing"].sum() == items.missing.sum()


def test_no_setting_of_a_family_has_the_name_of_an_option_of_every_command() -> None:
    common = {"banks", "prompts", "models", "model", "cache", "by", "filter"}
    common |= {"out", "width", "colors", "table", "form", "format", "help"}
    taken = {name: common.intersection(family.settings()) for name, family in families().items()}
    assert not any(taken.values()), taken
