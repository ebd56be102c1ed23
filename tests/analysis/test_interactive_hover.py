"""What hovering tells in a real browser: the values of a point, and strangers' names as text."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from logitbank.analysis.report.report import report
from tests.support.browser import Opened
from tests.support.evaluation_banks import whole_bank

HOSTILE = r'<a href="javascript:alert(1)">x</a>$$a$$ \(x\) \[y\] ${x} @x'
TOOLTIPS = """() => {
  const found = [];
  const walk = (root) => root.querySelectorAll("*").forEach((element) => {
    if (element.classList.contains("bk-Tooltip") && element.getBoundingClientRect().height > 0)
      found.push([element.shadowRoot.textContent,
        element.shadowRoot.querySelectorAll("a, b, img, script").length]);
    if (element.shadowRoot) walk(element.shadowRoot);
  });
  walk(document);
  return found;
}"""
PLACE = """plot => {
  const view = Object.values(Bokeh.index.roots ?? Bokeh.index).find((one) => plot.contains(one.el));
  const figure = view.child_views && view.child_views.length ? view.child_views[0] : view;
  const line = figure.model.renderers.find((one) => one.tags.includes("hover"));
  const { x, value } = line.data_source.data;
  const frame = figure.frame;
  const sx = frame.x_scale.compute(x[1]);
  const sy = frame.y_scale.compute(value[1]);
  const box = figure.el.getBoundingClientRect();
  return [box.left + sx, box.top + sy];
}"""


def told_at_a_point(opened: Opened, plot: Locator) -> list[tuple[str, int]]:
    """Text of what is told at the second point of the first line, and markup in it."""
    plot.scroll_into_view_if_needed()
    x, y = plot.evaluate(PLACE)
    opened.page.mouse.move(x - 3, y)
    opened.page.mouse.move(x, y)
    opened.page.wait_for_timeout(300)
    return [(text, marked) for text, marked in opened.page.evaluate(TOOLTIPS) if text]


@pytest.mark.whole
def test_hovering_tells_values_and_takes_a_name_for_text(chromium: Browser, tmp_path: Path) -> None:
    bank = whole_bank(tmp_path / "b.zarr", model=HOSTILE)
    opened = Opened(chromium, report(bank, tmp_path / "b.html", bootstrap=20))
    opened.draw("#lambada")
    found = told_at_a_point(opened, opened.page.locator("#lambada .plot").first)
    assert len(found) == 1
    text, marked = found[0]
    assert HOSTILE.split("$$")[0] in text
    assert "step 8" in text
    assert "Accuracy: 0.25" in text
    assert marked == 0
    assert opened.complaints == []
    opened.close()
