"""The page in a real browser: nothing breaks, everything works from a keyboard, text stays text."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser

from logitbank.analysis.charts.chart import titled
from logitbank.analysis.charts.curves import curves, grid, with_series
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import INK, MUTED, PALETTE
from logitbank.analysis.finding import Finding
from logitbank.analysis.report import page as page_module
from logitbank.analysis.report.origin import page_origin
from logitbank.analysis.report.page import (
    CELLS,
    ROWS,
    Page,
    columns_data,
    rows_that_fit,
    write_page,
)
from logitbank.analysis.report.prompts import prompt_data
from logitbank.analysis.report.sections import GENERAL, Section, page_opening
from logitbank.store import Bank
from tests.support.browser import Opened
from tests.support.evaluation_banks import add_lambada, add_winobias
from tests.support.paths import ROOT
from tests.support.study_cases import GROUPS, STEPS, made, study

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>$$x$$ \u2028 {{7*7}} ${1}"
SIZES = [(1280, 800, "light"), (1600, 1000, "dark"), (390, 844, "light")]


def write(folder: Path, text: str = "toy", **about: Any) -> Path:
    """A page of two sections and the prompts of a bank."""
    bank = Bank.create(folder / "b.zarr", license=text)
    add_winobias(bank, steps=(0, 1, 8), skew_from=8, model=text)
    add_lambada(bank, {0: 0, 8: 10}, model=text)
    sections = [
        Section(
            title=f"Values {text}", id="values", description="d", study=study(text), prompts=[text]
        ),
        Section(title="Refused", id="refused", problem="run `logitbank extract` first"),
    ]
    views = [prompt_data([bank], name) for name in ("winobias", "lambada")]
    path = folder / "p.html"
    made = Page(
        title=f"Title {text}", lead="1 model.", sections=sections, prompts=views,
        origin=page_origin([bank], prompts=["winobias"]), **about,
    )  # fmt: skip
    write_page(path, made)
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("hostile"), HOSTILE)


@pytest.fixture(scope="module")
def drawn(chromium: Browser, page: Path) -> Iterator[Opened]:
    """The page in a tab that tests share, with all its charts."""
    tab = Opened(chromium, page)
    tab.draw()
    yield tab
    tab.close()


@pytest.fixture
def opened(drawn: Opened) -> Iterator[Opened]:
    yield drawn
    assert drawn.complaints == []


# What is seen before anything is scrolled, opened or chosen, and where links lead.


def test_a_page_begins_with_the_first_finding_its_chart_and_numbers_of_its_series() -> None:
    made = study()
    sections = [
        Section(title="a", id="a", problem="p"),
        Section(title="b", id="b", study=replace(made, findings=())),
        Section(title="c", id="c", study=made),
    ]
    first = page_opening(sections)
    assert first is not None
    assert (first.section.id, first.chart) == ("c", "lines")
    assert first.headline == "The value doubles at step 8."
    assert [number.value for number in first.numbers] == [0.1, 0.2, 0.3, 0.4]
    assert page_opening(sections[:2]) is None


def test_a_first_finding_about_several_runs_has_no_numbers_of_one() -> None:
    made = study()
    lead = Finding(text="The value doubles, mean of 2 seeds.", figure="lines")
    one, two = (
        Finding(text="Value", value=value, series=("toy", run))
        for value, run in ((0.1, "seed0"), (0.2, "seed1"))
    )
    mean = Finding(text="Value, mean over runs", value=0.15)
    for findings, numbers in (
        ((lead, one, two), []),
        ((lead, one, two, mean), [mean]),
        ((lead, one), [one]),
    ):
        section = Section(title="c", id="c", study=replace(made, findings=findings))
        first = page_opening([section])
        assert first is not None
        assert first.numbers == numbers


@pytest.mark.parametrize(("width", "height", "scheme"), SIZES)
def test_headline_chart_and_numbers_are_on_the_first_screen(
    chromium: Browser, page: Path, width: int, height: int, scheme: str
) -> None:
    opened = Opened(
        chromium, page, viewport={"width": width, "height": height}, color_scheme=scheme
    )
    opened.page.wait_for_selector("#first .plot[data-drawn]")
    assert opened.page.locator(".headline").inner_text() == "The value doubles at step 8."
    assert opened.page.locator(".numbers b").all_inner_texts() == [
        "0.100",
        "0.200",
        "0.300",
        "0.400",
    ]
    for what in (".headline", "#first .plot svg", ".numbers b >> nth=3"):
        box = opened.page.locator(what).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height, what
    assert opened.page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert opened.page.locator("details.more[open]").count() == 0
    assert opened.findings() == []
    opened.unfold()
    opened.draw()
    assert opened.findings() == []
    assert opened.page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert opened.complaints == []
    opened.close()


def test_headings_go_down_one_level_at_a_time_and_everything_has_a_name(opened: Opened) -> None:
    levels = opened.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[:2] == [1, 2]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    for role in ("slider", "combobox", "searchbox", "button", "link"):
        for one in opened.page.get_by_role(role).all():
            named = one.evaluate("e => e.ariaLabel || e.labels?.[0]?.innerText || e.innerText")
            assert named.strip(), one


def test_previews_have_title_and_headline_and_text_between_backticks_is_code(page: Path) -> None:
    text = page.read_text()
    assert '<meta property="og:title" content="Title toy">' in text
    assert '<meta name="description" content="The value doubles at step 8.">' in text
    assert '<p class="problem">run <code>logitbank extract</code> first</p>' in text
    body = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert "`" not in body
    assert all(sentence in text for sentence in GENERAL)
    assert "It is made up." in text


def test_a_policy_allows_the_two_scripts_of_the_page_alone(page: Path) -> None:
    (policy,) = re.findall(
        r'Content-Security-Policy" content="([^"]*)"', html.unescape(page.read_text())
    )
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"('sha256-[\w+/]+=*' ?){2}", rules["script-src"])
    assert page.read_text().count("<script") == 3


def test_links_lead_to_a_checkpoint_a_folded_chart_and_a_prompt(
    chromium: Browser, page: Path
) -> None:
    opened = Opened(chromium, page, fragment="values-bars?step=8")
    opened.page.wait_for_selector("#values-bars .plot[data-drawn]")
    assert opened.page.locator("#values-bars output").inner_text() == "step 8"
    button = opened.page.locator("#prompt-view ol button").nth(2)
    button.click()
    chosen, link = button.inner_text(), opened.page.url.partition("#")[2]
    assert link.startswith("prompts?set=")
    opened.close()
    again = Opened(chromium, page, fragment=link)
    assert again.page.locator("#prompt-view h3").inner_text() == chosen
    assert again.complaints == []
    again.close()


def test_without_a_script_the_sentences_are_there(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page, java_script_enabled=False)
    text = opened.page.locator("body").inner_text()
    assert "Value of male at step 64: 0.100, 95% CI [0.010, 0.600], n = 192 prompts." in text
    assert "need JavaScript" in text
    opened.close()


# Charts.


def test_charts_below_the_screen_are_drawn_soon(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page)
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn)"
    )
    assert opened.page.evaluate("scrollY") == 0
    assert opened.complaints == []
    opened.close()


def test_the_axis_of_steps_is_switched_and_the_release_stays_at_its_right(opened: Opened) -> None:
    chart = opened.page.locator("#first figure")

    def labels() -> list[str]:
        texts = chart.locator(".mark-text.role-axis-label").first.locator("text").all()
        places = {text.text_content(): text.bounding_box()["x"] for text in texts}  # type: ignore[index]
        return sorted(places, key=places.__getitem__)

    assert labels() == ["0", "20", "40", "60", "release"]  # less than two decades
    chart.get_by_label("Steps").select_option("symlog")
    opened.page.wait_for_timeout(500)
    assert labels() == ["0", "1", "10", "64", "release"]
    chart.get_by_label("Steps").select_option("linear")


def test_one_name_of_the_legend_can_be_shown_by_keyboard(opened: Opened) -> None:
    chart = opened.page.locator("#first figure")
    line = "path[stroke-width='1.5']"
    assert {one.get_attribute("opacity") for one in chart.locator(line).all()} <= {None, "1"}
    chart.get_by_label("Show").select_option("male")
    opened.page.wait_for_timeout(500)
    faint = [one.get_attribute("opacity") for one in chart.locator(line).all()]
    assert faint.count("0.1") == 4  # two groups of two runs
    chart.get_by_label("Show").select_option("")


def test_panels_with_one_series_each_are_all_drawn(chromium: Browser, tmp_path: Path) -> None:
    """A menu chooses among models of one plot; here every model has a plot of its own."""
    table = with_series(pl.concat([made(name).scores for name in ("a", "b")]))
    axis = StepAxis(STEPS)
    panels = [
        [curves(part, axis, Measure("value", "Value"), group="group")]
        for part in table.partition_by("series", maintain_order=True)
    ]
    chart = titled(grid(panels), "Panels", "One model in each.", axis=axis)
    one = replace(study(), make_charts=lambda _: {"lines": chart})
    section = Section(title="Panels", id="panels", description="d", study=one)
    write_page(tmp_path / "p.html", Page(title="Panels", sections=[section]))
    opened = Opened(chromium, tmp_path / "p.html")
    opened.draw()
    lines = opened.page.locator("#first path[stroke-width='1.5']")
    assert lines.count() == (len(panels) + 1) * len(GROUPS)  # and those of the legend
    assert opened.complaints == []
    opened.close()


def test_a_slider_moves_bars_and_values_of_its_section(opened: Opened) -> None:
    bars = opened.page.locator("#values-bars")
    shape = bars.locator("path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    slider = bars.get_by_role("slider")
    slider.focus()
    opened.page.keyboard.press("Home")
    assert bars.locator("output").inner_text() == "step 0"
    assert slider.get_attribute("aria-valuetext") == "step 0"
    assert bars.locator("figcaption").inner_text() == "Means, step 0. n = 2 runs."
    opened.page.wait_for_timeout(300)
    moved = bars.locator("path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    assert moved != shape
    opened.page.keyboard.press("End")
    assert bars.locator("output").inner_text() == "release"


def test_values_at_a_checkpoint_are_those_of_the_table(opened: Opened) -> None:
    chart = opened.page.locator("#first figure")
    chart.locator("summary").click()
    chart.get_by_role("slider").focus()
    opened.page.keyboard.press("Home")
    rows = [row.split("\t") for row in chart.locator("tbody tr").all_inner_texts()]
    table = study().result.scores.filter(step=0)
    assert len(rows) == len(table) == 6
    heads = chart.locator("th").all_inner_texts()
    shown = {(row[0], row[1]): float(row[heads.index("Value")]) for row in rows}
    for row in table.iter_rows(named=True):
        assert shown[f"toy {row['run']}", row["group"]] == pytest.approx(row["value"], rel=1e-3)
    chart.locator("summary").click()


def test_charts_beyond_the_limit_of_a_page_are_excluded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "CHARTS", 9_000)
    monkeypatch.setattr(page_module, "ROWS", 3)
    text = write(tmp_path, has_files=True).read_text()
    assert "too large with 1 more of these charts. They are in the folder charts" in text
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert len(data["charts"]) == 1
    (scores,) = (table for table in data["tables"] if table["name"] == "scores")
    assert (len(scores["values"][4]), scores["total"]) == (3, 54)
    assert scores["allRows"] == "tables/scores.csv beside this page has all of them"


def test_a_print_has_every_chart_in_light_colours_and_folds_again(
    chromium: Browser, page: Path
) -> None:
    """Also if it begins before anything was scrolled to, from the menu of the browser."""
    opened = Opened(chromium, page, color_scheme="dark")
    opened.page.evaluate(
        "() => addEventListener('afterprint', () => { window.printed ="
        " [...document.querySelectorAll('.plot')].map(plot => [plot.checkVisibility(),"
        " plot.querySelector('svg')?.innerHTML.includes('#1f2329')]); }, true)"
    )
    opened.page.evaluate(
        "dispatchEvent(new Event('beforeprint')); new Promise(done => setTimeout(done)).then(() =>"
        " dispatchEvent(new Event('afterprint')))"
    )
    opened.page.wait_for_function("() => window.printed")
    assert opened.page.evaluate("window.printed") == [[True, True]] * 3
    assert opened.page.locator("details.more[open]").count() == 0
    opened.page.wait_for_timeout(500)
    dark = "document.querySelector('#first svg').innerHTML.includes('#e4e7eb')"
    assert opened.page.evaluate(dark)
    assert opened.complaints == []
    opened.close()


# Tables and prompts.


def test_tables_sort_by_keyboard_numbers_as_numbers_and_say_how(opened: Opened) -> None:
    table = opened.page.locator("#values details.table")
    table.locator("summary").click()
    head = table.get_by_role("button", name="value", exact=True)
    head.focus()
    opened.page.keyboard.press("Enter")
    at = table.locator("th").all_inner_texts().index("value")

    def values() -> list[float]:
        rows = table.locator("tbody tr").all_inner_texts()
        return [float(row.split("\t")[at]) for row in rows]

    assert values() == sorted(values())
    assert head.locator("..").get_attribute("aria-sort") == "ascending"
    opened.page.keyboard.press("Enter")
    assert values() == sorted(values(), reverse=True)
    assert head.locator("..").get_attribute("aria-sort") == "descending"


def test_a_table_is_saved_as_csv_with_all_its_rows(opened: Opened, tmp_path: Path) -> None:
    table = opened.page.locator("#bank details.table").filter(has_text="prompt sets")
    table.locator("summary").click()
    with opened.page.expect_download() as download:
        table.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "t.csv")
    assert download.value.suggested_filename == "prompt sets.csv"
    assert pl.read_csv(tmp_path / "t.csv").row(0)[:2] == ("winobias", 48)


def test_prompts_are_listed_shown_and_found(opened: Opened) -> None:
    view = opened.page.locator("#prompt-view")
    names = view.locator("ol button").all_inner_texts()
    assert len(names) == 12  # one of each sentence
    view.locator("ol button").nth(3).click()
    assert view.locator("h3").inner_text() == names[3]
    assert view.locator(".prompt-text").inner_text() == f"prompt {names[3][1:]}"
    view.get_by_label("Find by id or text").fill("PROMPT 17")
    assert view.locator("ol button").all_inner_texts() == ["p17"]
    view.get_by_label("Find by id or text").fill("")
    view.get_by_label("Prompt set").select_option(label="lambada")
    assert view.locator("ol button").first.inner_text().startswith("l")
    view.locator("svg text", has_text="Probability in the vocabulary").wait_for()


# Text of strangers, and limits.


def test_text_of_strangers_stays_text(chromium: Browser, hostile: Path) -> None:
    opened = Opened(chromium, hostile)
    opened.draw()
    assert opened.page.title() == f"Title {HOSTILE}"
    assert "alert(1)" in opened.page.locator("#bank tbody").first.inner_text()
    assert opened.page.locator("img").count() == 0
    assert opened.page.evaluate("document.scripts.length") == 3
    assert opened.complaints == []
    opened.close()


def test_a_tooltip_tells_values_and_shows_text_as_text(chromium: Browser, hostile: Path) -> None:
    opened = Opened(chromium, hostile)
    opened.page.wait_for_selector("#first .plot[data-drawn]")
    marks = opened.page.locator("#first .plot .mark-symbol.role-mark path")
    box = marks.first.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = opened.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert HOSTILE.split("$$")[0] in tip.inner_text()
    assert re.search(r"Checkpoint.\s*step 0", tip.inner_text())
    assert tip.locator("img, script, b").count() == 0
    assert opened.complaints == []
    opened.close()


def test_dark_and_light_follow_the_system_until_chosen(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page, color_scheme="dark")

    def brightness() -> int:
        colour = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    assert brightness() < 120
    opened.page.get_by_label("Colours").select_option("light")
    assert brightness() > 700
    opened.page.get_by_label("Colours").select_option("")
    assert brightness() < 120
    assert opened.complaints == []
    opened.close()


def luminance(colour: str) -> float:
    """Of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("theme", "card"), [("light", "#f6f7f9"), ("dark", "#1d2126")])
