"""The report in a real browser: nothing breaks, everything can be worked, text stays text."""

import base64
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser, Locator

from logitbank import describe
from logitbank.analysis.drawing.paper import COLOURS, INK, MUTED, PALETTE, WRITTEN
from logitbank.analysis.families.stereotype.sheets import SHADES
from logitbank.analysis.report.first import First, first_of
from logitbank.analysis.report.origin import Origin
from logitbank.analysis.report.page import CELLS, ROWS, rows_that_fit, table_data, write_page
from logitbank.analysis.report.part import Part
from logitbank.analysis.report.prompts import prompt_data
from logitbank.analysis.report.report import report
from logitbank.analysis.results.message import Message
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.browser import Opened
from tests.support.evaluation_banks import add_lambada, add_winobias, whole_bank
from tests.support.small_banks import QUERY_SET, TOKENIZER, logits, new_bank, prompt_table, spec

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>$$x$$ \u2028 {{7*7}} ${1}"


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


STEPS = range(14)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a gap that changes its level at step 7, and of LAMBADA."""
    folder = tmp_path_factory.mktemp("page")
    bank = Bank.create(folder / "b.zarr")
    add_winobias(bank, steps=STEPS, skew_from=7)
    add_lambada(bank, {step: 2 * step for step in STEPS})
    describe(bank.path, title="a title", licence="CC0", citation="Doe (2026)")
    sets = ["winobias", "lambada"]
    return report(bank.path, folder / "b.html", prompts=sets, bootstrap=50)


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of every analysis, of a bank whose model and title are no good."""
    folder = tmp_path_factory.mktemp("strange")
    bank = whole_bank(folder / "b.zarr", model=HOSTILE)
    describe(bank, title=HOSTILE, licence=HOSTILE)
    return report(bank, folder / "b.html", bootstrap=20)


@pytest.fixture(scope="module")
def drawn(chromium: Browser, page: Path) -> Iterator[Opened]:
    """The page in a tab that tests share, with all its plots."""
    tab = Opened(chromium, page)
    tab.draw()
    yield tab
    tab.close()


@pytest.fixture
def opened(drawn: Opened) -> Iterator[Opened]:
    """The shared tab. What a test has switched is as it was for the next one."""
    yield drawn
    section = drawn.page.locator("#fairness")
    for box in section.get_by_role("checkbox").all():
        box.check()
    section.locator("input[type=range]").focus()
    drawn.page.keyboard.press("End")
    assert drawn.complaints == []


def step_of(opened: Opened, section: str) -> str:
    return opened.page.locator(f"#{section} .controls output").inner_text()


# What is seen before anything is scrolled, opened or chosen, and where links lead.


def part(name: str, *, figures: str = "", change_point: bool | None = None) -> Part:
    """A part with figures of these kinds; `change_point` None says nothing."""
    message = change_point if change_point is None else Message(
        sentence=name, figure="gap", numbers=(), series=("m", "main"), change_point=change_point
    )  # fmt: skip
    found: dict[str, object] = dict.fromkeys(figures.split())
    return Part(id=name, title=name, figures=found, message=message)  # type: ignore[arg-type]


def test_the_message_is_the_first_that_is_a_change_point() -> None:
    both = [
        part("a", figures="x gap", change_point=False),
        part("b", figures="gap", change_point=True),
    ]
    assert first_of(both) == First("b", "gap", both[1].message)
    assert first_of(both[:1]) == First("a", "gap", both[0].message)
    assert first_of([part("a", change_point=True), part("b", figures="x y")]) == First("b", "x")
    assert first_of([part("a")]) is None


@pytest.mark.whole
@pytest.mark.parametrize("size", [(1280, 900), (400, 800)])
def test_sentence_figure_and_numbers_are_on_the_first_screen(
    chromium: Browser, page: Path, size: tuple[int, int]
) -> None:
    width, height = size
    scheme = "light" if width > 1000 else "dark"
    opened = Opened(
        chromium, page, viewport={"width": width, "height": height}, color_scheme=scheme
    )
    opened.page.wait_for_selector("#message .plot[data-drawn]")
    sentence = opened.page.locator(".message")
    assert re.match(r"Change point at step \d+.* rises from ", sentence.inner_text())
    plot = opened.page.locator("figure .plot").first.bounding_box()
    assert plot is not None
    assert plot["y"] + plot["height"] < height
    numbers = opened.page.locator(".numbers b").all_inner_texts()
    assert len(numbers) == 4
    assert re.fullmatch(r"[+−]0\.\d{3}", numbers[0])
    if width > 1000:
        box = opened.page.locator(".numbers").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < height
    assert opened.page.locator("details.more[open]").count() == 0
    assert opened.findings() == []
    assert opened.complaints == []
    opened.close()


