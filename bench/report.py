"""The report of a large bank: to write it, to open it; and queries in SQL."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.drawn import STEPS
from bench.figures import Figure
from bench.offline import large_bank
from bench.work import taken
from logitbank.store import open_bank

MEANS = "SELECT step, AVG(logprob) AS mean FROM scores{} GROUP BY step ORDER BY step"
NAME = f"{len(STEPS)} checkpoints × 15,840 prompts"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def report_figures(tmp: Path, *, rounds: int = 3) -> list[Figure]:
    """Seconds, peak memory and size of the page; seconds until it can be used; one query."""
    bank, page = large_bank(tmp), tmp / "report.html"
    seconds, peaks = taken("report", bank, page, rounds=rounds)
    size = page.stat().st_size / 1e6
    took, peak = median(seconds), max(peaks)
    return [
        Figure(f"report, {NAME}", took, "s", "≤ 8 s", took <= 8, seconds),
        Figure(f"report, {NAME}: peak memory", peak, "MB", "< 2,000 MB", peak < 2000, peaks),
        Figure(f"report, {NAME}: the page", size, "MB", "< 10 MB", size < 10),
        *_opened(page),
        *_queries(bank),
    ]


def _opened(page: Path, *, rounds: int = 7) -> list[Figure]:
    """Chromium without a window: until the page's controls work, and until a figure is drawn."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("no Chromium on this machine; install it to open the page")
    ready, drawn = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1200, "height": 900})
            tab.add_init_script(_WATCH)
            tab.goto(f"{page.as_uri()}#fairness")
            tab.wait_for_function("() => window.drawnAt")  # the page's policy refuses mere text
            ready.append(tab.evaluate("window.readyAt") / 1000)
            drawn.append(tab.evaluate("window.drawnAt") / 1000)
            tab.close()
        browser.close()
    return [
        Figure(
            "the page, opened: until its controls work", median(ready), "s", "≤ 1 s",
            median(ready) <= 1, ready,
        ),
        Figure(
            "the page, opened: until a figure is drawn", median(drawn), "s", "≤ 2 s",
            median(drawn) <= 2, drawn,
        ),
    ]  # fmt: skip


_WATCH = """
new MutationObserver(() => {
  const now = performance.now();
  if (!window.readyAt && document.documentElement?.dataset.ready) window.readyAt = now;
  if (!window.drawnAt && document.querySelector('[data-drawn]')) window.drawnAt = now;
}).observe(document, {attributes: true, childList: true, subtree: true});
"""


def _queries(bank: Path, *, rounds: int = 9) -> Iterator[Figure]:
    """One option of one model, and all of a bank: imports, opening and planning included."""
    model = open_bank(bank).info()["model"][0]
    for what, where, most in (
        ("one option of one model", f" WHERE model = '{model}' AND option = 'male'", 0.4),
        ("the mean of every option by step", "", 1),
    ):
        seconds = taken("query", bank, MEANS.format(where), str(len(STEPS)), rounds=rounds).seconds
        value = median(seconds)
        yield Figure(f"SQL, {what}, {NAME}", value, "s", f"≤ {most:g} s", value <= most, seconds)
