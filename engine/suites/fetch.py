"""Download checkpoints and prompts and no more: on a machine with a network, for one without."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.prefetch import Prefetcher
from logitbank.engine.suites.suites import Checkpoint, Suite, duplicate_notes, resolve_suite
from logitbank.errors import DiskSpaceError, LogitbankError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.format.schema import CheckpointId
from logitbank.wording import readable_bytes

_AHEAD = 3
"""Checkpoints that are downloaded while the next one is waited for."""


@dataclass(slots=True)
class Fetched:
    """What a download did."""

    prompts: tuple[str, ...] = ()
    """Prompt sets whose files are here now."""
    folders: dict[CheckpointId, Path] = field(default_factory=dict)
    """Folders of the checkpoints that are here now."""
    failed: dict[CheckpointId, str] = field(default_factory=dict)
    """Why others are not."""
    bytes: int = 0
    """Bytes downloaded."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each."""

    @property
    def complete(self) -> bool:
        return not self.failed


def fetch(
    suite: str | Suite | None = None,
    *,
    prompts: str | Sequence[str] = (),
    steps: str = "all",
    hub: Hub | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fetched:
    """Download checkpoints and public prompts to where `extract` finds them without a network.

    Existing files are not downloaded again.

    Parameters
    ----------
    suite
        A known name, `owner/repo` on the hub, or a Suite. Without one only prompts are fetched.
    prompts
        Prompt sets, with options as for `extract`. Their files go to `logitbank` in
        `XDG_CACHE_HOME` or `~/.cache`, with their checksums compared.
    steps
        `all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last`, or `release`.
    hub
        The hub, by default the one that the environment names.
    progress
        Called with the bytes downloaded and their total, in any thread.

    Returns
    -------
    Fetched
        Where each checkpoint is, and which ones failed.

    Raises
    ------
    UsageError
        Neither a suite nor prompts; or prompts that do not exist, cannot be reached or are never
        downloaded.
    LogitbankError
        A file of the prompts is not the published one.
    DiskSpaceError
        The checkpoints need more than the free disk.
    SuiteError
        As `resolve_suite`.
    """
    start = time.monotonic()
    sets = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    if suite is None and not sets:
        raise UsageError("nothing to fetch; give --suite, --prompts, or both")
    for spec in sets:
        prompt_set(spec)  # made as a run makes them, so that nothing is missing later
    result = Fetched(sets)
    if suite is not None:
        hub = hub or Hub()
        if isinstance(suite, str):
            suite = resolve_suite(suite, steps=steps, hub=hub)
        result.notes = (*suite.notes, *duplicate_notes(suite, hub))
        _fetch_checkpoints(suite.checkpoints, hub, result, progress)
    result.seconds = time.monotonic() - start
    return result


def _fetch_checkpoints(
    checkpoints: Sequence[Checkpoint],
    hub: Hub,
    result: Fetched,
    progress: Callable[[int, int], None],
) -> None:
    total = hub.missing_bytes(checkpoint.source for checkpoint in checkpoints)
    parent = existing(hub.cache_dir)
    if total > (free := shutil.disk_usage(parent).free):
        raise DiskSpaceError(
            f"these checkpoints need {readable_bytes(total)} and {parent} has "
            f"{readable_bytes(free)} free; choose fewer --steps, or set HF_HOME to a larger disk"
        )
    lock = threading.Lock()

    def count(number: int) -> None:
        with lock:
            result.bytes += number
            progress(result.bytes, max(total, result.bytes))

    with Prefetcher(checkpoints, hub, ahead=_AHEAD, on_bytes=count) as downloads:
        downloads.plan(range(len(checkpoints)))
        for index, checkpoint in enumerate(checkpoints):
            try:
                result.folders[checkpoint.id] = downloads.folder(index)
            except LogitbankError as error:
                result.failed[checkpoint.id] = str(error)
