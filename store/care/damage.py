"""Faults of objects in a bank, and what to do: one table.

`verify` reports rows of this table, `repair` acts on their remedies, and the command line prints
them.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal, NamedTuple

Problem = Literal["missing", "changed", "foreign"]


class Remedy(StrEnum):
    """Advice about damage. `{bank}` stands for the folder of the bank."""

    REWRITE = (
        "`logitbank verify --repair {bank}` writes it again if sound objects have its content."
    )
    DROP_DEPOSIT = (
        "`logitbank verify --repair {bank}` removes the deposit."
        " Then run the same `logitbank extract`, or `logitbank merge {bank} COPY` with another copy"
        " of the bank."
    )
    DROP_HEAD = (
        "`logitbank verify --repair {bank}` removes the head."
        " Then run the same `logitbank extract` to write it again."
    )
    EXTRACT = (
        "Run the same `logitbank extract`, or `logitbank merge {bank} COPY` with another copy of"
        " the bank."
    )
    PUSH = "Run the same `logitbank push`: it writes the index again."
    COPY = "Take it from another copy of the bank."
    MERGE = "Delete it. Then run `logitbank merge {bank} COPY` with another copy of the bank."
    REMOVE = "Remove it yourself: `--repair` leaves it in place."

    @property
    def is_repair(self) -> bool:
        """Whether `repair` does it."""
        return "--repair {bank}" in self


class Check(NamedTuple):
    """One row: objects of one kind, what may be wrong with them, and what to do."""

    kind: str
    paths: tuple[str, ...]
    """Patterns relative to the bank; see `_PLACEHOLDERS`."""
    faults: tuple[Problem, ...]
    remedy: Remedy


_EITHER: tuple[Problem, ...] = ("missing", "changed")

CHECKS = (
    Check(
        "object of a deposit",
        ("<deposit>/<file>",),
        _EITHER,
        Remedy.DROP_DEPOSIT,
    ),
    Check(
        "deposit or head",
        ("<deposit>", "heads/<digest>"),
        ("missing",),
        Remedy.EXTRACT,
    ),
    Check(
        "head",
        ("heads/<digest>/<file>",),
        _EITHER,
        Remedy.DROP_HEAD,
    ),
    Check(
        "plain group",
        ("<group>/zarr.json",),
        ("changed",),
        Remedy.REWRITE,
    ),
    Check(
        "table",
        ("<table>.parquet",),
        ("changed",),
        Remedy.REWRITE,
    ),
    Check(
        "table",
        ("<table>.parquet",),
        ("missing",),
        Remedy.EXTRACT,
    ),
    Check(
        "digest of a table",
        ("<table>.parquet.sha256",),
        _EITHER,
        Remedy.REWRITE,
    ),
    Check(
        "index",
        ("index.json.gz",),
        ("changed",),
        Remedy.PUSH,
    ),
    Check(
        "bank",
        ("zarr.json",),
        ("changed",),
        Remedy.COPY,
    ),
    Check(
        "anything else",
        ("<anything>",),
        ("foreign",),
        Remedy.REMOVE,
    ),
)
"""Every fault that `verify` reports. The first row that matches path and fault applies."""

_PLACEHOLDERS = {
    "<deposit>": r"[^/]+/[^/]+/[^/]+/q-[0-9a-f]{16}",
    "<digest>": r"[0-9a-f]{64}",
    "<file>": r".+",
    "<group>": r"[^/]+(?:/[^/]+){0,2}",
    "<table>": r"(?:queries|prompts|tokens)/[^/]+",
    "<anything>": r"(?s:.*)",
}


_DEPOSIT = re.compile(_PLACEHOLDERS["<deposit>"])


@cache
def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(<\w+>)", path)
    return re.compile("".join(_PLACEHOLDERS.get(part, re.escape(part)) for part in parts))


@dataclass(frozen=True, slots=True)
class Damage:
    """One object that differs from its commit or from the format."""

    path: str
    """Relative to the bank."""
    problem: Problem
    detail: str

    @property
    def deposit(self) -> str:
        """Folder of the deposit that the object belongs to, or an empty text."""
        match = _DEPOSIT.match(self.path)
        return match[0] if match else ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem} ({self.detail})"

    @property
    def check(self) -> Check:
        """The row of the table that this damage belongs to."""
        for check in CHECKS:
            matches = (_pattern(path).fullmatch(self.path) for path in check.paths)
            if self.problem in check.faults and any(matches):
                return check
        raise LookupError(f"no check finds {self.problem} in {self.path}")

    @property
    def remedy(self) -> Remedy:
        """Advice about it."""
        return self.check.remedy

    @property
    def remedy_after_repair(self) -> Remedy:
        """Advice if the damage remains after `repair`."""
        if self.remedy is Remedy.DROP_HEAD:
            return Remedy.EXTRACT
        return Remedy.MERGE if self.remedy.is_repair else self.remedy
