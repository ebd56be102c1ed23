import io

import polars as pl
import pytest

from logitbank.analysis.drawing.paper import StepAxis
from logitbank.analysis.drawing.static import figures
from logitbank.analysis.drawing.static_data import KINDS, figure_data
from logitbank.analysis.families.fairness.metric import Fairness, fairness
from tests.fairness_cases import FEMALE, MALE, random_frame, scan_frame


@pytest.fixture(scope="module")
def result() -> Fairness:
    return fairness(random_frame(checkpoints=8, sentences=10, skew_from=3), bootstrap=50)


def two_models() -> Fairness:
    frames = [random_frame(checkpoints=2, sentences=4, model=name) for name in ("one", "two/x")]
    return fairness(pl.concat(frames), bootstrap=20)


def drawn(figure) -> str:
    """Text of the figure; drawing it shows that it can be drawn."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


def test_one_run_has_one_figure_of_each_kind_with_a_table_of_that_name(result):
    assert tuple(figures(result)) == KINDS == tuple(figure_data(result))


def test_every_figure_draws_and_has_a_caption(result):
    for name, figure in figures(result).items():
        text = drawn(figure)
        assert "toy" in text, name
        assert "Training step" in text, name
        assert len(str(figure.get_label())) > 40, name


def test_figures_need_no_pyplot(result):
    import sys

    before = "matplotlib.pyplot" in sys.modules
    figures(result)
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_jsd_table_is_the_correct_answers_with_band_and_tests(result):
    table = figure_data(result)["jsd_p"]
    assert table.columns == [
        *("model", "run", "step", "gold", "value", "low", "high"),
        *("mann_whitney_p", "mann_whitney_p_bh", "wilcoxon_p"),
    ]
    cell = (pl.col("gold") == "male") & (pl.col("step") == 4)
    point = table.filter(cell).row(0, named=True)
    source = result.jsd_parts.filter(cell & (pl.col("option") == "male")).row(0, named=True)
    assert point["value"] == source["scaled"]
    assert point["high"] - point["value"] == pytest.approx(source["sd_scaled"])
    assert len(table) == 16


def test_gap_table_has_the_interval_and_the_onset(result):
    table = figure_data(result)["gap"]
    assert table["low"].to_list() == result.gap["low_scaled"].to_list()
    assert table["onset_step"].unique().to_list() == [4]
    assert "another level from step 4" in drawn(figures(result)["gap"])


def test_two_models_share_the_neutral_figure_and_have_their_own_others():
    tables = figure_data(two_models())
    assert list(tables) == [
        *("jsd_p-one-main", "jsd_p-two%2Fx-main"),
        *("average_rank-one-main", "average_rank-two%2Fx-main"),
        "neutral_options",
        *("rank_and_accuracy-one-main", "rank_and_accuracy-two%2Fx-main"),
        *("gap-one-main", "gap-two%2Fx-main"),
    ]
    assert tables["neutral_options"]["model"].unique().sort().to_list() == ["one", "two/x"]
    assert tables["neutral_options"]["mann_whitney_p"].is_not_null().all()
    assert "male, two/x" in drawn(figures(two_models())["neutral_options"])


def test_one_model_has_no_comparison_marks(result):
    assert figure_data(result)["neutral_options"]["mann_whitney_p"].is_null().all()
    assert len(figures(result)["neutral_options"].axes) == 1
    assert len(figures(result)["jsd_p"].axes) == 2


@pytest.mark.parametrize("steps", [[None], [0], [7], [0, None], [5, 6, None], [0, 1, 143_000]])
def test_any_set_of_steps_draws(steps):
    frame = random_frame(checkpoints=len(steps), sentences=4, steps=steps)
    for figure in figures(fairness(frame, bootstrap=20)).values():
        text = drawn(figure)
        assert ("release" in text) == (None in steps)


def test_groups_without_prompts_and_one_order_draw():
    frame = scan_frame([[[[0.0, 1, 2], [1, 0, 2]]]], gold=[MALE, FEMALE])
    for figure in figures(fairness(frame, bootstrap=0)).values():
        drawn(figure)


def test_a_name_with_markup_is_drawn_as_it_is():
    name = r"$\frac{1}{0}$ <b>&amp;"
    frame = random_frame(checkpoints=2, sentences=4, model=name)
    assert name in drawn(figures(fairness(frame, bootstrap=20))["gap"])


def test_step_zero_and_the_release_have_places_of_their_own():
    steps = StepAxis([0, 16, 1024, None])
    assert steps.place(0) == 0.0
    assert steps.place(16) == 16.0
    assert steps.place(None) > 1024
