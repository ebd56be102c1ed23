"""Counts in messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "checkpoint"), counted(1540, "query", "queries")
    ('1 checkpoint', '1,540 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
