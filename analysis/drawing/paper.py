"""Colours of figures, texts of their axes, and how those on paper look."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, get_args

from logitbank.errors import UsageError

INK = "#1f2329"
"""Text on paper."""
MUTED = "#8a8f98"
LEGIBLE, FAINT = "#7d828b", "#8a8f9847"
"""Text, and lines of a grid, that are seen on white and on black; a page sets its own colours."""
COLOURS = ("#0072b2", "#d55e00", "#8a8f98")
"""Male, female, neutral: from Okabe and Ito's palette, which colour-blind readers tell apart."""
WRITTEN = ("#0072b2", "#a84a00")
"""Male and female where they are text, which needs a contrast of 4.5; the second colour has 3.6."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#99226b", "#5c4500", "#30209a")
"""For more than three. The palette's pink, yellow and light blue have a contrast of 2.1 to 2.9 on a
light page; these have 3 and more, and the smallest distance of two (CIE 1976) is 17 where it was
16, for readers with and without the three forms of colour blindness. A dark page has others."""
GENDERED = {
    **dict.fromkeys(("male", "he", "him", "his", "man"), COLOURS[0]),
    **dict.fromkeys(("female", "she", "her", "hers", "woman"), COLOURS[1]),
    **dict.fromkeys(("not specified", "neutral", "they", "other"), COLOURS[2]),
}
"""Options that have a colour of their own, whatever stands beside them."""
PURPLE, GREEN = "#8e5ea2", "#009e73"
STYLE: dict[str, Any] = {
    "font.size": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
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
    "lines.solid_capstyle": "round",
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.6,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.0,
    "grid.color": MUTED,
    "grid.alpha": 0.22,
    "grid.linewidth": 0.6,
    "figure.dpi": 150,
    "savefig.dpi": 200,
    # Text stays text, in fonts that publishers take: they refuse PDF's Type 3, the default.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "logitbank",  # without it every file has other identifiers
}
Width = Literal["single", "double"]
INCHES: dict[Width, float] = {"single": 3.3, "double": 6.9}
"""One column and two of most journals and conferences."""


@dataclass(frozen=True, slots=True)
class Paper:
    """How figures on paper look.

    Raises
    ------
    UsageError
        Another width, no such style, or one that Matplotlib does not understand.
    """

    width: Width = "double"
    """`single` is one column of a paper, 3.3 inches; `double` is two, 6.9 inches. Text has 7 to 9
    points in either."""
    style: str | Path | None = None
    """A style file of Matplotlib's, or the name of a style that comes with Matplotlib. Its settings
    of fonts, sizes, lines and grids go before those of logitbank. Colours that stand for something
    stay, and so does the size of the figure."""

    def __post_init__(self) -> None:
        if self.width not in get_args(Width):
            raise UsageError(f"width is {self.width!r}; it is one of {', '.join(get_args(Width))}")
        self.settings()  # whoever mistypes a style learns it before the analysis

    @property
    def inches(self) -> float:
        return INCHES[self.width]

    def settings(self) -> dict[str, Any]:
        """Matplotlib's settings (`rcParams`) for these figures."""
        return STYLE if self.style is None else {**STYLE, **_settings_of(self.style)}


PAPER = Paper()


def _settings_of(style: str | Path) -> dict[str, Any]:
    """The settings of a style file, or of a style that Matplotlib brings along."""
    import matplotlib
    import matplotlib.style

    if str(style) in matplotlib.style.library:
        return {str(key): value for key, value in matplotlib.style.library[str(style)].items()}
    path = Path(style).expanduser()
    if not path.is_file():
        raise UsageError(
            f"there is no style file {path}, and Matplotlib has no style of this name; name a file "
            f"with lines such as font.size: 8, or one of {', '.join(matplotlib.style.available)}"
        )
    try:
        text = path.read_text("utf-8")
        settings = matplotlib.rc_params_from_file(
            path, fail_on_error=True, use_default_template=False
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise UsageError(f"{path} is no style file of Matplotlib's: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        key = line.partition("#")[0].partition(":")[0].strip()
        if key and key not in matplotlib.rcParams:  # Matplotlib would go on without it
            raise UsageError(
                f"{path}:{number}: Matplotlib has no setting {key!r}; the names are those of its "
                "rcParams, such as font.size"
            )
    return {str(key): value for key, value in settings.items()}


def option_colours(options: Iterable[str]) -> dict[str, str]:
    """One colour for each option, the same in every figure of the prompts that have these.

    >>> option_colours(["female", "male", "no", "he"])
    {'male': '#0072b2', 'female': '#d55e00', 'he': '#009e73', 'no': '#99226b'}
    """
    names = sorted(set(options))
    known: dict[str, str] = {}
    for name, colour in GENDERED.items():
        if name in names and colour not in known.values():
            known[name] = colour
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


def legend_columns(names: Sequence[str], *, letters: float) -> int:
    """The most columns of a legend whose lines have no more letters; a symbol takes six."""
    for count in range(len(names), 1, -1):
        columns = (names[at::count] for at in range(count))
        if sum(6 + max(map(len, column)) for column in columns) <= letters:
            return count
    return 1