def test_previews_of_links_have_title_and_message_and_the_box_says_how_to_cite(page: Path) -> None:
    text = page.read_text()
    (sentence,) = re.findall(r'<p class="message">(.*)</p>', text)
    assert f'<meta name="description" content="{sentence}">' in text
    assert f'<meta property="og:description" content="{sentence}">' in text
    assert '<meta property="og:title" content="a title">' in text
    (box,) = re.findall(r'<div id="cite".*?</dl>', text, re.DOTALL)
    told = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)\s*</dd>", box))
    assert (told["licence"], told["citation"]) == ("CC0", "Doe (2026)")
    assert told["open it in Python"] == "<code>logitbank.open(&#34;b.zarr&#34;)</code>"
    commits = sorted((page.parent / "b.zarr").rglob("commits/*.json"))
    lines = [
        f"{sha256(file.read_bytes()).hexdigest()}  {file.relative_to(page.parent / 'b.zarr')}\n"
        for file in commits
    ]
    assert len(lines) == 28
    assert told["SHA-256 of its commits"] == sha256("".join(lines).encode()).hexdigest()


@pytest.mark.whole
def test_headings_go_down_one_level_at_a_time_and_everything_has_a_name(
    chromium: Browser, page: Path
) -> None:
    opened = Opened(chromium, page)
    opened.draw()
    levels = opened.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))"
    )
    assert levels[:2] == [1, 2]  # the figure of the message is right under the title
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    for role in ("slider", "combobox", "checkbox", "searchbox", "button", "link"):
        for one in opened.page.get_by_role(role).all():
            named = one.evaluate("e => e.ariaLabel || e.labels?.[0]?.innerText || e.innerText")
            assert named.strip(), one
    opened.close()


@pytest.mark.whole
def test_a_link_leads_to_a_checkpoint_a_folded_figure_or_a_prompt(
    chromium: Browser, page: Path
) -> None:
    opened = Opened(chromium, page)
    opened.page.goto(page.as_uri() + "#message?step=8")
    opened.page.reload()
    opened.page.wait_for_selector("#message .plot[data-drawn]")
    assert opened.page.locator("#message output").inner_text() == "step 8"
    folded = opened.page.locator("#fairness details.more figure").first
    name = folded.get_attribute("id")
    assert not folded.is_visible()
    opened.page.evaluate(f"location.hash = '{name}'")
    opened.page.wait_for_selector(f"#{name} .plot[data-drawn]")
    assert folded.is_visible()
    button = opened.page.locator("#prompt-view ol button").nth(2)
    button.click()
    chosen, link = button.inner_text(), opened.page.url
    assert "#prompts?set=" in link
    opened.close()
    again = Opened(chromium, page)
    again.page.goto(link)
    again.page.reload()
    again.page.wait_for_selector("#prompt-view h3")
    assert again.page.locator("#prompt-view h3").inner_text() == chosen
    assert again.complaints == []
    again.close()


@pytest.mark.whole
def test_a_print_waits_until_all_is_drawn_and_folds_again(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page)
    opened.page.evaluate(
        "() => { window.print = () => { window.printed = {"
        " undrawn: [...document.querySelectorAll('.plot:not([data-drawn])')].length,"
        " plots: document.querySelectorAll('.plot').length };"
        " dispatchEvent(new Event('afterprint')); }; }"
    )
    opened.page.keyboard.press("Control+p")
    opened.page.wait_for_function("() => window.printed")
    printed = opened.page.evaluate("window.printed")
    assert printed["undrawn"] == 0
    assert printed["plots"] >= 8
    assert opened.page.locator("details.more[open]").count() == 0
    assert opened.complaints == []
    opened.close()


@pytest.mark.whole
def test_findings_are_found(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page)
    opened.page.evaluate("document.body.innerHTML = '<main><h1>a</h1><img></main>'")
    assert opened.findings() == ["image-alt: <img>"]
    opened.close()


