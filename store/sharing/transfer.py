"""Push a bank to a URL or folder, and pull one from a URL: only what changed, resumable."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from logitbank.errors import UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.files import objects
from logitbank.store.format import index
from logitbank.store.format.index import Object
from logitbank.store.remote.urls import url_of
from logitbank.store.sharing.moves import moves
from logitbank.store.sharing.selection import Steps, chosen
from logitbank.store.sharing.targets import Bucket, Folder, Target

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and those that there are."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a push or pull did."""

    objects: int
    """Objects that were sent."""
    bytes: int
    present: int
    """Objects that were there already, by name and size; their bytes were not read again."""

    def __str__(self) -> str:
        return (
            f"{self.objects:,} objects ({self.bytes:,} bytes) copied, {self.present:,} of the same"
            " size were there already and were not read again"
        )


def push(
    bank: str | Path,
    target: str | Path,
    *,
    models: Collection[str] | None = None,
    steps: Steps | None = None,
    prompts: Collection[str] | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Publish a bank, or add what is new in it to where it was published.

    Committed objects travel, data before the commit that vouches for them, and the index last.
    What is there stays: several people may push different deposits into one target. The same call
    goes on after an interruption. A data object that is there with the size that its commit says
    counts as there, and its bytes are not read again: `pull` checks every one.

    Parameters
    ----------
    bank
        Folder (or URL) of the bank.
    target
        `s3://bucket/prefix`, with the usual `AWS_…` variables; `hf://datasets/owner/name`, with
        `HF_TOKEN`; or a folder, to be given out by a web server.
    models, steps, prompts
        Only deposits of these, with the query sets and prompts that they need; all if None.
    progress
        Called with the bytes that are done and those that there are.

    Raises
    ------
    UsageError
        The target cannot be written to, or the bank is too large for one index.
    BankError
        A deposit is there with other attributes or content; nothing of it was changed. Or the bank
        has no such model, step or prompt set.
    DamagedError
        An object of the bank is not what was committed, or a table of it is missing; or an object
        there is of another size.
    RemoteError
        The target cannot be reached, or refuses.
    MissingExtraError
        The extra `remote` is not installed.
    """
    opened = Bank.open(bank)
    require_tables(opened.path, opened.deposits())
    here = chosen(opened, models=models, steps=steps, prompts=prompts)
    index.render(here)  # before anything is sent: it may be too large
    place = _target(target)
    if isinstance(place, Folder):
        _require_apart(opened, Path(target))
    return _move(here, opened.path, place, progress)


def pull(
    url: str | Path,
    folder: str | Path,
    *,
    models: Collection[str] | None = None,
    steps: Steps | None = None,
    prompts: Collection[str] | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Copy a bank from a URL into a folder, or add to a folder what it lacks of it.

    Every digest is checked before an object is put in place. The same call goes on after an
    interruption. Parameters and errors are those of `push`; `folder` is new, or a bank.
    """
    folder = Path(folder)
    if url_of(folder) is not None:
        raise UsageError(f"pull writes into a folder; to copy to {folder} pull first, then push")
    if objects.holds_something(folder):
        Bank.open(folder)
    opened = Bank.open(url)
    _require_apart(opened, folder)
    here = chosen(opened, models=models, steps=steps, prompts=prompts)
    objects.make_root(folder)
    return _move(here, opened.path, Folder(folder, indexed=False), progress)


def _require_apart(bank: Bank, folder: Path) -> None:
    if folder.exists() and folder.samefile(bank.path):
        raise UsageError(f"{folder} is the bank itself; give another folder")


def _move(
    here: Mapping[str, Object], source: Path, target: Target, progress: Progress | None
) -> Transfer:
    stored = target.stored()
    plan = moves(here, stored, place=target.name)
    say = _Counted(plan.bytes, progress)
    for group in plan.groups:
        target.send(group, source, say)
    sent = {path: value for group in plan.groups for path, value in group.items()}
    target.finish({**stored, **sent}, plan.replaced)
    return Transfer(len(sent), plan.bytes, len(here) - len(sent))


def _target(target: str | Path) -> Target:
    url = url_of(target)
    if url is None:
        folder = Path(target)
        if objects.holds_something(folder):
            Bank.open(folder)
        objects.make_root(folder)
        return Folder(folder, indexed=True)
    if url.startswith("s3:"):
        return Bucket(url)
    if url.startswith("hf:"):
        from logitbank.store.sharing.hub import HubDataset

        return HubDataset.at(url)
    raise UsageError(
        f"{url} cannot be written to over HTTP; push into a folder that the server gives out, to"
        " s3://bucket/prefix, or to hf://datasets/owner/name"
    )


class _Counted:
    """Adds up what several threads move."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()

    def __call__(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(self._done, self._total)
