"""The modules of the source and what each imports, read from their files."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOP = ("api", "cli", "analysis", "engine", "store")


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


def cycle() -> list[str]:
    """Modules that import each other in a cycle, the first also last; empty without a cycle.

    Imports between modules of one folder count, except those of a package's own modules by its
    `__init__`, which is its door.
    """
    others = {
        name: {used for used in found if used != name and _folder(used) != name}
        for name, found in imports().items()
    }
    try:
        TopologicalSorter(others).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _folder(name: str) -> str:
    """The folder of a module; a package is in its own."""
    path = modules().get(name)
    package = path is None or path.name == "__init__.py"
    return name if package else name.rpartition(".")[0]


def rooms() -> dict[str, tuple[str, int]]:
    """Folders of the source by path: their first docstring line and number of modules."""
    found = {}
    for path in modules().values():
        if path.name == "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            count = len(list(path.parent.glob("*.py"))) - 1
            found[path.parent.relative_to(ROOT).as_posix()] = (text.splitlines()[0], count)
    return found
