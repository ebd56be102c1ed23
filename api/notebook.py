"""Representations of objects in Python and notebooks: one line, and HTML with escaped text."""

from collections.abc import Callable, Iterable, Sequence
from html import escape

from logitbank.errors import LogitbankError

MOST_NAMES = 4


def summary_or_error(summarize: Callable[[], str]) -> str:
    """A summary of an object, or the error: a representation must not raise."""
    try:
        return summarize()
    except (LogitbankError, OSError) as error:
        return f"cannot be read ({error})"


def printable(text: str) -> str:
    r"""A text on one line, with control and invisible characters as Python escapes.

    >>> printable("é \x1b[2J\n")
    'é \\x1b[2J\\n'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def abbreviated(names: Sequence[str]) -> str:
    """The first few names and the number of others.

    >>> abbreviated(["a", "b"]), abbreviated([*"abcdef"]), abbreviated([])
    ('a, b', 'a, b, c, d and 2 more', 'none')
    """
    further = len(names) - MOST_NAMES
    if further <= 0:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:MOST_NAMES])} and {further} more"


def html_list(caption: str, items: Iterable[str]) -> str:
    """A list of sentences."""
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<p>{escape(caption)}</p><ul>{lines}</ul>"
