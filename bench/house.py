"""The source as it lies on disk: folders, lengths and imports. What is measured of the layout."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

from bench.figures import Figure

ROOT = Path(__file__).parents[1]
TOP = ("api", "cli", "analysis", "engine", "store")
LONG = 300
"""Lines from which on a module says in its docstring why it is one file ("one file because …")."""


NAMED = ("winobias", "roberta", "topk")
"""A prompt set, a masked model family and a keep level: another one is named where these are."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the source by its dotted name, however deep its folder."""
    files = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            inner = parts[1:] if top == "api" else parts
            files[".".join(("logitbank", *(p for p in inner if p != "__init__")))] = path
    return files


@cache
def imports() -> dict[str, frozenset[str]]:
    """Modules of logitbank that each module imports: at its top, in functions, for types alone."""
    return {name: frozenset(_imported(path)) for name, path in modules().items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else str(node.module) for name in inner]
        yield from (name for name in names if name.partition(".")[0] == "logitbank")


def circle() -> list[str]:
    """Modules that import each other in a ring, the first also last; empty where there is none."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def rooms() -> dict[str, tuple[str, int]]:
    """Folders of the source by path: what each is for, and how many modules lie in it."""
    found = {}
    for path in modules().values():
        if path.name == "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            count = len(list(path.parent.glob("*.py"))) - 1
            found[path.parent.relative_to(ROOT).as_posix()] = (text.splitlines()[0], count)
    return found


def naming(word: str, *tops: str) -> list[str]:
    """The modules of top folders whose code names a word: in a text, docstrings apart."""
    whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    return [
        path.relative_to(ROOT).as_posix()
        for path in modules().values()
        if path.relative_to(ROOT).parts[0] in tops
        and any(whole.search(text) for text in _texts(ast.parse(path.read_text())))
    ]


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts of code; those that stand alone are docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def added_last(folder: str) -> tuple[str, list[str]]:
    """The newest room of a folder, and the files of the commit that added it.

    No files where there is no whole history to look them up in.
    """
    if _git("rev-parse", "--is-shallow-repository") != ["false"]:
        return "", []
    rooms = f":(glob){folder}/*/__init__.py"
    added = _git("log", "-1", "--diff-filter=A", "--name-only", "--format=%H", "--", rooms)
    if not added:
        return "", []
    return Path(added[-1]).parent.name, _git("show", "--name-only", "--format=", added[0])


def _git(*arguments: str) -> list[str]:
    """The lines that git prints; none where this is no checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in result.stdout.splitlines() if line]


def house_figures() -> Iterator[Figure]:
    lengths = {path: len(path.read_text().splitlines()) for path in modules().values()}
    own = {path: n for path, n in lengths.items() if path.name != "__init__.py"}
    folders = Counter(
        file.parent
        for top in TOP
        for file in (ROOT / top).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    (largest, files), *_ = folders.most_common(1)
    unsaid = [path for path, n in own.items() if n > LONG and not _says_why(path)]
    ring = circle()
    family, touched = added_last("analysis/families")
    one_set, masked, level = (naming(word, "engine", "store", "cli") for word in NAMED)
    for name, value, bound, detail in (
        *([("files touched to add a family", len(touched), 7, family)] if touched else []),
        ("modules that name a prompt set", len(one_set), 2, ", ".join(one_set)),
        ("modules that name a masked model family", len(masked), 2, ", ".join(masked)),
        ("modules that name a keep level", len(level), 5, ", ".join(level)),
        ("files in the largest folder", files, 16, largest.relative_to(ROOT).as_posix()),
        ("lines of the median module", median(own.values()), 130, f"{len(own)} modules"),
        (f"modules above {LONG} lines that do not say why", len(unsaid), 0, ""),
        ("lines of source", sum(lengths.values()), 40_000, ", ".join(TOP)),
        ("modules in a circle of imports", len(ring), 0, "lazy ones and those for types counted"),
    ):
        yield Figure(name, value, "", f"≤ {bound:,}", value <= bound, [], detail)


def _says_why(path: Path) -> bool:
    return "one file because" in " ".join(
        (ast.get_docstring(ast.parse(path.read_text())) or "").split()
    )
