"""Files of figures for a paper: text is text, without a date, in the width and style asked for."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from logitbank.analysis.drawing.figures import figure_data, figures, save_figures
from logitbank.analysis.drawing.paper import Paper
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from logitbank.errors import UsageError
from tests.support.drawing_cases import exchange

SVG = "{http://www.w3.org/2000/svg}"


def test_text_is_text_and_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    result = exchange(model="pythia")
    written = save_figures(result, tmp_path / "a")
    again = save_figures(result, tmp_path / "b")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    assert {path.suffix for path in written} == {".svg", ".pdf", ".png", ".txt"}
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        path.name for path in written
    )
    svg = (tmp_path / "a" / "tradeoff_front.svg").read_text()
    texts = {text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    axes = figures(result)["tradeoff_front"].axes[0]
    assert {axes.get_xlabel(), axes.get_ylabel()} <= texts
    assert "<dc:date>" not in svg
    pdf = (tmp_path / "a" / "tradeoff_front.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf


def test_a_study_is_drawn_as_its_result_and_one_figure_may_be_asked_for(tmp_path: Path) -> None:
    result = exchange(model="pythia")
    study = Study(result, Summary((), (), ()))
    assert list(figures(study)) == list(figures(result)) == list(figure_data(study))
    written = save_figures(study, tmp_path, only=["tradeoff_front"])
    assert {path.stem for path in written} == {"tradeoff_front"}
    with pytest.raises(UsageError, match="no figure 'front'; there are .*tradeoff_front"):
        save_figures(study, tmp_path / "none", only=["front"])
    assert not (tmp_path / "none").exists()


def test_the_caption_stands_beside_a_figure_that_has_no_title(tmp_path: Path) -> None:
    save_figures(exchange(model="pythia"), tmp_path)
    caption = (tmp_path / "tradeoff_front.txt").read_text()
    assert caption.startswith("What fairness costs · pythia. ")
    assert "What fairness costs" not in (tmp_path / "tradeoff_front.svg").read_text()


def test_one_column_is_as_wide_in_the_file(tmp_path: Path) -> None:
    save_figures(exchange(), tmp_path, Paper("single"))
    svg = ElementTree.parse(tmp_path / "tradeoff_front.svg").getroot()
    assert float(svg.attrib["width"].removesuffix("pt")) == pytest.approx(3.3 * 72)


def test_a_style_of_ones_own_goes_before_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.mplstyle").write_text(
        "# of a journal\nfont.family: serif\nfont.size: 9  # points\naxes.grid: False\n"
    )
    figure = figures(exchange(), Paper(style=tmp_path / "mine.mplstyle"))["tradeoff_front"]
    label = figure.axes[0].xaxis.label
    assert label.get_fontfamily() == ["serif"]
    assert label.get_fontsize() == 9
    assert Paper(style="ggplot").settings()["axes.facecolor"] == "#E5E5E5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no style file .*mine\.mplstyle, and Matplotlib has no style of this name"),
        ("a: 1\n", r"^[^:]*mine\.mplstyle:1: Matplotlib has no setting 'a'"),
        (
            "font.size: 8\n\nfont.sise: 9",
            r"^[^:]*mine\.mplstyle:3: Matplotlib has no setting 'font\.sise'",
        ),
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


def test_another_width_is_refused() -> None:
    with pytest.raises(UsageError, match="width is 'wide'; it is one of single, double"):
        Paper("wide")  # type: ignore[arg-type]
