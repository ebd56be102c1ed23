"""Families of a filtered bank: their ranks are left out by name, their other numbers stay."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.families import families
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.filter.filters import Filter
from tests.golden import banks
from tests.support import unqover_cases


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("families")
    banks.families(folder)
    return Bank.open(folder / "families.zarr")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return Bank.open(unqover_cases.make_bank(tmp_path_factory.mktemp("u") / "b.zarr", steps=[8]))


def assert_same_but_ranks(name: str, plain: Study, seen: Study) -> None:
    """The tables of a filter that changes nothing, against those without it."""
    left_out = families()[name].ranks
    for table, frame in plain.tables.items():
        own = seen.tables[table]
        assert own.columns == [c for c in frame.columns if c not in left_out.get(table, ())]
        whole = frame.select(own.columns).with_columns(model=pl.lit("v"))
        if table == "tests":
            whole = whole.filter(measure="jsd_p")
        assert_frame_equal(own, whole, check_exact=False, abs_tol=1e-9)
    (note,) = (text for text in seen.missing if "no ranks" in text)
    assert all(columns[0] in note for columns in left_out.values())
    assert seen.charts
    assert "nan" not in " ".join(seen.summary)


@pytest.mark.parametrize("name", ["fairness", "lambada", "unqover"])
def test_a_filter_leaves_out_ranks_by_name_and_changes_no_other_number(
    bank: Bank, questions: Bank, name: str
) -> None:
    bank = questions if name == "unqover" else bank
    options = {"bootstrap": 20} if name == "fairness" else {}
    analyze = families()[name].analyze
    (model,) = bank.models
    view = bank.filtered(Filter.identity(1), name="v")
    assert_same_but_ranks(name, analyze(bank, models=[model], **options), analyze(view, **options))


def test_a_tradeoff_with_accuracy_is_refused(bank: Bank) -> None:
    view = bank.filtered(Filter.identity(1))
    with pytest.raises(UsageError, match="needs ranks, which a filtered bank does not have"):
        families()["tradeoff"].analyze(view)
