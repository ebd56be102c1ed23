"""Interactive figures show their tables, say what each trace is, and take no text for markup."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from bokeh.models import GlyphRenderer, Plot

from logitbank.analysis.drawing import bokeh
from logitbank.analysis.drawing.figures import interactive_figures
from logitbank.analysis.drawing.places import StepPlaces, step_scale
from logitbank.analysis.drawing.sheet import Interactive, plain
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.wording import signed
from tests.support.drawing_cases import STEPS, fair, options
from tests.support.fairness_cases import random_frame


@pytest.fixture(scope="module", name="fair")
def fixture_fair() -> Fairness:
    return fair()


def panels(figure: Interactive) -> list[Any]:
    """Its plots, from above."""
    model: Any = figure.model
    return [model] if isinstance(model, Plot) else list(model.children)


def renderers(figure: Interactive, glyph: str = "", **about: object) -> list[Any]:
    """Those whose tag says so, and which are drawn by that glyph."""
    return [
        one
        for plot in panels(figure)
        for one in plot.renderers
        if one.tags
        and about.items() <= one.tags[0].items()
        and glyph in ("", type(one.glyph).__name__)
    ]


def column(renderer: GlyphRenderer, name: str = "value") -> Any:
    data = renderer.data_source.data[name]
    return data.tolist() if isinstance(data, np.ndarray) else data


def steps_of(renderer: GlyphRenderer) -> list[int | None]:
    """The real steps, the release as None."""
    return [None if step != step else int(step) for step in column(renderer, "step")]


def names(figure: Interactive) -> list[str]:
    """Lines of the legend."""
    return [
        item.label.value for plot in panels(figure) for box in plot.legend for item in box.items
    ]


def checked(figure: Interactive, embedded: object = None) -> Interactive:
    """The figure, whose meta and tags are complete and can be JSON, as what a page embeds can."""
    meta = figure.meta
    assert {"title", "caption", "kind", "one_series", "steps", "height"} <= set(meta)
    assert meta["title"]
    assert len(meta["caption"]) > 40
    assert meta["kind"] in ("training", "checkpoint", "fixed")
    assert meta["height"] == sum(plot.height for plot in panels(figure))
    json.dumps([meta, figure.traces], allow_nan=False)
    json.dumps(embedded or bokeh.embedded(figure.model), allow_nan=False)
    drawn = renderers(figure)
    assert [one.tags[0] for one in drawn] == figure.traces
    for one in drawn:
        tag, data = one.tags[0], one.data_source.data
        assert {"series", "group", "role"} <= set(tag)
        assert tag["role"] in ("line", "band", "mark", "point", "bar", "cell")
        assert len({len(values) for values in data.values()}) == 1
        if meta["kind"] == "training":
            assert {"step", "x", "log", "linear", "value"} <= set(data)
            assert set(steps_of(one)) <= set(meta["steps"])
        if "steps" in tag:
            seen = {steps_of(one)[at] for at in one.view.filter.indices}
            assert seen == {tag["steps"][-1]}
    for plot in panels(figure):
        assert plot.tags == ["panel"]
        assert plot.toolbar.logo is None
        for tool in plot.hover:
            assert all(label == "" and "{" not in text for label, text in tool.tooltips)
    if meta["kind"] == "training":
        assert set(meta["axis"]) == {"scale", "ticks", "first", "last", "release"}
        cursors = [one for plot in panels(figure) for one in plot.center if "cursor" in one.tags]
        assert len(cursors) == len(panels(figure))
        assert not any(one.visible for one in cursors)
        assert all(axis.tags == ["steps"] for plot in panels(figure) for axis in plot.xaxis)
    return figure


def test_steps_are_in_decades_with_zero_at_the_left_and_the_release_at_the_right() -> None:
    places = StepPlaces([0, 10, 100, 10_000, None])
    got = [places.place(step) for step in (0, 5, 10, 100, 10_000, None)]
    assert got == pytest.approx([0, 0.225, 0.45, 1.45, 3.45, 3.45 + 0.12 * 3.45])
    assert [text for _, text in places.ticks("log")] == ["0", "10", "100", "1k", "10k", "release"]
    assert places.about()["last"] == 10_000


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512], "log"),
        ([0, *(2**n for n in range(10)), *range(1_000, 144_000, 1_000)], "log"),
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, *range(160, 760, 40)], "linear"),
        ([0, 10, 20, *range(40, 440, 40), None], "linear"),
        ([0, 10, 20, *range(40, 480, 40)], "log"),
        ([*range(1_000, 144_000, 1_000), 143_300], "linear"),
        ([0, 1, 2, 4, 8, 16, 32, 64, 90, 110], "log"),
        ([0, 100, 200], "log"),
        ([None], "log"),
    ],
)
def test_the_axis_of_steps_is_the_one_on_which_they_are_told_apart(
    steps: list[int | None], scale: str
) -> None:
    assert step_scale(steps) == scale


def test_on_a_linear_axis_steps_are_at_their_numbers_and_the_release_beside_them() -> None:
    places = StepPlaces([*range(100, 1_100, 100), None])
    assert [places.place(step) for step in (100, 500, 1_000, None)] == [100, 500, 1_000, 1_060]
    ticks = places.about()["ticks"]
    assert [text for _, text in ticks["linear"]] == [*("200", "400", "600", "800"), "1k", "release"]
    assert [text for _, text in ticks["log"]] == ["100", "300", "1k", "release"]
    assert places.across().ends == pytest.approx((100 - 28.8, 1_060 + 28.8))
    assert list(places.columns([100, None])["x"]) == [100, 1_060]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([None], ["release"]), ([0], ["0", "1"]), ([7], ["7"]), ([5, 6, None], ["5", "6", "release"])],
)
def test_few_steps_have_ticks(steps: list[int | None], expected: list[str]) -> None:
    assert [text for _, text in StepPlaces(steps).ticks("log")] == expected


def test_fairness_has_every_kind_and_its_figures_are_complete(fair: Fairness) -> None:
    found = interactive_figures(fair)
    assert list(found) == [
        *("gap", "jsd_p", "average_rank", "neutral_options", "rank_and_accuracy", "accuracy")
    ]
    for figure in found.values():
        assert checked(figure).meta["steps"] == STEPS


def test_curves_of_fairness_are_their_tables(fair: Fairness) -> None:
    figure = interactive_figures(fair)["jsd_p"]
    (line,) = renderers(figure, "Line", role="line", group="male")
    source = fair.jsd_parts.filter(
        (pl.col("gold") == "male") & (pl.col("option") == "male") & pl.col("step").is_not_null()
    ).sort("step")
    assert column(line) == pytest.approx(source["scaled"].to_list(), rel=1e-5)
    assert steps_of(line) == [0, 1, 8, 64, 512]
    assert column(line, "linear") == [0, 1, 8, 64, 512]
    assert column(line, "x") == pytest.approx([0, 0.45, 1.35309, 2.25618, 3.15927], abs=1e-4)
    (band,) = renderers(figure, "VArea", role="band", group="male")
    upper = (source["scaled"] + source["sd_scaled"]).to_list()
    assert column(band, "high") == pytest.approx(upper, rel=1e-5)
    (diamond,) = renderers(figure, "Scatter", role="point", group="male")
    assert steps_of(diamond) == [None]
    assert column(diamond, "linear") == [1.06 * 512]
    assert diamond.glyph.marker == "diamond"


def test_what_hovering_tells_is_ready_made(fair: Fairness) -> None:
    figure = interactive_figures(fair)["gap"]
    (points,) = renderers(figure, "Scatter", role="line")
    row = fair.gap.filter(pl.col("step") == 512).row(0, named=True)
    assert column(points, "when")[-1] == "step 512"
    assert column(points, "told")[-1] == f"Gap Δ: {row['delta_scaled']:.4g}"
    assert column(points, "ends")[-1] == (
        f"95 %: {row['low_scaled']:.4g} to {row['high_scaled']:.4g}"
    )
    (tool,) = (tool for tool in panels(figure)[0].hover if points in tool.renderers)
    assert [text for _, text in tool.tooltips] == ["$name", "@when", "@told", "@ends"]


def test_filled_marks_are_small_p_values(fair: Fairness) -> None:
    row = renderers(interactive_figures(fair)["jsd_p"], role="mark")[0]
    assert row.name.startswith("Mann–Whitney")
    tests = fair.tests.filter(
        (pl.col("measure") == "jsd_p") & (pl.col("test") == "mann_whitney")
    ).sort("step", nulls_last=True)
    filled = [alpha == 1 for alpha in column(row, row.glyph.fill_alpha)]
    assert filled == (tests["p"] < 0.01).to_list()
    assert any(filled)
    assert not all(filled)


def test_the_change_point_is_a_dashed_line_at_its_step() -> None:
    fair = fairness_metric(random_frame(checkpoints=14, sentences=20, skew_from=7), bootstrap=50)
    figure = interactive_figures(fair)["gap"]
    untrained, line = renderers(figure, "Line", role="mark")
    assert steps_of(line) == [64, 64]
    assert line.glyph.line_dash == [6]
    (change,) = fair.change_points.iter_rows(named=True)
    levels = [signed(change[f"mean_{side}"], ".2f") for side in ("before", "after")]
    below, text = renderers(figure, "Text", role="mark")
    assert column(text, "note") == ["", f"step 64:\nmean {levels[0]} → {levels[1]}"]
    first = fair.gap.row(0, named=True)
    assert column(below, "note") == ["", "untrained"]
    assert steps_of(untrained) == [0, 4096]
    assert column(untrained) == pytest.approx([first["delta_scaled"]] * 2, rel=1e-5)
    (band,) = [one for one in renderers(figure, "VArea") if steps_of(one) == [0, 4096]]
    assert column(band, "low") == pytest.approx([first["low_scaled"]] * 2, rel=1e-5)
    assert column(band, "high") == pytest.approx([first["high_scaled"]] * 2, rel=1e-5)


def test_a_slider_moves_through_the_checkpoints_of_rank_and_accuracy(fair: Fairness) -> None:
    figure = interactive_figures(fair)["rank_and_accuracy"]
    points = renderers(figure, role="point")
    assert [one.tags[0]["steps"] for one in points] == [STEPS] * 3
    found = {
        one.tags[0]["group"]: column(one)[steps_of(one).index(8)] for one in points
    }  # fmt: skip
    source = fair.accuracy.filter((pl.col("step") == 8) & (pl.col("gold") != "all"))
    expected = dict(source.select("gold", "accuracy").iter_rows())
    assert found == pytest.approx(expected, rel=1e-5)


def test_of_many_models_the_first_is_seen() -> None:
    frames = [random_frame(checkpoints=3, sentences=4, model=f"m{i}") for i in range(4)]
    figure = interactive_figures(fairness_metric(pl.concat(frames), bootstrap=20))["jsd_p"]
    drawn = renderers(figure)
    assert {one.tags[0]["series"] for one in drawn} == {"m0", "m1", "m2", "m3"}
    assert {one.tags[0]["series"] for one in drawn if one.visible} == {"m0"}
    dashes = {
        one.tags[0]["series"]: tuple(one.glyph.line_dash)
        for one in renderers(figure, "Line", role="line")
    }
    assert len(set(dashes.values())) == 4


def test_the_legend_names_what_is_seen_and_keeps_the_rest_for_later(fair: Fairness) -> None:
    frames = [random_frame(checkpoints=3, sentences=4, model=f"m{i}") for i in range(4)]
    figure = interactive_figures(fairness_metric(pl.concat(frames), bootstrap=20))["gap"]
    assert names(figure) == ["m0", "m1", "m2", "m3"]
    (legend,) = panels(figure)[0].legend
    assert [item.visible for item in legend.items] == [True, False, False, False]
    assert names(interactive_figures(fair)["gap"]) == []


def test_plain_text_is_one_line_and_no_formula() -> None:
    assert plain("$$a$$ $$$") == "$\u200b$a$\u200b$ $\u200b$\u200b$"
    assert plain(r"\(x\) \[y\]") == "\\\u200b(x\\\u200b) \\\u200b[y\\\u200b]"
    assert plain("a\nb <i> ${x} @x $5") == "a b <i> ${x} @x $5"


def test_options_of_any_prompts_have_shares_and_accuracy() -> None:
    figures = interactive_figures(options())
    assert list(figures) == ["shares", "accuracy"]
    shares = checked(figures["shares"])
    (line,) = renderers(shares, "Line", group="no")
    assert column(line) == [0.75, 0.75]
    (band,) = renderers(shares, "VArea", group="no")
    assert column(band, "low") == pytest.approx([0.65, 0.65])
    (range_,) = {plot.y_range for plot in panels(shares)}
    assert (range_.start, range_.end) == pytest.approx((0, 1), abs=0.03)
    (hits,) = renderers(checked(figures["accuracy"]), "Line")
    assert column(hits) == [0, 0.5]


def test_prompts_of_one_option_have_probabilities_without_a_band() -> None:
    figures = interactive_figures(options(single=True))
    assert list(figures) == ["shares"]
    (line,) = renderers(checked(figures["shares"]), "Line", group="no")
    assert column(line) == [0.375, 0.1875]
    assert renderers(figures["shares"], role="band") == []
