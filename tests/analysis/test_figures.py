"""Figures of every family: the numbers of its tables, on a page and on paper; text stays text."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from bokeh.embed import json_item
from bokeh.models import Plot
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from logitbank.analysis.drawing import bokeh, matplotlib
from logitbank.analysis.drawing.figures import (
    figure_data,
    figures,
    interactive_figures,
    save_figures,
    sheets_of,
)
from logitbank.analysis.drawing.paper import INCHES, Paper, Width
from logitbank.analysis.drawing.places import StepPlaces, step_scale
from logitbank.analysis.drawing.sheet import Interactive, Sheet, Trace
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.fluctuation.metric import fluctuation_metric
from logitbank.analysis.families.unqover.figure_data import ENDS
from logitbank.analysis.families.unqover.metric import unqover_metric
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from logitbank.errors import UsageError
from tests.support import unqover_cases
from tests.support.drawing_cases import HOSTILE, RESULTS, exchange, fair, stereotypes
from tests.support.fairness_cases import FEMALE, MALE, random_frame, scan_frame
from tests.support.fluctuation_cases import drawn, published, two_runs

SVG = "{http://www.w3.org/2000/svg}"


class Drawn(NamedTuple):
    """A sheet on a page and on paper."""

    sheet: Sheet
    page: Interactive
    embedded: object
    paper: Figure


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a bank is made once."""
    return tmp_path_factory.mktemp("drawing")


@pytest.fixture(scope="module", params=RESULTS)
def drawings(request: pytest.FixtureRequest, folder: Path) -> dict[str, Drawn]:
    """Those of one result, whose model has markup in its name."""
    result = RESULTS[request.param](HOSTILE, folder)
    sheets = sheets_of(result)
    assert set(sheets) == set(figure_data(result))
    pages = {name: bokeh.drawn(sheet) for name, sheet in sheets.items()}
    return {
        name: Drawn(sheet, pages[name], bokeh.embedded(pages[name].model), matplotlib.drawn(sheet))
        for name, sheet in sheets.items()
    }


def renderers(figure: Interactive) -> list[Any]:
    """Those that draw a trace."""
    model: Any = figure.model
    plots = [model] if isinstance(model, Plot) else list(model.children)
    return [one for plot in plots for one in plot.renderers if one.tags]


def values_on_paper(figure: Figure, panel: int) -> set[float]:
    """Heights of lines, points and bars of a panel, and colours of its cells."""
    axes = figure.axes[panel]
    found = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    for shape in axes.collections:
        cells = isinstance(shape, QuadMesh)
        values = shape.get_array() if cells else np.asarray(shape.get_offsets())[:, 1]
        found.append(np.ma.filled(values, np.nan).ravel())
    found += [np.array([bar.get_y() + bar.get_height()]) for bar in axes.patches]
    return {round(value, 4) for values in found for value in values.tolist()}


def shown(trace: Trace) -> list[float]:
    """Values that are drawn at first: of several checkpoints those of the last."""
    values = trace.columns["value"].tolist()
    if trace.slides:
        steps = trace.columns["step"]
        values = [
            v for v, step in zip(values, steps, strict=True) if step == trace.tag["steps"][-1]
        ]
    return [round(value, 4) for value in values if value == value]


def test_values_of_every_sheet_are_on_a_page_and_on_paper(drawings: dict[str, Drawn]) -> None:
    for name, (sheet, page, embedded, paper) in drawings.items():
        json.dumps([page.meta, page.traces, embedded], allow_nan=False)
        assert [one.tags[0] for one in renderers(page)] == page.traces
        assert page.meta["title"]
        assert len(page.meta["caption"]) > 40
        on_page = {
            round(value, 4)
            for one in renderers(page)
            for value in one.data_source.data["value"].tolist()
        }
        for trace in sheet.traces:
            values, on_paper = set(shown(trace)), values_on_paper(paper, trace.panel)
            assert values, name
            assert values <= on_page, name
            # Cells have single precision, which may round the other way.
            assert all(min(abs(value - other) for other in on_paper) < 2e-4 for value in values)


