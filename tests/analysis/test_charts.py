"""Charts on paper and on screens: the axis of steps, colours, widths, and text that stays text."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import polars as pl
import pytest

import logitbank
from logitbank.analysis.charts.chart import (
    Chart,
    bare_spec,
    chart_caption,
    chart_title,
    paper_specs,
    save_charts,
    titled,
)
from logitbank.analysis.charts.curves import (
    change_caption,
    change_points,
    curves,
    dots,
    significance_rows,
    stacked,
    with_series,
)
from logitbank.analysis.charts.draw import draw
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis, step_scale
from logitbank.analysis.charts.theme import PALETTE, color_map
from logitbank.errors import DrawingError, UsageError
from tests.golden import banks
from tests.support import evaluation_banks
from tests.support.drawing import draw_here
from tests.support.paths import ROOT
from tests.support.pictures import Picture
from tests.support.study_cases import charts, made

HOSTILE = '</text><script>alert(1)</script>"& <b>'


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([0, 100, 200, 300, 400], "linear"),
        ([0, 1, 2, 4, 8, 16, 512, 1000, 2000, 3000], "symlog"),
        ([0, 1, 10, *range(100, 1000, 50)], "linear"),
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, *range(1000, 143_001, 1000)], "symlog"),
        ([5], "linear"),
        ([None], "symlog"),
    ],
)
def test_the_axis_of_steps_is_the_one_on_which_they_are_told_apart(
    steps: list[int | None], scale: str
) -> None:
    assert step_scale(steps) == scale


@pytest.mark.parametrize("steps", [[0, 8, 16, 24], [0, 8, 16, None], [None], [0], [0, 1, 2, 512]])
def test_both_axes_have_ticks_and_the_release_stands_right_of_the_last_step(
    steps: list[int | None],
) -> None:
    axis = StepAxis(steps)
    meta = axis.meta()["steps"]
    known = [step for step in steps if step is not None]
    for scale in ("linear", "symlog"):
        assert meta["ticks"][scale] == sorted(meta["ticks"][scale])
        assert meta["release"][scale] > max(known, default=0)
        assert axis.release == (None in steps)
        if axis.release:
            assert meta["ticks"][scale][-1] == meta["release"][scale]
    table = axis.of(pl.DataFrame({"step": steps}, schema={"step": pl.Int64}))
    assert table["at"].to_list() == [meta["release"][axis.scale] if s is None else s for s in steps]
    assert table["checkpoint"][-1] == ("release" if steps[-1] is None else f"step {steps[-1]}")


def test_a_chart_has_the_values_of_its_table_and_a_caption() -> None:
    result = made()
    chart = charts(result)["lines"]
    assert chart_title(chart) == "Values during training"
    assert "n = 192 prompts" in chart_caption(chart)
    spec = bare_spec(chart)
    assert "config" not in spec
    (rows,) = spec["datasets"].values()
    assert [row["value"] for row in rows] == result.scores["value"].to_list()
    assert {row["series"] for row in rows} == {"toy seed1", "toy seed2"}


def test_a_chart_may_have_more_rows_than_altair_takes_by_default() -> None:
    many = made(runs=tuple(f"seed{at}" for at in range(200)))
    (rows,) = bare_spec(charts(many)["lines"])["datasets"].values()
    assert len(rows) == (200 + 1) * 9 * 3, "and the median of each group"


def test_series_are_named_by_their_differing_fields() -> None:
    table = pl.DataFrame({"model": ["a", "b"], "run": "main"})
    assert with_series(table)["series"].to_list() == ["a", "b"]
    assert color_map(["she", "x", "he", "y"]) == {
        "she": "#d55e00", "x": PALETTE[2], "he": "#0072b2", "y": PALETTE[3],
    }  # fmt: skip


@pytest.mark.parametrize(("width", "points"), [("single", 3.3 * 72), ("double", 7 * 72)])
def test_charts_are_saved_as_wide_as_asked_with_text_as_text(
    tmp_path: Path, width: str, points: float
) -> None:
    paths = save_charts(charts(made(HOSTILE)), tmp_path, width=width)
    assert {path.suffix for path in paths} == {".pdf", ".svg", ".png", ".txt"}
    svg = (tmp_path / "lines.svg").read_text()
    tree = ElementTree.fromstring(svg)
    assert float(tree.attrib["width"]) == pytest.approx(points, abs=1)
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "Training step" in texts
    assert "release" in texts
    assert any(text and HOSTILE in text for text in texts)
    assert "<script" not in svg
    assert (tmp_path / "lines.pdf").read_bytes().startswith(b"%PDF")
    assert "n = 192 prompts" in (tmp_path / "lines.txt").read_text()


def test_colours_are_chosen_by_name_and_what_no_chart_has_is_refused(tmp_path: Path) -> None:
    drawn = charts(made())
    save_charts(drawn, tmp_path, colors={"male": "#123456"})
    svg = (tmp_path / "lines.svg").read_text()
    assert "#123456" in svg
    assert "#0072b2" not in svg
    with pytest.raises(UsageError, match="'nobody'"):
        save_charts(drawn, tmp_path, colors={"nobody": "#123456"})
    with pytest.raises(UsageError, match="Colour 'rot' of 'male' is invalid"):
        save_charts(drawn, tmp_path, colors={"male": "rot"})
    with pytest.raises(UsageError, match=r"Width 'triple' is invalid: use single or double"):
        save_charts(drawn, tmp_path, width="triple")


def test_change_points_and_tests_are_drawn_beside_the_curves(tmp_path: Path) -> None:
    table = made().scores.with_columns(p=pl.when(pl.col("step") == 8).then(0.001).otherwise(0.5))
    axis = StepAxis(table["step"].to_list())
    changes = pl.DataFrame(
        {"model": "toy", "run": "main", "kind": ["change point", "gradual", "none", None],
         "step": [8, None, 16, None], "earliest": [4, 4, None, None], "latest": 16}
    )  # fmt: skip
    assert change_points(changes.tail(3), axis) == []
    assert change_caption(changes.tail(3)) == ""
    (marks,) = change_points(changes, axis)
    crowd = [changes.with_columns(model=pl.lit(f"model{i}")) for i in range(8)]
    assert change_points(pl.concat(crowd), axis) == []
    rows = significance_rows(table, axis, {"p": "Rank-sum test"})
    chart = stacked(marks, rows)
    spec = bare_spec(chart)
    drawn = [row for rows in spec["datasets"].values() for row in rows]
    assert [row["earliest"] for row in drawn if "earliest" in row] == [4]
    assert [row["text"] for row in drawn if "text" in row] == ["toy: step 8"]
    significant = {row["checkpoint"] for row in drawn if row.get("significant")}
    assert significant == {"step 8"}


def test_a_process_draws_what_this_one_draws() -> None:
    """Other tests draw their charts in their own process."""
    spec = bare_spec(charts(made())["lines"])
    calls = [(f"vegalite_to_{kind}", [spec], {}) for kind in ("svg", "png")]
    assert draw(calls) == draw_here(calls)
    with pytest.raises(DrawingError, match="Charts cannot be drawn: "):
        draw([("vegalite_to_svg", [{"mark": 3}], {})])


@pytest.mark.parametrize(
    ("values", "domain", "labels"),
    [
        ([1.2, 600], [1, 1000], ["1", "10", "100", "1k"]),
        ([2.0, 80], [1, 100], ["1", "10", "100"]),
        ([1e-12, 0.5], [1e-12, 1], ["10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "1"]),
    ],
)
def test_a_logarithmic_axis_has_powers_of_ten(
    values: list[float], domain: list[float], labels: list[str]
) -> None:
    about = Measure("value", "Value", None, "log").about(pl.DataFrame({"value": values}))
    assert about["scale"].to_dict() == {"type": "log", "domain": domain, "nice": False}
    assert str(labels) in about["axis"].to_dict()["labelExpr"]


@pytest.mark.parametrize("values", [[0.0, 0.0], [0.01, 0.02], [0.3, 0.97]])
def test_a_share_begins_at_0_and_a_percentage_goes_to_100(values: list[float]) -> None:
    table = pl.DataFrame({"value": values})
    shares = Measure("value", "Share", None, "share").about(table, padding=8)["scale"].to_dict()
    assert shares["domain"][0] == 0
    assert max(values) <= shares["domain"][1] <= 1
    assert "padding" not in shares
    percent = Measure("value", "Share (%)", None, "percent").about(table)["scale"].to_dict()
    assert percent["domain"] == [0, 100]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of virtual memory are Linux's")
def test_a_limit_of_virtual_memory_is_one_line_and_all_but_charts_is_written(
    tmp_path: Path,
) -> None:
    banks.families(tmp_path)
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
from tests.support.study_cases import study
from logitbank.cli.main import main
from logitbank.errors import LogitbankError
try: study().save("study")
except LogitbankError as error: print(error)
for family in ("pairs", "all"):
    sys.argv = ["logitbank", "analyze", family, "families.zarr"]
    sys.argv += ["--out", family, "--prompts", "crows-pairs"]
    try: main()
    except SystemExit as end: print("exit code", end.code)
"""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "`ulimit -v unlimited`" in done.stdout.splitlines()[0]
    assert done.stdout.count("Stereotype preferred at step 8: 100.0%") == 2
    assert done.stdout.count("exit code 1\n") == 2
    assert done.stderr.count("`ulimit -v unlimited`") == 2
    assert "Traceback" not in done.stderr
    assert len((tmp_path / "study" / "report.html").read_text()) > 500_000  # with Vega
    assert list((tmp_path / "study" / "tables").glob("*.csv"))
    for folder in ("study", "pairs", "all"):
        assert list((tmp_path / folder).rglob("report.html")), folder
        assert not list((tmp_path / folder).rglob("*.pdf")), folder


