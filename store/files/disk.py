"""One error for a full disk."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logitbank.errors import DiskSpaceError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def existing(path: Path) -> Path:
    """The path, or its nearest existing parent, which is on the same disk."""
    return next(p for p in (path, *path.absolute().parents) if p.exists())


@contextmanager
def naming_full(path: Path, needed: int) -> Iterator[None]:
    """Turn "no space left" into a DiskSpaceError with the path and the bytes that are needed."""
    try:
        yield
    except Exception as error:
        # zarrs (RuntimeError) and Polars (ComputeError) have the system's error number in the text.
        in_text = {int(number) for number in re.findall(r"\bos error (\d+)", str(error))}
        if getattr(error, "errno", None) not in _FULL and in_text.isdisjoint(_FULL):
            raise
        raise DiskSpaceError(
            f"The disk of {path} is full: {needed:,} more bytes are needed. Committed results are"
            " safe. Free some space and run the same command again, or keep less (--keep)."
        ) from error