@pytest.mark.parametrize(
    ("kind", "figure", "table", "column", "where"),
    [
        ("fairness", "gap", "gap", "delta_scaled", {}),
        ("fairness", "average_rank", "average_rank", "average_rank", {}),
        ("fluctuation", "trajectories-seed0", "trajectories", "relative", {"run": "seed0"}),
        ("fluctuation", "checkpoint_pairs-seed0", "checkpoint_pairs", "r", {"run": "seed0"}),
        ("fluctuation", "run_pairs", "run_pairs", "r", {}),
        ("stereoset", "domains-both", "scores", "lms", {"task": "both"}),
        ("stereoset", "domains-both", "scores", "ss", {"task": "both"}),
        ("bars", "bars-both", "scores", "icat", {"task": "both"}),
        ("unqover", "ranked_subjects", "subjects", "gamma", {"split": "all"}),
        ("unqover", "unqover_training", "unqover", "mu", {"split": "all"}),
        ("lambada", "lambada", "lambada", "acc", {}),
        ("lambada", "lambada", "lambada", "perplexity", {}),
        ("stereotype", "stereotype_accuracy", "stereotype_accuracy", "accuracy", {}),
        ("crows-pairs", "crows_pairs", "crows_pairs", "score", {"bias_type": "all"}),
        ("tradeoff", "tradeoff_front", "tradeoff", "gap", {}),
        ("tradeoff", "tradeoff_curves", "tradeoff", "performance", {}),
        ("options", "shares", "shares", "share", {}),
        ("options", "accuracy", "answers", "accuracy", {}),
        ("debias-search", "debias_search", "points", "lms", {}),
    ],
)
def test_a_figure_has_every_number_of_its_table(
    kind: str, figure: str, table: str, column: str, where: dict[str, str], folder: Path
) -> None:
    result = RESULTS[kind]("m", folder / "m")
    numbers = result.tables()[table].filter(**where)[column].drop_nulls().drop_nans()
    traces = sheets_of(result)[figure].traces
    at = [np.asarray(t.columns[c], float) for t in traces for c in ("x", "value") if c in t.columns]
    places = np.concatenate(at)
    assert len(numbers)
    for number in numbers:
        assert np.isclose(places, number, rtol=1e-5, atol=1e-9).any(), number


