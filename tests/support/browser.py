"""A real browser for tests of pages: Chromium without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The browser's path; without one the test is skipped, but in CI it fails."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        raise FileNotFoundError("no Chromium; CI installs one (.ci/run)")
    pytest.skip("no Chromium on this machine; install it to test pages")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


class Opened:
    """A page of a file, and everything that it should not have done."""

    def __init__(
        self, browser: Browser, path: Path, *, fragment: str = "", **options: object
    ) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1100, "height": 800}, **options}
        )
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._request)
        self.page.goto(f"{path.as_uri()}#{fragment}" if fragment else path.as_uri())
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-ready]")

    def _console(self, message: object) -> None:
        # Vega-Lite warns of "fit-y" when a chart that fits its width has bars of a fixed height.
        if message.type in ("error", "warning") and "fit-y" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request: object) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"request: {request.url}")

    def unfold(self) -> None:
        """Open what is folded, but for tables."""
        self.page.evaluate("document.querySelectorAll('details.more').forEach(d => d.open = true)")

    def draw(self, where: str = "body") -> int:
        """Scroll to every plot in an element until it is drawn; returns how many there are."""
        self.unfold()
        plots = self.page.locator(f"{where} .plot")
        for at in range(plots.count()):
            plots.nth(at).scroll_into_view_if_needed()
            self.page.wait_for_function(
                "([where, at]) => document.querySelectorAll(where)[at].dataset.drawn === 'yes'",
                arg=[f"{where} .plot", at],
            )
        return plots.count()

    def findings(self) -> list[str]:
        """What axe-core finds against accessibility, each with the first place where it is."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
        found = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    def close(self) -> None:
        self.context.close()
