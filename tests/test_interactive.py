"""Interactive figures show their tables, say what each trace is, and take no text for markup."""

import doctest
import re
from typing import Any

import polars as pl
import pytest

from logitbank.analysis import interactive_parts, interactive_steps
from logitbank.analysis.fairness import Fairness, fairness
from logitbank.analysis.interactive import interactive_figures
from logitbank.analysis.interactive_parts import plain
from logitbank.analysis.interactive_steps import StepPlaces
from tests.fairness_cases import random_frame

HOSTILE = '<a href="javascript:alert(1)">x</a><b>$a$%{x}'
STEPS = [0, 1, 8, 64, 512, None]


@pytest.fixture(scope="module")
def fair() -> Fairness:
    return fairness(random_frame(sentences=10, skew_from=3, steps=STEPS), bootstrap=50)


def traces(figure: Any, **about: object) -> list[Any]:
    """Those whose meta says so."""
    return [t for t in figure.data if about.items() <= t.meta.items()]


def texts(value: object) -> list[str]:
    """Every text of a figure that Plotly shows: all but meta and the names of groups."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        kept = (part for key, part in value.items() if key not in ("meta", "legendgroup"))
        return [text for part in kept for text in texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in texts(part)]
    return []


def checked(figure: Any) -> Any:
    """The figure, whose meta is complete."""
    meta = figure.layout.meta
    assert {"title", "caption", "kind", "one_series", "steps"} <= set(meta)
    assert meta["title"]
    assert len(meta["caption"]) > 40
    assert meta["kind"] in ("training", "checkpoint", "fixed")
    for trace in figure.data:
        assert {"series", "group", "role"} <= set(trace.meta)
        assert trace.meta["role"] in ("line", "band", "mark", "point", "bar", "cell")
        if trace.meta["role"] == "band":
            assert (trace.hoverinfo, trace.showlegend) == ("skip", False)
            partners = traces(figure, series=trace.meta["series"], role="line")
            assert trace.legendgroup in {line.legendgroup for line in partners}
        if meta["kind"] == "training":
            assert len(trace.customdata) == len(trace.x)
            assert {point[0] for point in trace.customdata} <= set(meta["steps"])
        if meta["kind"] == "checkpoint" and "step" in trace.meta:
            last = trace.meta["step"] == meta["steps"][-1]
            assert last or trace.visible is False
    if meta["kind"] == "training":
        assert set(meta["axis"]) == {"ticks", "first", "last", "release"}
    return figure


@pytest.mark.parametrize("module", [interactive_parts, interactive_steps])
def test_doctests(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_steps_are_in_decades_with_zero_at_the_left_and_the_release_at_the_right() -> None:
    places = StepPlaces([0, 10, 100, 10_000, None])
    got = [places.place(step) for step in (0, 5, 10, 100, 10_000, None)]
    assert got == pytest.approx([0, 0.225, 0.45, 1.45, 3.45, 3.45 + 0.12 * 3.45])
    assert [text for _, text in places.ticks()] == ["0", "10", "100", "1k", "10k", "release"]
    assert places.about()["last"] == 10_000


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([None], ["release"]), ([0], ["0", "1"]), ([7], ["7"]), ([5, 6, None], ["5", "6", "release"])],
)
def test_few_steps_have_ticks(steps: list[int | None], expected: list[str]) -> None:
    assert [text for _, text in StepPlaces(steps).ticks()] == expected


def test_fairness_has_every_kind_and_its_figures_are_complete(fair: Fairness) -> None:
    found = interactive_figures(fair)
    assert list(found) == [
        *("jsd_p", "average_rank", "neutral_options", "rank_and_accuracy", "accuracy", "gap")
    ]
    for figure in found.values():
        assert checked(figure).layout.meta["steps"] == STEPS


def test_curves_of_fairness_are_their_tables(fair: Fairness) -> None:
    figure = interactive_figures(fair)["jsd_p"]
    (line,) = traces(figure, role="line", group="male")
    source = fair.jsd_parts.filter(
        (pl.col("gold") == "male") & (pl.col("option") == "male") & pl.col("step").is_not_null()
    ).sort("step")
    assert list(line.y) == pytest.approx(source["scaled"].to_list(), rel=1e-5)
    assert [point[0] for point in line.customdata] == [0, 1, 8, 64, 512]
    assert list(line.x) == pytest.approx([0, 0.45, 1.35309, 2.25618, 3.15927], abs=1e-4)
    (band,) = traces(figure, role="band", group="male")
    upper = (source["scaled"] + source["sd_scaled"]).to_list()
    assert list(band.y)[5:] == pytest.approx(upper[::-1], rel=1e-5)
    (diamond,) = traces(figure, role="point", group="male")
    assert diamond.customdata[0][0] is None
    assert diamond.marker.symbol == "diamond"


def test_filled_marks_are_small_p_values(fair: Fairness) -> None:
    (row,) = traces(interactive_figures(fair)["jsd_p"], role="mark", test="Mann–Whitney")
    tests = fair.tests.filter(
        (pl.col("measure") == "jsd_p") & (pl.col("test") == "mann_whitney")
    ).sort("step", nulls_last=True)
    filled = [symbol == "circle" for symbol in row.marker.symbol]
    assert filled == (tests["p"] < 0.01).to_list()
    assert any(filled)
    assert not all(filled)


def test_the_onset_is_a_dashed_line_at_its_step(fair: Fairness) -> None:
    (line,) = traces(interactive_figures(fair)["gap"], role="mark")
    assert [point[0] for point in line.customdata] == [fair.onset["onset_step"][0]] * 2
    assert line.line.dash == "dash"


def test_a_slider_moves_through_the_checkpoints_of_rank_and_accuracy(fair: Fairness) -> None:
    figure = interactive_figures(fair)["rank_and_accuracy"]
    points = traces(figure, role="point")
    assert [trace.meta["step"] for trace in points] == STEPS
    assert [trace.visible is not False for trace in points] == [False] * 5 + [True]
    source = fair.accuracy.filter((pl.col("step") == 8) & (pl.col("gold") != "all"))
    assert sorted(points[2].y) == pytest.approx(sorted(source["accuracy"]), rel=1e-5)


def test_of_many_models_the_first_is_seen() -> None:
    frames = [random_frame(checkpoints=3, sentences=4, model=f"m{i}") for i in range(4)]
    figure = interactive_figures(fairness(pl.concat(frames), bootstrap=20))["jsd_p"]
    assert {trace.meta["series"] for trace in figure.data} == {"m0", "m1", "m2", "m3"}
    assert {t.meta["series"] for t in figure.data if t.visible is not False} == {"m0"}
    dashes = {t.meta["series"]: t.line.dash for t in traces(figure, role="line")}
    assert list(dashes.values()) == ["solid", "dash", "dot", "dashdot"]


def test_plain_text_is_no_markup_no_variable_and_no_formula() -> None:
    assert plain(HOSTILE) == (
        '&lt;a href="javascript:alert(1)"&gt;x&lt;/a&gt;&lt;b&gt;&#36;a&#36;&#37;{x}'
    )
    assert plain("95 % & 5 %") == "95 % &amp; 5 %"


def assert_harmless(figure: Any, *, named: bool = True) -> None:
    """No text is markup, a variable or a formula but what the figure itself writes."""
    known = re.compile(r"%\{(x|y|z|text|customdata\[\d\])(:[^}]*)?\}|</?b>|<br>|<extra></extra>")
    for text in texts(figure.to_plotly_json()):
        assert not re.search(r"[<>$]|%\{", known.sub("", text)), text
        assert "&#36;%{" not in text  # the name's own variable, which is one that there is
    series = {trace.meta["series"] for trace in figure.data}
    assert any(HOSTILE in name for name in series) or not named


def test_a_hostile_model_is_only_text() -> None:
    frame = random_frame(sentences=4, model=HOSTILE)
    for figure in interactive_figures(fairness(frame, bootstrap=20)).values():
        assert_harmless(figure)
