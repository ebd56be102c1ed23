"""Limits of the texts and numbers in a bank, and the checks of all external values.

Writers and readers share the limits, so that everything that is written can be read.
"""

import re

from logitbank.errors import LogitbankError, UsageError

MAX_INT = 2**63 - 1
"""The largest whole number of a column, and of a run seed."""
MAX_SIZE = 2**31 - 1
"""The largest number of rows, and of a token: they are Int32."""
MAX_STEP = 10**18 - 1
"""The largest training step: sums and differences of steps fit 64 bits."""
MAX_OUTPUTS = 2**24
"""Outputs of a head, and entries of a state: 60 times the largest known vocabulary."""
MAX_NAME = 200
"""Letters of a name. As a folder it is quoted, and file systems allow 255 bytes."""
MAX_ID = 1_000
"""Letters of a prompt's id, and of a title."""
MAX_ABOUT = 100_000
"""Letters of a license or a citation."""
CONTROL = r"[\x00-\x1f\x7f-\x9f]"
"""Control characters, as a regular expression; names have none."""


def in_int64(value: int) -> bool:
    """Whether a column of whole numbers can contain a number."""
    return -MAX_INT - 1 <= value <= MAX_INT


def check_text(
    value: object,
    what: object,
    *,
    one_line: bool = False,
    most: int | None = None,
    error: type[LogitbankError] = UsageError,
) -> None:
    """Refuse a value that is not text, or a text that a bank cannot store, with `error`.

    Messages format `what`, its name. With `one_line` it is a name or a title, without control
    characters; `most` is the largest number of letters.
    """
    if not isinstance(value, str):
        raise error(f"{what} is {shown(value)}; it must be text")
    if most is not None and len(value) > most:
        raise error(f"{what} {shown(value)} has {len(value):,} letters; use at most {most:,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error(
            f"{what} {shown(value)} contains half of a surrogate pair; write the whole character"
        ) from None
    if one_line and (control := re.search(CONTROL, value)):
        raise error(f"{what} {shown(value)} contains control character {control[0]!a}; remove it")


def check_name(
    value: object,
    what: str,
    *,
    error: type[LogitbankError] = UsageError,
) -> None:
    """Refuse an invalid name: as `check_text` in one line, not blank, without space around it."""
    check_text(value, what, one_line=True, most=MAX_NAME, error=error)
    if not value or value != str(value).strip():
        raise error(f"{what} {value!r} is blank or has space around it; use a name")


def check_number(
    value: object,
    what: str,
    least: int,
    most: int,
    *,
    error: type[LogitbankError] = UsageError,
) -> None:
    """Refuse anything except an int between two limits, both included, with `error`."""
    if type(value) is not int or not least <= value <= most:
        raise error(f"{what} is {shown(value)}; use a whole number from {least} to {most}")


def shown(value: object) -> str:
    """A value for messages, of at most 60 characters, without control characters."""
    if isinstance(value, int) and value.bit_length() > 200:  # Python prints at most 4,300 digits
        return f"a number of more than {int(value.bit_length() * 0.301):,} digits"
    try:
        text = repr(value)
        text.encode()
    except UnicodeEncodeError:
        text = ascii(value)
    except ValueError:
        text = f"a {type(value).__name__} with a number of more than 4,300 digits"
    return text if len(text) <= 60 else text[:57] + "..."
