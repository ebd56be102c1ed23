"""User texts are plain English: the words of a short list appear in no message, help or page."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.words import AVOIDED

PATTERN = re.compile(rf"\b({'|'.join(AVOIDED)})\b", re.IGNORECASE)


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """String literals of a module, docstrings included, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def found(path: Path, texts: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {' '.join(text.split())[:80]!r}"
        for line, text in texts
        for match in PATTERN.finditer(text)
    ]


@pytest.mark.parametrize("folder", ["api", "cli", "engine", "store", "analysis"])
def test_messages_and_docstrings_avoid_private_words(folder: str) -> None:
    modules = {*(ROOT / folder).rglob("*.py")} - {ROOT / "engine" / "demo" / "corpus.py"}
    hits = [hit for path in modules for hit in found(path, literals(path))]
    assert not hits, "\n".join(hits)


def test_pages_and_printed_texts_avoid_private_words() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    printed = (ROOT / "tests" / "golden" / "expected").rglob("*.txt")
    hits = [
        hit
        for path in (*pages, *printed)
        for hit in found(path, enumerate(path.read_text().splitlines(), 1))
    ]
    assert not hits, "\n".join(hits)
