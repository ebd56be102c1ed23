"""The modules of the source and what each imports, read from their files.

`python -m scripts.source` writes the map of folders and prints the net lines since a release.
"""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ROOT / "docs" / "_rooms.md"
"""The map of folders, which the page of the architecture includes."""
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
    """Modules of logitbank that each module imports: at its top, in functions, for types alone, and
    by `import_module("…")`.
    """
    return {name: frozenset(_imported(name, path)) for name, path in modules().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else str(node.module) for name in inner]
        elif (module := _argument(node)) and isinstance(module, ast.Constant):
            text = str(module.value)  # a relative name begins with a point
            names = [f"{_folder(name)}{text}" if text.startswith(".") else text]
        yield from (name for name in names if name.partition(".")[0] == "logitbank")


def unnamed_imports() -> set[tuple[str, str]]:
    """Modules and functions that import what only a variable names: they can follow a list."""
    found = set()
    for name, path in modules().items():
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                found |= {
                    (name, function.name)
                    for node in ast.walk(function)
                    if (module := _argument(node)) and not isinstance(module, ast.Constant)
                }
    return found


def _argument(node: ast.AST) -> ast.expr | None:
    """The module that a call of `import_module` or `__import__` names."""
    if isinstance(node, ast.Call) and node.args:
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        return node.args[0] if name in ("import_module", "__import__") else None
    return None


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


def rooms_table() -> str:
    """A row for each folder of the source, with the first line of its docstring."""
    rows = []
    for path in modules().values():
        if path.name == "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            rows.append(f"| `{path.parent.relative_to(ROOT)}/` | {text.splitlines()[0]} |")
    return "\n".join(["| Folder | Purpose |", "|---|---|", *sorted(rows), ""])


def net_lines() -> str:
    """Lines of Python in source and tests, and how many more than at the last release.

    Before the first release, than at the first commit; without git, the lines alone.
    """
    try:
        since = _git("describe", "--tags", "--abbrev=0")
    except subprocess.CalledProcessError:
        since = ""
    try:
        base = since or _git("rev-list", "--max-parents=0", "HEAD").splitlines()[-1]
        texts = [_net(folders, base) for folders in (TOP, ("tests",))]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"Lines since {since or 'the first commit'}: {texts[0]} of source, {texts[1]} of tests."


def _net(folders: Sequence[str], base: str) -> str:
    rows = _git("diff", "--numstat", base, "--", *(f"{name}/*.py" for name in folders))
    counts = [row.split("\t")[:2] for row in rows.splitlines()]
    return f"{sum(int(added) - int(removed) for added, removed in counts):+,}"


def _git(*arguments: str) -> str:
    run = ["git", *arguments]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    ROOMS.write_text(rooms_table())
    print(net_lines())
