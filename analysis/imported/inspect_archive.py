"""Logs of inspect_ai as it writes them: a ZIP file of JSON members, `.eval`.

`header.json` is the log without its samples, and `samples/<id>_epoch_<n>.json` is one each. Nothing
is unpacked to disk: members are read one after another, each no longer than the file's list says.
"""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from logitbank.analysis.imported.items import MAX_LINE
from logitbank.errors import UsageError

HEADER = "header.json"
_CONVERT = "`inspect log convert --to json`"
_MAGIC = b"PK\x03\x04"
_ZSTANDARD = 93
"""The method that newer versions of inspect_ai pack with; zipfile has it from Python 3.14 on."""
_MOST_PACKED = 100
"""How often the size of a packed log it may have unpacked: texts that repeat shrink thirtyfold."""


def is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_header(path: Path) -> Mapping[str, Any]:
    """The log without its samples.

    Raises
    ------
    UsageError
        The file is no sound ZIP file, or none of a log that is complete.
    """
    with _opened(path) as (file, members):
        return _json(path, file, members[HEADER])


def read_samples(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The samples in the order in which they were packed, each with where it is.

    Raises
    ------
    UsageError
        As `read_header`, or a sample is damaged.
    """
    with _opened(path) as (file, members):
        for name, member in members.items():
            if name != HEADER:
                yield f"{path}, member {name}", _json(path, file, member)


def place_of(sample: Mapping[str, Any]) -> tuple[int, str]:
    """Where inspect_ai puts a sample among others: by epoch, and numbers by their size.

    >>> place_of({"id": 7, "epoch": 2})
    (2, '00000000000000000007')
    """
    name, epoch = sample.get("id"), sample.get("epoch")
    return (
        epoch if isinstance(epoch, int) else 1,
        name if isinstance(name, str) else str(name).zfill(20),
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """The file and those of its members that are read, whose names and sizes were looked at."""
    with path.open("rb") as raw:
        try:
            file = zipfile.ZipFile(raw)
        # ValueError: a name that is no UTF-8; NotImplementedError: a version that zipfile lacks
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
            raise UsageError(
                f"{path} cannot be unpacked as a log of inspect_ai ({error}); it may be damaged or"
                " cut short: copy it again"
            ) from error
        with file:
            yield file, _members(path, file.infolist())


def _members(path: Path, listed: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in listed:
        name = member.filename
        if name in members:
            raise UsageError(
                f"{path} has the member {name!r} twice; write it again with {_CONVERT}"
            )
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise UsageError(
                f"{path} has the member {name!r}, which is outside of it; that is no log of"
                " inspect_ai: take it from where it was made"
            )
        members[name] = member
    if HEADER not in members:
        raise UsageError(
            f"{path} has no {HEADER}, which inspect_ai writes when an evaluation ends; let it"
            " finish, or evaluate again"
        )
    used = {
        name: member
        for name, member in members.items()
        if name == HEADER or (name.startswith("samples/") and name.endswith(".json"))
    }
    packed, sizes = path.stat().st_size, [member.file_size for member in used.values()]
    if max(sizes) > MAX_LINE or sum(sizes) > max(MAX_LINE, _MOST_PACKED * packed):
        raise UsageError(
            f"{path} has {packed:,} bytes and would unpack to {sum(sizes):,}, {max(sizes):,} of"
            f" them one member, which is more than a log has; if it is one, use {_CONVERT}"
        )
    return used


def _json(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> Mapping[str, Any]:
    where = f"{path}, member {member.filename},"
    try:
        if member.compress_type == _ZSTANDARD:
            data = _zstandard(file.fp, member)  # type: ignore[arg-type]  # open for reading
        else:
            data = file.read(member)
    # RuntimeError: it is encrypted, or of another method; OSError: it begins before the file does
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"{where} cannot be unpacked ({error}); the file may be damaged: copy it again, or use"
            f" {_CONVERT}"
        ) from error
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
        raise UsageError(f"{where} is no JSON, as those of a log are: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no JSON object, as those of a log are")
    return value


def _zstandard(raw: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    """The content of a member, which is refused where it is not as long as the list says.

    Before Python 3.14 zipfile refuses the method, so the local header is passed over here: 30
    bytes, of which the last four are the lengths of the name and of the extra field after it.
    """
    from numcodecs import zstd  # tens of ms, which other files need not wait for

    raw.seek(member.header_offset)
    local = raw.read(30)
    if len(local) < 30 or not local.startswith(_MAGIC):
        raise zipfile.BadZipFile("its local header is not there")
    raw.seek(sum(struct.unpack("<HH", local[26:])), 1)
    data = bytearray(member.file_size)
    zstd.decompress(raw.read(member.compress_size), data)
    if zlib.crc32(data) != member.CRC:
        raise zipfile.BadZipFile("its CRC-32 is not the written one")
    return bytes(data)