def luminance(colour: str) -> float:
    """Of WCAG 2.2, from `#rrggbb` or `rgb(r, g, b)`."""
    if colour.startswith("#"):
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    else:
        parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_curves_have_a_contrast_of_at_least_three_and_their_texts_of_four_and_a_half(
    theme: str,
) -> None:
    assets = files("logitbank.analysis.report") / "assets"
    script = (assets / "figures.js").read_text()
    instead = dict(re.findall(r'"(#\w{6})": "(#\w{6})"', script)) if theme == "dark" else {}
    cards = re.findall(r"--card: (#\w+)", (assets / "page.css").read_text())
    card = {"light": cards[0], "dark": cards[1]}[theme]
    assert card == {"light": "#f6f7f9", "dark": "#1d2126"}[theme]
    least = dict.fromkeys((*PALETTE, *COLOURS, *SHADES, MUTED, INK), 3.0)
    for colour, contrast in (least | dict.fromkeys(WRITTEN, 4.5)).items():
        dark, light = sorted([luminance(card), luminance(instead.get(colour, colour))])
        assert (light + 0.05) / (dark + 0.05) >= contrast, colour


# What can be worked.


def test_the_slider_moves_every_figure_of_its_analysis_to_a_checkpoint(opened: Opened) -> None:
    section = opened.page.locator("#fairness")
    assert step_of(opened, "fairness") == "step 13"
    readouts = section.locator(".readout")
    before = readouts.all_inner_texts()
    slider = section.locator("input[type=range]")
    slider.focus()
    opened.page.keyboard.press("Home")
    assert step_of(opened, "fairness") == "step 0"
    assert slider.get_attribute("aria-valuetext") == "step 0"
    after = readouts.all_inner_texts()
    assert all("step 0" in text for text in after if text)
    assert sum(a != b for a, b in zip(before, after, strict=True)) >= 4
    opened.page.keyboard.press("ArrowRight")
    assert step_of(opened, "fairness") == "step 1"


def test_the_readout_is_the_value_of_the_table(opened: Opened, tmp_path: Path) -> None:
    figure = opened.page.locator("#fairness figure").filter(has_text="Average Rank per").first
    text = figure.locator(".readout").inner_text()
    found = {label: float(value) for label, value in re.findall(r"(male|female) ([\d.]+)", text)}
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()  # rows are made when a table is opened
    rows = figure.locator("tbody tr").all_inner_texts()
    last = [row.split("\t") for row in rows if row.split("\t")[2] == "13"]
    heads = figure.locator("th").all_inner_texts()
    gold, value = heads.index("gold"), heads.index("value")
    shown = {row[gold]: float(row[value]) for row in last if row[gold] in found}
    assert found == shown
    assert len(found) == 2


def test_a_switch_hides_an_option_and_shows_it_again(opened: Opened) -> None:
    section = opened.page.locator("#fairness")
    readout = section.locator("figure").filter(has_text="JSD-P per").locator(".readout")
    assert "female" in readout.inner_text()
    box = section.get_by_role("checkbox", name="female", exact=True)
    box.uncheck()
    assert "female" not in readout.inner_text()
    box.check()
    assert "female" in readout.inner_text()


def test_the_step_axis_can_be_logarithmic(opened: Opened) -> None:
    section = opened.page.locator("#fairness")
    shot = section.locator(".plot").first.screenshot()
    section.get_by_label("Step axis").select_option("log")
    opened.page.wait_for_timeout(200)
    assert section.locator(".plot").first.screenshot() != shot
    section.get_by_label("Step axis").select_option("linear")


def test_tables_sort_by_keyboard_numbers_as_numbers_and_say_how(opened: Opened) -> None:
    table = opened.page.locator("#fairness .more > details.table").filter(has_text="average_rank")
    table.locator("summary").click()
    head = table.get_by_role("button", name="average_rank", exact=True)
    head.focus()
    opened.page.keyboard.press("Enter")
    at = table.locator("th").all_inner_texts().index("average_rank")

    def values() -> list[float]:
        rows = table.locator("tbody tr").all_inner_texts()
        return [float(row.split("\t")[at]) for row in rows]

    assert values() == sorted(values())
    assert head.locator("..").get_attribute("aria-sort") == "ascending"
    opened.page.keyboard.press("Enter")
    assert values() == sorted(values(), reverse=True)
    assert head.locator("..").get_attribute("aria-sort") == "descending"


