"""Common parts of all charts: a title, a caption, and how they are saved."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import TextIOBase
from pathlib import Path
from typing import Any, Self, TypeAlias
from xml.etree import ElementTree

import altair as alt
import polars as pl

from logitbank.analysis.charts.draw import draw
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import POINTS, WIDTHS, config
from logitbank.analysis.results.files import replace_file
from logitbank.errors import UsageError
from logitbank.wording import counted

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart
SHOWN, BOLD = "shown", "bold"
"""Columns of a crowded chart: the series that it names, and whether a row has a thick line."""
NAMED = "named"
"""The column of a crowded plot of dots: whether a row has a colour and an interval."""
PNG_PPI = 300
CSS_COLOR = re.compile(
    r"#([0-9a-f]{3}|[0-9a-f]{4}|[0-9a-f]{6}|[0-9a-f]{8})"
    r"|rgba?\((\s*[\d.]+%?\s*[,/]?){3,4}\)|hsla?\(\s*[\d.]+(\s*,?\s*[\d.]+%){2}(\s*[,/]\s*[\d.]+%?)?\s*\)",
    re.IGNORECASE,
)
OPTIONS: Mapping[str, dict[str, Any]] = {"pdf": {}, "svg": {}, "png": {"ppi": PNG_PPI}}
"""Options of drawing by format."""
COMPOSED = {"vconcat", "hconcat", "facet"}
"""Keys of specifications of several plots, whose `width` is that of a plot without its axes."""
TRIES, SLACK = 3, 0.5
"""Drawings from which the width of plots is found, at most, and points that it may be off."""
LEAST = 40
"""Points of the narrowest plot, beside names that leave no room: a negative width mirrors it."""
_LEFT = 60
"""Points that the axes of a chart of several plots take, roughly."""


class Layers(alt.LayerChart):
    """Layers whose copies are not laid out again, as Altair does at each level around them.

    The page of the demo's bank takes 12 s of CPU instead of 17.
    """

    def __deepcopy__(self, _: object) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(_args=(), _kwds={k: _copied(v) for k, v in self._kwds.items()})
        return copied


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value.copy() if isinstance(value, alt.SchemaBase) else value


class _Saved(alt.TopLevelMixin):
    """A chart whose files are those of `analyze --out`."""

    def save(  # type: ignore[override]
        self,
        fp: Any,
        format: Any = None,
        *,
        width: str = "single",
        colors: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Write a file, or into an open one: pdf, svg or png as `Study.save` draws it.

        Parameters
        ----------
        format
            By default the suffix of the path. Altair writes html and json, and has `options`.
        width, colors
            As in `Study.save`. A width in points that the chart has comes first.
        """
        kind = format or Path(getattr(fp, "name", fp)).suffix.removeprefix(".").lower()
        if kind not in OPTIONS:
            super().save(fp, format, **options)
            return
        if options:
            raise UsageError(
                f"{sorted(options)[0]!r} is no option of {kind}: use `width` and `colors`."
            )
        chart: Any = self
        (content,) = _drawn({"chart": chart}, (kind,), width=width, colors=colors).values()
        if isinstance(fp, str | Path):
            replace_file(Path(fp), content)
        else:
            fp.write(content.decode() if isinstance(fp, TextIOBase) else content)


class SavedChart(_Saved, alt.Chart):
    pass


class SavedLayers(_Saved, alt.LayerChart):
    pass


class SavedColumn(_Saved, alt.VConcatChart):
    pass


class SavedRow(_Saved, alt.HConcatChart):
    pass


class SavedFacets(_Saved, alt.FacetChart):
    pass


SAVED = (SavedChart, SavedLayers, SavedColumn, SavedRow, SavedFacets)


