"""Style and parts of a figure over training steps: step axis, curves, significance panel."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.stats.significance import SIGNIFICANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#1f2329"
"""Text; a report replaces it by the page's own text colour."""
MUTED = "#8a8f98"
COLOURS = ("#0072b2", "#d55e00", "#8a8f98")
"""Male, female, neutral: from Okabe and Ito's palette, which colour-blind readers tell apart."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""For more than three, from the same palette."""
PURPLE, GREEN = "#8e5ea2", "#009e73"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "text.parse_math": False,  # a model's name may have dollar signs
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.6,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.0,
    "grid.color": MUTED,
    "grid.alpha": 0.22,
    "grid.linewidth": 0.6,
    "figure.dpi": 150,
}

ZERO_DECADES = 0.45
"""Width of the stretch from step 0 to the first step after it, in decades."""


class StepAxis:
    """Places training steps on an axis: step 0 left of the others, the release right of them."""

    def __init__(self, steps: Sequence[int | None]) -> None:
        known = [step for step in steps if step is not None]
        positive = [step for step in known if step > 0]
        self.zero = 0 in known
        self.release = None in steps
        self.first = min(positive, default=1)
        self.last = max(positive, default=1)
        decades = math.log10(self.last / self.first) + (ZERO_DECADES if self.zero else 0)
        gap = max(0.12 * decades, 0.1)
        self.release_at = self.last * 10**gap if known else 1.0

    def place(self, step: int | None) -> float:
        """Position of a step in data coordinates."""
        return self.release_at if step is None else float(step)

    def apply(self, axes: "Axes", *, labelled: bool = True) -> None:
        """Set scale, limits, ticks and label of the horizontal axis."""
        # symlog is linear up to the first step and logarithmic after it, so that 0 has a place.
        axes.set_xscale("symlog", linthresh=self.first, linscale=ZERO_DECADES)
        end = self.release_at if self.release else self.last
        margin = 10 ** (0.03 * max(math.log10(end / self.first), 0.5))
        left = -0.12 * self.first if self.zero else self.first / margin
        axes.set_xlim(left, end * margin)
        places = self._ticks()
        axes.set_xticks(places, [*map(short, places)], minor=False)
        axes.set_xticks([], minor=True)
        if self.release:
            axes.set_xticks(
                [*places, self.release_at], [*map(short, places), "release"], minor=False
            )
        if labelled:
            axes.set_xlabel("Training step" if self.last > 1 or self.zero else "")
        else:
            axes.tick_params(labelbottom=False)

    def _ticks(self) -> list[float]:
        zero = [0.0] if self.zero else []
        if self.release and self.last == 1 and not self.zero:
            return zero
        low, high = math.log10(self.first), math.log10(self.last)
        decades = range(math.floor(low), math.ceil(high) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            places = [float(f * 10**d) for d in decades for f in factors]
            inside = [x for x in places if self.first <= x <= self.last]
            if len(inside) >= 3:
                return zero + inside
        return zero + sorted({float(self.first), float(self.last)})


class Curve(NamedTuple):
    """One line with its band."""

    label: str
    colour: str
    rows: pl.DataFrame
    """Columns step, value, low, high."""
    dashed: bool = False


class Marks(NamedTuple):
    """One row of a significance panel."""

    label: str
    colour: str
    steps: Sequence[int | None]
    p: Sequence[float | None]


def with_panel(
    table: pl.DataFrame, *, curves: Sequence[Curve], marks: Sequence[Marks]
) -> "tuple[Figure, Axes]":
    """Curves over steps, and beneath them a panel with one row of marks per test."""
    from matplotlib.figure import Figure

    panel = 0.24 * len(marks)
    figure = Figure(figsize=(6.6, 3.7 + panel), layout="constrained")
    rows = (2, 1) if marks else (1, 1)
    grid = figure.add_gridspec(*rows, height_ratios=(3.0, panel) if marks else None, hspace=0.05)
    top = figure.add_subplot(grid[0])
    steps = StepAxis(table["step"].to_list())
    for curve in curves:
        draw_curve(top, curve, steps)
    top.grid(axis="y")
    steps.apply(top, labelled=not marks)
    if marks:
        bottom = figure.add_subplot(grid[1], sharex=top)
        _draw_marks(bottom, marks, steps)
        steps.apply(bottom)
    legend(top)
    return figure, top


def draw_curve(axes: "Axes", curve: Curve, steps: StepAxis) -> None:
    """Band and line over the steps; a release stands alone beside them."""
    trained = curve.rows.filter(pl.col("step").is_not_null()).sort("step")
    marker = "o" if len(trained) <= 25 else None
    x = [steps.place(step) for step in trained["step"]]
    axes.fill_between(x, trained["low"], trained["high"], color=curve.colour, alpha=0.18, lw=0)
    axes.plot(
        x,
        trained["value"],
        color=curve.colour,
        ls=(0, (4, 2)) if curve.dashed else "-",
        marker=marker,
        ms=3.2,
        label=curve.label or "_nolegend_",
        zorder=1.9 if curve.colour == COLOURS[2] else 2,
    )
    released = curve.rows.filter(pl.col("step").is_null())
    for row in released.iter_rows(named=True):
        spread = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
        axes.errorbar(
            steps.release_at, row["value"], yerr=spread, fmt="D", ms=4, lw=1.2, color=curve.colour
        )


def _draw_marks(axes: "Axes", marks: Sequence[Marks], steps: StepAxis) -> None:
    for at, row in enumerate(marks):
        size = 13 if len(row.steps) <= 40 else 7
        x = [steps.place(step) for step in row.steps]
        hit = [p is not None and p < SIGNIFICANCE for p in row.p]
        open_x = [place for place, filled in zip(x, hit, strict=True) if not filled]
        full_x = [place for place, filled in zip(x, hit, strict=True) if filled]
        axes.scatter(
            open_x, [at] * len(open_x), s=size, facecolors="none", edgecolors=MUTED, linewidths=0.6
        )
        axes.scatter(full_x, [at] * len(full_x), s=size, color=row.colour, linewidths=0)
    axes.set_yticks(range(len(marks)), [row.label for row in marks], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(marks) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)


def legend(axes: "Axes", *, length: float | None = None) -> None:
    """Names of the curves, above the axes; `length` of their lines in units of the font size."""
    handles, texts = axes.get_legend_handles_labels()
    if handles:
        columns = 2 if len(handles) == 4 else min(len(handles), 3)
        axes.legend(
            handles,
            texts,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.015),
            ncols=columns,
            handlelength=length,
        )


