"""Runs the documentation's notebook on the demo's bank: `python -m scripts.notebook`.

It writes `docs/notebook.ipynb` again with what its cells give; a test compares.
"""

import tarfile
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
BANK = ROOT / "tests" / "data" / "demo-bank.tar.xz"


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs, run in a folder into which the demo's bank is put.

    Raises
    ------
    CellExecutionError
        A cell fails; says which, and how.
    """
    with tarfile.open(BANK) as archive:
        archive.extractall(folder / "demo", filter="data")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, record_timing=False, resources=resources).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}  # and no versions
    return notebook


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        nbformat.write(executed(Path(scratch)), NOTEBOOK)
