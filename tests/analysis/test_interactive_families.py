"""Interactive figures of every family but fairness: values of the tables, meta, strangers' text."""

from pathlib import Path

import polars as pl
import pytest

from logitbank.analysis.drawing.figures import interactive_figures
from logitbank.analysis.families.crows_pairs.study import crows_pairs
from logitbank.analysis.families.fluctuation.metric import fluctuation_metric
from logitbank.analysis.families.lambada.study import lambada
from logitbank.analysis.families.stereotype.study import stereotype
from logitbank.analysis.families.unqover.metric import Unqover, unqover_metric
from logitbank.analysis.families.unqover.study import unqover
from tests.analysis.test_interactive import (
    checked,
    column,
    names,
    panels,
    renderers,
    steps_of,
)
from tests.support import unqover_cases
from tests.support.drawing_cases import exchange, pronouns, stereotypes
from tests.support.evaluation_banks import whole_bank
from tests.support.fluctuation_cases import two_runs


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("interactive") / "b.zarr")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Unqover:
    path = tmp_path_factory.mktemp("interactive") / "u.zarr"
    unqover_cases.make_bank(path, steps=(0, 8, None))
    return unqover([path], bootstrap=50).result


def test_trajectories_are_relative_scores_in_a_panel_for_each_role() -> None:
    result = fluctuation_metric(two_runs(), plateaus=[2])
    figure = checked(interactive_figures(result)["trajectories"])
    first = "bert seed0 “is”"
    assert {one.tags[0]["series"] for one in renderers(figure) if one.visible} == {first}
    line = renderers(figure, "Line", series=first, role="line", group="she")[0]
    source = result.trajectories.filter(
        (pl.col("run") == "seed0")
        & (pl.col("verb") == "is")
        & (pl.col("role") == "prior")
        & (pl.col("pronoun") == "she")
        & pl.col("step").is_not_null()
    )
    assert column(line) == pytest.approx(source["relative"].to_list(), rel=1e-5)
    assert len(panels(figure)) == 3
    assert steps_of(renderers(figure, "Line", role="mark")[0]) == [2, 2]


def test_clouds_are_arrays_of_every_profession() -> None:
    result = pronouns()
    figure = checked(interactive_figures(result)["certainty_cv"])
    cloud, _ = renderers(figure, group="N")
    assert column(cloud, "x") == pytest.approx(result.professions["certainty"].to_list(), rel=1e-5)
    assert column(cloud) == pytest.approx(result.professions["cv_n"].to_list(), rel=1e-5)
    assert column(cloud, "what") == result.professions["occupation"].to_list()
    assert figure.meta["one_series"]


def test_heat_maps_have_both_halves() -> None:
    result = fluctuation_metric(two_runs(), plateaus=[2])
    figure = checked(interactive_figures(result)["checkpoint_pairs"])
    cells = renderers(figure, "Rect")[0]
    pair = result.checkpoint_pairs.row(0, named=True)
    values = {
        (a, b): r for a, b, r in zip(*(column(cells, c) for c in ("a", "b", "value")), strict=True)
    }
    one, other = pair["step_a"], pair["step_b"]
    assert values[one, other] == values[other, one] == pytest.approx(pair["r"], rel=1e-6)
    assert values[one, one] == 1


def test_runs_agree_in_cells_of_every_two_that_are_always_seen() -> None:
    result = fluctuation_metric(two_runs(), plateaus=[2])
    figure = checked(interactive_figures(result)["run_pairs"])
    drawn = renderers(figure, "Rect")
    assert {one.tags[0]["series"] for one in drawn} == {""}
    assert [plot.xaxis[0].axis_label for plot in panels(figure)][:2] == [
        "bert “is” · R, averaged over the plateau",
        "bert “is” · N, averaged over the plateau",
    ]
    pair = result.run_pairs.filter(pl.col("measure") == "mean_n").row(0, named=True)
    assert column(drawn[1]) == pytest.approx([pair["r"]] * 2, rel=1e-6)
    assert column(drawn[1], "x") != column(drawn[1], "y")


def test_frequencies_are_counts_by_rank() -> None:
    figure = checked(interactive_figures(pronouns())["frequencies"])
    (line,) = renderers(figure, "Line")
    assert (column(line, "x"), column(line)) == ([1.0], [7.0])
    assert names(figure) == ["lower (3 never)"]


def test_a_task_of_stereoset_has_its_own_figures_but_one_for_icat() -> None:
    figures = interactive_figures(stereotypes())
    tasks = ("intrasentence", "intersentence", "both")
    assert set(figures) == {
        *(f"domains-{task}" for task in tasks), "icat", *(f"lms_ss-{task}" for task in tasks)
    }  # fmt: skip


