"""One self-contained HTML page with charts, sortable tables and single prompts.

Text in a bank comes from strangers. The template escapes it; what the page's script shows travels
as JSON in which no tag can end, and only ever becomes text there. A policy in the page allows its
two scripts by their digests, and nothing from the network. It forbids `eval`, too: Vega interprets
its expressions (the option `ast`).
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup, escape

from logitbank.analysis.charts.chart import Chart, bare_spec, chart_caption, chart_title
from logitbank.analysis.charts.theme import config
from logitbank.analysis.report.origin import Origin
from logitbank.analysis.report.sections import (
    FINDINGS,
    GENERAL,
    First,
    Section,
    cautions,
    page_opening,
)
from logitbank.analysis.results.files import replace_file
from logitbank.version import __version__
from logitbank.wording import counted

CHARTS = 2_500_000
"""Most characters of all charts together; the page names how many it leaves out."""
CELLS = 150_000
"""Most cells of all tables together; 9 bytes each."""
ROWS = 2_000
"""Most rows of a table."""
WRITTEN = "`logitbank analyze` with --out writes all of them"
BESIDE = "tables/{}.csv beside this page has all of them"
SCRIPTS = ("base.js", "tables.js", "charts.js", "prompts.js", "page.js")
"""Parts of the page's script, each after those that it uses."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page."""

    title: str
    lead: str = ""
    """A sentence below the headline, about what was read."""
    sections: Sequence[Section] = ()
    """Analyses, in order. The page begins with the first finding of one, its chart and numbers."""
    origin: Origin = field(default_factory=Origin)
    """Where the numbers come from."""
    prompts: Sequence[Json] = ()
    """`prompt_data` of each prompt set."""
    problems: Sequence[str] = ()
    """Missing parts of the page, and why they are missing."""
    has_files: bool = False
    """Whether all tables and charts are files in folders beside the page."""


def write_page(path: Path | str, page: Page) -> None:
    """Write a page; it replaces another one when it is complete."""
    from jinja2 import Environment, StrictUndefined

    origin = page.origin
    tables = [*origin.tables.values()]
    tables += [table for one in page.sections if one.study for table in one.study.tables.values()]
    first = page_opening(page.sections)
    data = _Data(rows_that_fit([table.shape for table in tables]), first, page.has_files)
    shown = [data.section(one) for one in page.sections]
    origin_tables = [data.table(name, table) for name, table in origin.tables.items()]
    scripts = [_script(library().result()), _script(_page_script())]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["code"] = _with_code
    content = environment.from_string(_resource("page.html")).render(
        page=page,
        first=first,
        first_chart=data.first_chart,
        sections=shown,
        prompts_note=_prompts_note(page.prompts),
        origin_tables=origin_tables,
        few=FINDINGS,
        cautions=cautions(page.sections),
        general=len(GENERAL),
        version=__version__,
        css=_resource("page.css"),
        data=_json(
            {
                "config": config(),
                "charts": data.charts,
                "tables": data.tables,
                "prompts": list(page.prompts),
            }
        ),
        library=scripts[0],
        script=scripts[1],
        script_hashes=[_digest(script) for script in scripts],
    )
    replace_file(Path(path), content.encode())


