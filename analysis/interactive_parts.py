"""What every interactive figure is made of: its sheet of traces, its text, its colours."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from logitbank.analysis.figure_axes import MUTED, short
from logitbank.analysis.stereoset_plane import PALETTE, shortened
from logitbank.store.schema import folder_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Kind = Literal["training", "checkpoint", "fixed"]
Role = Literal["line", "band", "mark", "point", "bar", "cell"]
Trace = dict[str, Any]
Step = int | None

DASHES = ("solid", "dash", "dot", "dashdot")
GRID = "rgba(138, 143, 152, 0.28)"
"""Seen on white and on near-black paper."""
CLEAR = "rgba(0, 0, 0, 0)"
AXIS = {
    "gridcolor": GRID,
    "zeroline": False,
    "linecolor": "rgba(138, 143, 152, 0.6)",
    "automargin": True,
}
VISIBLE_SERIES = 3
"""Curves of more models or runs than these are not shown at once."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def plain(text: object) -> str:
    """Text that Plotly shows as it is, wherever it takes text.

    Plotly reads a subset of HTML, `%{…}` as a variable and `$…$` as a formula, in names, titles,
    ticks and templates, and in the values that a template is filled with.

    >>> plain("<b>$a$ %{x}")
    '&lt;b&gt;&#36;a&#36; &#37;{x}'
    """
    return str(text).translate(_MARKUP).replace("%{", "&#37;{")


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """To 6 significant digits; None for what has no place in a figure.

    >>> rounded([1 / 3, 143_000.0, float("nan"), None])
    [0.333333, 143000.0, None, None]
    """
    return [
        float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
        for value in values
    ]


def told(value: float | None, digits: int = 4) -> str:
    """A number for people to read, to significant digits.

    >>> told(0.123456), told(12345.6), told(float("nan"))
    ('0.1235', '12,350', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    near = float(f"{value:.{digits}g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e15 else f"{near:.{digits}g}"


def interval(low: float | None, high: float | None) -> str:
    """Both ends, or a dash where there is none."""
    return "–" if told(low) == "–" or told(high) == "–" else f"{told(low)} to {told(high)}"


def when(step: Step) -> str:
    """The name of a checkpoint."""
    return "release" if step is None else f"step {step:,}"


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Each once, the release last."""
    return sorted(set(steps), key=lambda step: (step is None, step or 0))


class Names:
    """Calls series by their model, and by whatever else differs within the result."""

    def __init__(self, tables: Iterable[pl.DataFrame]) -> None:
        self._seen: dict[str, set[object]] = {}
        for table in tables:
            for key in table.columns:
                if key in _SAID:
                    self._seen.setdefault(key, set()).update(table[key].unique().to_list())

    def parts(self, table: pl.DataFrame, keys: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
        """The series of a table, which the columns `keys` tell apart, and their names."""
        parts = table.partition_by(list(keys), maintain_order=True)
        return [(self._of(part.row(0, named=True), keys), part) for part in parts]

    def _of(self, head: Mapping[str, Any], keys: Sequence[str]) -> str:
        told = [key for key in keys if key == "model" or len(self._seen[key]) > 1]
        return " ".join(text for key in told if (text := _SAID[key](head[key])))


_SAID: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("model", "run", "language", "condition", "score", "category"), str),
    "verb": "“{}”".format,
    "plateau": lambda step: f"from {short(step)}",
    "task": lambda task: str(task).replace("_", " "),
    "score_kind": str,
}


