"""What Python's prompt and a notebook show of an object: a line, and HTML with all text escaped."""

from collections.abc import Callable, Iterable, Sequence
from html import escape

from logitbank.errors import LogitbankError

MOST_NAMES = 4
MOST_ROWS = 20


def told(describe: Callable[[], str]) -> str:
    """What an object says of itself; or why it cannot, since whoever asks wants to look at it."""
    try:
        return describe()
    except (LogitbankError, OSError) as error:
        return f"cannot be read ({error})"


def printable(text: str) -> str:
    r"""A text on one line, with what a terminal would obey, or not show, as Python escapes it.

    >>> printable("é \x1b[2J\n")
    'é \\x1b[2J\\n'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def some(names: Sequence[str]) -> str:
    """The first few of several names.

    >>> some(["a", "b"]), some([*"abcdef"]), some([])
    ('a, b', 'a, b, c, d and 2 more', 'none')
    """
    further = len(names) - MOST_NAMES
    if further <= 0:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:MOST_NAMES])} and {further} more"


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of which the first twenty rows are shown.

    >>> html_table("b", ["n"], [["<i>"]])
    '<table><caption>b</caption><tr><th>n</th></tr><tr><td>&lt;i&gt;</td></tr></table>'
    """
    rows = list(rows)
    lines = [_row("th", header)] if header else []
    lines += [_row("td", row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        lines.append(_row("td", [f"… and {len(rows) - MOST_ROWS} more"]))
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def html_list(caption: str, items: Iterable[str]) -> str:
    """Sentences below each other."""
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<p>{escape(caption)}</p><ul>{lines}</ul>"


def _row(cell: str, values: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(str(value))}</{cell}>' for value in values)}</tr>"
