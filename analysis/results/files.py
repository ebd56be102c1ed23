"""Results on paper: one self-contained HTML page, and tables as files.

Model names, labels and titles come from data of strangers. The template escapes all of them;
figures are SVG that Matplotlib wrote, with text as escaped text and without scripts.
"""

import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

import polars as pl

from logitbank.analysis.drawing.paper import INK
from logitbank.analysis.frames.expressions import check_choice
from logitbank.analysis.results.csv_text import without_formulas
from logitbank.analysis.results.tables import json_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["csv", "parquet", "json"]
MAX_ROWS = 20


class Result(Protocol):
    """What a family of metrics found."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""


class _Figure(NamedTuple):
    name: str
    caption: str
    svg: str


class _Table(NamedTuple):
    name: str
    columns: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    total: int


def write_report(
    path: Path | str,
    *,
    title: str,
    summary: Sequence[str],
    figures: "Mapping[str, Figure]",
    tables: Mapping[str, pl.DataFrame],
    provenance: pl.DataFrame | None = None,
    max_rows: int = MAX_ROWS,
) -> None:
    """Write one HTML page that needs nothing else: no network, no script, no font file.

    Parameters
    ----------
    path
        File to write; replaced at once when the page is complete.
    title, summary
        Text; every sentence of the summary becomes a point of a list.
    figures
        Drawn inline as SVG. A figure's `get_label()` is its caption and its description.
    tables
        Shown rounded to four digits, the first `max_rows` rows of each, with a note.
    provenance
        How the numbers were made, shown last.
    """
    from jinja2 import Environment, StrictUndefined

    source = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(source).render(
        title=title,
        summary=list(summary),
        figures=[
            _Figure(name, str(figure.get_label()), inline_svg(figure, prefix=f"f{at}-"))
            for at, (name, figure) in enumerate(figures.items())
        ],
        tables=[_table(name, table, max_rows=max_rows) for name, table in tables.items()],
        provenance=None if provenance is None else _table("", provenance, max_rows=max_rows),
    )
    replace_file(Path(path), page.encode())


def write_tables(result: Result, folder: Path | str, format: Format = "csv") -> list[Path]:
    """Write every table at full precision, one file each, and return the paths.

    CSV writes NaN as `NaN`, null as nothing, and text that would be a formula as
    `without_formulas` gives it; JSON is a list of records in which both are null,
    and infinities are the texts Infinity and -Infinity.

    Raises
    ------
    UsageError
        Another format.
    """
    check_choice("format", format, get_args(Format))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in result.tables().items():
        path = folder / f"{name}.{format}"
        buffer = io.BytesIO()
        if format == "csv":
            without_formulas(table.lazy()).collect().write_csv(buffer)
        elif format == "parquet":
            table.write_parquet(buffer)
        else:
            buffer.write(json.dumps(json_rows(table), ensure_ascii=False, indent=1).encode())
        replace_file(path, buffer.getvalue())
        paths.append(path)
    return paths


def inline_svg(figure: "Figure", *, prefix: str) -> str:
    """A figure as an SVG element for a page: ids made unique by the prefix, ink as page colour."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "logitbank", "text.parse_math": False}
    ):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # HTML knows the namespaces; without them the page names no address at all.
    head, body = svg.split(">", maxsplit=1)
    head = re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", head)
    body = body.replace(' xlink:href="#', f' href="#{prefix}').replace("url(#", f"url(#{prefix}")
    body = re.sub(r'(<[\w:]+(?:\s[^<>]*?)?\sid=")', rf"\g<1>{prefix}", body)
    body = body.replace(INK, "currentColor")
    return f'{head} aria-hidden="true">{body}'


def _table(name: str, table: pl.DataFrame, *, max_rows: int) -> _Table:
    shown = table.head(max_rows)
    return _Table(
        name,
        table.columns,
        [dtype.is_numeric() for dtype in table.dtypes],
        [[_cell(value) for value in row] for row in shown.iter_rows()],
        len(table),
    )


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value).replace("nan", "NaN")
        return f"{value:.2e}" if 0 < abs(value) < 1e-4 else f"{value:.4g}"
    return str(value)


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the file, then move into place, so that no half of it is ever seen."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
