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
from logitbank.store import CheckpointId
from tests.support.placebo_cases import EDITS, pair_table, with_pairs
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


def named(target: float, placebo: float, sets: int, pairs: int) -> float:
    """Share of simulated sets in which the target is found to exceed the placebo."""
    draws = np.random.default_rng(0).random((2, sets, pairs))
    changed = np.hstack([draws[0] < target, draws[1] < placebo]).astype(float)
    items = [f"p{at:03}" for at in range(pairs)] * 2
    parts = ["changed target"] * pairs + ["changed placebo"] * pairs
    axes = pl.DataFrame({"item": items, "part": parts})
    checkpoints = pl.DataFrame({"model": "m", "run": "main", "step": range(sets)})
    table = summarise(array_items(checkpoints, axes, changed), FAMILY.measures[:1], changes=False)
    return float((table["low"] > 0).mean() or 0)


def test_differences_that_any_edit_makes_are_not_named_and_larger_ones_are() -> None:
    """Paraphrases changed 14.1 % of answers and genders 14.9 % (arXiv 2605.01048)."""
    assert named(0.149, 0.141, sets=1000, pairs=200) <= 0.06
    assert named(0.149, 0.141, sets=1000, pairs=50) <= 0.06
    assert named(0.15, 0.05, sets=1000, pairs=200) >= 0.8


def test_own_prompts_with_edits_have_both_analyses(tmp_path: Path) -> None:
    from logitbank.analysis.everything import analyses

    bank = with_pairs(tmp_path / "a")
    families = [each.family.name for each in analyses(bank, prompts=["edits"])]
    assert families == ["options", "placebo"]