def test_colours_have_a_contrast_of_three_and_text_of_four_and_a_half(
    theme: str, card: str
) -> None:
    assets = ROOT / "analysis" / "report" / "assets"
    script, css = ((assets / name).read_text() for name in ("charts.js", "page.css"))
    assert f"--card: {card}" in css
    instead = dict(re.findall(r'"(#\w{6})": "(#\w{6})"', script)) if theme == "dark" else {}
    for colour, least in {**dict.fromkeys((*PALETTE, MUTED), 3.0), INK: 4.5}.items():
        dark, light = sorted([luminance(card), luminance(instead.get(colour, colour))])
        assert (light + 0.05) / (dark + 0.05) >= least, colour


def test_tables_together_are_bounded() -> None:
    many = [(100_000, 12)] * 40
    rows = rows_that_fit(many)
    assert sum(min(rows, height) * width for height, width in many) <= CELLS
    assert rows_that_fit([(10, 3)]) == ROWS
    values = columns_data({"x": [float("inf"), -0.0, 2.0, 1 / 3]})["values"]
    assert json.dumps(values) == '[["Infinity", -0.0, 2.0, 0.333333]]'


def test_a_page_without_an_analysis_has_a_note(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    write_page(path, Page(title="t"))
    opened = Opened(chromium, path)
    assert "No analysis applies" in opened.page.locator("main").inner_text()
    assert opened.complaints == []
    opened.close()
