"""Distances over the vocabulary against NumPy, on tiny banks."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import logitbank
from logitbank.analysis.everything import analyses
from logitbank.errors import KeepLevelError, UsageError
from logitbank.store import Bank, CheckpointId, Keep
from tests.support.small_banks import QUERIES, QUERY_SET, logits, new_bank

pytestmark = pytest.mark.numerical
STEPS = (0, 8, 64, None)


def filled(path: Path) -> tuple[Bank, dict[tuple[str, str, int | None], np.ndarray]]:
    """Two runs of a model and another model, and their probabilities in float64."""
    bank, found = new_bank(path), {}
    for seed, (model, run) in enumerate([("a", "seed0"), ("a", "seed1"), ("b", "main")]):
        for step in STEPS:
            values = logits(10 * seed + (step or 99))
            checkpoint = CheckpointId(model, run=run, step=step)
            bank.deposit(values, checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float32")
            p = np.exp(values.astype(np.float64))
            found[model, run, step] = p / p.sum(axis=1, keepdims=True)
    return bank, found


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.array([stats.entropy(a, b) for a, b in zip(p, q, strict=True)])


def js(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2


def test_distances_agree_with_scipy(tmp_path: Path) -> None:
    bank, p = filled(tmp_path / "a")
    tables = logitbank.distance(bank).tables
    rows = {
        (r["run"], r["step"], r["measure"]): r
        for r in tables["measures"].filter(model="a").to_dicts()
    }
    own = [p["a", "seed0", step] for step in STEPS]
    for at, step in enumerate(STEPS):
        q, last, other = own[at], own[-1], p["a", "seed1", step]
        expected = {
            "entropy": stats.entropy(q, axis=1),
            "kl_last": kl(last, q),
            "js_last": js(last, q),
            "tv_last": abs(q - last).sum(axis=1) / 2,
            "top1_last": (q.argmax(axis=1) == last.argmax(axis=1)).astype(float),
            "kl_runs": (kl(q, other) + kl(other, q)) / 2,
            "js_runs": js(q, other),
        }
        if at:
            expected |= {"kl_previous": kl(own[at - 1], q), "js_previous": js(own[at - 1], q)}
        for name, values in expected.items():
            row = rows["seed0", step, name]
            assert row["value"] == pytest.approx(values.mean(), rel=1e-6, abs=1e-12), (step, name)
            assert (row["items"], row["missing"]) == (QUERIES, 0)
    assert ("seed0", 0, "js_previous") not in rows
    row = rows["seed0", 8, "js_previous"]
    low, high = stats.t.interval(0.95, QUERIES - 1, row["value"], stats.sem(js(own[0], own[1])))
    assert (row["low"], row["high"]) == pytest.approx((low, high), rel=1e-5)


def test_pairs_of_runs_and_models_at_one_step(tmp_path: Path) -> None:
    bank, p = filled(tmp_path / "a")
    pairs = logitbank.distance(bank).tables["pairs"].filter(step=8, measure="tv")
    found = {
        (r["model"], r["run"], r["other_model"], r["other_run"]): r["value"]
        for r in pairs.to_dicts()
    }
    names = [("a", "seed0"), ("a", "seed1"), ("b", "main")]
    expected = {
        (*x, *y): abs(p[*x, 8] - p[*y, 8]).sum(axis=1).mean() / 2
        for at, x in enumerate(names)
        for y in names[at + 1 :]
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_map_has_all_pairs_of_checkpoints(tmp_path: Path) -> None:
    bank, p = filled(tmp_path / "a")
    table = logitbank.distance(bank, models=["b"]).tables["map"]
    assert len(table) == len(STEPS) ** 2
    assert table["contexts"].unique().to_list() == [QUERIES]
    for row in table.to_dicts():
        a, b = p["b", "main", row["step"]], p["b", "main", row["other_step"]]
        assert row["kl"] == pytest.approx((kl(a, b) + kl(b, a)).mean() / 2, rel=1e-5, abs=1e-12)


def test_prompts_of_several_contexts_count_once(tmp_path: Path) -> None:
    """The value of a prompt is the mean over its contexts; its orders are averaged."""
    bank, p = filled(tmp_path / "a")
    table = bank.prompts("parity").collect()
    joined = table.with_columns(
        prompt_id=pl.lit("p") + (pl.col("row") // 4).cast(pl.String), piece=pl.col("row") % 4
    )
    bank.add_prompts(
        "few", joined.with_columns(option=pl.col("option") + pl.col("piece").cast(pl.String))
    )
    rows = logitbank.distance(bank, prompts="few", models=["b"]).tables["measures"]
    entropy = stats.entropy(p["b", "main", 8], axis=1)
    expected = np.mean([entropy[:4].mean(), entropy[4:8].mean(), entropy[8:].mean()])
    row = rows.filter(step=8, measure="entropy").row(0, named=True)
    assert (row["value"], row["items"]) == (pytest.approx(expected, rel=1e-6), 3)


def test_checkpoints_without_full_rows_are_refused_or_left_out(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "a")
    few = {"query_set": QUERY_SET.name, "dtype": "float32"}
    bank.deposit(logits(1), checkpoint=CheckpointId("m", step=1), keep=Keep("options"), **few)
    with pytest.raises(KeepLevelError, match="--keep full or --keep hidden"):
        logitbank.distance(bank)
    bank.deposit(logits(2), checkpoint=CheckpointId("m", step=2), **few)
    study = logitbank.distance(bank)
    assert study.tables["measures"]["step"].unique().to_list() == [2]
    assert study.missing == ("Excluded: 1 checkpoint without complete full rows (m step 1).",)


def test_a_report_does_not_read_all_rows(tmp_path: Path) -> None:
    bank, _ = filled(tmp_path / "a")
    assert "Distances" not in [analysis.title for analysis in analyses(bank)]


def test_a_run_in_two_banks_is_refused(tmp_path: Path) -> None:
    banks = [filled(tmp_path / name)[0] for name in ("a", "b")]
    with pytest.raises(UsageError, match="has scores of 'parity' in both .* and "):
        logitbank.distance(banks)
