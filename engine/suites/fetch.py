"""Download checkpoints and prompts without running them, for a machine without a network."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logitbank.engine.prompts.registry import prompt_sets
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.prefetch import Prefetcher
from logitbank.engine.suites.suites import Suite, resolve_suite
from logitbank.errors import DiskSpaceError, LogitbankError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import Steps
from logitbank.wording import readable_bytes

_AHEAD = 3
"""Checkpoints that are downloaded while the next one is waited for."""


@dataclass(slots=True)
class Fetched:
    """Result of `fetch`."""

    prompts: tuple[str, ...] = ()
    """Prompt sets whose files are present now."""
    folders: dict[CheckpointId, Path] = field(default_factory=dict)
    """Folders of the checkpoints that are present now."""
    failed: dict[CheckpointId, str] = field(default_factory=dict)
    """Error messages of the other checkpoints."""
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
    steps: Steps = "all",
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
        `XDG_CACHE_HOME` or `~/.cache`, with their checksums compared; those of `lm-eval:…` to the
        cache of Hugging Face datasets.
    steps
        `all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last` or `[0, 512]`, or `release`.
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
        raise UsageError("Nothing to fetch. Fix: add --suite, --prompts, or both.")
    if sets:
        prompt_sets(sets, data=None)  # made as a run makes them, so that nothing is missing later
    result = Fetched(sets)
    if suite is None:
        result.seconds = time.monotonic() - start
        return result
    hub = hub or Hub()
    if isinstance(suite, str):
        suite = resolve_suite(suite, steps=steps, hub=hub)
    result.notes = suite.notes
    total = hub.missing_bytes(checkpoint.source for checkpoint in suite.checkpoints)
    parent = existing(hub.cache_dir)
    if total > (free := shutil.disk_usage(parent).free):
        raise DiskSpaceError(
            f"These checkpoints need {readable_bytes(total)}, and {parent} has"
            f" {readable_bytes(free)} free. Fix: choose fewer --steps, or set HF_HOME to a folder"
            " on a larger disk."
        )
    lock = threading.Lock()

    def count(number: int) -> None:
        with lock:
            result.bytes += number
            progress(result.bytes, max(total, result.bytes))

    with Prefetcher(suite.checkpoints, hub, ahead=_AHEAD, on_bytes=count) as downloads:
        downloads.plan(range(len(suite.checkpoints)))
        for index, checkpoint in enumerate(suite.checkpoints):
            try:
                result.folders[checkpoint.id] = downloads.folder(index)
            except LogitbankError as error:
                result.failed[checkpoint.id] = str(error)
    result.seconds = time.monotonic() - start
    return result