@dataclass
class Sheet:
    """A figure on its way: traces that say what they belong to, and a layout.

    Traces are dicts in Plotly's terms; `figure` alone needs Plotly.
    """

    title: str
    caption: str
    kind: Kind
    steps: Sequence[Step] = ()
    series: Sequence[str] = ()
    one_series: bool = False
    height: int = 420
    layout: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    """More of `layout.meta`."""
    traces: list[Trace] = field(default_factory=list)

    def add(
        self, trace: Trace, *, series: str, role: Role, group: str = "", **about: object
    ) -> None:
        """Add a trace; `about` may tell its step."""
        meta = {"series": series, "group": group, "role": role, **about}
        self.traces.append({**trace, "meta": meta})

    def at(self, step: Step) -> dict[str, Any]:
        """What a trace tells of its checkpoint, where a slider moves through several."""
        return {"step": step} if self.kind == "checkpoint" else {}

    def name(self, series: str, group: str = "") -> str:
        """What the legend calls it, ready for Plotly."""
        several = len(self.series) > 1
        parts = [group, series] if several else [group or series]
        return plain(", ".join(shortened(part) for part in parts if part))

    def head(self, series: str, group: str = "") -> str:
        """The first line of what is told on hovering."""
        return "<b>" + plain(" · ".join(part for part in (group, series) if part)) + "</b>"

    def dash(self, series: str) -> str:
        return DASHES[self.series.index(series) % len(DASHES)]

    def colour(self, series: str) -> str:
        """For figures in which colours tell nothing else apart."""
        return PALETTE[self.series.index(series) % len(PALETTE)]

    @property
    def headline(self) -> str:
        """The title, and of what, where that is one thing."""
        return " · ".join([self.title, *(self.series if len(self.series) == 1 else ())])

    def figure(self) -> "Figure":
        """The figure, in which what should be seen first is visible."""
        from plotly.graph_objects import Figure

        data = [self._shown(trace) for trace in self.traces]
        names = [t["name"] for t in data if t.get("visible", True) and t.get("showlegend", True)]
        title = {
            "text": plain(self.headline if len(self.headline) <= 90 else self.headline[:89] + "…"),
            "x": 0.01,
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12, "l": 4},
            "font": {"size": 15},
        }
        legend = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "bgcolor": CLEAR}
        named = len(names) > 1 or self.layout.get("showlegend", False)
        rows = legend_rows(names) if named else 0
        top = 44 + 20 * rows
        layout = {
            "title": title,
            "template": {},
            "height": self.height + top,
            "margin": {"l": 56, "r": 28, "t": top, "b": 48},
            "paper_bgcolor": CLEAR,
            "plot_bgcolor": CLEAR,
            "modebar": {"bgcolor": CLEAR},
            "hovermode": "closest",
            "hoverlabel": {"align": "left", "namelength": -1},
            "legend": legend,
            "showlegend": named,
            **self.layout,
            "meta": {
                "title": self.headline,
                "caption": self.caption,
                "kind": self.kind,
                "one_series": self.one_series,
                "steps": list(self.steps),
                "height": self.height + top,
                **self.about,
            },
        }
        return Figure({"data": data, "layout": layout})

    def _shown(self, trace: Trace) -> Trace:
        meta = trace["meta"]
        most = 1 if self.one_series else VISIBLE_SERIES if self.kind == "training" else math.inf
        crowded = len(self.series) > most and meta["series"] != self.series[0]
        other = "step" in meta and meta["step"] != self.steps[-1]
        return {**trace, "visible": False} if crowded or other else trace


def legend_rows(names: Sequence[str]) -> int:
    """Rows of a legend above a figure that is some 700 pixels wide."""
    wide = 52 + 7 * max(map(len, names), default=0)
    return -(-len(names) // max(1, 640 // wide))


def each(kind: str, table: pl.DataFrame, key: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """What is asked has a figure of its own, such as `domains-both`, where there are several."""
    parts = table.partition_by(key, maintain_order=True)
    for part in parts:
        yield kind if len(parts) == 1 else f"{kind}-{folder_name(str(part[key][0]))}", part


def dashed_line(value: float, axis: str = "y") -> dict[str, Any]:
    """A dashed line across, for reference."""
    across = {"xref": "paper", "x0": 0, "x1": 1, "yref": axis, "y0": value, "y1": value}
    along = {"yref": "paper", "y0": 0, "y1": 1, "xref": axis, "x0": value, "x1": value}
    line = {"color": MUTED, "width": 1, "dash": "dash"}
    return {
        "type": "line",
        "layer": "below",
        "line": line,
        **(across if axis.startswith("y") else along),
    }


def reach(rows: pl.DataFrame, value: str, low: str, high: str) -> dict[str, Any]:
    """Error bars from the value to both ends; none where an end is lacking."""
    above = rounded((rows[high] - rows[value]).to_list())
    below = rounded((rows[value] - rows[low]).to_list())
    known = [a is not None and b is not None for a, b in zip(above, below, strict=True)]
    if not any(known):
        return {}
    return {
        "type": "data",
        "symmetric": False,
        "array": [a if there else 0 for a, there in zip(above, known, strict=True)],
        "arrayminus": [b if there else 0 for b, there in zip(below, known, strict=True)],
        "thickness": 1.3,
        "width": 0,
    }