def test_domains_are_drawn_for_both_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.bootstrap.FEWEST_CLUSTERS", 2)  # it has few terms
    result = stereotypes()
    figure = checked(interactive_figures(result)["domains-both"])
    lms, ss = renderers(figure, "Line", role="line", group="gender")
    rows = result.scores.filter(
        (pl.col("task") == "both") & (pl.col("domain") == "gender") & pl.col("step").is_not_null()
    ).sort("step")
    assert column(lms) == pytest.approx(rows["lms"].to_list(), rel=1e-5)
    assert column(ss) == pytest.approx(rows["ss"].to_list(), rel=1e-5)
    assert [len(plot.legend) for plot in panels(figure)] == [1, 0]
    assert {one.tags[0]["group"] for one in renderers(figure, role="band")} == {"overall"}


def test_a_slider_moves_a_model_over_the_plane() -> None:
    result = stereotypes()
    figure = checked(interactive_figures(result)["lms_ss-both"])
    (points,) = renderers(figure, "Scatter", role="point")
    assert points.tags[0]["steps"] == [0, 8, None]
    row = result.scores.row(
        by_predicate=(pl.col("task") == "both")
        & (pl.col("domain") == "overall")
        & (pl.col("step") == 8),
        named=True,
    )
    at = steps_of(points).index(8)
    assert (column(points, "x")[at], column(points)[at]) == pytest.approx(
        (row["ss"], row["lms"]), rel=1e-5
    )
    assert "steps" not in renderers(figure, role="line")[0].tags[0]


def test_lines_of_equal_icat_are_where_it_is_equal() -> None:
    (plot,) = panels(interactive_figures(stereotypes())["lms_ss-both"])
    (paths,) = (one for one in plot.renderers if not one.tags)
    data = paths.data_source.data
    for along, up in zip(data["x"], data["y"], strict=True):
        levels = [lms * min(ss, 100 - ss) / 50 for ss, lms in zip(along, up, strict=True)]
        assert levels == pytest.approx([levels[0]] * len(levels), rel=1e-3)
        assert 10 * round(levels[0] / 10) == pytest.approx(levels[0], rel=1e-3)
    assert len(data["x"]) > 2


def test_single_checkpoints_are_bars_of_which_ss_starts_at_50() -> None:
    result = stereotypes(steps=(8,))
    figure = checked(interactive_figures(result)["bars-both"])
    _, ss, _ = renderers(figure, "VBar")
    assert set(column(ss, "base")) == {50}
    rows = result.scores.filter(pl.col("task") == "both")
    known = dict(zip(rows["domain"], rows["ss"], strict=True))
    drawn = dict(zip(column(ss, "what"), column(ss), strict=True))
    assert drawn == pytest.approx(known, rel=1e-5)
    labels = panels(figure)[2].xaxis[0].major_label_overrides
    places = dict(zip(column(ss, "what"), column(ss, "x"), strict=True))
    assert labels[places["overall"]] == "overall"
    assert max(places.values()) == places["overall"]


def test_the_same_subjects_are_at_every_checkpoint_in_the_last_one_s_order(asked: Unqover) -> None:
    figure = checked(interactive_figures(asked)["ranked_subjects-gender"])
    points = renderers(figure, "Scatter", role="point")
    assert [one.tags[0]["steps"] for one in points] == [[0, 8, None]] * len(points)
    rows = asked.subjects.filter((pl.col("category") == "gender") & (pl.col("split") == "all"))
    last = rows.filter(pl.col("step").is_null()).sort("rank")["subject"].to_list()
    (plot,) = panels(figure)
    assert [plot.yaxis[0].major_label_overrides[at] for at in range(len(last))] == last
    expected = {
        (step, last.index(name)): gamma
        for step, name, gamma in rows.select("step", "subject", "gamma").iter_rows()
    }
    found = {
        (step, int(row)): x
        for one in points
        for step, row, x in zip(steps_of(one), column(one), column(one, "x"), strict=True)
    }
    assert found == pytest.approx(expected, rel=1e-5)
    assert plot.y_range.start > plot.y_range.end