def texts_of(figure: Figure) -> list[str]:
    """Texts of a figure, which can be drawn."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text)]  # type: ignore[attr-defined]


def test_text_of_strangers_is_text_on_paper(drawings: dict[str, Drawn]) -> None:
    for name, drawing in drawings.items():
        figure = drawing.paper
        found = [*texts_of(figure), figure.get_label()]
        assert any(HOSTILE in text for text in found) or name == "frequencies", name
        marked = [text for text in figure.findobj(Text) if "$" in text.get_text()]  # type: ignore[attr-defined]
        assert not any(text.get_parse_math() for text in marked), name  # type: ignore[attr-defined]


def page_texts(value: object) -> Iterator[str]:
    """Every text of a figure but those of data, which hovering escapes, and tags."""
    if isinstance(value, str):
        yield value
    parts = value if isinstance(value, list | tuple) else ()
    if isinstance(value, dict):
        parts = [part for key, part in value.items() if key not in ("data", "tags")]
    for part in parts:
        yield from page_texts(part)


def test_text_of_strangers_is_text_on_a_page(drawings: dict[str, Drawn]) -> None:
    for name, drawing in drawings.items():
        for text in page_texts(drawing.embedded):
            assert not re.search(r"\$\$|\\[(\[]", text), text
        named = any(HOSTILE in trace["series"] for trace in drawing.page.traces)
        assert named or name.startswith(("frequencies", "run_pairs")), name  # of no one run


def test_a_page_embeds_what_bokeh_itself_would() -> None:
    model = bokeh.drawn(sheets_of(exchange())["tradeoff_front"]).model
    here, there = bokeh.embedded(model), dict(json_item(model))
    for item in (here, there):
        item["doc"]["config"] = None  # has an id of its own
    assert here == there


@pytest.mark.whole
@pytest.mark.parametrize("width", INCHES)
@pytest.mark.parametrize("kind", RESULTS)
def test_a_figure_is_as_wide_as_asked_for_and_has_all_of_its_text(
    kind: str, width: Width, folder: Path
) -> None:
    for name, figure in figures(RESULTS[kind]("m", folder / "m"), Paper(width)).items():
        figure.draw_without_rendering()
        ends = figure.get_tightbbox().extents
        assert figure.get_figwidth() == INCHES[width]
        assert ends[:2].min() > -0.02, name
        assert (ends[2:] < figure.get_size_inches() + 0.02).all(), name


def test_figures_need_no_pyplot() -> None:
    before = "matplotlib.pyplot" in sys.modules
    figures(exchange())
    assert ("matplotlib.pyplot" in sys.modules) == before


@pytest.mark.parametrize("steps", [[None], [7], [0, None], [0, 1, 143_000]])
def test_any_set_of_steps_is_drawn(steps: list[int | None]) -> None:
    frame = random_frame(checkpoints=len(steps), sentences=4, steps=steps)
    for name, figure in figures(fairness_metric(frame, bootstrap=20)).items():
        texts = " ".join([*texts_of(figure), figure.get_label()])
        last = name == "rank_and_accuracy" and len(steps) == 1  # it has no axis of steps
        assert ("release" in texts) == (None in steps and not last), name


def test_groups_without_prompts_and_one_order_are_drawn() -> None:
    frame = scan_frame([[[[0.0, 1, 2], [1, 0, 2]]]], gold=[MALE, FEMALE])
    for figure in figures(fairness_metric(frame, bootstrap=0)).values():
        texts_of(figure)


@pytest.mark.parametrize(
    "scores",
    [
        drawn(3, 1, 2),  # one profession
        np.full((3, 4, 2), 0.25),  # nothing varies
        np.stack([drawn(3, 4), np.zeros((3, 4))], axis=2),  # she is never there
        np.zeros((3, 4, 2)),
        drawn(3, 0, 2),  # the prior only
    ],
    ids=["one", "constant", "no she", "zeros", "prior"],
)
def test_any_result_of_fluctuation_is_drawn_and_summed_up(scores: np.ndarray) -> None:
    from logitbank.analysis.families.fluctuation.summary import fluctuation_summary

    found = fluctuation_metric(published(scores, drawn(3, 2)), plateaus=[1])
    for figure in figures(found).values():
        texts_of(figure)
    assert "nan" not in "\n".join(fluctuation_summary(found))


def test_filled_marks_are_small_p_values() -> None:
    result = fair()
    tests = result.tests.filter(measure="jsd_p", test="mann_whitney").sort("step", nulls_last=True)
    rows: Any = figures(result)["jsd_p"].axes[1].collections[0]
    assert (rows.get_facecolor()[:, 3] == 1).tolist() == (tests["p"] < 0.01).to_list()
    assert 0 < sum(tests["p"] < 0.01) < len(tests)


def test_of_several_checkpoints_paper_has_the_last_and_says_so() -> None:
    figure = figures(stereotypes())["lms_ss-both"]
    assert figure.get_label().endswith("Drawn is release.")
    points = [shape for shape in figure.axes[0].collections if len(shape.get_offsets()) == 1]
    row = stereotypes().scores.row(
        by_predicate=(pl.col("task") == "both")
        & (pl.col("domain") == "overall")
        & pl.col("step").is_null(),
        named=True,
    )
    assert points[-1].get_offsets()[0].tolist() == pytest.approx([row["ss"], row["lms"]], rel=1e-5)  # type: ignore[index]


def test_a_long_ranking_shows_its_ends() -> None:
    rows = unqover_cases.questions("nationality")
    rng = np.random.default_rng(0)
    many = [
        {**row, "subject1": f"A{i}", "subject2": f"B{i}", "instance": f"{i}{row['instance']}",
         "prompt_id": f"{i}{row['prompt_id']}"}
        for i in range(20) for row in rows[:4]
    ]  # fmt: skip
    p = {
        (row["prompt_id"], form): float(rng.uniform(0.01, 0.3))
        for row in many
        for name in (row["subject1"], row["subject2"])
        for form in (name, f" {name.lower()}")
    }
    result = unqover_metric(unqover_cases.scan_frame(many, p), bootstrap=0)
    ranked = figure_data(result)["ranked_subjects"]
    assert ranked["rank"].to_list() == [*range(1, ENDS + 1), *range(41 - ENDS, 41)]
    label = figures(result)["ranked_subjects"].get_label()
    assert "Of 40 subjects, those at both ends of the ranking." in label


def test_of_many_models_the_first_is_seen() -> None:
    frames = [random_frame(checkpoints=3, sentences=4, model=f"m{i}") for i in range(4)]
    figure = interactive_figures(fairness_metric(pl.concat(frames), bootstrap=20))["jsd_p"]
    drawn = renderers(figure)
    assert {one.tags[0]["series"] for one in drawn} == {"m0", "m1", "m2", "m3"}
    assert {one.tags[0]["series"] for one in drawn if one.visible} == {"m0"}


# Tables of figures.


@pytest.fixture(scope="module")
def result() -> Fairness:
    return fairness_metric(random_frame(checkpoints=8, sentences=10, skew_from=3), bootstrap=50)


def test_jsd_table_is_the_correct_answers_with_band_and_tests(result: Fairness) -> None:
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


def test_gap_table_has_the_interval_and_the_change_point(result: Fairness) -> None:
    table = figure_data(result)["gap"]
    assert table["low"].to_list() == result.gap["low_scaled"].to_list()
    assert table.drop_nulls("mean_after")["step"].to_list() == [4]


def test_two_models_share_the_neutral_figure_and_have_their_own_others(result: Fairness) -> None:
    frames = [random_frame(checkpoints=2, sentences=4, model=name) for name in ("one", "two/x")]
    tables = figure_data(fairness_metric(pl.concat(frames), bootstrap=20))
    kinds = [name for name in figure_data(result) if name != "neutral_options"]
    assert set(tables) == {
        "neutral_options",
        *(f"{kind}-{model}-main" for kind in kinds for model in ("one", "two%2Fx")),
    }
    assert tables["neutral_options"]["model"].unique().sort().to_list() == ["one", "two/x"]


def test_figures_of_fluctuation_are_named_after_what_differs() -> None:
    fluctuating = fluctuation_metric(two_runs(), plateaus=[2, 3])
    series = [f"seed{run}-{verb}" for run in (0, 1) for verb in ("is", "works_as")]
    tables = figure_data(fluctuating)
    assert set(tables) == {
        *(f"trajectories-{name}" for name in series),
        *(f"certainty_cv-{name}-{start}" for start in (2, 3) for name in series),
        *(f"checkpoint_pairs-{name}" for name in series),
        *(f"run_pairs-{verb}-{start}" for start in (2, 3) for verb in ("is", "works_as")),
    }
    own = fluctuating.professions.filter(run="seed1", verb="is", plateau=3)
    points = tables["certainty_cv-seed1-is-3"].filter(~pl.col("prior") & (pl.col("measure") == "N"))
    assert points["cv"].to_list() == own["cv_n"].to_list()
    pairs = tables["checkpoint_pairs-seed1-is"].select("step_a", "step_b", "r").rows()
    halves = {(a, b): r for a, b, r in pairs}
    assert all(halves[b, a] == r for (a, b), r in halves.items())


# The axis of steps.


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512], "log"),
        ([0, *(2**n for n in range(10)), *range(1_000, 144_000, 1_000)], "log"),
        ([0, 1, 2, 4, 8, 16, 32, 64, 128, *range(160, 760, 40)], "linear"),
        ([*range(1_000, 144_000, 1_000), 143_300], "linear"),
        ([None], "log"),
    ],
)
def test_the_axis_of_steps_is_the_one_on_which_they_are_told_apart(
    steps: list[int | None], scale: str
) -> None:
    assert step_scale(steps) == scale


def test_steps_are_in_decades_or_at_their_numbers_and_the_release_is_at_the_right() -> None:
    places = StepPlaces([0, 10, 100, 10_000, None])
    got = [places.place(step) for step in (0, 5, 10, 100, 10_000, None)]
    assert got == pytest.approx([0, 0.225, 0.45, 1.45, 3.45, 3.45 + 0.12 * 3.45])
    places = StepPlaces([*range(100, 1_100, 100), None])
    assert [places.place(step) for step in (100, 500, 1_000, None)] == [100, 500, 1_000, 1_060]


# Files.


def test_text_is_text_and_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    result = exchange(model="pythia")
    written = save_figures(result, tmp_path / "a")
    again = save_figures(result, tmp_path / "b")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    assert {path.suffix for path in written} == {".svg", ".pdf", ".png", ".txt"}
    svg = (tmp_path / "a" / "tradeoff_front.svg").read_text()
    texts = {text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    axes = figures(result)["tradeoff_front"].axes[0]
    assert {axes.get_xlabel(), axes.get_ylabel()} <= texts
    assert "<dc:date>" not in svg
    pdf = (tmp_path / "a" / "tradeoff_front.pdf").read_bytes()
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    caption = (tmp_path / "a" / "tradeoff_front.txt").read_text()
    assert caption.startswith("What fairness costs · pythia. ")


def test_a_study_is_drawn_as_its_result_and_one_figure_may_be_asked_for(tmp_path: Path) -> None:
    result = exchange(model="pythia")
    study = Study(result, Summary((), (), ()))
    assert list(figures(study)) == list(figures(result)) == list(figure_data(study))
    written = save_figures(study, tmp_path, Paper("single"), only=["tradeoff_front"])
    assert {path.stem for path in written} == {"tradeoff_front"}
    svg = ElementTree.parse(tmp_path / "tradeoff_front.svg").getroot()
    assert float(svg.attrib["width"].removesuffix("pt")) == pytest.approx(3.3 * 72)
    with pytest.raises(UsageError, match="no figure 'front'; there are .*tradeoff_front"):
        save_figures(study, tmp_path / "none", only=["front"])
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match="width is 'wide'; it is one of single, double"):
        Paper("wide")  # type: ignore[arg-type]


def test_a_style_of_ones_own_goes_before_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.mplstyle").write_text("# of a journal\nfont.family: serif\nfont.size: 9\n")
    figure = figures(exchange(), Paper(style=tmp_path / "mine.mplstyle"))["tradeoff_front"]
    label = figure.axes[0].xaxis.label
    assert (label.get_fontfamily(), label.get_fontsize()) == (["serif"], 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no style file .*mine\.mplstyle, and Matplotlib has no style of this name"),
        ("font.size: 8\n\nfont.sise: 9", r"mine\.mplstyle:3: Matplotlib has no setting 'font\.s"),
        ("axes.grid: perhaps", r"mine\.mplstyle is no style file of Matplotlib's: .*perhaps"),
        ("\udcff", r"mine\.mplstyle is no style file of Matplotlib's: .*can't decode byte"),
    ],
)
def test_a_style_that_is_none_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.mplstyle"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=re.compile(message, re.S)):
        Paper(style=path)
