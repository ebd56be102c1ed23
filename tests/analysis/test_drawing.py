"""Every sheet of every family is drawn on a page and on paper, with its values and its text."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from bokeh.embed import json_item
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from logitbank.analysis.drawing import bokeh, matplotlib
from logitbank.analysis.drawing.figures import (
    figure_data,
    figures,
    sheets_of,
)
from logitbank.analysis.drawing.paper import INCHES, Paper, Width
from logitbank.analysis.drawing.sheet import Interactive, Sheet, Trace
from logitbank.analysis.families.fairness.metric import fairness_metric
from logitbank.analysis.families.fluctuation.metric import fluctuation_metric
from logitbank.analysis.families.tradeoff.metric import tradeoff_metric
from logitbank.analysis.families.unqover.figure_data import ENDS
from logitbank.analysis.families.unqover.metric import unqover_metric
from logitbank.wording import signed
from tests.analysis.test_interactive import checked, renderers
from tests.analysis.test_tradeoff import side
from tests.support import unqover_cases
from tests.support.drawing_cases import HOSTILE, RESULTS, exchange, fair, pronouns, stereotypes
from tests.support.fairness_cases import FEMALE, MALE, random_frame, scan_frame
from tests.support.fluctuation_cases import drawn, published, random_table


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


def test_a_page_embeds_what_bokeh_itself_would() -> None:
    model = bokeh.drawn(sheets_of(exchange())["tradeoff_front"]).model
    here, there = bokeh.embedded(model), dict(json_item(model))
    for item in (here, there):
        item["doc"]["config"] = None  # has an id of its own
    assert here == there


def texts_of(figure: Figure) -> list[str]:
    """Texts of a figure, which can be drawn."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text)]  # type: ignore[attr-defined]


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
        checked(page, embedded)
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


def test_text_of_strangers_is_text_on_paper(drawings: dict[str, Drawn]) -> None:
    for name, drawing in drawings.items():
        figure, file = drawing.paper, io.StringIO()
        figure.savefig(file, format="svg")
        assert "data:image" not in file.getvalue()  # a figure on paper has no pixels
        found = [text.get_text() for text in figure.findobj(Text)] + [figure.get_label()]  # type: ignore[attr-defined]
        assert any(HOSTILE in text for text in found) or name == "frequencies", name
        marked = [text for text in figure.findobj(Text) if "$" in text.get_text()]  # type: ignore[attr-defined]
        assert not any(text.get_parse_math() for text in marked), name  # type: ignore[attr-defined]
        assert len(str(figure.get_label())) > 40, name


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


def test_text_on_paper_has_seven_to_nine_points(drawings: dict[str, Drawn]) -> None:
    for name, drawing in drawings.items():
        texts = [text for text in drawing.paper.findobj(Text) if text.get_text()]  # type: ignore[attr-defined]
        sizes = {text.get_fontsize() for text in texts}  # type: ignore[attr-defined]
        assert 7 <= min(sizes) <= max(sizes) <= 9, name


@pytest.mark.whole
@pytest.mark.parametrize("width", INCHES)
@pytest.mark.parametrize("kind", RESULTS)
def test_a_figure_is_as_wide_as_asked_for_and_has_all_of_its_text(
    kind: str, width: Width, folder: Path
) -> None:
    for name, figure in figures(RESULTS[kind]("m", folder), Paper(width)).items():
        figure.draw_without_rendering()
        ends = figure.get_tightbbox().extents
        assert figure.get_figwidth() == INCHES[width]
        assert ends[:2].min() > -0.02, name
        assert (ends[2:] < figure.get_size_inches() + 0.02).all(), name


def test_figures_need_no_pyplot() -> None:
    before = "matplotlib.pyplot" in sys.modules
    figures(exchange())
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_filled_marks_are_small_p_values_on_paper() -> None:
    result = fair()
    tests = result.tests.filter(
        (pl.col("measure") == "jsd_p") & (pl.col("test") == "mann_whitney")
    ).sort("step", nulls_last=True)
    rows: Any = figures(result)["jsd_p"].axes[1].collections[0]
    assert (rows.get_facecolor()[:, 3] == 1).tolist() == (tests["p"] < 0.01).to_list()
    assert 0 < sum(tests["p"] < 0.01) < len(tests)


