"""The room of a disk: where to ask for it, and a disk without any told as such."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logitbank.errors import DiskSpaceError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def existing(path: Path) -> Path:
    """The path itself, or the nearest of its parents that is there: on the disk that it will be."""
    return next(p for p in (path, *path.absolute().parents) if p.exists())


@contextmanager
def naming_full(path: Path, needed: int) -> Iterator[None]:
    """Turn "no space left" into an error that says where, how much, and what to do."""
    try:
        yield
    except Exception as error:
        # zarrs (RuntimeError) and Polars (ComputeError) give the system's number in the text only.
        in_text = {int(number) for number in re.findall(r"\bos error (\d+)", str(error))}
        if getattr(error, "errno", None) not in _FULL and in_text.isdisjoint(_FULL):
            raise
        raise DiskSpaceError(
            f"the disk of {path} is full: {needed:,} more bytes are needed; free some and run the"
            " same command again, or keep less (--keep). What was committed is safe"
        ) from error
