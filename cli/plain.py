"""Output without Rich: errors, and what a stream does with a character that it cannot encode."""

import codecs
import shutil
import sys
import textwrap
from typing import TextIO

CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127, *range(128, 160))}
"""Control characters, made visible."""

ASCII = {
    "│": "|", "┤": "|", "→": "->", "…": "...", "−": "-", "–": "-", "×": "x", "±": "+-",
    "“": '"', "”": '"', "’": "'",
}  # fmt: skip
"""What stands for our own characters where they cannot be encoded."""


def say_error(message: str) -> None:
    """One line on stderr, wrapped between words on a terminal."""
    text = message.translate(CONTROL)
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        text = textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def encode_anything() -> None:
    """Let stdout and stderr replace what they cannot encode, rather than fail."""
    codecs.register_error("logitbank.ascii", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if not _unicode(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="logitbank.ascii")


def _unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    known = (ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in lost)
    return "".join(known), error.end
