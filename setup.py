"""Which packages the wheel has: the folders of the source. Everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

ROOTS = {
    "logitbank": "api",
    "logitbank.analysis": "analysis",
    "logitbank.cli": "cli",
    "logitbank.engine": "engine",
    "logitbank.store": "store",
}

setup(
    package_dir=ROOTS,
    packages=[
        ".".join((package, *path.parent.relative_to(root).parts))
        for package, root in ROOTS.items()
        for path in sorted(Path(root).rglob("__init__.py"))
    ],
)
