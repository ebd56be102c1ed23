"""One self-contained HTML page with interactive figures, sortable tables and single prompts.

Text in a bank comes from strangers. The template escapes it; what the page's script shows travels
as JSON in which no tag can end, and only ever becomes text there. A policy in the page allows its
two scripts by their digests, and nothing from the network.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.analysis.report.first import First, first_of
from logitbank.analysis.report.origin import Origin
from logitbank.analysis.report.part import Part
from logitbank.analysis.report.plot import prompt_plot
from logitbank.analysis.report.prompts import SERIES
from logitbank.analysis.report.words import GENERAL
from logitbank.analysis.results.files import replace_file
from logitbank.version import __version__
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.analysis.drawing.sheet import Interactive

FIGURES = 5_000_000
"""Most characters of all figures together; what is beyond is left out, and said so."""
CELLS = 250_000
"""Most cells of all tables together; 9 bytes each."""
ROWS = 2_000
"""Most rows of a table."""
FINDINGS = 4
"""Sentences of an analysis that are seen at once; the others are folded."""
DRAWN = "logitbank.analysis.figure_data gives all of them"
WRITTEN = "logitbank analyze writes all of them with --out"
BESIDE = "tables/{}.csv beside this page has all of them"
"""Where the rows are that a table on the page leaves out."""
SCRIPTS = ("base.js", "tables.js", "figures.js", "prompts.js", "theme.js")
"""What the page's script is joined from, each part after those that it uses."""
Json = dict[str, Any]


def write_page(
    path: Path | str,
    *,
    title: str,
    lead: str,
    parts: Sequence[Part],
    origin: Origin,
    cautions: Sequence[str],
    prompts: Sequence[Json] = (),
    unread: Sequence[str] = (),
    left_out: Mapping[str, int] = MappingProxyType({}),
    damaged: Sequence[str] = (),
) -> None:
    """Write the page; it is replaced at once when it is complete.

    Parameters
    ----------
    lead
        A sentence under the title, about what was read.
    parts
        Analyses, in order. The page begins with the most important finding of one, its figure and
        a few numbers; where none says such a message, with the first figure.
    origin
        Where their numbers come from.
    cautions
        What the numbers do not say; all but the general ones, which come first, are folded.
    prompts
        `prompt_data` of each prompt set.
    unread
        Why prompts of other sets are not shown.
    left_out
        How many those are, by set.
    damaged
        What of the bank is damaged, and what the page lacks for it; said below the title.
    """
    from bokeh.resources import Resources
    from jinja2 import Environment, StrictUndefined

    every = [*origin.tables.values()]
    for part in parts:
        every += [*part.figure_tables.values(), *part.tables.values()]
    first = first_of(parts)
    data = _Data(rows=rows_that_fit([table.shape for table in every]), first=first)
    shown = [data.part(part) for part in parts]
    origin_tables = [data.table(name, table) for name, table in origin.tables.items()]
    about = {name: text for name, text in origin.about.items() if text}
    text = {name: _resource(name) for name in ("page.html", "page.css")}
    library = Resources(mode="inline", components=["bokeh"], minified=True)
    scripts = [_script("\n".join(library.js_raw)), _script(_page_script())]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(text["page.html"]).render(
        title=title,
        lead=lead,
        message=first.message if first else None,
        first=data.first_figure,
        parts=shown,
        damaged=damaged,
        prompts=_prompt_note(prompts, left_out),
        prompts_shown=bool(prompts),
        unread=unread,
        origin=origin,
        about=about,
        opening=origin.opening,
        cited=any(name.endswith(("citation", "licence")) for name in about),
        few=FINDINGS,
        origin_tables=origin_tables,
        cautions=cautions,
        general=len(GENERAL),
        version=__version__,
        css=text["page.css"],
        data=_json(
            {
                "figures": data.figures,
                "tables": data.tables,
                "prompts": list(prompts),
                "promptPlot": prompt_plot() if prompts else None,
            }
        ),
        library=scripts[0],
        script=scripts[1],
        script_hashes=[_digest(script) for script in scripts],
    )
    replace_file(Path(path), page.encode())