def titled(chart: Chart, title: str, caption: str, *, axis: StepAxis | None = None) -> Chart:
    """A finished chart. Its title and caption are in `usermeta`, which Vega-Lite forbids in parts.

    Parameters
    ----------
    caption
        What is drawn, n, and what bands and marks are.
    axis
        The axis of a chart over training, whose scale a page can switch.
    """
    crowds = [SHOWN in columns for columns in _columns(chart) if BOLD in columns]
    extremes = "the highest and the lowest at the end" + " of the first plot" * (sum(crowds) > 1)
    which = [extremes] * any(crowds) + ["medians"] * (not all(crowds))
    if crowds:
        caption = f"{caption} Thick lines: {'; '.join(which)}."
    if any(NAMED in columns for columns in _columns(chart)):
        caption = f"{caption} Named: the highest and the lowest on average. Grey: all others."
    caption = " ".join(caption.split())  # a sentence that a chart does not need leaves no gap
    meta = {"title": title, "caption": caption, **({} if axis is None else axis.meta())}
    # Altair's copies would copy and lay out every part once more. This one shares them.
    kinds = (each for each in SAVED if isinstance(chart, each.__bases__[-1]))
    kind: Any = next(kinds, type(chart))  # another kind of one's own family stays as it is
    done: Chart = object.__new__(kind)
    done.__dict__.update(chart.__dict__, _kwds={**chart._kwds, "usermeta": meta})
    return done


def _columns(chart: Any) -> Iterator[Collection[str]]:
    """The columns of the data of each part of a chart."""
    yield getattr(chart.data, "columns", ())
    for name in ("vconcat", "hconcat", "layer"):
        for part in getattr(chart, name, ()):
            yield from _columns(part)


def sample_size(counts: pl.Series, noun: str) -> str:
    """The sample size of a chart, for its caption.

    >>> sample_size(pl.Series([3, 5]), "prompt"), sample_size(pl.Series([5, 5]), "prompt")
    ('n = 3 to 5 prompts', 'n = 5 prompts')
    """
    least, *_, most = sorted([0, 0] if counts.is_empty() else [*counts, *counts])
    return f"n = {counted(most, noun)}" if least == most else f"n = {least:,} to {most:,} {noun}s"


def chart_title(chart: Chart) -> str:
    return str(chart["usermeta"]["title"])


def chart_caption(chart: Chart) -> str:
    return str(chart["usermeta"]["caption"])