def test_a_table_is_saved_as_csv_with_all_its_rows(opened: Opened, tmp_path: Path) -> None:
    table = opened.page.locator("#fairness .more > details.table").filter(has_text="jsd_parts")
    table.locator("summary").click()
    with opened.page.expect_download() as download:
        table.get_by_role("button", name="Save as CSV").click()
    path = tmp_path / "t.csv"
    download.value.save_as(path)
    assert download.value.suggested_filename == "jsd_parts.csv"
    saved = pl.read_csv(path)
    assert len(saved) == 14 * 9
    assert {"gold", "option", "scaled"} <= set(saved.columns)


def test_prompts_are_listed_shown_and_found(opened: Opened) -> None:
    view = opened.page.locator("#prompt-view")
    view.get_by_label("Prompt set").select_option(label="winobias")
    names = view.locator("ol button").all_inner_texts()
    assert len(names) == 20
    view.locator("ol button").nth(3).click()
    assert view.locator("h3").inner_text() == names[3]
    assert view.locator(".prompt-text").inner_text() == f"prompt {names[3][1:]}"
    assert "␣male" in view.locator(".prompts .note").nth(-2).inner_text()
    view.get_by_label("Prompts", exact=True).select_option("differ")
    assert view.get_by_label("From", exact=True).is_visible()
    forth = view.locator("ol .note").first.inner_text()
    view.get_by_label("From", exact=True).select_option(label="step 13")
    view.get_by_label("To", exact=True).select_option(label="step 0")
    back = view.locator("ol .note").first.inner_text()
    option, before, after = re.fullmatch(r"(.+): (\S+) → (\S+)", forth).groups()
    assert back == f"{option}: {after} → {before}"
    view.get_by_label("Find by id or text").fill("PROMPT 17")
    assert view.locator("ol button").all_inner_texts() == ["p17"]


@pytest.mark.whole
def test_a_phone_scrolls_in_one_direction_only(chromium: Browser, strange: Path) -> None:
    opened = Opened(chromium, strange, viewport={"width": 380, "height": 700})
    assert opened.draw() >= 8
    width = opened.page.evaluate("document.scrollingElement.scrollWidth")
    assert width <= 380
    assert opened.complaints == []
    opened.close()


def test_dark_and_light_follow_the_system_until_told_otherwise(
    chromium: Browser, page: Path
) -> None:
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


@pytest.mark.whole
def test_what_nobody_scrolled_to_is_drawn_soon_without_a_complaint_or_a_request(
    chromium: Browser, strange: Path
) -> None:
    opened = Opened(chromium, strange)
    seen = "[...document.querySelectorAll('.plot')].filter(plot => plot.checkVisibility())"
    opened.page.wait_for_function(f"() => {seen}.every(plot => plot.dataset.drawn)")
    assert opened.page.evaluate("scrollY") == 0
    canvases = opened.page.evaluate(
        f"{seen}.map(plot => plot.firstElementChild.getBoundingClientRect().height)"
    )
    assert len(canvases) == 7  # of the message, five analyses and the prompts
    assert min(canvases) > 150
    assert opened.complaints == []
    opened.close()


def test_figures_beyond_what_a_page_holds_are_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.analysis.report import page

    path = whole_bank(tmp_path / "b.zarr")
    monkeypatch.setattr(page, "FIGURES", 60_000)
    text = report(path, tmp_path / "b.html", prompts=["winobias"], bootstrap=0).read_text()
    left = sum(map(int, re.findall(r"too large with (\d+) more", text)))
    assert 0 < left < 8
    assert text.count('data-figure="') >= 1


def test_without_a_script_the_sentences_are_there(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page, java_script_enabled=False)
    text = opened.page.locator("body").inner_text()
    assert "The gap is largest" in text
    assert "need JavaScript" in text
    opened.close()


def told_at_a_point(opened: Opened, plot: Locator) -> list[tuple[str, int]]:
    """Text of what is told at the second point of the first line, and markup in it."""
    plot.scroll_into_view_if_needed()
    x, y = plot.evaluate(PLACE)
    opened.page.mouse.move(x - 3, y)
    opened.page.mouse.move(x, y)
    opened.page.wait_for_timeout(300)
    return [(text, marked) for text, marked in opened.page.evaluate(TOOLTIPS) if text]