class _Data:
    """What the page's script reads, and the places where it shows it."""

    def __init__(self, *, rows: int, first: First | None) -> None:
        self.figures: list[Json] = []
        self.tables: list[Json] = []
        self.first_figure: Json | None = None
        self._first = first
        self._rows = rows
        self._size = 0

    def table(self, name: str, frame: pl.DataFrame, *, whole: str = "") -> Json:
        self.tables.append({**table_data(name, frame, rows=self._rows), "whole": whole})
        return {"index": len(self.tables) - 1, "name": name, "total": len(frame)}

    def fits(self, figure: "Interactive") -> bool:
        """Whether there is room for another figure; if so, it is kept."""
        from logitbank.analysis.drawing.bokeh import embedded

        spec = {"item": embedded(figure.model), "meta": figure.meta, "traces": figure.traces}
        size = len(_json(spec))
        if self._size + size > FIGURES:
            return False
        self._size += size
        self.figures.append(spec)
        return True

    def figure(self, part: Part, name: str, *, series: str = "") -> Json:
        figure, table = part.figures[name], part.figure_tables.get(name)
        return {
            "id": f"{part.id}-{name}",
            "index": len(self.figures) - 1,
            "series": series,
            "title": figure.meta["title"],
            "caption": figure.meta["caption"],
            "tables": [] if table is None else [self.table(name, table, whole=DRAWN)],
        }

    def part(self, part: Part) -> Json:
        first = self._first.figure if self._first and self._first.part == part.id else ""
        figures = []
        for name in sorted(part.figures, key=lambda name: name != first):
            if not self.fits(part.figures[name]):
                continue
            if self._first and name == first:
                series = self._first.series_of(part.figures[name])
                self.first_figure = {**self.figure(part, name, series=series), "part": part.title}
            else:
                figures.append(self.figure(part, name))
        above = bool(self.first_figure) and bool(first)
        return {
            "id": part.id,
            "title": part.title,
            "prompts": part.prompts,
            "about": part.about,
            "findings": part.summary.findings,
            "without": part.summary.left_out,
            "notes": part.summary.notes,
            "problem": part.problem,
            "figures": figures,
            "above": above,
            "left_out": len(part.figures) - len(figures) - above,
            "beside": part.beside,
            "tables": [
                self.table(name, table, whole=BESIDE.format(name) if part.beside else WRITTEN)
                for name, table in part.tables.items()
            ],
        }


def rows_that_fit(shapes: Sequence[tuple[int, int]]) -> int:
    """Most rows of a table so that all tables together have at most `CELLS` cells.

    >>> rows_that_fit([(100, 5)]), rows_that_fit([(10_000, 10)] * 100)
    (2000, 250)
    """
    rows = ROWS
    while rows > 1 and sum(min(rows, height) * width for height, width in shapes) > CELLS:
        rows //= 2
    return rows


def table_data(name: str, frame: pl.DataFrame, *, rows: int = ROWS) -> Json:
    """The first rows of a table by columns, for JSON: floats with six digits, NaN as text.

    >>> table_data("t", pl.DataFrame({"x": [1 / 3, float("nan"), None]}))["values"]
    [[0.333333, 'NaN', None]]
    """
    shown = frame.head(rows)
    return {
        "name": name,
        "columns": frame.columns,
        "numeric": [dtype.is_numeric() for dtype in frame.dtypes],
        "values": [[_value(value) for value in column] for column in shown.iter_columns()],
        "total": len(frame),
    }


def _value(value: object) -> object:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(f"{value:.6g}")
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return value if value is None or isinstance(value, bool | int) else str(value)


def _prompt_note(prompts: Sequence[Json], left_out: Mapping[str, int]) -> str:
    lacking = (
        " Left out, as they could not be read: "
        + ", ".join(f"{counted(n, 'prompt')} of {name}" for name, n in left_out.items())
        + "."
        if left_out
        else ""
    )
    if not prompts:
        return lacking.strip()
    shown = sum(len(one["prompts"]) for one in prompts)
    total = sum(one["total"] for one in prompts)
    left = sum(one["left_out"] for one in prompts)
    more = f" Models and runs beyond the first {SERIES} of each set are left out: {left}."
    told = sum(len(one["said"]["prompts"]) for one in prompts if one["said"])
    series = (more if left else "") + (
        f" What the model would say is here for {counted(told, 'prompt')} that move most."
        if told
        else ""
    )
    if shown == total:
        of = f" of {', '.join(one['name'] for one in prompts)}" if left_out else ""
        return f"All {total:,} prompts{of}, at every checkpoint.{series}{lacking}"
    return (
        f"{shown:,} of {total:,} prompts (option orders counted): those that move most, and those "
        f"that differ most between two checkpoints, with their scores at every checkpoint.{series} "
        f"logitbank show BANK --prompt ID shows any other.{lacking}"
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _page_script() -> str:
    """The parts in one scope: a browser lets no page on a disk import modules."""
    parts = "\n".join(_resource(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _json(value: object) -> str:
    """JSON that ends no script element, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _script(source: str) -> str:
    """A script as the page holds it: what a browser hashes has only line feeds."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
