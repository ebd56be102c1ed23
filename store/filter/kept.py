"""Scores that a view computed, kept in its folder: `scores/<of what>/<SHA-256>.parquet`.

Both names are digests, of what they were computed of and of the file. So those of something else
are never found, and a file that is not as it was written is none. Whatever cannot be read or
written is as if it were not there: the scores are computed again. Deleting all of it loses nothing.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import checked, objects
from logitbank.store.files.objects import Digest
from logitbank.store.filter.filters import Filter
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.format.schema import json_digest
from logitbank.version import __version__

FOLDER = "scores"
_RECIPE = 1
"""Goes up with every change of what a filter makes of scores, so that older ones are not found."""
_OF = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"([0-9a-f]{64})\.parquet")


@dataclass(frozen=True, slots=True)
class KeptScores:
    """What one filter made of deposits."""

    folder: Path
    """Where they are kept; it need not be there."""
    by: str
    """Digest of the filter."""

    @classmethod
    def of(cls, view: Path, by: Filter) -> "KeptScores":
        """Those in a view's folder."""
        value = hashlib.sha256(f"{by.mode} {by.k}\n".encode())
        for numbers in (by.weight, by.bias):
            value.update(numbers.astype("<f8").tobytes())
        return cls(view / FOLDER, value.hexdigest())

    def name(self, vouched: Mapping[str, Digest]) -> str:
        """What scores are of: this filter, and a deposit in whose seal these objects are."""
        objects_ = {path: digest.sha256 for path, digest in vouched.items()}
        return json_digest([_RECIPE, __version__, self.by, objects_])[:32]

    def find(self, name: str) -> Path | None:
        """The file of this name whose bytes are as they were written."""
        return next((file for file in _files(self.folder / name) if is_whole(file)), None)

    def read(self, name: str, schema: pl.Schema) -> pl.DataFrame | None:
        """The scores of this name; None where they are not kept."""
        if (file := self.find(name)) is None:
            return None
        try:
            check_rows(file)
            frame = pl.read_parquet(file, glob=False)
        except (FileNotFoundError, DamagedError, *PARQUET_ERRORS):
            return None
        return frame if frame.schema == schema else None

    def keep(self, name: str, scores: pl.DataFrame) -> None:
        """Keep all scores of a deposit, if the folder can be written to and the disk has room."""
        buffer = BytesIO()
        scores.write_parquet(buffer, compression="zstd")
        data, folder = buffer.getvalue(), self.folder / name
        with suppress(OSError):  # read-only, somebody else's, full: it costs time, and nothing else
            # Not with what is above: a view that was deleted meanwhile stays so.
            self.folder.mkdir(exist_ok=True)
            if self.folder.is_symlink():
                return
            folder.mkdir(exist_ok=True)
            objects.remove_dead_files(folder)
            path = folder / f"{objects.digest_of(data).sha256}.parquet"
            with objects.beside(path, data) as file:
                file.replace(path)


def is_whole(file: Path) -> bool:
    """Whether a file's bytes are those that it is named by."""
    sha256 = _FILE.fullmatch(file.name)
    try:
        return sha256 is not None and not checked.unsound(
            {file: Digest(sha256[1], file.stat().st_size)}
        )
    except (OSError, DamagedError):
        return False


def unknown_or_damaged(view: Path) -> Iterator[tuple[str, bool]]:
    """What is in a view's folder of scores and should not be, and whether it is a damaged file."""
    for folder in objects.entries(view / FOLDER):
        if not (folder.is_dir() and _OF.fullmatch(folder.name)):
            yield f"{FOLDER}/{folder.name}", False
            continue
        for entry in objects.entries(folder.path):
            is_ours = _FILE.fullmatch(entry.name) is not None
            if not is_ours or not is_whole(Path(entry.path)):
                yield f"{FOLDER}/{folder.name}/{entry.name}", is_ours


def _files(folder: Path) -> list[Path]:
    """Files of scores by name; links are none, as a view may be a stranger's."""
    try:
        if folder.parent.is_symlink() or folder.is_symlink():
            return []
        with os.scandir(folder) as listing:
            names = [e.name for e in listing if e.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(folder / name for name in names if _FILE.fullmatch(name))
