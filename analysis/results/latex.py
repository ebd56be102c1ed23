"""Tables for papers in LaTeX, with the rules of booktabs."""

import math
from typing import Any

import polars as pl

_SPECIAL = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "–": "--",
        "→": r"$\to$",
        "−": "$-$",
    }
)


def latex(table: pl.DataFrame) -> str:
    r"""A `tabular` of booktabs: names as they are, numbers to four digits, at the right.

    What is absent or not a number is a dash. The text compiles with `\usepackage{booktabs}`:
    columns of sparklines, for which pdflatex has no characters, are left out. So are columns with
    one value in all of several rows; a comment names them.

    >>> table = pl.DataFrame({"run_id": ["a%b"], "gap": [-0.123456], "p": [1e-7], "n": [None]})
    >>> print(latex(table))
    \begin{tabular}{lrrl}
    \toprule
    run\_id & gap & p & n \\
    \midrule
    a\%b & $-0.1235$ & $1 \times 10^{-7}$ & -- \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    table = table.select(
        each for each in table if each.dtype != pl.String or not each.str.contains("[▁-█]").any()
    )
    constant = [each for each in table if len(table) > 1 and each.n_unique() == 1]
    if len(constant) == table.width:
        constant = []
    told = ", ".join(f"{each.name} = {_plain(each[0])}" for each in constant)
    table = table.drop(each.name for each in constant)
    sides = "".join("r" if dtype.is_numeric() else "l" for dtype in table.dtypes)
    lines = [
        *([f"% The same in every row: {told}"] if constant else []),
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        _row(table.columns),
        r"\midrule",
        *map(_row, table.iter_rows()),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    """A value of a comment, on one line."""
    return " ".join(str(value).split())


def _row(values: Any) -> str:
    return " & ".join(map(_cell, values)) + r" \\"


def _cell(value: object) -> str:
    if value is None or value != value:
        return "--"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"$-{-value}$" if value < 0 else str(value)
    return " ".join(str(value).split()).translate(_SPECIAL)


def _number(value: float) -> str:
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    digits, _, power = f"{value:.4g}".partition("e")
    if power:
        return rf"${digits} \times 10^{{{int(power)}}}$"
    return f"${digits}$" if value < 0 else digits
