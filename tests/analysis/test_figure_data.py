"""Names and tables of figures."""

import polars as pl
import pytest

from logitbank.analysis.drawing.figures import figure_data, figures
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation_metric
from tests.support.drawing_cases import pronouns
from tests.support.fairness_cases import random_frame
from tests.support.fluctuation_cases import random_table, two_runs


@pytest.fixture(scope="module")
def result() -> Fairness:
    return fairness_metric(random_frame(checkpoints=8, sentences=10, skew_from=3), bootstrap=50)


@pytest.fixture(scope="module")
def fluctuating() -> Fluctuation:
    return fluctuation_metric(two_runs(), plateaus=[2, 3])


def test_one_run_has_one_figure_of_each_kind_with_a_table_of_that_name(result):
    kinds = ("jsd_p", "average_rank", "neutral_options", "rank_and_accuracy", "accuracy", "gap")
    assert tuple(figures(result)) == kinds == tuple(figure_data(result))


def test_jsd_table_is_the_correct_answers_with_band_and_tests(result):
    table = figure_data(result)["jsd_p"]
    assert table.columns == [
        *("model", "run", "step", "gold", "value", "minus_sd", "plus_sd"),
        *("mann_whitney_p", "mann_whitney_p_bh", "wilcoxon_p"),
    ]
    cell = (pl.col("gold") == "male") & (pl.col("step") == 4)
    point = table.filter(cell).row(0, named=True)
    source = result.jsd_parts.filter(cell & (pl.col("option") == "male")).row(0, named=True)
    assert point["value"] == source["scaled"]
    assert point["plus_sd"] - point["value"] == pytest.approx(source["sd_scaled"])
    assert len(table) == 16


def test_gap_table_has_the_interval_and_the_change_point(result):
    table = figure_data(result)["gap"]
    assert table["low"].to_list() == result.gap["low_scaled"].to_list()
    assert table.drop_nulls("mean_after")["step"].to_list() == [4]


def test_two_models_share_the_neutral_figure_and_have_their_own_others():
    frames = [random_frame(checkpoints=2, sentences=4, model=name) for name in ("one", "two/x")]
    both = fairness_metric(pl.concat(frames), bootstrap=20)
    tables = figure_data(both)
    assert list(tables) == [
        *("jsd_p-one-main", "jsd_p-two%2Fx-main"),
        *("average_rank-one-main", "average_rank-two%2Fx-main"),
        "neutral_options",
        *("rank_and_accuracy-one-main", "rank_and_accuracy-two%2Fx-main"),
        *("accuracy-one-main", "accuracy-two%2Fx-main"),
        *("gap-one-main", "gap-two%2Fx-main"),
    ]
    assert tables["neutral_options"]["model"].unique().sort().to_list() == ["one", "two/x"]
    assert tables["neutral_options"]["mann_whitney_p"].is_not_null().all()
    legend = figures(both)["neutral_options"].axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        *("male, one", "female, one", "male, two/x", "female, two/x")
    ]


def test_one_model_has_no_comparison_marks(result):
    assert figure_data(result)["neutral_options"]["mann_whitney_p"].is_null().all()
    assert len(figures(result)["neutral_options"].axes) == 1
    assert len(figures(result)["jsd_p"].axes) == 2


def test_figures_of_fluctuation_are_named_after_what_differs(fluctuating):
    series = [f"seed{run}-{verb}" for run in (0, 1) for verb in ("is", "works_as")]
    assert set(figure_data(fluctuating)) == {
        *(f"trajectories-{name}" for name in series),
        *(f"certainty_cv-{name}-{start}" for start in (2, 3) for name in series),
        *(f"checkpoint_pairs-{name}" for name in series),
        *(f"run_pairs-{verb}-{start}" for start in (2, 3) for verb in ("is", "works_as")),
    }
    alone = ("trajectories", "certainty_cv", "checkpoint_pairs", "frequencies")
    assert tuple(figure_data(pronouns())) == alone


def test_the_scatter_has_every_profession_and_the_prior_for_r_and_n(fluctuating):
    table = figure_data(fluctuating)["certainty_cv-seed1-is-3"]
    assert table.group_by("measure", "prior").len().sort("measure", "prior")["len"].to_list() == [
        *(6, 1, 6, 1)
    ]
    own = fluctuating.professions.filter(
        (pl.col("run") == "seed1") & (pl.col("verb") == "is") & (pl.col("plateau") == 3)
    )
    points = table.filter(~pl.col("prior") & (pl.col("measure") == "N"))
    assert points["cv"].to_list() == own["cv_n"].to_list()
    crosses = table.filter("prior")["cv"].unique().to_list()
    assert len(crosses) == 1


def test_the_heat_map_has_both_halves_and_its_plateau():
    table = figure_data(fluctuation_metric(random_table(), plateaus=[3]))["checkpoint_pairs"]
    assert len(table) == 30
    assert table["first_step"].unique().to_list() == [3]
    halves = {(a, b): r for a, b, r in table.select("step_a", "step_b", "r").iter_rows()}
    assert all(halves[b, a] == r for (a, b), r in halves.items())
