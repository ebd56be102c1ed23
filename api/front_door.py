"""Names of a package that are imported when they are first used.

To import all that `logitbank.analysis` offers takes 0.13 s, of which fairness needs 0.02.
"""

import ast
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class FrontDoor(NamedTuple):
    """A package's `__getattr__` and `__dir__`, and the module of every name that is imported so."""

    getattr: Callable[[str], Any]
    dir: Callable[[], list[str]]
    homes: Mapping[str, str]


def front_door(package: str, file: str, *own: str) -> FrontDoor:
    """The front door of a package in `file`, whose imports under `if TYPE_CHECKING` are its list.

    A type checker reads the same lines, and takes what is imported `as` its own name for public: so
    there is one list, as of stubs that are read for lazy imports (Scientific Python's SPEC 1).
    `own` are names that the package defines.
    """
    homes = {
        alias.asname: node.module
        for statement in ast.parse(Path(file).read_bytes()).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for node in statement.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname
    }

    def of(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return FrontDoor(of, lambda: sorted([*homes, *own]), homes)
