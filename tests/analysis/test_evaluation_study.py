"""LAMBADA, stereotype accuracy and CrowS-Pairs from banks: numbers, files, figures, commands."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.charts.chart import legend_names
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.pairs import pairs
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from tests.support.evaluation_banks import (
    HITS,
    VOCAB,
    add_lambada,
    add_pieces,
    add_stereotype,
    add_winobias,
    deposit,
    whole_bank,
    winobias_bank,
)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


def test_a_bank_s_accuracy_and_perplexity_are_those_of_its_logits(bank: Path) -> None:
    table = logitbank.lambada([bank]).tables["lambada"]
    assert table["step"].to_list() == list(HITS)
    assert table["acc"].to_list() == [right / 40 for right in HITS.values()]
    logits = np.random.default_rng(32).normal(size=(80, 12))
    for row in range(80):
        logits[row, 1 + row % 2] = 9 if row // 2 < 30 else -1
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = np.array([np.log(p[row, 1 + row % 2]) for row in range(80)])
    known = table.filter(step=32)["perplexity"][0]
    assert known == pytest.approx(np.exp(-own.sum() / 40), rel=1e-5)


def test_stereotype_accuracy_of_a_bank_and_its_relative(bank: Path) -> None:
    table = stereotype([bank]).tables["stereotype_accuracy"]
    assert table.filter(kind="sa", step=8)["accuracy"].to_list() == [0.9]
    gender = table.filter(kind="sa_gender")
    assert gender["step"].to_list() == list(HITS)
    # From step 32 on, all answers are male: right for every male and wrong for every female one.
    assert (
        gender.filter(pl.col("step") >= 32)["accuracy"].to_list()
        == [pytest.approx(0.5, abs=0.1)] * 3
    )


def test_stereotype_accuracy_stands_beside_the_change_of_the_gap(tmp_path: Path) -> None:
    """Fig. 3 of arXiv 2506.01709: JSD-P of both answers above, and what moved meanwhile."""
    bank = Bank.create(tmp_path / "b")
    add_winobias(bank, steps=range(1, 15), skew_from=8)
    add_stereotype(bank, steps=range(1, 15))
    study = stereotype(bank, bootstrap=100)
    table = study.tables["over_change"]
    assert table.select("measure", "kind", "before", "after").rows() == [
        ("sa", "change point", 7, 8), ("sa_gender", "change point", 7, 8),
    ]  # fmt: skip
    assert (table["delta_before"].abs() < 0.2).all()
    assert (table["delta_after"] > 0.6).all()

    own = np.array([i % 2 for i in range(10)])  # "he" in every second sentence
    hits = []
    for step in (7, 8):
        logits = np.random.default_rng(step).normal(size=(20, VOCAB))
        if step == 8:
            logits[np.arange(20), np.where(np.repeat(own, 2), 1, 2)] = [-4, -4, *[4] * 18]
        he = (logits[:, 1] - logits[:, 2]).reshape(10, 2).mean(axis=1) > 0
        hits.append(he == own)
    moved = hits[1].astype(float) - hits[0]
    row = table.row(0, named=True)
    assert row["change"] == pytest.approx(moved.mean())
    centre = moved.sum() / 12  # Bonett and Price: one sentence more in either direction
    half = 1.959964 * np.sqrt((((moved**2).sum() + 2) / 12 - centre**2) / 12)
    assert (row["low"], row["high"]) == pytest.approx((centre - half, centre + half), rel=1e-6)
    text = "Stereotype accuracy, type 2, sa, change from step 7 to 8, over which the gender gap Δ"
    (found,) = (each for each in study.findings if each.text.startswith(text))
    assert (found.value, found.n) == (row["change"], "10 sentences")

    few = Bank.create(tmp_path / "few")  # too few checkpoints for a search
    add_winobias(few, steps=[4, 6, 8], skew_from=8)
    add_stereotype(few, steps=[4, 6, 8])
    gaps = fairness(few, bootstrap=0).result.gap
    sizes = gaps["delta"].abs()
    least = gaps.filter(sizes == sizes.min())["step"].item()
    rows = stereotype(few, bootstrap=0).tables["over_change"]
    assert rows.select("kind", "before", "after").unique().rows() == [("extremes", least, 8)]
    assert rows["delta_after"].to_list() == [gaps["delta"][-1]] * 2

    chart = study.charts["gap_and_stereotype"]
    assert len(chart.vconcat) == 2
    assert legend_names(chart.to_dict()) >= {"male", "female", "type 2 sa", "type 2 sa_gender"}
    jsd_p = fairness(bank, bootstrap=0).result.jsd_parts
    known = jsd_p.filter(pl.col("gold") == pl.col("option"), pl.col("gold") != "not specified")
    assert study.tables["jsd_p"]["jsd_p"].to_list() == known["jsd_p"].to_list()


def test_the_prompts_of_any_measure_may_be_absent(tmp_path: Path, bank: Path) -> None:
    only = stereotype([bank], prompts=["stereotype-accuracy"])
    assert only.tables["stereotype_accuracy"]["kind"].unique().to_list() == ["sa"]
    assert list(only.charts) == ["measures"]
    assert list(only.tables) == ["measures", "change_points", "stereotype_accuracy", "counts"]
    other = stereotype([winobias_bank(tmp_path / "w")]).tables
    assert other["stereotype_accuracy"]["kind"].unique().to_list() == ["sa_gender"]
    with pytest.raises(BankError, match="'none' is not in .*--prompts"):
        stereotype([bank], prompts=["none", "winobias"])
    with pytest.raises(UsageError, match="of one kind"):
        stereotype([bank], prompts=["lambada", "winobias"])


def test_missing_prompts_error_names_the_extract_command(tmp_path: Path) -> None:
    path = tmp_path / "b.zarr"
    bank = Bank.create(path)
    with pytest.raises(
        BankError,
        match="'lambada' is not in .*b.zarr.*--prompts lambada",
    ):
        logitbank.lambada([path])
    add_lambada(bank, {1: 3})
    with pytest.raises(UsageError, match="pair, side, score_kind"):
        pairs([path])
    with pytest.raises(UsageError, match="'x' is not in .*, .* Available: lambada"):
        pairs([path, Bank.create(tmp_path / "c.zarr").path], prompts="x")


def test_an_example_that_was_cut_short_is_missing_even_at_the_only_checkpoint(
    tmp_path: Path,
) -> None:
    """The prompt table, not the scores, says how many tokens a word has."""
    bank = Bank.create(tmp_path / "b.zarr")
    queries = add_pieces(bank, "lambada", [("a", (1, 2), {"x": 1}), ("b", (3,), {"x": 1})])
    deposit(bank, queries, np.eye(3, 12), step=1)
    sizes = Scores([bank], ("lambada",)).expected().sort("prompt_id")
    assert sizes.rows() == [("toy", "a", 2), ("toy", "b", 1)]