def test_a_curve_over_an_equal_one_is_dashed_so_that_both_are_visible() -> None:
    rows = [(name, "main", step, 0.1 * at + (name == "c"))
            for name in "abc" for at, step in enumerate((0, 1, 2, 4))]  # fmt: skip
    table = pl.DataFrame(rows, schema=["model", "run", "step", "value"], orient="row")
    axis = StepAxis(table["step"].to_list())
    spec = curves(table, axis, Measure("value", "V", band=None)).to_dict()
    (dashes,) = (
        layer["encoding"]["strokeDash"]["scale"]
        for layer in spec["layer"] if "strokeDash" in layer["encoding"]
    )  # fmt: skip
    assert dashes == {"domain": ["a", "b", "c"], "range": [[1, 0], [4, 2], [1, 0]]}
    both = stacked(*(curves(table, axis, Measure("value", "V", band=None)) for _ in "ab"))
    assert both.to_dict()["resolve"]["scale"]["strokeDash"] == "independent"  # one legend
    apart = table.filter(pl.col("model") != "b")
    assert "strokeDash" not in str(curves(apart, axis, Measure("value", "V", band=None)).to_dict())


@pytest.mark.parametrize(("names", "legends"), [("ab", 1), ("a", 1), ("ba", 2), ("abc", 2)])
def test_plots_share_a_legend_only_if_their_colours_are_its_colours(
    names: str, legends: int
) -> None:
    def plot(names: str) -> alt.LayerChart:
        rows = [(name, "main", step, step + ord(name)) for name in names for step in (0, 1, 2)]
        table = pl.DataFrame(rows, schema=["model", "run", "step", "value"], orient="row")
        return curves(table, StepAxis([0, 1, 2]), Measure("value", "V", band=None))

    drawn = stacked(plot("ab"), plot(names)).to_dict()
    shown = [
        {layer["encoding"]["color"]["legend"] is not None for layer in part["layer"]}
        for part in drawn["vconcat"]
    ]
    assert shown == [{True}, {legends == 2}]


