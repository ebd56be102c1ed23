"""docs/metrics.md and docs/worked-examples/: what they name exists, and gives what they show.

The numbers that pages show of released scores are compared here with what comes out; so are those
of the tables, which are copied from the blocks above them. tests/docs/test_docs.py runs the rest.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logitbank.engine.prompts.known.winobias import winobias
from tests.support.command import Call
from tests.support.docs_data import (
    DATA,
    EXAMPLES,
    METRICS,
    MULTIBERTS,
    PYTHIA,
    SWISSBERT,
    Needs,
    Toys,
    blocks_that_need,
    inline_commands,
    inline_names,
    public_data,
    some_of_the_public_data,
    toys_on_a_hub,
)
from tests.support.docs_pages import fences
from tests.support.docs_run import PageRun, parse
from tests.support.docs_setups import Tools
from tests.support.preloaded import Preloaded

PAGES = [METRICS, *sorted(EXAMPLES.glob("*.md"))]
TOYS = {"fairness-dynamics": PYTHIA, "fluctuating-bias": MULTIBERTS,
        "stereoset-and-debiasing": SWISSBERT}  # fmt: skip


@pytest.fixture
def tools(preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    with ExitStack() as ends:
        yield Tools(preloaded, monkeypatch, ends)


@pytest.mark.parametrize("name", TOYS)
def test_released_scores_give_the_numbers_that_the_page_shows(
    name: str,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    public_data()
    reader = PageRun(call, monkeypatch, capsys, {})
    assert run_blocks(reader, name, "public data") >= 2


@pytest.mark.whole
@pytest.mark.parametrize(("name", "toys"), TOYS.items())
def test_the_page_s_first_extraction_works_under_the_models_names(
    name: str,
    toys: Toys,
    call: Call,
    tmp_path: Path,
    tools: Tools,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    some_of_the_public_data()
    toys_on_a_hub(tools, toys)
    reader = PageRun(call, monkeypatch, capsys, {"--keep": "--engine transformers --keep"})
    assert run_blocks(reader, name, "weights of the hub") == 1


def test_the_prompt_that_the_page_shows_is_one_of_the_set() -> None:
    page = EXAMPLES / "fairness-dynamics.md"
    shown = next(fence.text for fence in fences(page) if fence.language == "text")
    if not (DATA / "winobias").is_dir():
        pytest.skip(f"needs winobias in {DATA}; set LOGITBANK_DATA")
    prompts = winobias(DATA).prompts
    assert {p.answer for p in prompts if p.text == shown.removesuffix("\n")} == {"male"}


def run_blocks(reader: PageRun, name: str, needs: Needs) -> int:
    blocks = list(blocks_that_need(EXAMPLES / f"{name}.md", needs))
    for block in blocks:
        reader.run(block)
    return sum(block.language in ("console", "python") for block in blocks)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_names_in_the_text_exist(page: Path) -> None:
    for command in inline_commands(page):
        parse(shlex.split(command)[1:])
    for name in inline_names(page):
        module, found = name, []
        while True:  # the longest part of it that is a module, and then attributes
            try:
                value = importlib.import_module(module)
                break
            except ImportError:
                module, _, last = module.rpartition(".")
                found.insert(0, last)
        for attribute in found:
            value = getattr(value, attribute)


def test_the_page_of_metrics_names_commands_and_functions_of_every_family() -> None:
    families = {
        command.split()[2] for command in inline_commands(METRICS) if " analyze " in command
    }
    assert families == {
        *("fairness", "fluctuation", "stereoset", "unqover", "lambada", "stereotype"),
        *("pairs", "tradeoff", "options"),
    }
    assert len(inline_names(METRICS)) > 20


def test_every_difference_of_the_overview_is_on_a_page() -> None:
    """Numbers of the overview are copies, so each stands on the page that works it out."""
    pages = " ".join(page.read_text() for page in EXAMPLES.glob("*.md") if page.stem != "index")
    overview = (EXAMPLES / "index.md").read_text()
    rows = [line for line in overview.splitlines() if "](" not in line.split("|")[0]]
    numbers = {n for row in rows for n in re.findall(r"\d+\.\d+", row) if not n.startswith("22")}
    arxiv = re.compile(r"25\d\d\.\d{5}")
    lacking = {n for n in numbers if n not in pages and not arxiv.fullmatch(n)}
    assert not lacking
