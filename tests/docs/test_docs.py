"""Every block of every page is run, or parsed where the page says why it cannot be run.

Pages whose blocks start engines are run by `make whole`.
"""

import re
import runpy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer.main

import logitbank
from logitbank import analysis, store
from logitbank.cli.main import app
from tests.support.command import Call
from tests.support.docs_pages import DOCS, PAGES, ROOT, commands, fences, matches
from tests.support.docs_run import PageRun, check_script, check_words
from tests.support.docs_setups import SETUPS, WITH_ENGINES, Tools
from tests.support.preloaded import Preloaded

# huggingface_hub 2.4 uploads large files in a way that httpx calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REFERENCE = "".join(path.read_text() for path in (DOCS / "reference").glob("[!_]*.md"))


@pytest.fixture
def tools(preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    with ExitStack() as ends:
        yield Tools(preloaded, monkeypatch, ends)


def with_marks(page: Path) -> Any:
    name = page.relative_to(DOCS).as_posix()
    marks = [pytest.mark.whole] if SETUPS.get(name) in WITH_ENGINES else []
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES])
def test_the_blocks_of_a_page(
    page: Path,
    call: Call,
    tmp_path: Path,
    tools: Tools,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare = SETUPS.get(page.relative_to(DOCS).as_posix())
    reader = PageRun(call, monkeypatch, capsys, prepare(tools) if prepare else {})
    for fence in fences(page):
        reader.run(fence)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in logitbank.__all__ if name != "LogitbankError"),  # with its children
        *(f"store.{name}" for name in store.__all__ if name not in logitbank.__all__),
        *(f"analysis.{name}" for name in analysis.__all__ if name not in logitbank.__all__),
    ],
)
def test_the_reference_of_python_has_every_public_name(name: str) -> None:
    assert re.search(rf"^\.\. auto(class|function):: logitbank\.{name}$", REFERENCE, re.M)


def test_every_command_has_a_page_with_every_option_and_a_line_in_the_list() -> None:
    made = runpy.run_path(str(DOCS / "commands.py"))
    pages, listed = made["command_pages"](), made["commands_list"]()
    leaves = [
        (path, each)
        for path, each in every_command(typer.main.get_command(app), "logitbank")
        if not hasattr(each, "commands")
    ]
    assert len(pages) == len(leaves) > 20
    for path, each in leaves:
        file = path.removeprefix("logitbank ").replace(" ", "-") + ".md"
        options = {name for p in each.params for name in p.opts if name.startswith("--")}
        assert {name for name in options if f"`{name}" not in pages[file]} == set(), path
        assert f"[`{path}`](commands/{file})" in listed


def test_the_gallery_has_charts_of_every_analysis(tmp_path: Path) -> None:
    cases = runpy.run_path(str(DOCS / "gallery.py"))["CASES"]
    paths = {path for path, _ in every_command(typer.main.get_command(app), "logitbank")}
    analyses = {path.removeprefix("logitbank ") for path in paths if " analyze " in path}
    assert set(cases) == {*analyses, "debias compare", "debias search"} - {"analyze all"}
    _, make, study = cases["debias search"]
    make(tmp_path)
    assert [*study(tmp_path).charts] == ["search"]


def every_command(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, f"{path} {name}")


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_from_outside_of_the_site_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(((?!https?:)[^)#]*)(?:#([^)]+))?\)", (ROOT / name).read_text())
    for path, anchor in links:
        target = ROOT / (path or name)
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
            slugs = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert anchor in slugs, f"{path}#{anchor}"


# The tests' own reading of a page.


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a", "a\nb\n", False),
        ("b", "a\nb\n", False),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nd\n", True),
        ("a\n...\nd", "a\nb\nc\n", False),
        ("took ... s", "took 12 s\n", True),
        ("took ... s", "took 12 ms\nand s\n", False),
        (" step  rank ", "step rank  \n", True),
        ("1.5 of 2", "1.7 of 2\n", False),
        ("a.c", "abc\n", False),
    ],
)
def test_what_came_out_is_what_is_shown(shown: str, found: str, same: bool) -> None:
    assert matches(shown, found) is same


def test_numbers_may_differ_where_the_page_says_so() -> None:
    assert matches("1.5 of 20,000 (−3e-05)", "9 of 7 (4)", numbers_differ=True)
    assert not matches("1.5 of 2", "1.5 in 2", numbers_differ=True)


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def test_comments_above_a_block_say_how_it_is_tested(tmp_path: Path) -> None:
    marks = "<!-- parsed only: no network -->\n<!-- exit 2 -->\n"
    text = "```console\n$ a\n```\n\n```json x.json\n{}\n```\n"
    console, json = fences(page(tmp_path, marks + text))
    assert (console.parsed_only, console.exit_code, console.numbers_differ) == (True, 2, False)
    assert (json.parsed_only, json.name, json.follows) == (False, "x.json", True)


@pytest.mark.parametrize("comment", ["skipped", "parsed only", "parsed only: ", "exit 0"])
def test_no_other_comment_keeps_a_block_from_being_tested(tmp_path: Path, comment: str) -> None:
    with pytest.raises(AssertionError, match="is no comment that the tests know"):
        list(fences(page(tmp_path, f"<!-- {comment} -->\n```console\n$ a\n```\n")))


def test_a_command_goes_on_after_a_backslash_and_shows_what_follows() -> None:
    first, second = commands('$ logitbank query b "SELECT \\\n    1"  # why\n 1\n\n 2\n$ ls\n')
    assert first.words == ["logitbank", "query", "b", "SELECT     1"]
    assert first.shown == [" 1", "", " 2"]
    assert (second.words, second.shown) == (["ls"], [])


@pytest.mark.parametrize(
    "line",
    [
        "logitbank extrakt b --suite s --prompts p",
        "logitbank extract b --suite s --promts p",
        "logitbank extract b --suite s",
        "logitbank extract b --suite s --prompts p --engine jax",
        "logitbank analyze",
        "make tea",
        'pip install ".[gpu]"',
        "logitbnk info b",
    ],
)
def test_what_cannot_be_run_must_parse(line: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 (Typer's own, or an assertion)
        check_words(commands(f"$ {line}")[0].words)


def test_calls_within_a_script_must_parse() -> None:
    check_script("exec logitbank extract b \\\n  --suite s --prompts p\n")
    with pytest.raises(Exception, match="No such option"):
        check_script("srun -n 1 \\\n  logitbank extract b --suit s --prompts p\n")
    with pytest.raises(Exception, match="bash"):
        check_script("if true\n")
