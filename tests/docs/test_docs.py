"""Every block of every page is run, or parsed if the page gives the reason; names and links exist.

Pages that need more than a folder are run by `make whole`.
"""

import ast
import csv
import importlib
import re
import runpy
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main

import logitbank
from docs import gallery
from logitbank import analysis, engine, store
from logitbank.cli.main import app
from logitbank.engine.prompts.known.winobias import winobias
from tests.support.command import Call, every_command
from tests.support.docs_pages import DOCS, PAGES, fences, matches, prose
from tests.support.docs_run import check_words, parse, read_page
from tests.support.docs_setups import SETUPS
from tests.support.paths import PUBLIC, ROOT
from tests.support.preloaded import Preloaded

# huggingface_hub 2.4 uploads large files in a way that httpx calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
GOLDEN = ROOT / "tests" / "golden" / "expected"


def with_blocks() -> Iterator[Any]:
    for page in PAGES:
        if list(fences(page)):
            marks: list[Any] = [pytest.mark.whole] if page.name in SETUPS else []
            if page.name == "lm-eval.md":  # those of what lm-evaluation-harness imports
                marks.append(pytest.mark.filterwarnings("ignore"))
            yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [*with_blocks()])
def test_the_blocks_of_a_page(
    page: Path,
    call: Call,
    tmp_path: Path,
    preloaded: Preloaded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    read_page(page, call, preloaded, monkeypatch, capsys)


@PAGE
def test_commands_and_names_in_the_text_exist(page: Path) -> None:
    for command in re.findall(r"`(logitbank [^`…]+)`", prose(page)):
        words = shlex.split(command)[1:]
        if words[0] == "--help":
            continue
        if any(word.startswith("-") or word.isupper() for word in words):
            parse(words)
        else:
            assert find_command(words), command
    for name in re.findall(r"`(logitbank(?:\.[A-Za-z_]+)+)`", prose(page)):
        assert name in ("logitbank.NAME", "logitbank.tokenizer") or find_object(name), name


def find_command(words: list[str]) -> bool:
    command: Any = typer.main.get_command(app)
    return words[0] in command.commands


def find_object(name: str) -> object:
    """The object of a dotted name: attributes of its longest part that is a module."""
    module, attributes = name, list[str]()
    while True:
        try:
            value: object = importlib.import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


@PAGE
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)(?:#([^)]+))?\)", prose(page)):
        target = page.parent / path if path else page
        if path.startswith("commands/"):
            continue  # made by the site's build
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
            slugs = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert anchor in slugs, f"{path}#{anchor}"


@pytest.mark.parametrize("page", [*PAGES, *(DOCS / "decisions").glob("*.md")], ids=lambda p: p.stem)
def test_sentences_are_short(page: Path) -> None:
    sentences = list(split_sentences(prose(page)))
    lengths = [len(sentence.split()) for sentence in sentences]
    assert max(lengths, default=0) <= 35, sentences[lengths.index(max(lengths))]
    assert sum(lengths) <= 18 * len(lengths)


def split_sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and lists; code, formulas and quotations count as one word."""
    paragraphs: list[str] = [""]
    for line in map(str.strip, text.splitlines()):
        item = re.match(r"([*+-]|\d+\.) ", line)
        if not line or line.startswith(("#", "|")):
            paragraphs.append("")
        elif item:
            paragraphs.append(line[item.end() :])
        else:
            paragraphs[-1] += f" {line}"
    for paragraph in paragraphs:
        plain = re.sub(r"`[^`]*`|\$[^$]*\$|“[^”]*”|\"[^\"]*\"", "X", paragraph)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        yield from (
            s for s in re.split(r"(?<=[.!?:])[*)]*\s+(?=[^a-z])", plain) if " " in s.strip()
        )


def test_the_page_of_python_has_every_public_name() -> None:
    page = (DOCS / "python.md").read_text()
    public = {name for name in logitbank.__all__ if name != "LogitbankError"}  # has its own module
    for package in (analysis, engine, store):
        door = package.__name__.removeprefix("logitbank.")
        public |= {f"{door}.{name}" for name in {*package.__all__} - {*logitbank.__all__}}
    listed = re.findall(r"^\.\. auto(?:class|function):: logitbank\.([\w.]+)$", page, re.M)
    assert public - set(listed) == set()
    assert all(find_object(f"logitbank.{name}") for name in listed)


def test_the_page_of_metrics_has_every_table_and_column() -> None:
    """Of the golden results of every analysis."""
    named = set(re.findall(r"`(\w+?)_?`", (DOCS / "metrics.md").read_text()))
    common = re.compile(r"^(low|high|sd)_|_(low|high|plain|condition|lower|upper)$")
    seen = set()
    for path in GOLDEN.glob("*/*/*.csv"):
        if path.parents[1].name == "query" or path.stem == "saved":
            continue
        with path.open(encoding="utf-8") as lines:
            columns = {name for name in next(csv.reader(lines)) if name not in named}
        assert {path.stem, *(common.sub("", name) for name in columns)} - named == set(), path
        seen.add(path.stem)
    assert len(seen) > 30


def test_every_command_has_a_page_with_every_option_and_a_line_in_the_list() -> None:
    made = runpy.run_path(str(DOCS / "commands.py"))
    pages, listed = made["command_pages"](), made["commands_list"]()
    leaves = [
        (" ".join(words), each) for words, each in every_command() if not hasattr(each, "commands")
    ]
    assert len(pages) == len(leaves) > 20
    for path, each in leaves:
        file = path.removeprefix("logitbank ").replace(" ", "-") + ".md"
        options = {name for p in each.params for name in p.opts if name.startswith("--")}
        assert {name for name in options if f"`{name}" not in pages[file]} == set(), path
        assert f"[`{path}`](commands/{file})" in listed


def test_the_table_of_prompt_sets_is_that_of_the_source() -> None:
    table = runpy.run_path(str(DOCS / "commands.py"))["prompt_sets_table"]()
    assert (DOCS / "_prompt_sets.md").read_text() == table, "run make docs, and commit the file"


def test_the_page_of_figures_has_every_analysis() -> None:
    """Its charts and captions are those of `tests/analysis/test_pictures.py`."""
    paths = {" ".join(words[1:]) for words, _ in every_command()}
    analyses = {path for path in paths if path.startswith("analyze ")}
    assert {*gallery.CASES} == {*analyses, "debias compare"} - {"analyze all"}
    page = (DOCS / "_gallery" / "figures.md").read_text(encoding="utf-8")
    assert re.findall(r"^`logitbank ([^`]+)`, ", page, re.M) == [*gallery.CASES]
    files = set(re.findall(r"\]\(([^)]+\.svg)\)", page))
    assert files == {path.name for path in (DOCS / "_gallery").glob("*.svg")}


def test_the_walk_of_extract_is_that_of_the_source() -> None:
    """Each function of the lists in docs/architecture.md calls, or passes on, the next one."""
    page = (DOCS / "architecture.md").read_text()
    walk = re.findall(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`", page, re.M)
    assert len(walk) > 10
    for (number, path, name), (following, _, target) in pairwise([*walk, ("1", "", "")]):
        body = find_definition(ast.parse((ROOT / path).read_text()), name)
        assert body is not None, f"{path} has no {name}"
        used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
        used |= {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)}
        last = int(following) <= int(number)
        assert last or target.split(".")[-1] in used, f"{name} does not call {target}"


def find_definition(tree: ast.AST, name: str) -> ast.AST | None:
    first, _, rest = name.partition(".")
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == first:
            return find_definition(node, rest) if rest else node
    return None


def test_the_prompt_that_the_page_shows_is_one_of_the_set() -> None:
    page = next(path for path in PAGES if path.name == "validation.md")
    shown = next(fence.text for fence in fences(page) if fence.text.startswith("The clerk"))
    if not (PUBLIC / "winobias").is_dir():
        pytest.skip(f"needs winobias in {PUBLIC}; set LOGITBANK_DATA")
    prompts = winobias(PUBLIC).prompts
    assert {p.answer for p in prompts if p.text == shown.removesuffix("\n")} == {"male"}


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
        ("a.c", "abc\n", False),
    ],
)
def test_an_output_is_compared_with_what_is_shown(shown: str, found: str, same: bool) -> None:
    assert matches(shown, found) is same


@pytest.mark.parametrize("comment", ["skipped", "parsed only", "parsed only: ", "exit 0"])
def test_no_other_comment_keeps_a_block_from_being_tested(tmp_path: Path, comment: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- {comment} -->\n```console\n$ a\n```\n")
    with pytest.raises(AssertionError, match="unknown comment"):
        list(fences(page))


@pytest.mark.parametrize(
    "line",
    [
        "logitbank extrakt b --suite s --prompts p",
        "logitbank extract b --suite s --promts p",
        "logitbank extract b --suite s --prompts p --engine jax",
        "logitbank analyze",
        "make tea",
        'pip install ".[gpu]"',
    ],
)
def test_a_command_that_is_only_parsed_must_be_valid(line: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 (Typer's own, or an assertion)
        check_words(shlex.split(line))