def test_a_plot_stays_as_it_is_when_it_is_put_above_others() -> None:
    table = pl.DataFrame({"model": "a", "run": "b", "step": [0, 1, 2], "value": [0.1, 0.2, 0.3]})
    plot = curves(table, StepAxis([0, 1, 2]), Measure("value", "V", band=None))
    alone = plot.to_dict()
    both = stacked(plot, plot).to_dict()
    assert plot.to_dict() == alone
    first, last = ([layer["encoding"]["x"] for layer in part["layer"]] for part in both["vconcat"])
    assert first != last, "only the last one names the steps"


def test_equal_curves_of_groups_of_two_models_differ_in_width() -> None:
    """Dashes stand for the models."""
    rows = [(model, "main", step, group, 0.1 * at + (group == "z"))
            for model in "ab" for group in "xyz"
            for at, step in enumerate((0, 1, 2, 4))]  # fmt: skip
    columns = ["model", "run", "step", "group", "value"]
    table = pl.DataFrame(rows, schema=columns, orient="row")
    axis = StepAxis(table["step"].to_list())
    drawn = curves(table, axis, Measure("value", "V", band=None), group="group").to_dict()
    lines = [layer["mark"]["strokeWidth"] for layer in drawn["layer"]
             if layer["mark"].get("strokeWidth")]  # fmt: skip
    assert lines == [6.0, 4.5, 3.0, 1.5]
    widths = {(row["series"], row["group"]): row["width"]
              for rows in drawn["datasets"].values() for row in rows}  # fmt: skip
    assert widths == {("a", "x"): 6, ("a", "y"): 4.5, ("b", "x"): 3, ("b", "y"): 1.5,
                      ("a", "z"): 3, ("b", "z"): 1.5}  # fmt: skip
    one = table.filter(model="a")
    axis = StepAxis(one["step"].to_list())
    assert "width" not in str(curves(one, axis, Measure("value", "V", band=None), group="group"))


