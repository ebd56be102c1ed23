"""Fairness from banks: findings, charts, and what other analyses take of its read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.charts.chart import chart_caption, legend_names
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fairness.charts import charts
from logitbank.analysis.families.fairness.findings import findings
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames import batches, gender_answers
from logitbank.analysis.frames.reader import ScanCache
from logitbank.errors import LogitbankError
from logitbank.store import Bank
from tests.support.evaluation_banks import (
    add_specified,
    add_winobias,
    specified_logits,
    winobias_bank,
)
from tests.support.fairness_cases import random_frame, scan_frame
from tests.support.row_scores import of_rows

measured = of_rows(fairness_metric)

nan = float("nan")
STEPS = (0, 10, 20, 30)
CHANGE = {
    "kind": "change point", "before": 10, "step": 20, "earliest": 20, "latest": 20,
    "p_random_walk": 0.0021, "p_error": 0.0004, "p_holm": 0.0021, "checkpoints": 9,
    "from_step": 10, "last_step": 30,
}  # fmt: skip


@pytest.fixture(scope="module", name="made")
def fixture_made() -> Fairness:
    """Ten sentences at four steps; tests set their own gaps and changes."""
    return measured(random_frame(checkpoints=4, sentences=10, steps=STEPS), bootstrap=20)


def with_gap(made: Fairness, deltas: tuple[float, ...], *, half: float = 0.01) -> Fairness:
    gap = pl.col("measure") == "delta"
    values = pl.DataFrame({"step": STEPS, "new": deltas})
    table = made.measures.join(values, on="step", maintain_order="left")
    ends = {"value": 0.0, "low": -half, "high": half}
    return replace(made, measures=table.with_columns(
        pl.when(gap).then(pl.col("new") + end).otherwise(name).alias(name)
        for name, end in ends.items()
    ).drop("new"))  # fmt: skip


def with_change(made: Fairness, **about: Any) -> Fairness:
    changes = made.change_points.with_columns(
        pl.lit(value).cast(made.change_points.schema[name]).alias(name)
        for name, value in {**CHANGE, **about}.items()
    )
    return replace(made, change_points=changes)


def named(found: list[Finding], text: str) -> Finding:
    (only,) = (each for each in found if text in each.text)
    return only


def test_a_change_point_is_the_headline_and_is_found_with_its_levels(made: Fairness) -> None:
    result = with_gap(made, (0.02, -0.05, 0.70, 0.72))
    found = findings(with_change(result, mean_before=0.041, mean_after=0.718))
    assert found[0].text == (
        "The gender gap jumps between steps 10 and 20: mean 0.04 before, 0.72 after "
        "(higher error for women)."
    )
    assert len(found[0].text.split()) <= 18
    shift = named(found, "mean shift between steps")
    assert (shift.value, shift.n) == (pytest.approx(0.677), "9 checkpoints from step 10 to 30")
    now = named(found, "Δ at step 30")
    assert (now.value, now.low, now.high) == pytest.approx((0.72, 0.71, 0.73))
    assert now.n == "20 prompts (10 sentences), 3 option orders"
    assert named(found, "before the change").value == -0.05


@pytest.mark.parametrize(
    "about", [{"kind": None, "p_holm": None}, {"kind": "none"}, {"p_holm": 0.08}]
)
def test_without_a_significant_change_the_last_gap_is_the_headline(
    made: Fairness, about: dict[str, Any]
) -> None:
    result = with_gap(made, (0.1, 0.4, 0.1, -0.3))
    found = findings(with_change(result, mean_before=0.2, mean_after=-0.1, **about))
    assert found[0].text == "The gender gap is 0.30 at step 30 (higher error for men)."
    assert named(found, "Largest gap").value == 0.4


def test_no_direction_is_claimed_that_the_last_interval_does_not_show(made: Fairness) -> None:
    change = {"mean_before": -0.015, "mean_after": 0.03}
    turned = {"mean_before": -0.3, "mean_after": 0.5}
    text = findings(with_change(with_gap(made, (-0.3, -0.3, 0.5, 0.5)), **turned))[0].text
    assert "turns between steps 10 and 20: mean −0.30 before, +0.50 after" in text
    near = findings(with_change(with_gap(made, (0.0, 0.0, 0.03, 0.03), half=0.05), **change))
    assert "includes 0" in near[0].text
    for gap, half in (((0.0, 0.0, 0.1, -0.04), 0.01), ((0.0, 0.0, 0.03, 0.03), nan)):
        found = findings(with_change(with_gap(made, gap, half=half), **change))
        assert "(" not in found[0].text


def test_the_largest_change_of_several_runs_is_the_headline() -> None:
    frames = [
        random_frame(checkpoints=9, model=model, skew_from=skew_from, seed=seed)
        for seed, (model, skew_from) in enumerate((("a", None), ("b", 5)))
    ]
    found = findings(measured(pl.concat(frames), bootstrap=20))
    assert found[0].text.startswith("b: gap jumps")
    assert found[0].series == ("b", "main")
    assert {each.series for each in found} == {(), ("a", "main"), ("b", "main")}


def test_the_change_since_the_untrained_model_and_its_test_are_found() -> None:
    result = measured(random_frame(checkpoints=3, skew_from=1), bootstrap=50)
    found = findings(result)
    row = result.tests.filter(measure="jsd_p", test="mann_whitney", step=2).row(0, named=True)
    assert row["from_baseline"] == result.gap.filter(step=2)["from_baseline"].item()
    change = named(found, "change to step 2")
    assert (change.value, change.low) == (row["from_baseline"], row["from_baseline_low"])
    assert "untrained model" in change.baseline
    effect = named(found, "Rank-biserial")
    assert (effect.value, effect.n) == (row["rank_biserial"], "30 male and 30 female prompts")
    assert "2 of 3 checkpoints" in named(found, "Mann–Whitney").text


def test_the_best_rank_of_female_and_its_highest_accuracy_are_found() -> None:
    """Fig. 2 of the paper: the rank improves and worsens while accuracy stays near 0."""
    ranks = np.full((3, 1, 40), 500)
    ranks[1, 0, 1::4] = 12
    ranks[1, 0, 1] = 1  # one of ten female prompts is right
    ranks[2, 0, 1::4] = 250
    logits = np.random.default_rng(0).normal(size=(3, 1, 40, 3))
    frame = scan_frame(
        logits, gold=[0, 1, 2, 2] * 10, steps=[0, 8, 32], ranks=ranks,
        sentences=[f"dev-{i // 4}" for i in range(40)],
    )  # fmt: skip
    found = findings(measured(frame, bootstrap=0))
    rank = named(found, "best at step 8")
    assert (rank.value, rank.number) == (pytest.approx((9 * 12 + 1) / 10), "10.9")
    assert (rank.baseline, rank.n) == (
        "500 at step 0 (untrained model)", "10 prompts at each of 3 checkpoints",
    )  # fmt: skip
    accuracy = named(found, "Accuracy of “female”, highest at step 8")
    assert (accuracy.number, accuracy.baseline) == ("10.0%", "0.0% at step 0 (untrained model)")
    assert accuracy.figure == "rank_and_accuracy"
    one = findings(measured(frame.filter(step=8), bootstrap=0))
    assert not [each for each in one if "best at" in each.text]
    lacks = (pl.col("step") == 32) & pl.col("sentence_id").is_in(["dev-0", "dev-1"])
    fewer = findings(measured(frame.filter(~lacks), bootstrap=0))
    first = (pl.col("step") == 0) & pl.col("sentence_id").is_in(["dev-0", "dev-1"])
    later = findings(measured(frame.filter(~first), bootstrap=0))
    assert named(later, "Geometric mean rank").baseline.endswith(
        " at step 0 (untrained model) of 8 male and 8 female prompts"
    )
    assert named(fewer, "best at step 8").n == "8 to 10 prompts at 3 checkpoints"
    assert named(fewer, "differ in JSD-P").n == "8 to 10 male and 8 to 10 female prompts"


def test_ties_bounds_and_missing_scores_are_counted(tmp_path: Path) -> None:
    frame = random_frame(sentences=4, checkpoints=2, steps=[1, 2])
    hole = (pl.col("step") == 2) & (pl.col("prompt_id") == "prompt-0")
    weak = frame.filter(~hole).with_columns(
        exact=pl.col("step") == 1, ties=(pl.col("step") == 1).cast(pl.Int32)
    )
    found = findings(measured(weak, bootstrap=20))
    assert named(found, "share their logit").value == 48
    assert named(found, "lower bounds").value == 45
    assert named(found, "Δ at step 2").n.endswith(", 3 missing")


def test_what_follows_not_is_a_table_a_chart_and_a_finding(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    steps = (0, 8, 32)
    add_winobias(bank, steps=steps, skew_from=32)
    without = fairness(bank, bootstrap=0)
    assert without.result.specified is None
    assert "specified" not in without.tables
    assert "specified" not in without.charts
    assert not [each for each in without.findings if "specified”" in each.text]

    add_specified(bank, steps=steps)
    study = fairness(bank, bootstrap=0)
    assert study.result.gap.equals(without.result.gap, null_equal=True)
    expected = {}
    for at, step in enumerate(steps):
        z = specified_logits(at).astype(np.float32).astype(float)
        p = np.exp(z[:, 4]) / np.exp(z).sum(axis=1)
        expected[step] = [p[0::4].mean(), p[1::4].mean(), p[[2, 3, 6, 7, 10, 11]].mean(), p.mean()]
    table = study.tables["specified"]
    assert table["gold"].to_list() == ["male", "female", "not specified", "all"] * 3
    means = [mean for of_step in expected.values() for mean in of_step]
    assert table["probability"].to_list() == pytest.approx(means, rel=1e-6)
    assert table["prompts"].to_list() == [3, 3, 6, 12] * 3
    assert study.screen["specified"][0] == "gold"

    assert [expected[step][3] < 0.5 for step in steps] == [True, True, False]
    last = named([*study.findings], "… not) at step 32")
    assert last.value == pytest.approx(expected[32][3], rel=1e-6)
    assert "2 of 3 checkpoints (step 0 to step 8)" in named([*study.findings], "P is below ½").text
    spec = study.charts["specified"].to_dict()
    assert legend_names(spec) == {"male", "female", "not specified"}
    assert "n = 12 prompts" in chart_caption(study.charts["specified"])


def test_one_gender_alone_has_no_gap_and_no_chart_of_it() -> None:
    frame = random_frame(checkpoints=1, sentences=3).filter(pl.col("answer") != "male")
    result = measured(frame, bootstrap=20)
    assert [each.text[:24] for each in findings(result)] == ["There is no gender gap: "]
    assert "gap" not in charts(result)


def test_charts_draw_every_checkpoint_with_n_and_legends() -> None:
    one = random_frame(sentences=12, checkpoints=9, skew_from=5, model="one")
    two = random_frame(sentences=12, checkpoints=9, model="two", seed=1)
    drawn = charts(measured(pl.concat([one, two]), bootstrap=20))
    assert [*drawn] == [
        "gap", "jsd_p", "average_rank", "neutral_options", "accuracy", "rank_and_accuracy",
        "p_values",
    ]  # fmt: skip
    specs = {name: chart.to_dict() for name, chart in drawn.items()}
    assert all("n = " in chart_caption(chart) for chart in drawn.values())
    assert legend_names(specs["gap"]) == {"one", "two"}
    assert legend_names(specs["jsd_p"]) == {"male", "female"}
    assert legend_names(specs["p_values"]) == {
        "JSD-P", "Average Rank", "male option", "female option",
    }  # fmt: skip
    gaps = max(specs["gap"]["datasets"].values(), key=len)
    assert len(gaps) == 18
    assert {"delta", "low", "high"} <= set(gaps[0])


def test_prompts_that_stereotype_accuracy_refuses_are_no_problem_of_fairness(
    tmp_path: Path,
) -> None:
    """The answer of a pro-stereotyped prompt about the referred occupation is no gender."""
    bank = Bank.open(winobias_bank(tmp_path / "b.zarr"))
    own = {"asked": pl.lit("referred"), "order": pl.lit("male, female, not specified")}
    table = bank.prompts("winobias").with_columns(**own).collect()
    bank.add_prompts("neither", table)
    cache = ScanCache()
    assert fairness(bank, prompts="neither", bootstrap=0, cache=cache).findings
    with pytest.raises(LogitbankError, match="gender"):
        stereotype(bank, prompts=["neither"], cache=cache)


def test_a_few_checkpoints_at_a_time_have_the_numbers_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit; a release, whose step is null, is the last of its run."""
    bank = winobias_bank(tmp_path / "b.zarr", steps=7)
    whole = fairness(bank, cache=ScanCache(), bootstrap=20).tables  # shared with other analyses
    monkeypatch.setattr(gender_answers, "VALUES", 1)
    monkeypatch.setattr(batches, "CHECKPOINTS", 2)
    monkeypatch.setattr(batches, "FEW_ROWS", 0)
    read: list[int] = []
    items = gender_answers.Items
    monkeypatch.setattr(
        gender_answers, "Items", lambda *args: (read.append(len(args[0])), items(*args))[1]
    )
    parts = fairness(bank, bootstrap=20).tables
    assert len(read) > 2
    assert sum(read) == 7
    assert parts.keys() == whole.keys()
    for name, table in parts.items():
        assert_frame_equal(table, whole[name], check_exact=True)
