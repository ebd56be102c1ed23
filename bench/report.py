"""The report of a large bank: to write it, to open it; and one query in SQL.

`python -m bench.report BANK PAGE` writes the page in a process of its own.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.drawn import STEPS
from bench.figures import Figure
from bench.offline import large_bank
from bench.peak import peak_mb
from logitbank.store import open_bank

QUERY = (
    "SELECT step, AVG(logprob) AS mean FROM scores"
    " WHERE model = '{}' AND option = 'male' GROUP BY step ORDER BY step"
)
NAME = f"{len(STEPS)} checkpoints × 15,840 prompts"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def report_figures(tmp: Path, *, rounds: int = 3) -> list[Figure]:
    """Seconds, peak memory and size of the page; seconds until it can be used; one query."""
    bank, page = large_bank(tmp), tmp / "report.html"
    command = [sys.executable, "-m", "bench.report", str(bank), str(page)]
    found = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(rounds)
    ]
    seconds, peaks = [f["seconds"] for f in found], [f["peak_gb"] for f in found]
    size = page.stat().st_size / 1e6
    took = median(seconds)
    return [
        Figure(f"report, {NAME}", took, "s", "< 20 s", took < 20, seconds),
        Figure(f"report, {NAME}: peak memory", max(peaks), "GB", "< 2 GB", max(peaks) < 2, peaks),
        Figure(f"report, {NAME}: the page", size, "MB", "< 10 MB", size < 10),
        *_opened(page),
        _query(bank),
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
            "the page, opened: until its controls work", median(ready), "s", "≤ 2 s",
            median(ready) <= 2, ready,
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


def _query(bank: Path, *, rounds: int = 9) -> Figure:
    """From the opened bank to the answer, planning included."""
    opened = open_bank(bank)
    query = QUERY.format(opened.info()["model"][0])
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        rows = len(opened.sql(query).collect())
        seconds.append(time.perf_counter() - start)
        assert rows == len(STEPS)
    value = median(seconds[1:])
    name = f"SQL, one option of one model, {NAME}"
    return Figure(name, value, "s", "< 0.5 s", value < 0.5, seconds[1:])


if __name__ == "__main__":
    from logitbank.analysis.report.report import report

    start = time.perf_counter()
    report(Path(sys.argv[1]), Path(sys.argv[2]))
    took = time.perf_counter() - start
    print(json.dumps({"seconds": took, "peak_gb": peak_mb() / 1e3}))
