"""The log of a run in the bank: a line for the call, each event, and the summary."""

import contextlib
import importlib.metadata
import json
import platform
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from logitbank.engine.backends.engine import engines
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.workers.events import Event, OnEvent, RowsScored, Summary
from logitbank.store.format.schema import Json

_FOLDERS = re.compile(r"(?<![\w./~])~?/(?!/)(?:[^/\s'\"]+/)*(?=[^/\s'\"])")
"""The folders of an absolute path. Web addresses do not match."""
_PACKAGES = ("numcodecs", "polars", "numpy")
"""Packages that decide numbers or bytes, beside those of the engines."""


class RunLog:
    """A file that is written line by line, so that a killed run loses its last line at most.

    A context manager: leaving it writes the summary, or the error that ended the run. If a line
    cannot be written, as on a full disk, no more lines follow, and the run continues.
    """

    def __init__(self, bank: Path, summary: Summary, description: Mapping[str, Any]) -> None:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        self._bank = bank
        self._path = bank / "runs" / f"{stamp}-{uuid.uuid4().hex[:8]}.jsonl"
        self._summary, self._description = summary, description
        self._start = time.monotonic()
        self._file: IO[bytes] | None = None

    def follow(self, on_event: OnEvent) -> OnEvent:
        """`on_event`, with a line for each event before it is called, except for scored rows."""

        def write_event(event: Event) -> None:
            if not isinstance(event, RowsScored):
                content = {f.name: getattr(event, f.name) for f in fields(event)}
                self.write(type(event).__name__, content)
            on_event(event)

        return write_event

    def write(self, event: str, content: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        document: dict[str, Json] = {"time": now, "event": event}
        document |= {name: plain(value, self._bank) for name, value in content.items()}
        data = f"{json.dumps(document, allow_nan=False)}\n".encode()
        try:
            is_complete = self._file.write(data) == len(data)
        except OSError:  # writes of the bank itself report the problem
            is_complete = False
        if not is_complete:
            self._close()

    def __enter__(self) -> Self:
        if self._summary.plan.rows:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                self._file = self._path.open("xb", buffering=0)
            self.write("Begin", self._description)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        summary = self._summary
        outcome = {
            "error": None if error is None else f"{type(error).__name__}: {error}".rstrip(": "),
            "interrupted": summary.interrupted or isinstance(error, KeyboardInterrupt),
            "seconds": time.monotonic() - self._start,
            "done": summary.done,
            "failed": [failure.checkpoint for failure in summary.failed],
        }
        counted = ("rows", "bytes", "tokens", "reused", "spent")
        self.write("End", outcome | {name: getattr(summary, name) for name in counted})
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def run_description(
    prepared: Sequence[Prepared], parallel: ParallelConfig, summary: Summary
) -> dict[str, Any]:
    """The first line of a log: machine, versions, settings and plan."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    of_engines = dict.fromkeys(package for engine in engines() for package in engine.packages)
    for package in ("logitbank", *of_engines, *_PACKAGES):
        versions[package] = None
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    plan = summary.plan
    layout = plan.deposits[0].layout if plan.deposits else None
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "versions": versions,
        "suites": [
            {
                "suite": part.suite.name,
                "prompt_sets": [name for name, _ in part.tables],
                "settings": asdict(part.settings),
            }
            for part in prepared
        ],
        "keep": None if layout is None else str(layout.keep),
        "dtype": None if layout is None else layout.dtype,
        "workers": parallel.workers,
        "shard": plan.shard or None,
        "plan": {
            "checkpoints": plan.checkpoints,
            "to_run": plan.to_run,
            "prompts": plan.prompts,
            "queries": plan.queries,
            "rows": plan.rows,
            "bytes": plan.bytes,
        },
        "notes": summary.notes,
    }


def without_folders(text: str, bank: Path) -> str:
    """Replace absolute paths in a text by file names, because banks are shared.

    Paths in the bank become relative to the bank.

    Examples
    --------
    >>> without_folders("no room in /home/a/b.zarr/m/main; see /tmp/x.log", Path("/home/a/b.zarr"))
    'no room in m/main; see x.log'
    """
    for folder in sorted({str(bank), str(bank.absolute()), str(bank.resolve())}, key=len):
        text = text.replace(f"{folder}/", "") if Path(folder).is_absolute() else text
    return _FOLDERS.sub("", text)


def plain(value: Any, bank: Path) -> Json:
    """A value of an event or of settings as JSON; texts and paths without folders."""
    match value:
        case float():
            return round(value, 6)
        case None | bool() | int():
            return value
        case Path():
            return value.name
        case Mapping():
            return {str(key): plain(each, bank) for key, each in value.items()}
        case list() | tuple():
            return [plain(each, bank) for each in value]
    return without_folders(str(value), bank)
