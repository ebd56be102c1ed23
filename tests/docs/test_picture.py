"""The README's picture shows what the demo's bank holds, today."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import picture
from tests.support.paths import ROOT

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("picture")
    picture.main(folder)
    return folder


@pytest.mark.parametrize("theme", picture.THEMES)
def test_the_picture_is_what_the_bank_gives(folder: Path, theme: str) -> None:
    name = f"logitbank-{theme}.svg"
    committed = (ROOT / "docs" / "_static" / name).read_text(encoding="utf-8")
    assert committed == (folder / name).read_text(encoding="utf-8"), (
        "`python -m scripts.picture` makes it anew"
    )
    assert f"_static/{name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_curve_jumps_where_the_demo_s_text_changes(folder: Path) -> None:
    """By the recorded gaps of the demo's run, in the file beside the bank."""
    tree = ElementTree.parse(folder / "logitbank-light.svg")
    gap = tree.findall(f"{SVG}polyline")[0]
    heights = [float(point.split(",")[1]) for point in gap.attrib["points"].split()]
    jump = max(range(1, len(heights)), key=lambda i: heights[i - 1] - heights[i])
    assert jump == 16  # of 24 checkpoints: the first after step 400
    assert len(tree.findall(f"{SVG}rect")) == 24 * picture.PROMPTS
