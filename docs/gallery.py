"""Every figure that logitbank draws, for the page that shows them.

Fairness, fluctuation and options are of the demo's bank; the others are of made-up numbers, the
same with which the drawing of figures is tested.
"""

import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib import rc_context

import logitbank
from logitbank.analysis.drawing.figures import sheets_of
from logitbank.analysis.drawing.matplotlib import drawn
from logitbank.analysis.drawing.paper import PAPER, kind_of
from tests.support import drawing_cases as cases

DEMO = Path(__file__).parents[1] / "tests" / "data" / "demo-bank.tar.xz"
Case = Callable[[Path], Any]
"""From a folder that may be written to, to a result."""

CASES: dict[str, tuple[str, Case]] = {
    "analyze fairness": (
        "of the demo",
        lambda _: logitbank.fairness(_demo(), bootstrap=200).result,
    ),
    "analyze fluctuation": (
        "of the demo's masked model",
        lambda _: logitbank.fluctuation(_demo(), prompts="toy-professions").result,
    ),
    "analyze stereoset": ("made up", lambda _: cases.stereotypes(domain="race")),
    "analyze unqover": ("made up", lambda _: cases.asked(name="Kim")),
    "analyze lambada": ("made up", lambda f: cases.of_bank(logitbank.lambada, f, "m")),
    "analyze stereotype": ("made up", lambda f: cases.of_bank(logitbank.stereotype, f, "m")),
    "analyze pairs": ("made up", lambda f: cases.of_bank(logitbank.pairs, f, "m")),
    "analyze tradeoff": ("made up", lambda _: cases.exchange(give_up=3.0)),
    "debias compare": ("made up", lambda _: cases.compared(name="")),
    "debias search": ("made up", lambda _: cases.searched()),
    "analyze options": (
        "of the demo",
        lambda _: logitbank.options(_demo(), prompts="toy-winobias").result,
    ),
}
"""Command to what its figures are of, and how they come about."""


def gallery(folder: Path) -> str:
    """Draw every figure as an SVG into a folder, and the page's text in Markdown.

    One figure of each kind; a kind has one for each model, run or verb.
    """
    lines = []
    for command, (source, case) in CASES.items():
        file = command.replace(" ", "-")
        with TemporaryDirectory() as temporary:
            figures = list(_one_of_each_kind(case(Path(temporary))))
        lines += [f"## {command.removeprefix('analyze ')}", ""]
        lines += [f"[`logitbank {command}`](reference/commands/{file}.md), {source}.", ""]
        for kind, figure in figures:
            with rc_context(PAPER.settings()):  # as an analysis writes them
                figure.savefig(folder / f"{file}-{kind}.svg", metadata={"Date": None})
            lines += [
                f"![{kind}](_gallery/{file}-{kind}.svg)",
                "",
                f"`{kind}`: {figure.get_label()}",
                "",
            ]
    return "\n".join(lines)


@cache
def _unpacked() -> TemporaryDirectory[str]:
    """The demo's bank, once and for as long as this process runs."""
    folder = TemporaryDirectory()
    with tarfile.open(DEMO) as archive:
        archive.extractall(folder.name, filter="data")
    return folder


def _demo() -> str:
    return f"{_unpacked().name}/toy.zarr"


def _one_of_each_kind(result: Any) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, sheet in sheets_of(result).items():
        kind = kind_of(name)
        if kind not in seen:
            seen.add(kind)
            yield kind, drawn(sheet)
