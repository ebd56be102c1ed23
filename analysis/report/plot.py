"""The empty plot in which a page's script draws a prompt."""

from typing import Any

from logitbank.analysis.drawing.paper import FAINT, LEGIBLE


def prompt_plot() -> dict[str, Any]:
    """Curves and points without data, and axes without ticks; tags say which is which."""
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
    from bokeh.plotting import figure

    from logitbank.analysis.drawing.bokeh import embedded

    plot = figure(
        height=380,
        sizing_mode="stretch_width",
        tools="box_zoom,pan,wheel_zoom,reset,save",
        active_drag="box_zoom",
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 1),
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        tags=["panel"],
    )
    plot.toolbar.logo = None
    curves = ColumnDataSource({"xs": [], "ys": [], "colour": [], "dash": []}, tags=["curves"])
    columns = ("x", "y", "colour", "size", "name", "when", "told")
    points = ColumnDataSource({name: [] for name in columns}, tags=["points"])
    plot.multi_line("xs", "ys", source=curves, line_color="colour", line_dash="dash", line_width=2)
    dots = plot.scatter("x", "y", source=points, size="size", color="colour")
    tooltips = [("", "@name"), ("", "@when"), ("", "@told")]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tooltips))
    plot.xaxis.ticker = FixedTicker(ticks=[])
    plot.xaxis.tags = ["steps"]
    plot.yaxis.tags = ["values"]
    plot.xaxis.axis_label = "Training step"
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.axis_label_text_color = plot.axis.major_label_text_color = LEGIBLE
    plot.xgrid.grid_line_color = None
    plot.ygrid.grid_line_color = FAINT
    return embedded(plot)