@pytest.mark.parametrize(
    "steps", [[*range(0, 300_001, 50_000)], [0, 1, 10, 100, 512, *range(1000, 143_001, 1000)]]
)
def test_the_release_is_labelled_beside_many_ticks(steps: list[int]) -> None:
    table = values("toy", [*steps, None])
    plot = titled(curves(table, StepAxis(table["step"].to_list()), VALUE), "a", "b")
    picture = drawn_picture(plot, 3.3)
    assert "release" in {text.text for text in picture.texts}
    assert not picture.overlaps()


def test_several_releases_without_steps_are_drawn_with_the_names_of_their_models() -> None:
    table = pl.concat(values(model, [None, None]) for model in ("toy", "other"))
    table = table.with_columns(kind=pl.Series(["a", "b"] * 2))
    plot = titled(curves(table, StepAxis([None]), VALUE, group="kind"), "a", "b")
    picture = drawn_picture(plot, 3.3)
    assert picture.height < 400
    assert {"toy", "other", "a", "b"} <= {text.text for text in picture.texts}


def test_a_row_of_dots_without_intervals_has_a_legend_of_dots() -> None:
    table = with_series(pl.concat(values(model, [8]) for model in ("toy", "other")))
    plot = dots(
        alt.Chart(table), table, VALUE._replace(band=None), "run", tooltip={"Model": "series"}
    )
    (svg,) = draw_here([("vegalite_to_svg", list(paper_specs({"a": titled(plot, "a", "b")}, 3.3)
                                                 .values()), {})])  # fmt: skip
    symbols = [
        each.attrib["d"]
        for part in ElementTree.fromstring(svg).iter()
        if "role-legend-symbol" in part.attrib.get("class", "")
        for each in part
    ]
    assert len(symbols) == 2
    assert all("A" in shape for shape in symbols), symbols


def test_no_plot_is_mirrored_by_long_names() -> None:
    table = pl.DataFrame({"name": ["a" * 80, "b" * 80], "value": [1.0, 2.0]})
    plot = alt.Chart(table).mark_point().encode(x="value:Q").facet("name:N", columns=2)
    (spec,) = paper_specs({"a": titled(plot, "a", "b")}, 3.3).values()
    assert spec["spec"]["width"] > 0


def test_an_axis_of_p_values_has_its_dashed_line_and_captions_name_only_drawn_bands(
    tmp_path: Path,
) -> None:
    bank = evaluation_banks.winobias_bank(tmp_path / "b.zarr", steps=1)
    charts = logitbank.fairness(bank, bootstrap=20).charts
    (drawn,) = draw_here(
        [("vegalite_to_svg", list(paper_specs({"p": charts["p_values"]}, 3.3).values()), {})]
    )
    assert Picture(drawn.decode()).height < 300
    for name in ("jsd_p", "average_rank", "accuracy", "rank_and_accuracy"):  # of one option order
        assert "option orders" not in chart_caption(charts[name]), name


def test_an_axis_of_releases_alone_has_no_other_tick() -> None:
    assert StepAxis([None]).ticks("symlog") == [1.0]


VALUE = Measure("value", "x")


def values(model: str, steps: Sequence[int | None]) -> pl.DataFrame:
    numbers = [1.0 + at for at in range(len(steps))]
    return pl.DataFrame(
        {"model": model, "run": "main", "step": steps, "value": numbers, "low": numbers,
         "high": numbers}, schema_overrides={"step": pl.Int64},
    )  # fmt: skip


def drawn_picture(plot: Chart, inches: float) -> Picture:
    (svg,) = draw_here(
        [("vegalite_to_svg", [spec], {}) for spec in paper_specs({"a": plot}, inches).values()]
    )
    return Picture(svg.decode())
