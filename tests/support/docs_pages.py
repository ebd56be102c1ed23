"""The fenced blocks of the pages in docs/, how they say they are to be tested, and what matches.

A comment right above a fence says that something of it cannot be tested in full, and why:

* `<!-- parsed only: REASON -->` its commands are parsed and its code is compiled; nothing is run;
* `<!-- numbers differ: REASON -->` of what is shown, numbers may be others;
* `<!-- exit 1 -->` the last command ends with this code and not with 0.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if "```" in path.read_text() and not path.name.startswith("_")
)
_FENCE = re.compile(r"^```(?P<language>[\w-]+|\{[\w-]+\})?(?: (?P<name>\S+))?$")
_MARK = re.compile(r"^<!-- (?:(?P<kind>parsed only|numbers differ): \S.*|exit (?P<code>[12])) -->$")
_NUMBER = re.compile(r"[+\-−±]?\d[\d,.]*(e[+-]\d+)?")


@dataclass
class Fence:
    """One block of a page."""

    language: str
    name: str
    """A second word beside the language: of a file that the reader makes, its name."""
    line: int
    text: str
    follows: bool
    """Nothing is between it and the block before it."""
    parsed_only: bool = False
    numbers_differ: bool = False
    exit_code: int = 0


@dataclass
class Command:
    """A line after a prompt, and what the page shows below it."""

    words: list[str]
    shown: list[str] = field(default_factory=list)


def fences(path: Path) -> Iterator[Fence]:
    """The blocks of a page in order, but for Sphinx's directives."""
    lines = path.read_text().splitlines()
    number = last = 0
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        opening = _FENCE.match(lines[number])
        assert opening, f"{path}:{number + 1} opens a fence in a way that is not read"
        end = lines.index("```", number + 1)
        if not (opening["language"] or "").startswith("{"):
            text = "\n".join(lines[number + 1 : end]) + "\n"
            follows = last > 0 and not any(lines[last + 1 : number])
            fence = Fence(
                opening["language"] or "", opening["name"] or "", number + 1, text, follows
            )
            _take_marks(fence, lines, number, path)
            yield fence
        last, number = end, end + 1


def _take_marks(fence: Fence, lines: list[str], number: int, path: Path) -> None:
    above = number - 1
    while above >= 0 and lines[above].startswith("<!--"):
        mark = _MARK.match(lines[above])
        assert mark, f"{path}:{above + 1} is no comment that the tests know"
        fence.parsed_only |= mark["kind"] == "parsed only"
        fence.numbers_differ |= mark["kind"] == "numbers differ"
        fence.exit_code = int(mark["code"] or fence.exit_code)
        above -= 1


def commands(text: str) -> list[Command]:
    """What a console block types, and what it shows."""
    found: list[Command] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            typed = line[2:]
            while typed.endswith("\\"):
                typed = typed[:-1] + next(lines).removeprefix(">")
            found.append(Command(shlex.split(typed, comments=True)))
        else:
            assert found, f"{line!r} is shown before any command"
            found[-1].shown.append(line)
    return found


def script_lines(text: str) -> list[list[str]]:
    """The lines of a shell script in words, without comments."""
    whole = re.sub(r"\\\n", " ", text)
    return [words for line in whole.splitlines() if (words := shlex.split(line, comments=True))]


def matches(shown: str, found: str, *, numbers_differ: bool = False) -> bool:
    """Whether what came out is what the page shows.

    A line `...` stands for any lines, `...` within one for any text. How much white space there
    is does not count.
    """
    parts = []
    for line in _lines(shown, numbers_differ):
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    text = "".join(f"{line}\n" for line in _lines(found, numbers_differ))
    return re.fullmatch("".join(parts), text) is not None


def _lines(text: str, numbers_differ: bool) -> list[str]:
    if numbers_differ:
        text = _NUMBER.sub("#", text)
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]
