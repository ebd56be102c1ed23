"""The report in a real browser: nothing breaks, everything can be worked, text stays text."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser

from logitbank import describe
from logitbank.analysis.report.origin import Origin
from logitbank.analysis.report.page import CELLS, ROWS, rows_that_fit, table_data, write_page
from logitbank.analysis.report.prompts import prompt_data
from logitbank.analysis.report.report import report
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.browser import Opened
from tests.support.evaluation_banks import whole_bank
from tests.support.small_banks import QUERY_SET, TOKENIZER, logits, new_bank, prompt_table, spec

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>$$x$$ \u2028 {{7*7}} ${1}"


@pytest.fixture(scope="module")
def page_of_a_whole_bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return report(whole_bank(folder / "b.zarr"), folder / "b.html", bootstrap=50)


@pytest.fixture(scope="module")
def page_of_two_analyses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fairness and LAMBADA. The plots of a page of everything take 5 s of processor."""
    folder = tmp_path_factory.mktemp("report")
    bank = whole_bank(folder / "b.zarr")
    return report(bank, folder / "b.html", prompts=["winobias", "lambada"], bootstrap=50)


@pytest.fixture(scope="module")
def drawn(chromium: Browser, page_of_two_analyses: Path) -> Iterator[Opened]:
    """The page in a tab that tests share, with all its plots."""
    tab = Opened(chromium, page_of_two_analyses)
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


def test_the_slider_moves_every_figure_of_its_analysis_to_a_checkpoint(opened: Opened) -> None:
    section = opened.page.locator("#fairness")
    assert step_of(opened, "fairness") == "step 128"
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
    assert step_of(opened, "fairness") == "step 8"


def test_the_readout_is_the_value_of_the_table(opened: Opened, tmp_path: Path) -> None:
    figure = opened.page.locator("#fairness figure").filter(has_text="Average Rank per").first
    text = figure.locator(".readout").inner_text()
    found = {label: float(value) for label, value in re.findall(r"(male|female) ([\d.]+)", text)}
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()  # rows are made when a table is opened
    rows = figure.locator("tbody tr").all_inner_texts()
    last = [row.split("\t") for row in rows if row.split("\t")[2] == "128"]
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


def test_the_step_axis_can_be_linear(opened: Opened) -> None:
    section = opened.page.locator("#fairness")
    shot = section.locator(".plot").first.screenshot()
    section.get_by_label("Step axis").select_option("linear")
    opened.page.wait_for_timeout(200)
    assert section.locator(".plot").first.screenshot() != shot
    section.get_by_label("Step axis").select_option("log")


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
    assert len(saved) == 6 * 9
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
    view.get_by_label("From", exact=True).select_option(label="step 128")
    view.get_by_label("To", exact=True).select_option(label="step 0")
    back = view.locator("ol .note").first.inner_text()
    option, before, after = re.fullmatch(r"(.+): (\S+) → (\S+)", forth).groups()
    assert back == f"{option}: {after} → {before}"
    view.get_by_label("Find by id or text").fill("PROMPT 17")
    assert view.locator("ol button").all_inner_texts() == ["p17"]


@pytest.mark.whole
def test_a_phone_scrolls_in_one_direction_only(
    chromium: Browser, page_of_a_whole_bank: Path
) -> None:
    opened = Opened(chromium, page_of_a_whole_bank, viewport={"width": 380, "height": 700})
    assert opened.draw() >= 8
    width = opened.page.evaluate("document.scrollingElement.scrollWidth")
    assert width <= 380
    assert opened.complaints == []
    opened.close()


def test_dark_and_light_follow_the_system_until_told_otherwise(
    chromium: Browser, page_of_two_analyses: Path
) -> None:
    opened = Opened(chromium, page_of_two_analyses, color_scheme="dark")

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
def test_on_paper_every_figure_is_there(chromium: Browser, page_of_two_analyses: Path) -> None:
    opened = Opened(chromium, page_of_two_analyses)
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    undrawn = "() => [...document.querySelectorAll('figure .plot')].every(p => p.dataset.drawn)"
    opened.page.wait_for_function(undrawn)
    assert len(opened.page.pdf()) > 50_000
    assert opened.complaints == []
    opened.close()


