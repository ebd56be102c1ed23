"""Names of a package that are imported when they are first used.

To import all that `logitbank.analysis` offers takes 0.13 s, of which fairness needs 0.02.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def front_door(
    package: str, file: str, *own: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of the package whose `__init__` is `file`.

    Its imports under `if TYPE_CHECKING` are the list of its names: type checkers read the same
    lines, and take a name that is imported `as` itself for public. `own` are names that the package
    defines.
    """
    modules = {
        alias.asname: node.module
        for statement in ast.parse(Path(file).read_bytes()).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for node in statement.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname
    }

    def find(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted([*modules, *own])
