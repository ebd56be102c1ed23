"""The wheel has every package, the front door every name, and light imports stay light."""

import ast
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import logitbank

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "vllm")


TOP = ("api", "analysis", "cli", "engine", "store")


def modules() -> dict[str, Path]:
    """Every module of the source by its dotted name, however deep its folder."""
    files = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            inner = parts[1:] if top == "api" else parts
            files[".".join(("logitbank", *(p for p in inner if p != "__init__")))] = path
    return files


def imports(path: Path) -> set[str]:
    """Modules of logitbank that a file imports: at its top, in functions, for types alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                names.add(name if name in MODULES else str(node.module))
    return {name for name in names if name.partition(".")[0] == "logitbank"}


MODULES = modules()
IMPORTS = {name: imports(path) for name, path in MODULES.items()}


def test_packages_in_pyproject_are_the_folders_on_disk() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert sorted(setuptools["packages"]) == sorted(packages)
    assert set(setuptools["package-dir"].values()) == set(TOP)
    assert {p.parent.name for p in ROOT.glob("*/py.typed")} == set(TOP)
    folders = {path.parent for path in MODULES.values()}
    assert {path.parent for path in MODULES.values() if path.name == "__init__.py"} == folders


def test_what_is_imported_is_there() -> None:
    assert not {name: gone for name, used in IMPORTS.items() if (gone := used - set(MODULES))}


def test_the_front_door_gives_every_name_that_it_lists() -> None:
    for name in logitbank.__all__:
        assert getattr(logitbank, name) is not None
    assert sorted(logitbank.__all__) == dir(logitbank)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = logitbank.nothing


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert logitbank.__version__ == project["version"]


@pytest.mark.parametrize(
    "module",
    ["logitbank", "logitbank.store", "logitbank.analysis", "logitbank.analysis.results.study"],
)
def test_importing_it_does_not_pull_in_an_engine(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = (
        "import sys, logitbank.cli.main; "
        "print([m for m in ('torch', 'polars', 'zarr', 'scipy', 'rich.table') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_imports_of_top_folders_go_one_way() -> None:
    below = {
        "analysis": ("analysis", "store"),
        "cli": ("analysis", "cli", "engine", "store"),
        "engine": ("engine", "store"),
        "store": ("store",),
    }
    wrong = [
        f"{name} imports {used}"
        for name in MODULES
        for used in IMPORTS[name]
        if (top := name.split(".")[1:2]) and top[0] in below
        if (other := used.split(".")[1:2]) and other[0] in below and other[0] not in below[top[0]]
    ]
    assert not wrong, wrong
    assert sum(map(len, IMPORTS.values())) > 500


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Lazy imports and those for types count: a circle hides which of two things is below."""
    TopologicalSorter(IMPORTS).prepare()
