"""What a run tells, kept in the bank: a line for the call, the plan, each event and the summary."""

import contextlib
import importlib.metadata
import platform
import re
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.workers.events import Event, OnEvent, RowsScored, Summary
from logitbank.store.care import run_logs
from logitbank.store.format.schema import CheckpointId, Json

_FOLDERS = re.compile(r"(?<![\w./~])~?/(?!/)(?:[^/\s'\"]+/)*(?=[^/\s'\"])")
"""All of an absolute path but its last part; a web address is none."""
_PACKAGES = ("logitbank", "torch", "transformers", "vllm", "zarr", "zarrs", "polars", "numpy")


class RunLog:
    """Written line by line, so that a killed run leaves all but its last line.

    A context manager: leaving it writes the summary, or what ended the run. Where a line cannot be
    written, as on a full disk, there is no further one, and the run is none the worse.
    """

    def __init__(self, bank: Path, summary: Summary, begin: dict[str, Json]) -> None:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        self._bank = bank
        self._path = bank / run_logs.FOLDER / f"{stamp}-{uuid.uuid4().hex[:8]}.jsonl"
        self._summary, self._begin = summary, begin
        self._start = time.monotonic()
        self._file: IO[bytes] | None = None
        self._line = 0

    @classmethod
    def of(
        cls,
        bank: Path,
        extraction: Extraction,
        prepared: Prepared,
        summary: Summary,
    ) -> Self:
        """The log of one extraction."""
        settings = {key: plain(value) for key, value in asdict(prepared.settings).items()}
        versions = {name: _version(name) for name in _PACKAGES}
        plan, parallel = prepared.plan, extraction.parallel
        return cls(
            bank,
            summary,
            {
                "host": socket.gethostname(),
                "platform": platform.platform(),
                "versions": plain({"python": platform.python_version()} | versions),
                "suite": extraction.suite.name,
                "prompt_sets": [prompts.name for prompts in extraction.prompt_sets],
                "keep": str(extraction.keep),
                "dtype": extraction.dtype,
                "settings": settings,
                "workers": parallel.workers,
                "shard": None if parallel.shard is None else str(parallel.shard),
                "plan": {
                    "checkpoints": plan.checkpoints,
                    "to_run": [str(checkpoint) for checkpoint in plan.to_run],
                    "prompts": plan.prompts,
                    "queries": plan.queries,
                    "rows": plan.rows,
                    "bytes": plan.bytes,
                },
                "notes": [*summary.notes],
            },
        )

    def beside(self, on_event: OnEvent) -> OnEvent:
        """`on_event`, with a line for each event before it is called; rows go by too fast."""

        def both(event: Event) -> None:
            if not isinstance(event, RowsScored):
                content = {f.name: plain(getattr(event, f.name)) for f in fields(event)}
                self.write(type(event).__name__, content)
            on_event(event)

        return both

    def write(self, event: str, content: Mapping[str, Json]) -> None:
        if self._file is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        shortened = {name: without_folders(value, self._bank) for name, value in content.items()}
        document: dict[str, Json] = {"line": self._line, "time": now, "event": event, **shortened}
        data = run_logs.line_bytes(document)
        try:
            whole = self._file.write(data) == len(data)
        except OSError:  # the bank's own writes tell of it, and what to do
            whole = False
        if not whole:
            self._close()
        self._line += 1

    def __enter__(self) -> Self:
        if self._summary.plan.rows:
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                self._file = self._path.open("xb", buffering=0)
            self.write("Begin", self._begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        summary = self._summary
        seconds = round(time.monotonic() - self._start, 3)
        outcome = {
            "error": None if error is None else f"{type(error).__name__}: {error}".rstrip(": "),
            "interrupted": summary.interrupted or isinstance(error, KeyboardInterrupt),
            "seconds": seconds,
            "done": [str(checkpoint) for checkpoint in summary.done],
            "failed": [str(failure.checkpoint) for failure in summary.failed],
        }
        counts = {name: getattr(summary, name) for name in ("rows", "bytes", "tokens", "reused")}
        self.write("End", outcome | counts | {"spent": plain(summary.spent)})
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def without_folders(value: Json, bank: Path) -> Json:
    """Texts in which files are named without the folders that lead to them: banks are shared.

    What lies in the bank is named from there on, all else by its last part.

    Examples
    --------
    >>> without_folders("no room in /home/a/b.zarr/m/main; see /tmp/x.log", Path("/home/a/b.zarr"))
    'no room in m/main; see x.log'
    """
    match value:
        case str():
            for folder in sorted({str(bank), str(bank.absolute()), str(bank.resolve())}, key=len):
                value = value.replace(f"{folder}/", "") if Path(folder).is_absolute() else value
            return _FOLDERS.sub("", value)
        case dict():
            return {key: without_folders(each, bank) for key, each in value.items()}
        case list():
            return [without_folders(each, bank) for each in value]
    return value


def plain(value: Any) -> Json:
    """A value of an event or of settings as JSON; folders by their names alone."""
    match value:
        case float():
            return round(value, 6)
        case None | bool() | int() | str():
            return value
        case CheckpointId():
            return str(value)
        case Path():
            return value.name
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return str(value)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
