"""Eight or more models and runs: findings about their distribution, thin lines, one row each."""

import json
from pathlib import Path

import numpy as np
import pytest

from logitbank.analysis.families.options import options
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.crowd import digest
from logitbank.store import Bank, CheckpointId
from tests.support.small_banks import OPTIONS, QUERY_SET, new_bank

STEPS = (0, 10, 20)


def crowded(path: Path, models: int) -> tuple[Bank, np.ndarray]:
    """Models whose share of "yes" goes from 0.3 to a value of their own; these values."""
    bank = new_bank(path)
    last = np.linspace(0.2, 0.7, models)
    for model, share in enumerate(last):
        for at, step in enumerate(STEPS):
            p = 0.3 + (share - 0.3) * at / 2 + np.linspace(-0.02, 0.02, 10)
            rows = np.full((10, 6), -30.0)
            rows[:, OPTIONS["yes"]], rows[:, OPTIONS["no"]] = np.log(p), np.log(1 - p)
            bank.deposit(
                rows.astype(np.float32), checkpoint=CheckpointId(f"m{model}", step=step),
                query_set=QUERY_SET.name, dtype="float32",
            )  # fmt: skip
    return bank, last


def test_a_crowd_is_told_by_its_median_and_range(tmp_path: Path) -> None:
    bank, last = crowded(tmp_path / "b", 9)
    study = options(bank)
    (yes,) = [f for f in study.findings if "“yes” at step 20" in f.text]
    assert yes.value == pytest.approx(np.median(last))
    assert yes.note == "range 0.200 (m0) to 0.700 (m8)"
    assert not [f for f in study.findings if f.series], "the rest is in the details"
    assert len([f for f in study.details if "“yes” at step 20" in f.text]) == 9
    assert len(study.as_dict()["details"]) == len(study.details)
    assert study.title == "Options: 9 models"


def test_a_crowd_has_a_row_with_a_sparkline_for_each_model(tmp_path: Path) -> None:
    bank, _ = crowded(tmp_path / "b", 9)
    table = options(bank).tables["models"]
    assert table["model"].to_list() == [f"m{i}" for i in range(9)]
    assert table["first"].to_list() == [0.0] * 9
    assert table["last"].to_list() == [0.0] * 5 + [0.8] + [1.0] * 3, "above ½, of ten prompts"
    assert {len(curve) for curve in table["curve"]} == {len(STEPS)}


def test_a_chart_of_a_crowd_names_the_extremes_and_has_one_colour_for_the_rest(
    tmp_path: Path,
) -> None:
    bank, _ = crowded(tmp_path / "b", 9)
    charts = options(bank).charts
    spec = json.dumps(charts["accuracy"].to_dict())
    assert '"7 others"' in spec
    assert "the highest and the lowest at the end" in spec
    assert "medians" in json.dumps(charts["option_probability"].to_dict())


def test_fewer_models_are_told_one_by_one(tmp_path: Path) -> None:
    bank, _ = crowded(tmp_path / "b", 7)
    study = options(bank)
    assert not study.details
    assert "models" not in study.tables
    assert {f.series[0] for f in study.findings if f.series} == {f"m{i}" for i in range(7)}


def test_outliers_are_those_of_tukey() -> None:
    values = [*np.linspace(0.4, 0.6, 11), 0.9]
    found = [
        Finding(text=f"m{i}: X at step 5", value=float(v), series=(f"m{i}", "main"))
        for i, v in enumerate(values)
    ]
    other = Finding(text="All had prompts.")
    (first, second), details = digest([*found, other])
    lower, upper = np.percentile(values, [25, 75])
    assert sum(v > upper + 1.5 * (upper - lower) for v in values) == 1
    assert first.text == "X at step 5, median of 12 models and runs"
    assert first.value == pytest.approx(np.median(values))
    assert first.note.endswith("outliers m11 (0.900)")
    assert (second, details) == (other, found)
