"""Text in CSV that a spreadsheet shows and does not run as a formula."""

import re

import polars as pl
import polars.selectors as cs

_FORMULA = r"^('*[=+\-@\t\r\n])"
"""Beginnings of a cell that spreadsheets take for a formula, perhaps quoted already."""


def without_formulas(table: pl.LazyFrame) -> pl.LazyFrame:
    """Text cells and column names that begin as a formula does, with an apostrophe before them.

    Numbers are unchanged. To restore a text, remove one apostrophe if apostrophes are followed by
    one of ``= + - @``, a tab or an end of line.

    >>> table = pl.LazyFrame({"x": ["=1+1", "a", "'=b"], "n": [-1, 0, 1]})
    >>> without_formulas(table).collect().rows()
    [("'=1+1", -1), ('a', 0), ("''=b", 1)]
    """
    texts = cs.string() | cs.categorical() | cs.enum()
    names = {
        name: re.sub(_FORMULA, r"'\1", name)
        for name in table.collect_schema().names()
        if re.match(_FORMULA, name)
    }
    return table.with_columns(texts.cast(pl.String).str.replace(_FORMULA, "'${1}")).rename(names)
