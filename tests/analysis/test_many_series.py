"""The page of more series than a telephone has room for: nothing is cut, nothing squeezed."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from logitbank.analysis.drawing.figures import interactive_figures
from logitbank.analysis.families.fairness.study import fairness
from logitbank.analysis.report.report import report
from logitbank.store import Bank
from tests.support.browser import Opened
from tests.support.evaluation_banks import add_winobias

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
NOTES = ["step 8", "step 16", "step 32", "step 64", "step 128"]


def bank_of(path: Path, models: str) -> Bank:
    """Models whose gaps have another level from step 8, 16, 32, … on."""
    bank = Bank.create(path)
    for at, model in enumerate(models):
        add_winobias(bank, steps=STEPS, skew_from=STEPS[4 + at], model=f"model-{model}")
    return bank


def notes_of(bank: Bank) -> list[str]:
    """The texts at changes of level in the figure of the gap."""
    model = interactive_figures(fairness(bank, bootstrap=20).result)["gap"].model
    sources = [each.data_source.data for each in model.renderers if each.glyph.name is None]
    texts = {text for data in sources for text in data.get("note", ()) if text}
    return sorted(texts, key=lambda text: int(text.split()[1].rstrip(":")))


def test_five_changes_of_level_are_told_by_their_steps_alone(tmp_path: Path) -> None:
    assert notes_of(bank_of(tmp_path / "five", "abcde")) == NOTES
    two = notes_of(bank_of(tmp_path / "two", "ab"))
    assert [text.splitlines()[0] for text in two] == ["step 8:", "step 16:"]
    assert all(text.splitlines()[1].startswith("mean ") for text in two)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    return report(bank_of(folder / "b", "abcde"), folder / "b.html", bootstrap=20)


@pytest.mark.whole
@pytest.mark.parametrize("width", [360, 400])
def test_a_legend_of_many_names_leaves_its_plot_the_room_that_it_has(
    chromium: Browser, page: Path, width: int
) -> None:
    opened = Opened(chromium, page, viewport={"width": width, "height": 800})
    opened.page.wait_for_selector("#message .plot[data-drawn]")
    opened.draw()
    heights = """() => Bokeh.documents.flatMap((one) => [...one._all_models.values()])
        .filter((model) => model.type === "Figure")
        .filter((model) => model.above.some((each) => each.type === "Legend"))
        .map((model) => model.inner_height)"""
    before = opened.page.evaluate(heights)
    assert len(before) >= 4
    opened.page.evaluate(
        "document.querySelectorAll('.controls input[type=checkbox]:not(:checked)')"
        ".forEach((box) => box.click())"
    )
    # Some have more room than their 300 pixels before, as they are laid out for all names.
    opened.page.wait_for_function(
        f"(before) => ({heights})().every((now, i) => now >= 0.9 * Math.min(300, before[i]))",
        arg=before,
    )
    assert opened.complaints == []
    opened.close()
