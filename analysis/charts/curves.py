"""Plots of measures: curves over training, rows of dots with intervals, rows of tests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import BOLD, NAMED, SHOWN, Chart, Layers
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis, step_names
from logitbank.analysis.charts.theme import MUTED, PALETTE, color_map
from logitbank.analysis.results.series import CROWD
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.store.steps import in_order
from logitbank.wording import step_name

SERIES = "series"
"""The column that names a model and run, as `with_series` adds it."""
LINE, THIN = 1.5, 0.6
"""Width of lines, and of the others in a crowd."""
WIDTH = "width"
"""The column with the width of a curve, if some are equal."""
BAND = 0.18
"""Opacity of bands."""
MANY = 25
"""Checkpoints of a series beyond which its line has no points."""
HEIGHT, PANEL = 160, 95
"""Points of a plot, and of one of three or more that are stacked."""
BELOW = 6
"""The most models and runs that have a dot below each other in a row."""
DASHES = 4
"""The most series that differ in dashes, where colours stand for groups."""
PATTERNS = ([1, 0], [4, 2], [1, 2])
"""Dashes of the curves of one colour."""
LEGEND = 40
"""Characters beside each other in the legend of a narrow chart; a symbol takes five."""


def with_series(table: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """A table with the column `series`: the model, and run and `keys` if they differ.

    A table with this column is returned unchanged.

    >>> with_series(pl.DataFrame({"model": "toy", "run": ["seed1", "seed2"]}))["series"].to_list()
    ['toy seed1', 'toy seed2']
    """
    if SERIES in table.columns:
        return table
    differing = [key for key in ("run", *keys) if table[key].n_unique() > 1]
    parts = [pl.col(name).cast(pl.String) for name in ("model", *differing)]
    return table.with_columns(pl.concat_str(parts, separator=" ").alias(SERIES))


def color(
    field: str,
    names: Sequence[str],
    colors: Mapping[str, str] | None = None,
    *,
    legend: bool = True,
) -> alt.Color:
    """The colour channel of a column, with a legend if there are several names.

    A click on the legend selects a name, if the chart has `legend_selection(field)`.
    """
    known = color_map(names) | dict(colors or {})
    scale = alt.Scale(domain=list(names), range=[known[name] for name in names])
    shown = _legend(names) if legend and len(names) > 1 else None
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=shown)


def _legend(names: Sequence[str], **look: Any) -> alt.Legend:
    """A legend in as many columns as fit into a narrow chart."""
    columns = max(1, LEGEND // (max(len(name) for name in names) + 5))
    return alt.Legend(title=None, columns=min(columns, len(names)), **look)


def legend_selection(field: str) -> alt.Parameter:
    """A selection of one name by a click on the legend."""
    return alt.selection_point(name="shown", fields=[field], bind="legend")


def _with_extremes(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """A table with `SHOWN`, the highest and the lowest series by their last values, and all others
    together; `BOLD` is whether a row is of one of the two."""
    last = table.drop_nulls(column).group_by(SERIES, maintain_order=True).last()
    named = [last.sort(column, maintain_order=True)[SERIES][at] for at in (-1, 0)][: len(last)]
    others = f"{table[SERIES].n_unique() - len({*named})} others"
    is_named = pl.col(SERIES).is_in(named)
    return table.with_columns(
        pl.when(is_named).then(SERIES).otherwise(pl.lit(others)).alias(SHOWN),
        is_named.alias(BOLD),
    ).sort(BOLD, descending=True, maintain_order=True)


def _with_median(table: pl.DataFrame, column: str, group: str) -> pl.DataFrame:
    """A table with a further series, the median of all series in each group at each step."""
    number = table[SERIES].n_unique()
    median = table.group_by(group, "at", "step", "checkpoint", maintain_order=True).agg(
        pl.col(column).median()
    )
    median = median.with_columns(
        pl.lit(f"median of {number}").alias(SERIES), pl.lit(True).alias(BOLD)
    )
    return pl.concat([table.with_columns(pl.lit(False).alias(BOLD)), median], how="diagonal")


def with_gaps(table: pl.DataFrame, column: str, *keys: str) -> pl.DataFrame:
    """The rows with a value, and those without one between them, where a line has a gap.

    Rows of a model, run and `keys` are in the order of steps.

    >>> nan = float("nan")
    >>> table = pl.DataFrame({"model": "m", "run": "main", "x": [nan, 1.0, nan, 2.0, nan]})
    >>> with_gaps(table, "x")["x"].to_list()
    [1.0, nan, 2.0]
    """
    known = pl.col(column).is_not_nan().fill_null(False).cast(pl.Int64)
    between = (known.cum_sum() > 0) & (known.cum_sum(reverse=True) > 0)
    return table.filter(between.over("model", "run", *keys))


def curves(
    table: pl.DataFrame,
    axis: StepAxis,
    measure: Measure,
    *,
    group: str | None = None,
    colors: Mapping[str, str] | None = None,
    tooltip: Mapping[str, str] | None = None,
) -> alt.LayerChart:
    """Lines over training, each with its band; a release is a diamond beside them.

    Parameters
    ----------
    table
        Columns model, run, step, those of `measure` and `tooltip`, and `group`.
    group
        Column that colours stand for; several models or runs then differ in their dashes. Without
        it, colours stand for models and runs; of `CROWD` or more, for the two extreme ones.
    tooltip
        Further columns of the tooltip, by their titles.
    """
    table = axis.of(with_series(table))
    table = table.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))
    y, band = measure.column, measure.band
    field = group or SERIES
    crowded = table[SERIES].n_unique() >= CROWD
    if crowded and group is None:
        field, table = SHOWN, _with_extremes(table, y)
        colors = {name: MUTED for name in table[SHOWN].unique() if name not in {*table[SERIES]}}
    elif crowded and group is not None:
        table = _with_median(table, y, group)
    names = table[field].unique(maintain_order=True).to_list()
    several = table[SERIES].n_unique()
    selection = legend_selection(field)
    chosen = alt.when(selection)
    detail = [alt.Detail(f"{SERIES}:N")] if several > 1 and field != SERIES else []
    dash = {}
    if 1 < several <= DASHES and group:
        series = table[SERIES].unique(maintain_order=True).to_list()
        legend = _legend(series, orient="bottom")
        scale = alt.Scale(domain=sorted(series))  # those without a line are in the legend, too
        dash = {"strokeDash": alt.StrokeDash(f"{SERIES}:N", title=None, legend=legend, scale=scale)}
    elif len(names) > len(PALETTE):
        # Colours come again, so curves of one colour differ in dashes.
        patterns = [PATTERNS[at // len(PALETTE) % len(PATTERNS)] for at in range(len(names))]
        scale = alt.Scale(domain=names, range=patterns)
        dash = {"strokeDash": alt.StrokeDash(f"{field}:N", title=None, scale=scale)}
    elif not crowded and (alike := _equal_curves(table, [field], y)):
        # A dashed curve over an equal one leaves both visible.
        dashed = {name for equal in alike for (name,) in equal[1:]}
        patterns = [PATTERNS[1] if name in dashed else PATTERNS[0] for name in names]
        scale = alt.Scale(domain=names, range=patterns)
        dash = {"strokeDash": alt.StrokeDash(f"{field}:N", title=None, scale=scale)}
    wide = list[float]()
    if (
        several > 1
        and group
        and not crowded
        and (alike := _equal_curves(table, [group, SERIES], y))
    ):
        # Dashes stand for models: equal curves are visible by their widths, the last one on top.
        widths = {(*curve, LINE * (1 + later)) for equal in alike
                  for later, curve in enumerate(reversed(equal))}  # fmt: skip
        columns = pl.DataFrame([*widths], schema=[group, SERIES, WIDTH], orient="row")
        table = table.join(columns, on=[group, SERIES], how="left", maintain_order="left")
        table = table.with_columns(pl.col(WIDTH).fill_null(LINE))
        wide = table[WIDTH].unique().sort(descending=True).to_list()
    titles = {"checkpoint": "Checkpoint", **({SERIES: "Model"} if several > 1 or not group else {})}
    titles |= {group: "Group"} if group else {}
    titles |= {y: measure.title.splitlines()[-1]} | {
        end: f"Band, {name}" for end, name in zip(band or (), ("low", "high"), strict=False)
    }
    titles |= {name: text for text, name in (tooltip or {}).items()}
    tips = [column_tooltip(table, name, text) for name, text in titles.items()]
    about = measure.about(table)
    y_axis = alt.Y(f"{y}:Q", **about)
    used = dict.fromkeys([y, *(band or ()), field, SERIES, "at", "step", *titles])
    if crowded:
        used[BOLD] = None
    if wide:
        used[WIDTH] = None
    base = alt.Chart(table.select(list(used)))
    base = base.encode(
        x=axis.x(), color=color(field, names, colors), detail=detail or alt.Undefined
    )
    trained = base.transform_filter("isValid(datum.step)")
    layers: list[alt.Chart] = []
    if crowded:
        thin = trained.transform_filter(f"!datum.{BOLD}").mark_line(strokeWidth=THIN)
        faint = chosen.then(alt.value(0.5)).otherwise(alt.value(0.1))
        layers.append(thin.encode(y=y_axis, opacity=faint, tooltip=tips))
        base = base.transform_filter(f"datum.{BOLD}")
        trained = base.transform_filter("isValid(datum.step)")
    if band:
        low, high = band
        if _has_course(table):
            interval, shades = trained.mark_area(stroke=None), (BAND, 0.03)
        else:  # an area at one checkpoint would not be seen
            interval, shades = trained.mark_rule(), (1, 0.1)
        layers.append(
            interval.encode(
                y=alt.Y(f"{low}:Q", **about), y2=f"{high}:Q",
                opacity=chosen.then(alt.value(shades[0])).otherwise(alt.value(shades[1])),
            )
        )  # fmt: skip
    opacity = chosen.then(alt.value(1)).otherwise(alt.value(0.1))
    for width in wide or [LINE]:
        own = trained.transform_filter(f"datum.{WIDTH} == {width}") if wide else trained
        lines = own.mark_line(strokeWidth=width) if wide else own.mark_line()
        layers.append(lines.encode(y=y_axis, opacity=opacity, **dash))
    longest = max(table[SERIES].value_counts()["count"].to_list(), default=0)
    size = 16 if longest <= MANY * len(names) else 3
    layers.append(
        trained.mark_point(filled=True, size=size).encode(y=y_axis, opacity=opacity, tooltip=tips)
    )
    if axis.release:
        released = base.transform_filter("!isValid(datum.step)")
        if band:
            low, high = band
            layers.append(
                released.mark_rule().encode(y=f"{low}:Q", y2=f"{high}:Q", opacity=opacity)
            )
        layers.append(
            released.mark_point(shape="diamond", filled=True, size=50).encode(
                y=y_axis, opacity=opacity, tooltip=tips
            )
        )
    layers[-1] = layers[-1].add_params(selection)
    return Layers(layer=layers, height=HEIGHT)


def _equal_curves(
    table: pl.DataFrame, keys: Sequence[str], column: str
) -> list[list[tuple[Any, ...]]]:
    """The `keys` of curves that are equal, up to a thousandth of the range of all: two or more."""
    known = table.drop_nulls(column)
    values = known[column].to_list()
    span = max(values, default=0.0) - min(values, default=0.0) or 1.0
    place = ["at", *([] if SERIES in keys else [SERIES])]
    found: list[tuple[dict[tuple[Any, ...], Any], list[tuple[Any, ...]]]] = []
    for key, rows in known.group_by(keys, maintain_order=True):
        own = {row[:-1]: row[-1] for row in rows.select(*place, column).rows()}
        equal = (
            curves
            for other, curves in found
            if own.keys() == other.keys()
            and all(abs(own[at] - other[at]) <= span / 1000 for at in own)
        )
        if (curves := next(equal, None)) is None:
            found.append((own, [key]))
        else:
            curves.append(key)
    return [curves for _, curves in found if len(curves) > 1]


def dots(
    base: alt.Chart,
    table: pl.DataFrame,
    measure: Measure,
    category: str,
    *,
    group: str = SERIES,
    tooltip: Mapping[str, str],
    reference: float | None = 0,
) -> alt.LayerChart:
    """A row for each category: a point with its interval for each group.

    Parameters
    ----------
    base
        A chart of the rows of `table`, or of some of them.
    category
        Column of the rows, in the order of the table.
    group
        Column that colours stand for; models and runs are below each other in a row. Of more than
        `BELOW`, all share a line: grey dots, and the highest and the lowest on average.
    tooltip
        Columns of the tooltip, by their titles.
    reference
        Value of a dashed line; None for none.
    """
    names = table[group].unique(maintain_order=True).to_list()
    rows = table[category].unique(maintain_order=True).to_list()
    crowded = group == SERIES and len(names) > BELOW
    below = group == SERIES and len(names) > 1 and not crowded
    about = measure.about(table, padding=6)
    y = alt.Y(f"{category}:N", title=None, sort=rows, axis=alt.Axis(labelLimit=140))
    tips = [column_tooltip(table, name, title) for title, name in tooltip.items()]
    grey = []
    if crowded:
        base, names = _with_named(base, table, measure.column)
        colors = dict.fromkeys(names[2:], MUTED)
        points = base.encode(y=y, color=color(SHOWN, names, colors))
        others = points.transform_filter(f"!datum.{NAMED}").mark_point(
            filled=True, size=14, opacity=0.5
        )
        grey = [others.encode(x=alt.X(f"{measure.column}:Q", **about), tooltip=tips)]
        points = points.transform_filter(f"datum.{NAMED}")
    else:
        apart = alt.YOffset(f"{SERIES}:N", sort=names) if below else alt.Undefined
        colors_of = color(group, names)
        if not measure.band and isinstance(colors_of["legend"], alt.Legend):
            # Without a rule, a line has no colour.
            colors_of["legend"]["symbolType"], colors_of["legend"]["symbolSize"] = "circle", 24
        points = base.encode(y=y, color=colors_of, yOffset=apart)
    layers = list[alt.Chart]()
    if reference is not None:
        line = alt.Chart(pl.DataFrame({"reference": [float(reference)]}))
        dashed = line.mark_rule(strokeDash=[4, 3], color=MUTED)
        layers.append(dashed.encode(x=alt.X("reference:Q", **about)))
    layers += grey
    if measure.band:
        low, high = measure.band
        layers.append(points.mark_rule().encode(x=alt.X(f"{low}:Q", **about), x2=f"{high}:Q"))
    layers.append(
        points.mark_point(filled=True, size=24, opacity=1).encode(
            x=alt.X(f"{measure.column}:Q", **about), tooltip=tips
        )
    )
    return Layers(layer=layers, height=len(rows) * max(14, 8 * len(names) * below))


def _with_named(base: alt.Chart, table: pl.DataFrame, column: str) -> tuple[alt.Chart, list[str]]:
    """A plot with `SHOWN` and `NAMED`; the highest and the lowest series, and the others as one."""
    mean = pl.col(column).fill_nan(None).mean()
    means = table.group_by(SERIES, maintain_order=True).agg(mean).drop_nulls()
    order = means.sort(column, maintain_order=True)[SERIES].to_list()
    ends = [order[-1], order[0]]
    others = f"{table[SERIES].n_unique() - len(ends)} others"
    named = pl.col(SERIES).is_in(ends)
    base = base.copy()
    base.data = base.data.with_columns(
        pl.when(named).then(SERIES).otherwise(pl.lit(others)).alias(SHOWN), named.alias(NAMED)
    )
    return base, [*ends, others]


def at_checkpoint(table: pl.DataFrame, draw: Callable[[alt.Chart], Chart]) -> Chart:
    """A plot of the rows of one checkpoint, which the parameter `checkpoint` chooses by its index.

    Without a widget it is the last one that most models and runs have; see `drawn_checkpoint`.

    Parameters
    ----------
    table
        Columns model, run, step and those that are drawn.
    draw
        The plot of these rows, which have the columns `series`, `checkpoint` and
        `checkpoint_index` too.
    """
    table = with_series(table)
    steps = in_order(table["step"].to_list())
    index = {step: at for at, step in enumerate(steps)}
    indexed = table.with_columns(
        pl.col(pl.Float64, pl.Float32).fill_nan(None),
        checkpoint_index=pl.Series([index[step] for step in table["step"]]),
        checkpoint=step_names(table["step"]),
    )
    shown = index[drawn_checkpoint(table)]
    base = alt.Chart(indexed.drop("step")).transform_filter("datum.checkpoint_index == checkpoint")
    return draw(base).add_params(alt.param(name="checkpoint", value=shown))


def drawn_checkpoint(table: pl.DataFrame) -> int | None:
    """The step that a chart of one checkpoint shows: the last one that most series have."""
    counts = table.group_by("step").agg(n=pl.struct("model", "run").n_unique())
    step: int | None = counts.sort("n", pl.col("step").fill_null(2**62))["step"][-1]
    return step


def horizontal(value: float, *, dash: Sequence[int] = (4, 3)) -> alt.Chart:
    """A reference line at a height."""
    data = pl.DataFrame({"level": [value]})
    rule = alt.Chart(data).mark_rule(strokeDash=list(dash), color=MUTED)
    line: alt.Chart = rule.encode(y="level:Q")
    return line


def vertical(step: int, axis: StepAxis) -> alt.Chart:
    """A dashed line at a training step."""
    rule = alt.Chart(pl.DataFrame({"step": [step]}))
    line: alt.Chart = rule.mark_rule(strokeDash=[4, 3], color=MUTED).encode(x=axis.x(field="step"))
    return line


def change_points(changes: pl.DataFrame, axis: StepAxis) -> list[Chart]:
    """A dashed line at each change point and a band over its 95% range, to be layered with curves.

    `changes` has `CHANGE_COLUMNS`, model and run; tooltips name these. A crowd has none.
    """
    rows = _drawn_changes(changes)
    if rows.is_empty():
        return []
    names = with_series(rows.with_columns(pl.col("run").replace("main", "")))[SERIES]
    names = names.str.strip_chars_end()
    text = [f"{name}: {step_name(step)}" for name, step in zip(names, rows["step"], strict=True)]
    rows = rows.select("step", "earliest", "latest", text=pl.Series(text))
    base = alt.Chart(rows)
    band = base.mark_rect(color=MUTED, opacity=0.15).encode(
        x=axis.x(field="earliest"), x2="latest:Q"
    )
    line = base.mark_rule(strokeDash=[4, 3], strokeWidth=1.2, color=MUTED).encode(
        x=axis.x(field="step"), tooltip=[alt.Tooltip("text:N", title="Change point")]
    )
    return [alt.layer(band, line)]


def change_caption(changes: pl.DataFrame) -> str:
    """What the lines of `change_points` are; no text without any."""
    return "" if _drawn_changes(changes).is_empty() else "change points with their 95% range"


def _drawn_changes(changes: pl.DataFrame) -> pl.DataFrame:
    rows = changes.filter(kind="change point")
    crowded = changes.select("model", "run").n_unique() >= CROWD
    return rows.clear() if crowded else rows


def interval_caption(
    table: pl.DataFrame,
    what: str = "95% confidence intervals",
    *,
    band: tuple[str, str] = ("low", "high"),
    of_dots: bool = False,
) -> str:
    """The sentence about the intervals that `curves` or `dots` draw of a table; none without any.

    >>> one = pl.DataFrame({"model": "m", "run": "main", "step": [1], "low": 0.1, "high": 0.3})
    >>> both = pl.concat([one, one.with_columns(step=pl.lit(2, pl.Int64))])
    >>> interval_caption(both), interval_caption(one)
    ('Bands: 95% confidence intervals.', 'Bars: 95% confidence intervals.')
    >>> interval_caption(both.with_columns(high=float("nan")))
    ''
    """
    known = table.filter(pl.all_horizontal(pl.col(band).is_finite().fill_null(False)))
    shape = "Bands" if _has_course(table) and not of_dots else "Bars"
    return "" if known.is_empty() else f"{shape}: {what}."


def _has_course(table: pl.DataFrame) -> bool:
    """Whether a model and run has several training steps."""
    steps = table.drop_nulls("step").group_by("model", "run").agg(pl.col("step").n_unique())
    return bool((steps["step"] > 1).any())


def significance_rows(table: pl.DataFrame, axis: StepAxis, tests: Mapping[str, str]) -> alt.Chart:
    """Rows of marks beneath a plot, one per test: filled where p is below `SIGNIFICANCE`.

    `tests` are titles by column of p values. Several models or runs are below each other in a row.
    """
    table = axis.of(with_series(table))
    long = (
        table.unpivot(
            list(tests),
            index=["at", "checkpoint", SERIES],
            variable_name="column",
            value_name="p_value",
        )
        .drop_nulls("p_value")
        .with_columns(
            test=pl.col("column").replace_strict(dict(tests), return_dtype=pl.String),
            significant=pl.col("p_value") < SIGNIFICANCE,
        )
    )
    series = long[SERIES].n_unique()
    apart = {"yOffset": alt.YOffset(f"{SERIES}:N")} if series > 1 else {}
    filled = (
        alt.when("datum.significant").then(alt.value(MUTED)).otherwise(alt.value("transparent"))
    )
    height = (14 if series == 1 else 7 * series) * len(tests)
    marks: alt.Chart = (
        alt.Chart(long, height=height)
        .mark_point(size=18 if series == 1 else 10, stroke=MUTED, strokeWidth=0.8, opacity=1)
        .encode(
            x=axis.x(),
            y=alt.Y("test:N", title=None, sort=list(tests.values())),
            fill=filled,
            tooltip=[
                alt.Tooltip("checkpoint:N", title="Checkpoint"),
                alt.Tooltip(f"{SERIES}:N", title="Model"),
                alt.Tooltip("test:N", title="Test"),
                alt.Tooltip("p_value:Q", title="p", format=".2g"),
            ],
            **apart,
        )
    )
    return marks


def stacked(*plots: Chart) -> alt.VConcatChart:
    """Plots above each other over the same steps: only the last names them; one legend a field."""
    return grid([[plot] for plot in plots])


def grid(rows: Sequence[Sequence[Chart]]) -> alt.VConcatChart:
    """Rows of plots over the same steps: the last row names them; one legend a field.

    The first plot of a row names the values of that row. All plots of a crowd name the series that
    the first one names. A plot that has other colours than the legend above it has its own.
    """
    seen: set[tuple[str, str, str]] = set()
    crowd: tuple[pl.DataFrame, alt.Color] | None = None
    lines: list[Chart] = []
    low = sum(row[0].height == HEIGHT for row in rows) > 2
    scales: dict[str, Any] = {"x": "shared", "color": "independent"}
    if any(_dashed_by_color(layer) for row in rows for plot in row for layer in _layers(plot)):
        scales["strokeDash"] = "independent"  # so that one legend has both
    resolve = alt.Resolve(scale=alt.ScaleResolveMap(**scales))  # a method would copy every plot
    for row in rows:
        parts: list[Chart] = []
        for plot in row:
            part = plot.copy()
            layers = [*_layers(part)]
            for each in _of_crowd(part):
                own = [layer.encoding for layer in _layers(each)]
                crowd = crowd or (each.data, own[0].color.copy())
                each.data = _named_as(each.data, crowd[0])
                for encoding in own:
                    encoding.color = crowd[1].copy()
            named = {entry for layer in layers for entry in _named_colors(layer)}
            if low and part.height == HEIGHT:
                part.height = PANEL
            for layer in layers:
                _remove_labels(layer, x=row is not rows[-1], y=plot is not row[0])
                if len(row) > 1 and isinstance(layer.encoding.color, alt.Color):
                    shown = layer.encoding.color["legend"]
                    if isinstance(shown, alt.Legend):
                        shown["columns"] = 1  # a wide one would move the plots beside it
            if named and {name[0] for name in named} <= {name[0] for name in seen}:
                part.params = alt.Undefined  # the selection by the first legend works in all plots
            if named and named <= seen:
                for layer in layers:
                    _remove_legends(layer)
            seen |= named
            parts.append(part)
        several = len(parts) > 1
        lines.append(alt.hconcat(*parts, spacing=6, resolve=resolve) if several else parts[0])
    chart: alt.VConcatChart = alt.vconcat(*lines, spacing=4, resolve=resolve)
    return chart


def _layers(plot: Any) -> Iterator[Any]:
    """The single layers of a plot that have encodings."""
    if isinstance(plot, alt.LayerChart):
        for layer in plot.layer:
            yield from _layers(layer)
    elif plot.encoding is not alt.Undefined:
        yield plot


def _named_colors(layer: Any) -> Iterator[tuple[str, str, str]]:
    """The field, names and colours that a legend of a layer has."""
    if isinstance(color := layer.encoding.color, alt.Color):
        for name, shade in zip(color["scale"]["domain"], color["scale"]["range"], strict=True):
            yield color.shorthand, name, shade


def _dashed_by_color(layer: Any) -> bool:
    dash, color = layer.encoding.strokeDash, layer.encoding.color
    return isinstance(dash, alt.StrokeDash) and dash.shorthand == getattr(color, "shorthand", None)


def _of_crowd(plot: Any) -> Iterator[Any]:
    """The parts of a plot whose data are those of `_with_extremes`."""
    if {SHOWN, BOLD} <= {*getattr(plot.data, "columns", ())}:
        yield plot
    elif isinstance(plot, alt.LayerChart):
        for layer in plot.layer:
            yield from _of_crowd(layer)


def _named_as(table: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """A table in which the series have the names and the thick lines that they have in `first`."""
    named = first.filter(pl.col(BOLD))[SERIES].unique()
    others = first.filter(~pl.col(BOLD))[SHOWN][0]
    is_named = pl.col(SERIES).is_in(named.implode())
    shown = pl.when(is_named).then(SERIES).otherwise(pl.lit(others))
    table = table.with_columns(shown.alias(SHOWN), is_named.alias(BOLD))
    return table.sort(BOLD, descending=True, maintain_order=True)


def _remove_labels(layer: Any, **which: bool) -> None:
    for name, remove in which.items():
        channel = layer.encoding[name]
        if remove and isinstance(channel, alt.X | alt.Y):
            channel["title"] = None
            if isinstance(axis := channel["axis"], alt.Axis):
                axis["labels"] = axis["ticks"] = False


def _remove_legends(layer: Any) -> None:
    for channel in (layer.encoding.color, layer.encoding.strokeDash):
        if isinstance(channel, alt.Color | alt.StrokeDash):
            channel["legend"] = None


def column_tooltip(table: pl.DataFrame, name: str, title: str) -> alt.Tooltip:
    """The tooltip of a column; numbers that are no counts have four digits."""
    if table[name].dtype.is_float():
        return alt.Tooltip(f"{name}:Q", title=title, format=".4~g")
    return alt.Tooltip(f"{name}:N", title=title)