def save_charts(
    charts: Mapping[str, Chart],
    folder: Path | str,
    *,
    width: str = "single",
    colors: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write charts as PDF, SVG and PNG, and their captions as text, and return the paths.

    Parameters
    ----------
    width
        `single`, 3.3 inches, or `double`, 7 inches.
    colors
        Colours by the name in the legend, such as `{"male": "#000000"}`.

    Raises
    ------
    UsageError
        Another width, an invalid colour, or a name that no chart has in its legend.
    DrawingError
        Virtual memory is limited.
    """
    contents = _drawn(charts, tuple(OPTIONS), width=width, colors=colors)
    contents |= {(name, "txt"): f"{chart_caption(charts[name])}\n".encode() for name in charts}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for (name, suffix), content in contents.items():
        replace_file(folder / f"{name}.{suffix}", content)
    return [folder / f"{name}.{suffix}" for name, suffix in contents]


def _drawn(
    charts: Mapping[str, Chart],
    suffixes: Sequence[str],
    *,
    width: str,
    colors: Mapping[str, str] | None,
) -> dict[tuple[str, str], bytes]:
    """The content of files of charts, by name and suffix."""
    for name, value in (colors or {}).items():
        if not is_color(value):
            raise UsageError(
                f"Colour {value!r} of {name!r} is invalid: use a CSS colour such as red or #d55e00."
            )
    if width not in WIDTHS:
        raise UsageError(f"Width {width!r} is invalid: use {' or '.join(WIDTHS)}.")
    specs = paper_specs(charts, WIDTHS[width])
    recolored = {name: recolor(spec, colors or {}) for name, spec in specs.items()}
    unused = set(colors or {}).difference(*recolored.values())
    if unused:
        known = sorted({name for spec in specs.values() for name in legend_names(spec)})
        raise UsageError(f"No chart has {sorted(unused)[0]!r} in its legend; there are {known}.")
    places = [(name, suffix) for name in specs for suffix in suffixes]
    drawn = draw(
        [(f"vegalite_to_{suffix}", [specs[name]], OPTIONS[suffix]) for name, suffix in places]
    )
    return dict(zip(places, drawn, strict=True))


def paper_specs(charts: Mapping[str, Chart], inches: float) -> dict[str, dict[str, Any]]:
    """The Vega-Lite specifications of charts on paper, whatever theme is enabled.

    Parameters have their first values: widgets are for pages.
    """
    points = inches * POINTS
    specs = {name: bare_spec(chart) for name, chart in charts.items()}
    composed = [spec for spec in specs.values() if COMPOSED & spec.keys()]
    for spec in specs.values():
        spec["config"] = {**config(), "background": "white"}
        spec |= {
            "width": spec.get("width", points),
            "autosize": {"type": "fit-x", "contains": "padding"},
        }
    plots = [(spec, points - _LEFT) for spec in composed]
    for spec, width in plots:
        del spec["width"], spec["autosize"]
        _set_width(spec, width)
    # Only a drawing shows how wide their axes are, whose labels depend on the width.
    for _ in range(TRIES):
        if not plots:
            break
        tries = draw([("vegalite_to_svg", [spec], {}) for spec, _ in plots])
        widths = [float(ElementTree.fromstring(svg).attrib["width"]) for svg in tries]
        plots = [
            (spec, width - (drawn - points))
            for (spec, width), drawn in zip(plots, widths, strict=True)
            if abs(drawn - points) > SLACK
        ]
        for spec, width in plots:
            _set_width(spec, width)
    return specs


def bare_spec(chart: Chart) -> dict[str, Any]:
    """The specification of a chart without any theme."""
    # Validation takes most of the time of a large chart; Altair has checked each part already.
    with alt.theme.enable("none"), alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = json.loads(chart.to_json(indent=None, validate=False))
    spec.pop("config", None)
    return spec


def _set_width(spec: dict[str, Any], points: float) -> None:
    """Set the width of all plots of a composed specification, which are above or beside others."""
    for part in spec.get("vconcat", ()):
        _set_width(part, points)
    columns = spec.get("hconcat", ())
    for part in columns:
        _set_width(part, points / len(columns) - _LEFT / 2)
    if "facet" in spec:
        _set_width(spec["spec"], points / max(1, spec.get("columns", 1)) - 10)
    if not COMPOSED & spec.keys():
        spec["width"] = max(LEAST, points)


def recolor(spec: Any, colors: Mapping[str, str]) -> set[str]:
    """Set colours by name in all colour scales of a specification; the names that were found."""
    found: set[str] = set()
    for scale in _color_scales(spec):
        for index, name in enumerate(scale["domain"]):
            if name in colors:
                scale["range"][index] = colors[name]
                found.add(name)
    return found


def is_color(text: str) -> bool:
    """Whether a text is a CSS colour: a name, hexadecimal digits, or rgb() or hsl() of numbers.

    >>> is_color("Gray"), is_color("#d55e00"), is_color("rgb(0, 114, 178)"), is_color("rot")
    (True, True, True, False)
    """
    definitions: dict[str, Any] = alt.ColorName.resolve_references()
    return text.lower() in definitions["enum"] or bool(CSS_COLOR.fullmatch(text))


def legend_names(spec: Any) -> set[str]:
    """The names in all legends of colours."""
    return {name for scale in _color_scales(spec) for name in scale["domain"]}


def _color_scales(part: Any) -> Sequence[dict[str, Any]]:
    if isinstance(part, list):
        return [scale for each in part for scale in _color_scales(each)]
    if not isinstance(part, dict):
        return []
    scales = [
        encoding["color"]["scale"]
        for encoding in [part.get("encoding")]
        if isinstance(encoding, dict)
        and isinstance(encoding.get("color"), dict)
        and {"domain", "range"} <= encoding["color"].get("scale", {}).keys()
    ]
    return scales + [
        scale for name, each in part.items() if name != "data" for scale in _color_scales(each)
    ]
