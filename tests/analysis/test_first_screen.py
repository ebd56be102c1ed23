"""What is seen of a page before anything is scrolled, opened or chosen, and where links lead."""

import re
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from logitbank import describe
from logitbank.analysis.drawing.paper import COLOURS, INK, MUTED, PALETTE, WRITTEN, option_colours
from logitbank.analysis.families.stereotype.sheets import SHADES
from logitbank.analysis.report.first import First, first_of
from logitbank.analysis.report.part import Part
from logitbank.analysis.report.report import report
from logitbank.analysis.results.message import Message
from tests.analysis.test_study import make_bank
from tests.support.browser import Opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a gap that changes its level."""
    folder = tmp_path_factory.mktemp("first")
    bank = make_bank(folder / "b.zarr", skew_from=7, steps=14)
    describe(bank, title="a title", licence="CC0", citation="Doe (2026)")
    return report(bank, folder / "b.html", bootstrap=50)


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


def test_an_option_has_one_colour_whatever_stands_beside_it() -> None:
    few = option_colours(["male", "female", "not specified"])
    many = option_colours(["yes", "not specified", "female", "no", "male"])
    assert {name: many[name] for name in few} == few
    assert len(set(many.values())) == 5
    assert option_colours(["a", "b"]) == option_colours(["b", "a", "b"])
    pairs = option_colours(["he", "she", "male", "female"])
    assert len(set(pairs.values())) == 4, "both of a gender are in one figure"
    assert {name: pairs[name] for name in ("male", "female")} == {
        name: few[name] for name in ("male", "female")
    }


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
    assert len(lines) == 14
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


def test_a_prompt_that_is_tapped_on_a_phone_is_seen(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page, viewport={"width": 400, "height": 800}, has_touch=True)
    opened.page.locator("#prompt-view ol button").first.tap()
    shown = opened.page.locator("#prompt-view h3")
    opened.page.wait_for_function(
        "() => { const { top } = document.querySelector('#prompt-view h3').getBoundingClientRect();"
        " return top >= 0 && top < 400; }"
    )
    assert shown.is_visible()
    opened.close()


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


@pytest.mark.whole
def test_on_a_dark_page_lines_have_a_contrast_of_at_least_three(
    chromium: Browser, page: Path
) -> None:
    opened = Opened(chromium, page, color_scheme="dark")
    opened.draw()
    card = opened.page.evaluate(
        "getComputedStyle(document.querySelector('figure')).backgroundColor"
    )
    colours = opened.page.evaluate(
        "[...new Set(Bokeh.documents.flatMap(d => [...d._all_models.values()])"
        ".filter(m => m.type === 'Line' || m.type === 'Scatter')"
        ".map(m => m.line_color.value).filter(c => c))]"
    )
    assert len(colours) >= 4
    for colour in colours:
        dark, light = sorted([luminance(card), luminance(colour)])
        assert (light + 0.05) / (dark + 0.05) >= 3, colour
    assert opened.findings() == []
    opened.close()


@pytest.mark.whole
def test_findings_are_found(chromium: Browser, page: Path) -> None:
    opened = Opened(chromium, page)
    opened.page.evaluate("document.body.innerHTML = '<main><h1>a</h1><img></main>'")
    assert opened.findings() == ["image-alt: <img>"]
    opened.close()


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
