"""Colours and style of figures, and texts of their axes."""

from collections.abc import Iterable
from itertools import cycle
from typing import Any

INK = "#1f2329"
"""Text on paper."""
MUTED = "#8a8f98"
LEGIBLE, FAINT = "#7d828b", "#8a8f9847"
"""Text, and lines of a grid, that are seen on white and on black; a page sets its own colours."""
COLOURS = ("#0072b2", "#d55e00", "#8a8f98")
"""Male, female, neutral: from Okabe and Ito's palette, which colour-blind readers tell apart."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""For more than three, from the same palette."""
GENDERED = {
    **dict.fromkeys(("male", "he", "him", "his", "man"), COLOURS[0]),
    **dict.fromkeys(("female", "she", "her", "hers", "woman"), COLOURS[1]),
    **dict.fromkeys(("not specified", "neutral", "they", "other"), COLOURS[2]),
}
"""Options that have a colour of their own, whatever stands beside them."""
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


def option_colours(options: Iterable[str]) -> dict[str, str]:
    """One colour for each option, the same in every figure of the prompts that have these.

    >>> option_colours(["female", "male"]), option_colours(["yes", "no", "he"])["no"]
    ({'female': '#d55e00', 'male': '#0072b2'}, '#cc79a7')
    """
    names = sorted(set(options))
    known = {name: GENDERED[name] for name in names if name in GENDERED}
    free = [colour for colour in PALETTE if colour not in known.values()]
    others = zip((name for name in names if name not in known), cycle(free), strict=False)
    return known | dict(others)


def kind_of(name: str) -> str:
    """The kind of figure that a name from `figure_data` stands for.

    >>> kind_of("gap-pythia-seed1")
    'gap'
    """
    return name.split("-", maxsplit=1)[0]


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