@pytest.mark.whole
def test_what_nobody_scrolled_to_is_drawn_soon_without_a_complaint_or_a_request(
    chromium: Browser, page_of_a_whole_bank: Path
) -> None:
    opened = Opened(chromium, page_of_a_whole_bank)
    seen = "[...document.querySelectorAll('.plot')].filter(plot => plot.checkVisibility())"
    opened.page.wait_for_function(f"() => {seen}.every(plot => plot.dataset.drawn)")
    assert opened.page.evaluate("scrollY") == 0
    canvases = opened.page.evaluate(
        f"{seen}.map(plot => plot.firstElementChild.getBoundingClientRect().height)"
    )
    assert len(canvases) == 8  # of the message, six analyses and the prompts
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


def test_without_a_script_the_sentences_are_there(
    chromium: Browser, page_of_two_analyses: Path
) -> None:
    opened = Opened(chromium, page_of_two_analyses, java_script_enabled=False)
    text = opened.page.locator("body").inner_text()
    assert "The gap is largest" in text
    assert "need JavaScript" in text
    opened.close()


@pytest.mark.whole
def test_text_of_strangers_stays_text(chromium: Browser, tmp_path: Path) -> None:
    bank = whole_bank(tmp_path / "b.zarr", model=HOSTILE)
    describe(bank, title=HOSTILE, licence=HOSTILE)
    opened = Opened(chromium, report(bank, tmp_path / "b.html", bootstrap=0))
    opened.draw()
    assert opened.page.locator("h1").inner_text() == HOSTILE.strip()
    assert opened.page.title() == HOSTILE.strip()
    assert opened.page.locator("img").count() == 0
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


@pytest.mark.whole
def test_the_release_is_read_out_and_long_lists_are_counted_whole(
    chromium: Browser, tmp_path: Path
) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    asked = QuerySet(TOKENIZER, tuple(Query((i, 3), 1) for i in range(30)))
    bank.add_query_set(asked)
    bank.add_prompts("many", prompt_table(asked))
    for step in (0, 8, None):
        bank.deposit(
            logits(9 if step is None else step, queries=30),
            checkpoint=CheckpointId("a", step=step),
            query_set=asked.name,
        )
    page = report(bank, tmp_path / "b.html", bootstrap=0)
    opened = Opened(chromium, page, viewport={"width": 320, "height": 700})
    opened.draw()
    values = np.exp(logits(9, queries=30).astype(np.float64))
    yes = (values[:, 1] / (values[:, 1] + values[:, 4])).mean()
    readouts = opened.page.locator("#options .readout").all_inner_texts()
    told = re.fullmatch(r"At release: yes ([\d.]+) · no ([\d.]+)", readouts[0])
    assert told is not None
    assert [float(text) for text in told.groups()] == pytest.approx([yes, 1 - yes], abs=1e-4)
    assert readouts[1].startswith("At release: 0.")
    opened.page.get_by_role("searchbox").fill("even")
    listed = opened.page.locator("#prompts .prompts")
    assert "30 found among the 30 in this page, the first 20:" in listed.inner_text()
    assert listed.locator("li").count() == 20
    assert opened.page.evaluate("document.scrollingElement.scrollWidth") <= 320
    assert opened.complaints == []
    opened.close()


@pytest.mark.whole
def test_a_readout_names_what_its_panels_show(
    chromium: Browser, page_of_two_analyses: Path
) -> None:
    opened = Opened(chromium, page_of_two_analyses)  # its own: warnings may come later
    opened.draw()
    readout = opened.page.locator("#lambada .readout").first.inner_text()
    assert re.fullmatch(r"At step 128: Accuracy 0\.725 · Perplexity [\d.]+", readout), readout
    section = opened.page.locator("#fairness")
    for box in section.get_by_role("checkbox").all():
        box.uncheck()
    figure = section.locator("figure").filter(has_text="JSD-P per")
    first = figure.locator(".readout").inner_text()
    assert first == "At step 128: nothing that is shown was measured"
    # Of a plot that shows nothing.
    assert all("range" in text.lower() for text in opened.complaints)
    opened.close()
