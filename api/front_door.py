"""Packages whose names are imported at their first use.

Importing all names of `logitbank.analysis` takes 0.13 s; fairness needs 0.02 s of it.
"""

import ast
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Any


def front_door(
    package: str, *files: Path | str, names: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    The public names are the imports `X as X` under `if TYPE_CHECKING` of `files`, which type
    checkers read too, and `names`, which the package defines itself. `files` are its `__init__` and
    those of plug-ins. Packages inside it are found but not listed.
    """
    modules = {
        alias.asname: node.module
        for file in files
        for statement in ast.parse(Path(file).read_bytes()).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for node in statement.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname
    }
    packages = {name for name, module in modules.items() if module == package}

    def find(name: str) -> Any:
        if name in packages:
            return import_module(f"{package}.{name}")
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted({*modules, *names} - packages)
