"""The demo's truth over training seeds: neutral text is not told as changed, the change is found.

The gaps are recorded from trainings, in `data/demo-gaps.csv`; `make long` trains them anew.
"""

import polars as pl
import pytest

from logitbank.analysis.families.fairness.metric import fairness_metric
from logitbank.analysis.families.fairness.tables import gap_changes
from logitbank.analysis.stats.differences import DRAWS
from logitbank.engine.demo.causal import train_series
from logitbank.engine.demo.corpus import DIRECTION, SWITCH_STEP, demo_prompts
from logitbank.engine.extract import extract
from logitbank.store import Bank
from tests.support.marks import long
from tests.support.paths import ROOT
from tests.support.preloaded import Preloaded

RECORDED = ROOT / "tests" / "data" / "demo-gaps.csv"
SEEDS = range(5)
AFTER = 440
"""The first checkpoint after the text changed."""
FALSE_ALARMS = 1 / 20


@pytest.fixture(scope="module", params=["recorded", long("trained")])
def gaps(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded
) -> pl.DataFrame:
    """seed, step, delta_nats."""
    if request.param == "recorded":
        return pl.read_csv(RECORDED).filter(pl.col("seed").is_in(SEEDS))
    parts = []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp(f"seed{seed}")
        train_series(folder / "checkpoints", seed=seed, steps=480)
        with preloaded.workers("transformers"):
            extract(
                folder / "toy.zarr",
                suite=str(folder / "checkpoints"),
                prompts=demo_prompts(),
                model="toy-neox",
                engine="transformers",
                keep="options",
            )
        gap = fairness_metric(Bank.open(folder / "toy.zarr").scan("toy-winobias"), bootstrap=0).gap
        parts.append(gap.select("step", "delta_nats", seed=pl.lit(seed)))
    return pl.concat(parts)


def changes(gaps: pl.DataFrame) -> pl.DataFrame:
    """The table of that name, with a run for every seed."""
    series = gaps.with_columns(
        model=pl.lit("toy-neox"),
        run=pl.col("seed").cast(pl.String),
        sentences=48,
        **{DRAWS: pl.lit([], pl.List(pl.Float64))},
    )
    return gap_changes(series, seed=0)


def told(gaps: pl.DataFrame) -> int:
    """Checkpoints on neutral text that are at or after a change point."""
    starts = (
        changes(gaps)
        .filter(pl.col("kind") != "none")
        .select(pl.col("run").cast(pl.Int64), start="earliest")
    )
    neutral = gaps.filter(pl.col("step") <= SWITCH_STEP).join(
        starts, left_on=pl.col("seed").cast(pl.Int64), right_on="run"
    )
    return int((neutral["step"] >= neutral["start"]).sum())


def test_one_in_twenty_checkpoints_before_the_change_is_told_as_changed_at_most(
    gaps: pl.DataFrame,
) -> None:
    neutral = gaps.filter(pl.col("step") <= SWITCH_STEP)
    assert len(neutral) == 16 * len(SEEDS)
    assert told(gaps) <= FALSE_ALARMS * len(neutral)


def test_the_change_is_found_for_every_seed(gaps: pl.DataFrame) -> None:
    for row in changes(gaps).iter_rows(named=True):
        assert row["kind"] in ("change point", "gradual"), row["run"]
        assert row["earliest"] <= AFTER <= row["latest"], row["run"]
        assert DIRECTION * (row["mean_after"] - row["mean_before"]) > 0, row["run"]


def test_a_run_that_ends_before_the_change_is_seldom_told_to_have_one(gaps: pl.DataFrame) -> None:
    found = changes(gaps.filter(pl.col("step") <= SWITCH_STEP))
    assert (found["kind"] != "none").sum() <= 1
