"""The charts of fluctuation: panels, marks, orders and scales of the paper's figures."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.charts.chart import Chart, bare_spec, chart_caption, paper_specs
from logitbank.analysis.families.fluctuation.charts import charts
from logitbank.analysis.families.fluctuation.metric import fluctuation_metric
from logitbank.errors import UsageError
from tests.support.drawing import draw_here
from tests.support.fluctuation_cases import drawn, published, random_table, two_runs
from tests.support.pictures import Picture

JOBS = [f"a trade{number}" for number in range(40)]


def plots(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of a specification that have no panels of their own."""
    parts = [*spec.get("vconcat", ()), *spec.get("hconcat", ())]
    for part in parts:
        yield from plots(part)
    if not parts:
        yield spec


def panels(chart: Chart) -> dict[str, list[tuple[dict[str, Any], list[dict[str, Any]]]]]:
    """The layers of each panel with their rows, by its title."""
    spec = bare_spec(chart)
    return {
        " ".join(panel["title"]["text"]): [
            (layer, spec["datasets"][layer["data"]["name"]])
            for layer in panel["layer"]
            if "data" in layer
        ]
        for panel in plots(spec)
    }


def crosses(layers: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    return [row for layer, rows in layers if layer["mark"].get("shape") == "cross" for row in rows]


def test_certainty_has_a_panel_for_each_run_and_verb_and_the_prior_in_those_of_r() -> None:
    result = fluctuation_metric([two_runs()])
    found = panels(charts(result)["certainty_cv"])
    series = [f"bert seed{run} “{verb}”" for run in (0, 1) for verb in ("is", "works as")]
    assert {*found} == {f"{name}: {measure}" for name in series for measure in "RN"}
    for name, layers in found.items():
        assert len(crosses(layers)) == name.endswith("R"), name
    prior = result.plateaus.filter(run="seed1", verb="is").row(0, named=True)
    (cross,) = crosses(found["bert seed1 “is”: R"])
    assert (cross["certainty"], cross["cv"]) == (prior["prior_certainty"], prior["prior_cv"])


def test_axes_fit_the_points_and_histograms_at_both_margins_count_them() -> None:
    scores = drawn(6, 40, 2) * [[[0.02, 0.01]]] + 0.3
    result = fluctuation_metric([published(scores, drawn(6, 2) * 0.01 + 0.3, jobs=JOBS)])
    values = result.professions.select("certainty", cv="cv_n")
    (layers,) = (
        each for name, each in panels(charts(result)["certainty_cv"]).items() if "N" in name
    )
    (cloud, points), (_, top), (_, right) = layers
    assert len(points) == 40
    for channel, column, bars, length in (
        ("x", "certainty", top, ("base", "tip")), ("y", "cv", right, ("base", "tip"))
    ):  # fmt: skip
        low, high = cloud["encoding"][channel]["scale"]["domain"]
        known = values[column].to_numpy()
        assert low <= known.min()
        assert known.max() <= high
        assert np.ptp(known) > 0.7 * (high - low)
        sizes = np.array([bar[length[1]] - bar[length[0]] for bar in bars])
        counts = [((bar["low"] <= known) & (known <= bar["high"])).sum() for bar in bars]
        assert sum(counts) == 40
        assert sizes / sizes.max() == pytest.approx(np.array(counts) / max(counts))
        axis = cloud["encoding"][channel]["axis"]
        assert axis["tickCount"] >= len(axis["values"]) >= 2


def test_trajectories_have_a_panel_for_each_series_with_the_profession_as_title() -> None:
    result = fluctuation_metric([two_runs()], professions=["nurse", "a judge"])
    chart = charts(result)["trajectories"]
    spec = bare_spec(chart)
    titles = [" ".join(panel["title"]["text"]) for panel in plots(spec)]
    assert titles == ["prior", "a nurse", "a judge"] * 4
    one = [row for rows in spec["datasets"].values() for row in rows if "relative" in row]
    assert {row["series"] for row in one} == {
        f"bert seed{run} “{verb}”" for run in (0, 1) for verb in ("is", "works as")
    }
    domains = {
        str(layer["encoding"]["y"]["scale"]["domain"])
        for panel in plots(spec)
        for part in panel["layer"]
        for layer in part.get("layer", ())
    }
    highest = result.trajectories["relative"].max()
    assert domains == {str([0, min(max(1, highest), 1.2)])}, "only the first has labels"
    assert "divided by its own largest" in chart_caption(chart)


def test_a_release_far_above_training_is_at_the_edge_with_its_values() -> None:
    table = random_table().with_columns(score=pl.col("score") / 10)
    release = published(np.full((1, 6, 2), 0.4), [[0.01, 0.02]], steps=[None])
    result = fluctuation_metric([pl.concat([table, release])], professions=["nurse"])
    chart = charts(result)["trajectories"]
    prior, nurse = plots(bare_spec(chart))
    marks = [each["mark"] for each in nurse["layer"] if "mark" in each]
    (text,) = (mark["text"] for mark in marks if mark["type"] == "text")
    own = result.trajectories.filter(pl.col("step").is_null(), occupation="a nurse")["relative"]
    assert own.min() > 5
    assert text == f"he {own[0]:.3g}\nshe {own[1]:.3g}"
    assert not any(each.get("mark", {}).get("text") for each in prior["layer"])
    assert "At the upper edge: those above 1.2" in chart_caption(chart)


def test_frequencies_of_all_cases_are_in_the_order_of_the_case_insensitive_ones() -> None:
    counts = {"lower": [1, 50, 3], "upper": [7, 0, 2], "insensitive": [8, 50, 5]}
    frequencies = pl.DataFrame(
        [
            (job, case, float(count))
            for case, values in counts.items()
            for job, count in zip(("nurse", "judge", "actor"), values, strict=True)
        ],
        schema=["occupation", "case", "frequency"], orient="row",
    )  # fmt: skip
    chart = charts(fluctuation_metric([random_table()], frequencies=frequencies))["frequencies"]
    (rows,) = bare_spec(chart)["datasets"].values()
    places = {(row["case"], row["occupation"]): row["rank"] for row in rows}
    assert places == {
        ("insensitive", "a judge"): 1, ("insensitive", "a nurse"): 2,
        ("insensitive", "an actor"): 3, ("lower", "a judge"): 1, ("lower", "a nurse"): 2,
        ("lower", "an actor"): 3, ("upper", "a nurse"): 2, ("upper", "an actor"): 3,
    }  # fmt: skip
    assert "(insensitive)" in chart_caption(chart)
    mark = bare_spec(chart)["mark"]
    assert not mark.get("filled"), "symbols of the legend are strokes"


def test_the_colours_of_correlations_cover_their_values_and_the_caption_names_them() -> None:
    result = fluctuation_metric([random_table()])
    chart = charts(result)["checkpoint_pairs"]
    low, high = bare_spec(chart)["encoding"]["color"]["scale"]["domain"]
    r = result.checkpoint_pairs["r"].to_numpy()
    assert r.min() - 0.1 < low <= r.min()
    assert r.max() <= high < r.max() + 0.1
    assert f"viridis, linear from {low:g} (dark) to {high:g} (yellow)" in chart_caption(chart)


def test_correlations_of_models_with_other_steps_have_axes_of_their_own() -> None:
    other = published(drawn(4, 6, 2), drawn(4, 2), steps=[0, 70, 500, 700], model="roberta")
    chart = charts(fluctuation_metric([pl.concat([random_table(), other])]))["checkpoint_pairs"]
    assert bare_spec(chart)["resolve"]["scale"] == {"x": "independent", "y": "independent"}


def test_run_and_verb_choose_the_panels_and_leave_numbers_as_they_are() -> None:
    first = two_runs().filter(pl.col("checkpoint").is_not_null(), pl.col("seed") == 0)
    table = pl.concat([first, random_table(seed=1, checkpoints=8)])  # its plateau starts later
    result = fluctuation_metric([table])
    chosen = fluctuation_metric([table], run=["seed0"], verb=["is"])
    drawn_panels = panels(charts(chosen)["certainty_cv"])
    assert {*drawn_panels} == {"bert “is”: R", "bert “is”: N"}
    for name, own in chosen.tables().items():
        if {"run", "verb"} <= {*own.columns}:
            assert own.equals(result.tables()[name].filter(run="seed0", verb="is")), name
    with pytest.raises(UsageError, match="Run 'seed7' is unknown; there are seed0, seed1"):
        fluctuation_metric([table], run=["seed7"])
    with pytest.raises(UsageError, match="Verb 'was' is unknown; there are is, works as"):
        fluctuation_metric([table], verb=["was"])
    with pytest.raises(UsageError, match="No run that is chosen has a verb that is chosen"):
        fluctuation_metric([table], run=["seed1"], verb=["works as"])


def test_long_names_of_models_leave_charts_as_wide_as_asked() -> None:
    table = two_runs().with_columns(model=pl.lit("organisation/model-1.4b-deduped-finetuned"))
    drawn_charts = charts(fluctuation_metric([table]))
    for name, spec in paper_specs(drawn_charts, 3.3).items():
        (svg,) = draw_here([("vegalite_to_svg", [spec], {})])
        assert Picture(svg.decode()).width == pytest.approx(72 * 3.3, rel=0.04), name