def kind_of(name: str) -> str:
    """The kind of figure that a name from `figure_data` stands for.

    >>> kind_of("gap-pythia-seed1")
    'gap'
    """
    return name.split("-", maxsplit=1)[0]


def headline(figure: "Figure", title: str, names: Sequence[str]) -> None:
    """What the figure shows, and of what, in one line; long names are shortened."""
    short_names = (name if len(name) <= 32 else name[:31] + "…" for name in names)
    text = " · ".join([title, *short_names])
    figure.suptitle(text, x=0.01, ha="left", fontsize=10.5, fontweight="bold")


def plain_log(axis: "Axis", values: "np.ndarray") -> None:
    """Decade ticks in plain numbers, and 1, 2, 5 where there are fewer than three decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    known = values[values > 0]
    low, high = (known.min(), known.max()) if len(known) else (1.0, 10.0)
    subs = (1.0,) if high / low >= 1000 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def shortened(text: str) -> str:
    """A name that fits a legend."""
    return text if len(text) <= 40 else text[:39] + "…"


def short(number: float) -> str:
    """A tick label: 1k for 1,000.

    >>> short(0), short(512), short(143_000), short(2e6)
    ('0', '512', '143k', '2M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def signed(number: float) -> str:
    """Two decimals with a sign, and none for what rounds to zero.

    >>> signed(0.314), signed(-0.314), signed(-0.001)
    ('+0.31', '−0.31', '0.00')
    """
    text = f"{number:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")
