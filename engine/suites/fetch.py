"""Download checkpoints and prompts and no more: on a machine with a network, for one without."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from logitbank.engine.hub.blobs import Blob
from logitbank.engine.hub.hub import Hub
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.suites.budget import parse_bytes
from logitbank.engine.suites.fetcher import Fetcher
from logitbank.engine.suites.suites import (
    Checkpoint,
    HubSource,
    Suite,
    duplicate_notes,
    resolve_suite,
)
from logitbank.errors import DiskSpaceError, LogitbankError, SuiteError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.format.schema import CheckpointId
from logitbank.wording import readable_bytes


@dataclass(slots=True)
class Fetched:
    """What a download did."""

    prompts: tuple[str, ...] = ()
    """Prompt sets whose files are here now, as they were named."""
    folders: dict[CheckpointId, Path] = field(default_factory=dict)
    """Folders of the checkpoints that are here now."""
    failed: dict[CheckpointId, str] = field(default_factory=dict)
    """Why others are not."""
    untried: int = 0
    """Given up because others failed in a way that concerns them too."""
    bytes: int = 0
    """Bytes of weights that came over the network."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What the user should know, one line each."""

    @property
    def complete(self) -> bool:
        return not (self.failed or self.untried)


def fetch(
    suite: str | Suite | None = None,
    *,
    prompts: str | Sequence[str] = (),
    steps: str = "all",
    legacy_weights: bool = False,
    parallel: int = 4,
    disk_budget: str | int | None = None,
    hub: Hub | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fetched:
    """Download checkpoints and public prompts to where `extract` finds them without a network.

    What is there is not fetched again, and what was interrupted goes on where it broke off.

    Parameters
    ----------
    suite
        A known name, `owner/repo` on the hub, or a Suite. A local folder needs no download.
        Without one only prompts are fetched.
    prompts
        Prompt sets, with options as for `extract`; their files go where `extract` looks for them,
        `logitbank` in `XDG_CACHE_HOME` or `~/.cache`, with their checksums compared.
    steps
        `all`, `log`, `START:END:STRIDE`, a list such as `0,512,last`, or `release`.
    legacy_weights
        Accept `.bin` weights where there are no safetensors.
    parallel
        Checkpoints to download at once.
    disk_budget
        Most that the download may take of the disk, in bytes or as `100GB`. Nothing is evicted:
        all of it is wanted later.
    hub
        The hub to ask, by default the one that the environment names.
    progress
        Told of the bytes of weights that came and that will, in any thread.

    Returns
    -------
    Fetched
        Where each checkpoint is, and which ones failed.

    Raises
    ------
    UsageError
        Neither a suite nor prompts; `parallel` is below 1, or the checkpoints need more than the
        budget; or prompts that do not exist, cannot be reached or are never downloaded.
    LogitbankError
        A file of the prompts is not the published one.
    DiskSpaceError
        They need more than the free disk.
    SuiteError
        As `resolve_suite`.
    """
    start = time.monotonic()
    if parallel < 1:
        raise UsageError(f"--parallel {parallel} is below 1")
    sets = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    if suite is None and not sets:
        raise UsageError("nothing to fetch; give --suite, --prompts, or both")
    limit = None if disk_budget is None else parse_bytes(disk_budget)
    for spec in sets:
        prompt_set(spec)  # made as a run makes them, so that it lacks nothing later
    if suite is None:
        return Fetched(sets, seconds=time.monotonic() - start)
    hub = hub or Hub()
    if isinstance(suite, str):
        suite = resolve_suite(suite, steps=steps, hub=hub)
    left = _left(suite.checkpoints, hub, legacy_weights)
    _check_room(sum(left), hub.cache_dir, limit, _fitting(left, limit))
    result = Fetched(sets, notes=(*suite.notes, *duplicate_notes(suite, hub)))
    lock = threading.Lock()

    def count(number: int) -> None:
        with lock:
            result.bytes += number
            progress(max(0, result.bytes), max(sum(left), result.bytes))

    with Fetcher(
        suite.checkpoints, hub, legacy_weights=legacy_weights, parallel=parallel, on_bytes=count
    ) as fetcher:
        for index in range(len(suite.checkpoints)):
            fetcher.start(index)
        for index, checkpoint in enumerate(suite.checkpoints):
            try:
                result.folders[checkpoint.id] = fetcher.folder(index)
            except LogitbankError as error:
                again = str(error) in result.failed.values()
                result.failed[checkpoint.id] = str(error)
                if again or isinstance(error, DiskSpaceError):
                    result.untried = len(suite.checkpoints) - index - 1
                    break
    result.seconds = time.monotonic() - start
    return result


def _left(checkpoints: Sequence[Checkpoint], hub: Hub, legacy_weights: bool) -> list[int]:
    """Bytes of weights that each checkpoint adds to what is here and what those before it need."""
    if hub.offline:
        return [0] * len(checkpoints)

    def blobs(checkpoint: Checkpoint) -> tuple[Blob, ...]:
        if not isinstance(source := checkpoint.source, HubSource):
            return ()
        try:
            return hub.blobs(source.repo, source.revision, legacy_weights=legacy_weights)
        except SuiteError:
            return ()  # told when it is fetched

    with ThreadPoolExecutor(max_workers=8) as pool:
        blobs_of_checkpoints = list(pool.map(blobs, checkpoints))
    seen: set[Path] = set()
    sizes = []
    for each in blobs_of_checkpoints:
        new = {blob.path: blob for blob in each if blob.path not in seen}
        seen |= new.keys()
        sizes.append(sum(blob.left for blob in new.values()))
    return sizes


def bytes_beside(
    path: Path,
    checkpoints: Sequence[Checkpoint],
    hub: Hub | None,
    *,
    legacy_weights: bool,
    disk_budget: int | None,
) -> int:
    """Most bytes of weights that a run will put on the disk that `path` is on."""
    if hub is None or not any(isinstance(c.source, HubSource) for c in checkpoints):
        return 0
    if existing(path).stat().st_dev != existing(hub.cache_dir).stat().st_dev:
        return 0
    needed = sum(_left(checkpoints, hub, legacy_weights))
    return needed if disk_budget is None else min(needed, disk_budget)


def _fitting(left: Sequence[int], limit: int | None) -> int:
    """How many of the first checkpoints a budget holds."""
    total = 0
    for index, size in enumerate(left):
        total += size
        if limit is not None and total > limit:
            return index
    return len(left)


def _check_room(needed: int, cache: Path, limit: int | None, fitting: int) -> None:
    if limit is not None and needed > limit:
        raise UsageError(
            f"these checkpoints need {readable_bytes(needed)} and --disk-budget is "
            f"{readable_bytes(limit)}, which holds the first {fitting}; choose fewer --steps, or "
            "extract with --disk-budget where there is a network"
        )
    parent = existing(cache)
    if needed > (free := shutil.disk_usage(parent).free):
        raise DiskSpaceError(
            f"these checkpoints need {readable_bytes(needed)} and {parent} has "
            f"{readable_bytes(free)} free; choose fewer --steps, or set HF_HOME to a larger disk"
        )
