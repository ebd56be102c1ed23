"""Output without Rich: errors, and what a stream does with a character that it cannot encode."""

import codecs
import shutil
import sys
import textwrap
from typing import TextIO

_TURNS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of what follows, so that text reads as what it is not."""
_UNSEEN = (0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF)
"""Spaces and line ends of no width. The joiners stay, U+200C and U+200D: scripts need them."""
CONTROL = {
    **{code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127, *range(128, 160))},
    **{code: f"\\u{code:04x}" for code in (*_TURNS, *_UNSEEN)},
}
"""Control characters, made visible."""
ONE_LINE = {**CONTROL, ord("\n"): "\\n", ord("\t"): "\\t"}
"""And line breaks and tabs: of text that may not begin a line of its own."""

ASCII = {
    "│": "|", "→": "->", "…": "...", "−": "-", "–": "-", "×": "x", "±": "+-",
    "“": '"', "”": '"', "’": "'",
}  # fmt: skip
"""What stands for our own characters where they cannot be encoded."""


def say_error(message: str) -> None:
    """One line on stderr, or a list of a line each; on a terminal wrapped between words."""
    text = message.translate(CONTROL)
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        text = "\n".join(
            textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )
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
