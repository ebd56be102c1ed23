"""docs/notebook.ipynb runs in Jupyter's kernel, and shows what it gave when it was last run."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from scripts.notebook import NOTEBOOK, executed


def shown(notebook: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """Source and outputs of each cell: kind and text; of a figure only that it is one."""
    return [
        (cell.source, [of_output(output) for output in cell.get("outputs", [])])
        for cell in notebook.cells
    ]


def of_output(output: Any) -> tuple[str, str]:
    if output.output_type == "stream":
        return output.name, output.text
    kind = next(k for k in ("image/png", "text/html", "text/plain") if k in output.data)
    return kind, "" if kind == "image/png" else output.data[kind]


@pytest.mark.whole
def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    saved = shown(nbformat.read(NOTEBOOK, as_version=4))
    assert shown(executed(tmp_path)) == saved
    kinds = {kind for _, outputs in saved for kind, _ in outputs}
    assert kinds == {"image/png", "text/html", "text/plain", "stdout"}
