"""The fenced blocks of the documentation, and how they are tested.

A comment above a fence gives the reason why something is not tested in full:

* `<!-- parsed only: REASON -->`: commands are parsed and Python is compiled; nothing is run;
* `<!-- needs public data -->`: the same, unless the public data exist;
* `<!-- exit 1 -->`: the last command ends with this code.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import PUBLIC, ROOT

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(path for path in sorted(DOCS.glob("*.md")) if not path.name.startswith("_")),
]
"""All pages but decision notes and those that the site's build makes."""
_FENCE = re.compile(r"^```(?P<language>[\w-]+|\{[\w-]+\})?(?: (?P<name>\S+))?$")
_MARK = re.compile(r"^<!-- (parsed only: \S.*|needs public data|exit (?P<code>[12])) -->$")


@dataclass
class Fence:
    """One block of a page."""

    language: str
    name: str
    """Name of the file that the block contains, or empty."""
    line: int
    text: str
    parsed_only: bool = False
    exit_code: int = 0


@dataclass
class Command:
    """A line after `$`, and the output below it."""

    words: list[str]
    shown: list[str] = field(default_factory=list)


def fences(path: Path) -> Iterator[Fence]:
    """The blocks of a page in order, without Sphinx's directives."""
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        opening = _FENCE.match(lines[number])
        assert opening, f"{path}:{number + 1}: unknown fence"
        end = lines.index("```", number + 1)
        if not (opening["language"] or "").startswith("{"):
            text = "\n".join(lines[number + 1 : end]) + "\n"
            fence = Fence(opening["language"] or "", opening["name"] or "", number + 1, text)
            _take_marks(fence, lines, path)
            yield fence
        number = end + 1


def _take_marks(fence: Fence, lines: list[str], path: Path) -> None:
    above = fence.line - 2
    while above >= 0 and lines[above].startswith("<!--"):
        mark = _MARK.match(lines[above])
        assert mark, f"{path}:{above + 1}: unknown comment"
        if mark["code"]:
            fence.exit_code = int(mark["code"])
        else:
            fence.parsed_only = "public data" not in mark[1] or not PUBLIC.is_dir()
        above -= 1


def commands(text: str) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            typed = line[2:]
            while typed.endswith("\\"):
                typed = typed[:-1] + next(lines)
            found.append(Command(shlex.split(typed, comments=True)))
        else:
            assert found, f"{line!r} is before any command"
            found[-1].shown.append(line)
    return found


def prose(path: Path) -> str:
    """The text of a page without blocks, comments and formulas in lines of their own."""
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->|<picture>.*?</picture>", "", path.read_text(), flags=re.M | re.S
    )
    return re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)


def matches(shown: str, found: str) -> bool:
    """Whether an output is what the page shows.

    A line `...` stands for any lines, and `...` within a line for any text. The amount of white
    space does not count.
    """
    parts = []
    for line in _lines(shown):
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    text = "".join(f"{line}\n" for line in _lines(found))
    return re.fullmatch("".join(parts), text) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]