@pytest.mark.whole
def test_text_of_strangers_stays_text_and_hovering_tells_values(
    chromium: Browser, strange: Path
) -> None:
    opened = Opened(chromium, strange)
    opened.draw()
    assert opened.page.locator("h1").inner_text() == HOSTILE.strip()
    assert opened.page.title() == HOSTILE.strip()
    assert opened.page.locator("img").count() == 0
    found = told_at_a_point(opened, opened.page.locator("#lambada .plot").first)
    assert len(found) == 1
    text, marked = found[0]
    assert HOSTILE.split("$$")[0] in text
    assert "step 8" in text
    assert "Accuracy: 0.25" in text
    assert marked == 0
    opened.page.locator("#bank summary").first.click()
    assert "alert(1)" in opened.page.locator("#bank tbody").first.inner_text()
    assert opened.page.evaluate("document.scripts.length") == 3
    assert opened.complaints == []
    opened.close()


def test_prompts_of_a_page_are_the_scores_of_the_bank(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b.zarr")
    for step in (0, 1, 2):
        asked = spec(step)
        bank.deposit(logits(step), checkpoint=asked.checkpoint, query_set=asked.query_set)
    found = prompt_data(bank, "parity")
    assert (found["measure"], found["total"], len(found["prompts"])) == ("share", 10, 10)
    scan = bank.scan("parity").collect()
    (series,) = found["series"]
    assert series["steps"] == [0, 1, 2]
    stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(3, 20)
    column = 0
    for prompt in found["prompts"]:
        for option in prompt["options"]:
            for at, step in enumerate(series["steps"]):
                (own,) = scan.filter(
                    prompt_id=prompt["id"], option=option["option"], step=step
                ).iter_rows(named=True)
                assert stored[at, column] == np.float32(own["logprob"])
            column += 1


def test_a_page_holds_few_of_many_prompts_and_no_list_points_elsewhere(tmp_path: Path) -> None:
    path = whole_bank(tmp_path / "b.zarr")
    found = prompt_data(Bank.open(path), "winobias", values=6 * 3 * 25)
    assert len(found["prompts"]) == 25
    assert found["total"] == 48
    (series,) = found["series"]
    places = [row[0] for row in series["moved"]]
    places += [row[0] for pair in series["pairs"] for row in pair["top"]]
    assert max(places) < 25
    assert len(series["moved"]) >= 10


def test_models_that_were_asked_different_prompts_share_a_page(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b.zarr")
    other = QuerySet(TOKENIZER, tuple(Query((9, i), 1) for i in range(3)))
    bank.add_query_set(other)
    more = prompt_table(other).with_columns(prompt_id=pl.lit("q") + pl.col("row").cast(pl.String))
    bank.add_prompts("parity", more)
    for step in (0, 1):
        bank.deposit(
            logits(step), checkpoint=CheckpointId("a", step=step), query_set=QUERY_SET.name
        )
        bank.deposit(
            logits(step, queries=3),
            checkpoint=CheckpointId("b", step=step),
            query_set=other.name,
        )
    found = prompt_data(bank, "parity")
    assert [series["name"] for series in found["series"]] == ["a", "b"]
    names = [prompt["id"] for prompt in found["prompts"]]
    assert sorted(names) == [f"p{i}" for i in range(10)] + ["q0", "q1", "q2"]
    for series, own in zip(found["series"], "pq", strict=True):
        stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(2, 26)
        asked = ~np.isnan(stored[0]).reshape(13, 2).any(axis=1)
        assert {name for name, is_asked in zip(names, asked, strict=True) if is_asked} == {
            name for name in names if name.startswith(own)
        }
        assert {names[at][0] for at, *_ in series["moved"]} == {own}


def test_tables_together_are_bounded() -> None:
    many = [(100_000, 12)] * 40
    rows = rows_that_fit(many)
    assert sum(min(rows, height) * width for height, width in many) <= CELLS
    assert rows_that_fit([(10, 3)]) == ROWS
    shown = table_data("t", pl.DataFrame({"x": [float("inf"), -0.0, 2.0]}), rows=2)
    assert json.dumps(shown["values"]) == '[["Infinity", -0.0]]'
    assert shown["total"] == 3


def test_a_page_without_an_analysis_says_so(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    write_page(
        path, title="t", lead="l", parts=[], cautions=["c"],
        origin=Origin("The bank", tables={"checkpoints": pl.DataFrame({"model": ["a"]})}),
    )  # fmt: skip
    opened = Opened(chromium, path)
    assert "No analysis of a known kind applies" in opened.page.locator("main").inner_text()
    assert opened.page.locator("#bank tbody td").all_inner_texts() == ["a"]
    assert opened.complaints == []
    opened.close()
