"""Sizes that the pages of a Parquet file claim, read before anything is decoded.

A few bytes may claim thousands of millions of values. Polars takes memory for them at once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b"PAR1"
_MAX_FOOTER = 2**26
_MAX_DEPTH = 16
_ENOUGH = 2**12
"""Bytes of the header of a page, with the statistics that it may have."""


class Column(NamedTuple):
    """What the pages of one column claim, in all groups of rows."""

    name: str
    """Path in the schema, such as `ids.list.element`."""
    values: int
    page_bytes: int
    """Bytes of the largest page after decompression."""


class Claims(NamedTuple):
    """What a Parquet file claims."""

    rows: int
    """Of the file, or of all its groups together if these are more."""
    columns: list[Column]


def claims(path: Path) -> Claims:
    """The rows and columns of a Parquet file.

    Raises
    ------
    ValueError
        It is not a Parquet file.
    """
    found: dict[str, Column] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        footer = _footer(file, size)
        groups = footer.get(4, [])
        for group in groups:
            for chunk in group[1]:
                about = chunk[3]
                name = b".".join(about[3]).decode(errors="replace")
                start = min(about[9], about.get(11) or about[9])
                end = start + about[7]
                if not 4 <= start <= end <= size:
                    raise ValueError(f"column {name} lies outside it")
                in_pages = [*_pages(file, start, end)]
                known = found.get(name, Column(name, 0, 0))
                found[name] = Column(
                    name,
                    known.values + max(about[5], sum(values for values, _ in in_pages)),
                    max([known.page_bytes, *(number for _, number in in_pages)]),
                )
    rows = max(footer[3], sum(group[3] for group in groups))
    return Claims(rows, [*found.values()])


def _footer(file: Any, size: int) -> dict[int, Any]:
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < length <= min(size - 8, _MAX_FOOTER):
        raise ValueError("it has no footer of Parquet")
    file.seek(size - 8 - length)
    return _Thrift(file.read(length)).struct()


def _pages(file: Any, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Values and bytes after decompression of each page; values of dictionaries are not counted."""
    while start < end:
        file.seek(start)
        thrift = _Thrift(file.read(min(_ENOUGH, end - start)))
        header = thrift.struct()
        data = header.get(5) or header.get(8) or {}
        if header[2] < 0 or header[3] < 0:
            raise ValueError("a page has a negative size")
        yield data.get(1, 0), header[2]
        start += thrift.at + header[3]


class _Thrift:
    """Reads structs of Thrift's compact protocol as dictionaries by the number of the field."""

    def __init__(self, data: bytes) -> None:
        self.at, self._data = 0, data

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        try:
            while kind := self._data[self.at]:
                self.at += 1
                number = number + (kind >> 4) if kind >> 4 else self._signed()
                fields[number] = self._value(kind & 15, depth)
        except IndexError:
            raise ValueError("it ends within a header") from None
        self.at += 1
        return fields

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            if (shift := shift + 7) > 63:
                raise ValueError("a number is too long")

    def _signed(self) -> int:
        value = self._data[self.at]
        if value < 128:  # most numbers have one byte
            self.at += 1
        else:
            value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("it ends within a header")
        self.at += count
        return self._data[self.at - count : self.at]

    def _value(self, kind: int, depth: int, *, listed: bool = False) -> Any:
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (1, 2):
            return self._bytes(1) == b"\1" if listed else kind == 1
        if kind == 3:
            return self._bytes(1)[0]
        if kind == 7:
            return self._bytes(8)
        if kind in (9, 10):
            head = self._bytes(1)[0]
            count = self._unsigned() if head >> 4 == 15 else head >> 4
            if count > len(self._data) - self.at:
                raise ValueError("a list is longer than its file")
            return [self._value(head & 15, depth + 1, listed=True) for _ in range(count)]
        raise ValueError(f"field of kind {kind}")
