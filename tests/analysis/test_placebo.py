"""Placebos: values by hand, refusals, and how often a difference is named in simulated sets."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.families.placebo import FAMILY
from logitbank.analysis.frames.items import array_items
from logitbank.analysis.stats.summary import summarise
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId
from tests.support.placebo_cases import EDITS, ORDERS, pair_table, winobias_bank, with_pairs
from tests.support.small_banks import QUERY_SET, logits, new_bank, prompt_table

pytestmark = pytest.mark.numerical


def test_changes_of_three_pairs_by_hand(tmp_path: Path) -> None:
    study = logitbank.placebo(with_pairs(tmp_path / "a"), prompts="edits")
    rows = study.tables["measures"].filter(step=8).rows_by_key("measure", named=True, unique=True)
    values = logits(8).astype(np.float64)[:9, [1, 4]]  # yes and no
    odds = (values[:, 0] - values[:, 1]).reshape(3, 3)
    for at, edit in enumerate(EDITS[1:], 1):
        moved = np.abs(odds[:, at] - odds[:, 0]).mean()
        changed = ((odds[:, at] > 0) != (odds[:, 0] > 0)).mean()
        assert rows[f"odds, {edit}"]["value"] == pytest.approx(moved, rel=1e-6)
        assert rows[f"changed, {edit}"]["value"] == pytest.approx(changed)
        assert rows[f"odds, {edit}"]["items"] == 3
    difference = rows["changed, target"]["value"] - rows["changed, placebo"]["value"]
    assert rows["changed, difference"]["value"] == pytest.approx(difference)


def test_certain_models_and_prompts_in_no_pair(tmp_path: Path) -> None:
    """Options that are 300 nats apart have log-odds; a prompt without a pair does not count."""
    bank = new_bank(tmp_path / "a")
    alone = pl.col("row") == 9
    table = pair_table(QUERY_SET)
    rest = prompt_table().filter(alone).with_columns(
        pair=pl.lit(None, pl.String), edit=pl.lit(None, pl.String)
    )  # fmt: skip
    bank.add_prompts("edits", pl.concat([table, rest]))
    values = np.zeros((10, 6), np.float32)
    values[:, 1] = 300
    values[1] = 0
    checkpoint = CheckpointId("m", step=0)
    bank.deposit(values, checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float32")
    table = logitbank.placebo(bank, prompts="edits").tables["measures"]
    rows = table.rows_by_key("measure", named=True, unique=True)
    assert rows["odds, target"]["value"] == pytest.approx(100)
    assert rows["odds, placebo"]["value"] == 0
    assert (rows["odds, target"]["items"], rows["odds, target"]["missing"]) == (3, 0)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (
            ("original", "target", "rewrite"),
            "has the edit 'rewrite'. Use original, target, placebo",
        ),
        (
            ("original", "target", "target"),
            "Pair 'pair0' of edits has the edits original, target, t",
        ),
    ],
)
def test_other_edits_are_refused(tmp_path: Path, edits: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        logitbank.placebo(with_pairs(tmp_path / "a", edits), prompts="edits")


def test_other_pronouns_and_other_orders_of_winobias(tmp_path: Path) -> None:
    """Questions that no pronoun answers; the referred ones have no part in it."""
    bank, odds = winobias_bank(tmp_path / "a")
    study = logitbank.placebo(bank, prompts="winobias")
    rows = study.tables["measures"].rows_by_key("measure", named=True, unique=True)
    order = sorted(range(3), key=lambda at: ORDERS[at])
    edits = {
        "target": odds[:, ::-1],
        "placebo": odds[:, :, [order[(order.index(at) + 1) % 3] for at in range(3)]],
    }
    for edit, other in edits.items():
        moved = np.abs(other - odds).mean()
        changed = (other.argmax(-1) != odds.argmax(-1)).mean()
        assert rows[f"odds, {edit}"]["value"] == pytest.approx(moved, rel=1e-5)
        assert rows[f"changed, {edit}"]["value"] == pytest.approx(changed)
        assert (rows[f"odds, {edit}"]["items"], rows[f"odds, {edit}"]["clusters"]) == (72, 12)
    assert "does not exceed the placebo" in study.findings[0].text
    one = bank.prompts("winobias").filter(pl.col("order_seed") == 0).collect()
    alone = Bank.create(tmp_path / "one")
    alone.add_query_set(bank.query_set(one["query_set"][0]))
    alone.add_prompts("winobias", one)
    values = np.zeros((len(bank.query_set(one["query_set"][0])), 6), np.float32)
    checkpoint = CheckpointId("m", step=8)
    alone.deposit(values, checkpoint=checkpoint, query_set=one["query_set"][0])
    with pytest.raises(UsageError, match="both pronouns in two option orders.*orders=all"):
        logitbank.placebo(alone, prompts="winobias")


def named(target: np.ndarray, placebo: np.ndarray, measure: int = 0) -> float:
    """Share of simulated sets (s, pairs) in which the target is found to exceed the placebo."""
    sets, pairs = target.shape
    part = "changed" if measure == 0 else "odds"
    items = [f"p{at:03}" for at in range(pairs)] * 2
    parts = [f"{part} target"] * pairs + [f"{part} placebo"] * pairs
    axes = pl.DataFrame({"item": items, "part": parts})
    checkpoints = pl.DataFrame({"model": "m", "run": "main", "step": range(sets)})
    changed = array_items(checkpoints, axes, np.hstack([target, placebo]).astype(float))
    own = FAMILY.measures[measure : measure + 1]
    return float((summarise(changed, own, changes=False)["low"] > 0).mean() or 0)


def flips(target: float, placebo: float, pairs: int, alike: float = 0.0) -> list[np.ndarray]:
    """Flips of 1,000 sets; a share `alike` of pairs has one draw for both edits."""
    draws = np.random.default_rng(0).random((3, 1000, pairs))
    other = np.where(draws[2] < alike, draws[0], draws[1])
    return [draws[0] < target, other < placebo]


def test_differences_that_any_edit_makes_are_not_named_and_larger_ones_are() -> None:
    """Paraphrases changed 14.1 % of answers and genders 14.9 % (arXiv 2605.01048)."""
    assert named(*flips(0.149, 0.141, pairs=200)) <= 0.06
    assert named(*flips(0.149, 0.141, pairs=50)) <= 0.06
    assert named(*flips(0.149, 0.141, pairs=200, alike=0.28)) <= 0.06
    assert named(*flips(0.15, 0.05, pairs=200)) >= 0.8


def test_ten_points_more_are_named_if_the_same_pairs_flip_and_by_log_odds_always() -> None:
    """Independent flips allow no test of 200 pairs 80 %: z is 0.1 / sqrt(0.304 / 200) = 2.56.

    `alike` is 0.28 for a correlation of 0.2. Answers are signs of log-odds, to which an edit adds
    noise that flips the given share of them.
    """
    assert 0.7 <= named(*flips(0.241, 0.141, pairs=200)) < 0.8
    assert named(*flips(0.241, 0.141, pairs=200, alike=0.28)) >= 0.8
    rng = np.random.default_rng(0)
    margin = rng.normal(size=(1000, 200))
    moves = [np.tan(np.pi * p) * rng.normal(size=margin.shape) for p in (0.241, 0.141)]
    changed = [np.sign(margin + move) != np.sign(margin) for move in moves]
    assert [each.mean() for each in changed] == pytest.approx([0.241, 0.141], abs=0.002)
    assert named(*changed) >= 0.78
    assert named(*map(np.abs, moves), measure=1) == 1
    same = np.tan(np.pi * 0.141) * rng.normal(size=margin.shape)
    assert named(np.abs(same), np.abs(moves[1]), measure=1) <= 0.06


def test_own_prompts_with_edits_have_both_analyses(tmp_path: Path) -> None:
    from logitbank.analysis.everything import analyses

    bank = with_pairs(tmp_path / "a")
    families = [each.family.name for each in analyses(bank, prompts=["edits"])]
    assert families == ["options", "placebo"]
