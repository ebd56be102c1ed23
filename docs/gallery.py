"""Every chart of every analysis, for the page of figures: `make gallery` draws them again."""

from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import vl_convert

import logitbank
from logitbank.analysis.charts.chart import Chart, chart_caption, paper_specs
from logitbank.analysis.charts.theme import WIDTHS
from tests.golden import banks
from tests.support import bbq_cases, distance_cases, placebo_cases

Case = tuple[str, Callable[[Path], Any], Callable[[Path], Any]]
"""Origin of the data, a function that makes banks in a folder, and one that returns a study."""

CASES: dict[str, Case] = {
    "analyze fairness": (
        "the demo",
        banks.demo,
        lambda folder: logitbank.fairness(folder / "toy.zarr", bootstrap=200),
    ),
    "analyze fluctuation": (
        "the demo's masked model",
        banks.demo,
        lambda folder: logitbank.fluctuation(folder / "toy.zarr", prompts="toy-professions"),
    ),
    "analyze stereoset": (
        "invented data",
        banks.stereoset,
        lambda folder: logitbank.stereoset(folder / "stereoset.zarr"),
    ),
    "analyze unqover": (
        "invented data",
        banks.unqover,
        lambda folder: logitbank.unqover(folder / "unqover.zarr"),
    ),
    "analyze lambada": (
        "invented data",
        banks.families,
        lambda folder: logitbank.lambada(folder / "families.zarr"),
    ),
    "analyze stereotype": (
        "invented data",
        banks.families,
        lambda folder: logitbank.stereotype(folder / "families.zarr"),
    ),
    "analyze pairs": (
        "invented data",
        banks.families,
        lambda folder: logitbank.pairs(folder / "families.zarr", prompts="crows-pairs"),
    ),
    "analyze gest": (
        "invented data",
        banks.gest,
        lambda folder: logitbank.gest(folder / "gest.zarr"),
    ),
    "analyze bbq": (
        "invented data",
        lambda folder: bbq_cases.make_bank(folder / "bbq.zarr"),
        lambda folder: logitbank.bbq(folder / "bbq.zarr"),
    ),
    "analyze tradeoff": (
        "invented data",
        banks.families,
        lambda folder: logitbank.tradeoff(folder / "families.zarr"),
    ),
    "analyze lm-eval": (
        "invented data",
        banks.harness,
        lambda folder: logitbank.lm_eval(folder / "b.zarr", include=str(folder / "tasks")),
    ),
    "debias compare": (
        "invented data",
        banks.debias,
        lambda folder: logitbank.analysis.debias_compare(folder / "debias.zarr", [_filter(folder)]),
    ),
    "analyze options": (
        "the demo",
        banks.demo,
        lambda folder: logitbank.options(folder / "toy.zarr", prompts="toy-winobias"),
    ),
    "analyze placebo": (
        "invented data",
        lambda folder: placebo_cases.learning_bank(folder / "edits.zarr"),
        lambda folder: logitbank.placebo(folder / "edits.zarr"),
    ),
    "analyze distance": (
        "invented data",
        lambda folder: distance_cases.learning_bank(folder / "rows.zarr"),
        lambda folder: logitbank.distance(folder / "rows.zarr"),
    ),
}
"""A study for each command."""


def gallery(folder: Path) -> str:
    """A page in Markdown with every chart, and these as SVG in the folder."""
    parts = []
    for command in CASES:
        with TemporaryDirectory() as temporary:
            charts = study(command, Path(temporary)).charts
        parts.append(section(command, charts))
        for name, spec in paper_specs(charts, WIDTHS["double"]).items():
            svg = vl_convert.vegalite_to_svg(spec)
            (folder / svg_name(command, name)).write_text(svg, encoding="utf-8")
    return "\n".join(parts)


def study(command: str, folder: Path) -> Any:
    """The study of a command, whose banks are made in the folder."""
    _, make, analyze = CASES[command]
    make(folder)
    return analyze(folder)


def section(command: str, charts: Mapping[str, Chart]) -> str:
    """The part of the page about a command."""
    lines = [f"## {command.removeprefix('analyze ')}", ""]
    lines += [f"`logitbank {command}`, {CASES[command][0]}.", ""]
    for name, chart in charts.items():
        lines += [f"![{name}]({svg_name(command, name)})", ""]
        lines += [f"`{name}`: {chart_caption(chart)}", ""]
    return "\n".join(lines)


def svg_name(command: str, chart: str) -> str:
    return f"{command.replace(' ', '-')}-{chart}.svg"


def _filter(folder: Path) -> Path:
    path = folder / "filter.safetensors"
    logitbank.analysis.debias_train(folder / "debias.zarr", prompts="unqover-gender", k=6, out=path)
    return path


if __name__ == "__main__":
    FOLDER = Path(__file__).parent / "_gallery"
    rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / "figures.md").write_text(gallery(FOLDER), encoding="utf-8")