def test_the_change_point_of_a_gap_is_drawn_with_where_it_may_be() -> None:
    result = fairness_metric(random_frame(checkpoints=14, sentences=20, skew_from=7), bootstrap=50)
    figure = figures(result)["gap"]
    head = result.change_points.row(0, named=True)
    levels = [signed(head[f"mean_{side}"], ".2f") for side in ("before", "after")]
    assert f"step 64: mean {levels[0]} → {levels[1]}" in texts_of(figure)
    bands = [trace for trace in sheets_of(result)["gap"].traces if trace.band and not trace.told]
    steps = [[int(step) for step in trace.columns["step"]] for trace in bands]
    assert steps == ([[head["earliest"], head["latest"]]] if head["earliest"] != head["latest"]
                     else [])  # fmt: skip


@pytest.mark.parametrize("steps", [[None], [0], [7], [0, None], [5, 6, None], [0, 1, 143_000]])
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
        np.concatenate([drawn(3, 3, 2), np.zeros((3, 1, 2))], axis=1),  # one without probability
        np.stack([drawn(3, 4), np.zeros((3, 4))], axis=2),  # she is never there
        np.zeros((3, 4, 2)),
        drawn(3, 0, 2),  # the prior only
    ],
    ids=["one", "constant", "empty", "no she", "zeros", "prior"],
)
def test_any_result_of_fluctuation_is_drawn_and_summed_up(scores: np.ndarray) -> None:
    from logitbank.analysis.families.fluctuation.summary import fluctuation_summary

    found = fluctuation_metric(published(scores, drawn(3, 2)), plateaus=[1])
    for figure in figures(found).values():
        texts_of(figure)
    assert "nan" not in "\n".join(fluctuation_summary(found))


def test_many_runs_are_named_beside_their_cells() -> None:
    tables = [random_table(seed=seed, checkpoints=3) for seed in range(12)]
    sheet = sheets_of(fluctuation_metric(pl.concat(tables), plateaus=[1]))["run_pairs"]
    assert "seed11" in texts_of(matplotlib.drawn(sheet))


def test_the_extreme_professions_are_named_on_paper() -> None:
    found = texts_of(figures(pronouns())["trajectories"])
    assert any(text.endswith(", largest CV of R") for text in found)
    assert any(text.endswith(", smallest CV of R") for text in found)


def test_of_several_checkpoints_paper_has_the_last_and_says_so() -> None:
    figure = figures(stereotypes())["lms_ss-both"]
    assert figure.get_label().startswith("lms against ss, both tasks · m. ")
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
    data = figure_data(result)
    assert set(data) == {"ranked_subjects", "attribute_strengths"}
    ranks = [*range(1, ENDS + 1), *range(41 - ENDS, 41)]
    assert data["ranked_subjects"]["rank"].to_list() == ranks
    figure = figures(result)["ranked_subjects"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == data["ranked_subjects"]["subject"].to_list()
    assert "Of 40 subjects, those at both ends of the ranking." in figure.get_label()
    assert "95 %" not in figure.get_label()


def test_texts_at_points_are_not_written_over_each_other() -> None:
    """Three chosen checkpoints that lie side by side at the end of training."""
    steps = [0, 1000, 63000, 113000, 123000, 133000]
    performance = side([0.0, 0.03, 0.632, 0.668, 0.660, 0.675], steps=steps)
    found = tradeoff_metric(performance, side([0.02, 0.06, 0.04, 0.666, 0.659, 0.717], steps=steps))
    assert found.choices["step"].to_list() == [113000, 123000, 63000]
    for figure in figures(found).values():
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
        assert len(boxes) >= 2
        for at, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:at])


def test_captions_explain_bands_and_the_lines_of_releases_where_some_are_drawn() -> None:
    sheet = Sheet("a title", "Means.", "fixed", bands="95 % intervals")
    assert sheet.explained == "Means."
    about: dict[str, Any] = {"columns": {}, "series": "m", "role": "point"}
    sheet.traces = [Trace(shape="points", reach=["y"], **about)]
    assert sheet.explained == "Means. Thin lines: 95 % intervals."
    sheet.traces.append(Trace(shape="curve", band=True, **about))
    assert sheet.explained == "Means. Bands: 95 % intervals."