class _Data:
    """The data that the page's script reads, and where it shows them."""

    def __init__(self, rows: int, first: First | None, has_files: bool) -> None:
        self.charts: list[Json] = []
        self.tables: list[Json] = []
        self.first_chart: Json | None = None
        self._first = first
        self._rows = rows
        self._size = 0
        self._has_files = has_files

    def table(self, name: str, table: pl.DataFrame, *, all_rows: str = "") -> Json:
        shown = table.head(self._rows)
        self.tables.append(
            {
                "name": name,
                "numeric": [dtype.is_numeric() for dtype in table.dtypes],
                "total": len(table),
                "allRows": all_rows,
                **columns_data(shown.to_dict(as_series=False)),
            }
        )
        return {"index": len(self.tables) - 1, "name": name, "total": len(table)}

    def chart(self, section: Section, name: str, chart: Chart) -> Json | None:
        """Where a chart is shown; None if the page has no room for it."""
        packed = chart_data(chart)
        size = len(_json(packed))
        if self._size + size > CHARTS:
            return None
        self._size += size
        self.charts.append(packed)
        about = {"id": f"{section.id}-{name}", "index": len(self.charts) - 1}
        return {**about, "title": chart_title(chart), "caption": chart_caption(chart)}

    def section(self, section: Section) -> Json:
        study = section.study
        about: Json = {"section": section, "study": study, "first": False, "charts": []}
        if study is None:
            return about
        first = self._first if self._first and self._first.section is section else None
        charts = dict(study.charts)
        if first:
            self.first_chart = self.chart(section, first.chart, charts.pop(first.chart))
        placed = [self.chart(section, name, chart) for name, chart in charts.items()]
        tables = {name: table for name, table in study.tables.items() if len(table)}
        all_rows = BESIDE if self._has_files else WRITTEN
        return about | {
            "first": bool(first),
            "charts": [chart for chart in placed if chart],
            "left_out": placed.count(None),
            "tables": [
                self.table(name, table, all_rows=all_rows.format(name))
                for name, table in tables.items()
            ],
        }


def rows_that_fit(shapes: Sequence[tuple[int, int]]) -> int:
    """Most rows of a table so that all tables together have at most `CELLS` cells.

    >>> rows_that_fit([(100, 5)]), rows_that_fit([(10_000, 10)] * 100)
    (2000, 125)
    """
    rows = ROWS
    while rows > 1 and sum(min(rows, height) * width for height, width in shapes) > CELLS:
        rows //= 2
    return rows


def chart_data(chart: Chart) -> Json:
    """The specification of a chart, with its data by columns."""
    spec = bare_spec(chart)
    rows_by_name = spec.pop("datasets", {})
    packed = {
        name: columns_data({column: [row[column] for row in rows] for column in rows[0]})
        if rows
        else columns_data({})
        for name, rows in rows_by_name.items()
    }
    return {"spec": spec, "datasets": packed}


def columns_data(columns: Mapping[str, Iterable[object]]) -> Json:
    """Columns for JSON: floats with six digits, NaN as text, repeated texts as indices.

    >>> columns_data({"x": [1 / 3, float("nan"), None], "model": ["a", "a", None]})["values"]
    [[0.333333, 'NaN', None], {'texts': ['a'], 'at': [0, 0, None]}]
    """
    return {"columns": list(columns), "values": [_column(values) for values in columns.values()]}


def _column(values: Iterable[object]) -> object:
    shown = [_value(value) for value in values]
    texts = list(dict.fromkeys(value for value in shown if value is not None))
    if not all(isinstance(text, str) for text in texts) or 2 * len(texts) > len(shown):
        return shown
    places = {text: at for at, text in enumerate(texts)}
    return {"texts": texts, "at": [None if value is None else places[value] for value in shown]}


def _value(value: object) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(f"{value:.6g}")
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return value if value is None or isinstance(value, bool | int) else str(value)


def _prompts_note(prompts: Sequence[Json]) -> str:
    shown = sum(len(one["prompts"]) for one in prompts)
    total = sum(one["total"] for one in prompts)
    left = sum(one["left_out"] for one in prompts)
    texts = (
        [f"All {counted(total, 'prompt')}, at every checkpoint."]
        if shown == total
        else [
            f"{shown:,} of {counted(total, 'prompt')} (with option orders): those with the "
            "largest changes. `logitbank show BANK --prompt ID` shows any other."
        ]
    )
    texts += ["`logitbank show BANK --prompt ID --top-tokens 5` lists the most probable tokens."]
    texts += [f"{counted(left, 'further run')} left out."] if left else []
    return " ".join(texts)


def _with_code(text: str) -> Markup:
    """Text in which what is between backticks is code.

    >>> print(_with_code("run `a<b`"))
    run <code>a&lt;b</code>
    """
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def library() -> Future[str]:
    """Vega, Vega-Lite and vega-embed as one script; made once in a process, in a thread.

    It takes 1.1 s of processor, beside which a report reads its prompts.
    """
    import vl_convert

    return ThreadPoolExecutor(1).submit(
        vl_convert.javascript_bundle, "window.vegaEmbed = vegaEmbed;"
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
    """A script as the page contains it: what a browser hashes has only line feeds."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