def test_attributes_and_training_of_unqover_are_their_tables(asked: Unqover) -> None:
    figures = interactive_figures(asked)
    diamonds = renderers(checked(figures["attribute_strengths-gender"]), group="")[-1]
    own = asked.attributes.filter(
        (pl.col("category") == "gender") & (pl.col("split") == "all") & pl.col("step").is_null()
    )
    expected = dict(own.select("attribute", "gamma_female").iter_rows())
    found = dict(zip(column(diamonds, "what"), column(diamonds, "x"), strict=True))
    assert found == pytest.approx(expected, rel=1e-5)
    training = checked(figures["unqover_training"])
    lines = renderers(training, "Line", role="line", group="nationality")
    assert len(lines) == len(panels(training)) == 4
    rows = asked.unqover.filter(
        (pl.col("category") == "nationality") & (pl.col("split") == "all")
    ).drop_nulls("step")
    assert column(lines[2]) == pytest.approx(rows["positional"].to_list(), rel=1e-5)


def test_long_attributes_that_begin_alike_keep_their_rows() -> None:
    rows = unqover_cases.questions("gender")
    for row in rows:
        row["attribute"] = "was very often known to be the one who " + row["attribute"]
    p = {
        (row["prompt_id"], form): 0.01 * (1 + at % 7)
        for at, row in enumerate(rows)
        for form in unqover_cases.forms(row)
    }
    found = unqover_metric(unqover_cases.scan_frame(rows, p), bootstrap=0)
    figure = interactive_figures(found)["attribute_strengths"]
    labels = panels(figure)[0].yaxis[0].major_label_overrides
    assert len(set(labels.values())) == len(labels) == len(unqover_cases.ATTRIBUTES)
    assert len(set(column(renderers(figure)[-1]))) == len(unqover_cases.ATTRIBUTES)


def test_lambada_has_accuracy_and_perplexity(bank: Path) -> None:
    result = lambada([bank]).result
    figure = checked(interactive_figures(result)["lambada"])
    accuracy, perplexity = renderers(figure, "Line", role="line")
    assert column(accuracy) == pytest.approx([hit / 40 for hit in (0, 10, 26, 30, 28, 29)])
    assert column(perplexity) == pytest.approx(result.lambada["perplexity"].to_list(), rel=1e-5)
    scales = [type(plot.y_scale).__name__ for plot in panels(figure)]
    assert scales == ["LinearScale", "LogScale"]


def test_stereotype_accuracy_has_every_measure(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.shares.FEWEST_CLUSTERS", 2)  # it has few pairs
    result = stereotype([bank]).result
    figures = interactive_figures(result)
    figure = checked(figures["stereotype_accuracy"])
    jsd = renderers(figure, "Line", role="line", group="male")[0]
    own = result.jsd_p.filter(pl.col("gold") == "male").sort("step")
    assert column(jsd) == pytest.approx(own["jsd_p"].to_list(), rel=1e-5)


def test_bias_types_of_crows_pairs_have_every_checkpoint(bank: Path) -> None:
    result = crows_pairs([bank]).result
    figures = interactive_figures(result)
    (overall,) = renderers(checked(figures["crows_pairs"]), "Line", role="line", group="all pairs")
    scores = result.crows_pairs.filter(pl.col("bias_type") == "all")["score"].to_list()
    assert column(overall) == pytest.approx(scores, rel=1e-5)
    types = checked(figures["crows_pairs_types"])
    (points,) = renderers(types, "Scatter")
    assert points.tags[0]["steps"] == [0, 8]
    labels = panels(types)[0].yaxis[0].major_label_overrides
    assert labels == {0: "all pairs", 1: "gender", 2: "race-color"}
    last = [x for step, x in zip(steps_of(points), column(points, "x"), strict=True) if step == 8]
    assert last == [100, 100, 100]


def test_a_trade_off_has_its_front_and_its_choice() -> None:
    figures = interactive_figures(exchange(give_up=3.0))
    front = checked(figures["tradeoff_front"])
    (line,) = renderers(front, "Step", role="line")
    assert (column(line, "x"), column(line)) == ([0.05, 0.73], [0.48, 0.5])
    assert line.glyph.mode == "after"
    (star,) = renderers(front, role="mark")
    assert column(star, "when") == ["step 16"]
    curves = checked(figures["tradeoff_curves"])
    rings = [one for one in renderers(curves, role="mark") if one.glyph.marker == "circle"]
    assert [steps_of(ring) for ring in rings] == [[16, 32]] * 2
    assert "at most 3 points" in front.meta["caption"]


def test_what_is_better_lower_has_a_turned_axis() -> None:
    for figure in interactive_figures(exchange(metric="perplexity")).values():
        assert panels(figure)[0].y_range.flipped


@pytest.mark.parametrize("steps", [(8,), (None,), (8, None)])
def test_few_checkpoints_are_drawn(steps: tuple[int | None, ...]) -> None:
    for figure in interactive_figures(stereotypes(steps=steps)).values():
        checked(figure)
