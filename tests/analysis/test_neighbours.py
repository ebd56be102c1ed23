"""Divergences between checkpoints, by SciPy, and which of them are misplaced, on simulated runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

import logitbank
from logitbank.analysis.families.options.metric import option_scores
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.stats.neighbours import js_divergences, misplaced
from logitbank.store import Bank, CheckpointId
from tests.support.small_banks import QUERY_SET, block_data, new_bank, spec

pytestmark = pytest.mark.numerical

COMPARED = [0, 3, 6, 9]
"""Four rows of ten, evenly spaced."""


def trained(steps: int) -> np.ndarray:
    """(c, 10, 6) logits that move smoothly through training."""
    rng = np.random.default_rng(5)
    start, end, bend = rng.normal(0, 2, (3, 10, 6))
    t = np.linspace(0, 1, steps)[:, None, None]
    return np.asarray(start + t * end + np.sin(2 * t) * bend, dtype=np.float32)


def filled(path: Path, logits: Sequence[np.ndarray], *, keep: str) -> Bank:
    bank = new_bank(path)
    for step, values in enumerate(logits):
        bank.deposit(
            values, checkpoint=CheckpointId("org/model", step=step), query_set=QUERY_SET.name,
            keep=keep, dtype="float32",
        )  # fmt: skip
    return bank


def test_divergences_of_pairs_are_those_of_scipy() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(700, 0.05), size=4)
    p[0, :9] = 0
    p[0] /= p[0].sum()
    expected = [[jensenshannon(one, other) ** 2 for other in p] for one in p]
    assert js_divergences(p) == pytest.approx(np.array(expected), abs=1e-12)
    assert js_divergences(np.hstack([p, p])) == pytest.approx(2 * np.array(expected), abs=1e-12)
    assert (js_divergences(np.stack([p[0], p[0]])) == 0).all()


def test_neighbours_are_compared_by_rows(tmp_path: Path) -> None:
    logits = trained(4)
    bank = filled(tmp_path / "b", logits, keep="full")
    table = option_scores(Scores([bank], ("parity",))).neighbours
    p = [softmax(values[COMPARED].astype(np.float64), axis=1) for values in logits]
    d = [[(jensenshannon(a, b, axis=1) ** 2).mean() for b in p] for a in p]
    successive = pytest.approx([d[0][1], d[1][2], d[2][3]], rel=1e-4)
    assert table["previous"][1:].to_list() == successive
    assert table["next"][:3].to_list() == successive
    for step in range(4):
        others = {other: d[step][other] for other in range(4) if other != step}
        nearest = min(others, key=others.__getitem__)
        assert table["nearest_step"][step] == nearest
        assert table["nearest"][step] == pytest.approx(others[nearest], rel=1e-4)
    assert table.select("compared", "misplaced").unique().rows() == [(4, False)]
    assert option_scores(Scores([bank], ("parity",)), entropy=False).neighbours.is_empty()


def test_two_steps_with_each_others_weights_are_found_by_full_rows_alone(tmp_path: Path) -> None:
    """Probabilities of two options move back and forth in training: they accuse no checkpoint."""
    logits = trained(24)
    right = logitbank.options(filled(tmp_path / "right", logits, keep="full"))
    assert not right.result.neighbours["misplaced"].any()
    logits[[7, 18]] = logits[[18, 7]]
    study = logitbank.options(filled(tmp_path / "swapped", logits, keep="full"))
    wrong = study.result.neighbours.filter("misplaced")
    assert wrong["step"].to_list() == [7, 18]
    assert all(
        abs(nearest - other) == 1
        for nearest, other in zip(wrong["nearest_step"], [18, 7], strict=True)
    )
    first, second = (each for each in study.findings if "another checkpoint" in each.text)
    assert first.value == wrong["nearest"][0]
    assert "step 7 " in first.text
    assert "step 18 " in second.text
    few = logitbank.options(filled(tmp_path / "few", logits, keep="options"))
    assert few.result.neighbours.is_empty()
    assert not any("another checkpoint" in each for each in few.summary)


def test_checkpoints_that_lack_a_compared_prompt_have_no_row(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b", trained(3), keep="full")
    with bank.begin(spec(3)) as writer:
        writer.write(0, block_data(writer.layout, 0, seed=3))
    table = option_scores(Scores([bank], ("parity",))).neighbours
    assert table["step"].to_list() == [0, 1, 2]
    assert table["next"][-1] is None


def runs(kind: str, count: int) -> list[np.ndarray]:
    """Divergences of simulated runs: 40 checkpoints, 60 prompts of two options."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(count):
        if kind == "fast start":  # every prompt learns at its own time, on a logarithmic scale
            t = np.log1p(np.r_[0, 2 ** np.arange(10), 1000 * np.arange(1, 30)]) / np.log(30_000)
            rise = 1 / (1 + np.exp(-(t[:, None] - rng.uniform(0, 1, 60)) / rng.uniform(0.03, 0.2)))
            z = rng.normal(0, 1.5, 60) * rise + 0.3 * np.sin(9 * t[:, None] + np.arange(60))
        elif kind == "walk":
            z = np.cumsum(rng.normal(0, 0.15, (40, 60)), axis=0)
        else:  # training moves no more: every checkpoint is the same, and noise
            z = rng.normal(0, 1, 60) + rng.normal(0, 0.3, (40, 60))
        p = 1 / (1 + np.exp(-z))
        found.append(js_divergences(np.hstack([p, 1 - p])) / 60)
    return found


@pytest.mark.parametrize("kind", ["fast start", "walk", "plateau"])
def test_correct_runs_have_no_misplaced_checkpoint(kind: str) -> None:
    assert sum(bool(misplaced(each)) for each in runs(kind, 40)) == 0


@pytest.mark.parametrize("kind", ["fast start", "walk"])
def test_a_planted_swap_or_copy_is_found_and_nothing_else(kind: str) -> None:
    swap, copy = np.arange(40), np.arange(40)
    swap[[9, 30]], copy[22] = [30, 9], 5
    every = runs(kind, 40)
    swapped = [misplaced(each[np.ix_(swap, swap)]) for each in every]
    assert sum(found != [] for found in swapped) == 40
    assert sum(found == [9, 30] for found in swapped) >= 15, "9 is where training moves fast"
    copied = [misplaced(each[np.ix_(copy, copy)]) for each in every]
    assert sum(found == [22] for found in copied) >= 38
    assert {step for found in swapped for step in found} == {9, 30}
    assert {step for found in copied for step in found} == {22}


def test_equal_checkpoints_and_short_runs_have_none() -> None:
    assert misplaced(np.zeros((20, 20))) == []
    order = np.arange(7)
    order[[2, 6]] = 6, 2
    line = np.abs(np.subtract.outer(order, order)).astype(np.float64) ** 2
    assert misplaced(line) == []
