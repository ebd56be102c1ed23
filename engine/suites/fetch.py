"""Download checkpoints and prompts and no more: on a machine with a network, for one without."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import Checkpoint, HubSource
from logitbank.engine.suites.suites import Suite, duplicate_notes, resolve_suite
from logitbank.errors import DiskSpaceError, LogitbankError, SuiteError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.format.schema import CheckpointId
from logitbank.wording import readable_bytes

_PARALLEL = 4
"""Checkpoints that are downloaded at once."""


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
    """Bytes that came over the network."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each."""

    @property
    def complete(self) -> bool:
        return not self.failed


class _StoppedError(Exception):
    """The downloads were interrupted."""


def fetch(
    suite: str | Suite | None = None,
    *,
    prompts: str | Sequence[str] = (),
    steps: str = "all",
    hub: Hub | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fetched:
    """Download checkpoints and public prompts to where `extract` finds them without a network.

    Files that are here are not downloaded again.

    Parameters
    ----------
    suite
        A known name, `owner/repo` on the hub, or a Suite. A local folder needs no download.
        Without one only prompts are fetched.
    prompts
        Prompt sets, with options as for `extract`; their files go where `extract` looks for them,
        `logitbank` in `XDG_CACHE_HOME` or `~/.cache`, with their checksums compared.
    steps
        `all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last`, or `release`.
    hub
        The hub to ask, by default the one that the environment names.
    progress
        Called with the bytes that came and that will, in any thread.

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
        prompt_set(spec)  # made as a run makes them, so that it lacks nothing later
    if suite is None:
        return Fetched(sets, seconds=time.monotonic() - start)
    hub = hub or Hub()
    if isinstance(suite, str):
        suite = resolve_suite(suite, steps=steps, hub=hub)
    result = Fetched(sets, notes=(*suite.notes, *duplicate_notes(suite, hub)))
    total = bytes_to_download(suite.checkpoints, hub)
    parent = existing(hub.cache_dir)
    if total > (free := shutil.disk_usage(parent).free):
        raise DiskSpaceError(
            f"these checkpoints need {readable_bytes(total)} and {parent} has "
            f"{readable_bytes(free)} free; choose fewer --steps, or set HF_HOME to a larger disk"
        )
    stopped, lock = threading.Event(), threading.Lock()

    def count(number: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        with lock:
            result.bytes += number
            progress(result.bytes, max(total, result.bytes))

    def bring(checkpoint: Checkpoint) -> Path:
        if isinstance(checkpoint.source, HubSource):
            return hub.fetch(checkpoint.source, on_bytes=count)
        return checkpoint.source.path

    with ThreadPoolExecutor(_PARALLEL) as pool:
        futures = {c.id: pool.submit(bring, c) for c in suite.checkpoints}
        try:
            for name, future in futures.items():
                try:
                    result.folders[name] = future.result()
                except LogitbankError as error:
                    result.failed[name] = str(error)
        finally:
            stopped.set()  # Ctrl-C need not wait for gigabytes
            pool.shutdown(cancel_futures=True)
    result.seconds = time.monotonic() - start
    return result


def bytes_to_download(checkpoints: Sequence[Checkpoint], hub: Hub) -> int:
    """Bytes that the checkpoints add to the cache; files of equal content count once."""
    sources = [c.source for c in checkpoints if isinstance(c.source, HubSource)]
    hub.list_all(sources)
    sizes: dict[str, int] = {}
    for source in sources:
        try:
            missing = hub.missing(source)
        except SuiteError:
            continue  # told when it is fetched
        sizes |= {file.digest: file.size for file in missing}
    return sum(sizes.values())


def bytes_beside(
    path: Path,
    checkpoints: Sequence[Checkpoint],
    hub: Hub | None,
    *,
    disk_budget: int | None,
) -> int:
    """Most bytes of downloads that a run will put on the disk that `path` is on."""
    if hub is None or existing(path).stat().st_dev != existing(hub.cache_dir).stat().st_dev:
        return 0
    needed = bytes_to_download(checkpoints, hub)
    return needed if disk_budget is None else min(needed, disk_budget)
