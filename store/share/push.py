"""Push a bank to a URL or folder, and pull one from a URL: new objects only, resumable."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from logitbank.errors import UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.files import objects
from logitbank.store.format import index
from logitbank.store.format.index import Object
from logitbank.store.share.hub import HubDataset
from logitbank.store.share.local import ensure_local
from logitbank.store.share.moves import moves
from logitbank.store.share.places import place_at
from logitbank.store.share.selection import Names, Steps, chosen
from logitbank.store.share.targets import Bucket, Folder, SourceBank, Target
from logitbank.store.share.urls import url_of

Progress = Callable[[int, int], None]
"""Called with the number of bytes sent, and the total."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Result of a push or pull."""

    objects: int
    """Objects that were sent."""
    bytes: int
    present: int
    """Objects that were present already, by name and size; their bytes were not read again."""

    def __str__(self) -> str:
        return (
            f"{self.objects:,} objects ({self.bytes:,} bytes) copied, {self.present:,} of the same"
            " size were there already and were not read again"
        )


def push(
    bank: str | Path,
    target: str | Path,
    *,
    models: Names = None,
    steps: Steps = None,
    prompts: Names = None,
    progress: Progress | None = None,
) -> Transfer:
    """Publish a bank, or add its new deposits to a published one.

    Committed objects are sent: data before their commit, and the index last. Existing objects
    stay, so several people may push different deposits to one target. Run the same call again to
    resume. `push` compares existing data objects by size only; `pull` checks every digest.

    Parameters
    ----------
    bank
        Folder or URL of the bank.
    target
        `s3://bucket/prefix`, with the usual `AWS_…` variables; `hf://datasets/owner/name`, with
        `HF_TOKEN`; or a folder, to be given out by a web server.
    models, steps, prompts
        Only deposits of these, with the query sets and prompts that they need; all if None.
    progress
        Called with the number of bytes sent, and the total.

    Raises
    ------
    UsageError
        The target cannot be written to, or the bank is too large for one index.
    BankError
        The target has a deposit with other attributes or content, which stays unchanged. Or the
        bank has no such model, step or prompt set.
    DamagedError
        An object of the bank is missing or differs from its commit; or an object at the target
        has another size.
    RemoteError
        The target cannot be reached, or refuses.
    MissingExtraError
        The extra `remote` is not installed.
    """
    opened = Bank.open(bank, models=models, steps=steps, prompts=prompts, rows=True)
    if opened.url is None:  # a copy of a bank at a URL has what is asked for, and maybe no more
        require_tables(opened.path, opened.deposits())
    requested = chosen(opened.path, models=models, steps=steps, prompts=prompts)
    index.render(requested)  # before anything is sent: it may be too large
    place = _target(target)
    if isinstance(place, Folder):
        _require_apart(opened.path, Path(target))
    return _move(requested, SourceBank(opened.path), place, progress)


def pull(
    url: str | Path,
    folder: str | Path,
    *,
    models: Names = None,
    steps: Steps = None,
    prompts: Names = None,
    progress: Progress | None = None,
) -> Transfer:
    """Copy a bank from a URL into a folder, or add its new objects to an earlier copy.

    `pull` checks the digest of every object before it appears in the folder. Run the same call
    again to resume. Parameters and errors are those of `push`; `folder` is new, or a bank.
    """
    folder = Path(folder)
    if url_of(folder) is not None:
        raise UsageError(
            f"pull writes into a folder; to copy to {url_of(folder)} pull first, then push"
        )
    if objects.holds_something(folder):
        Bank.open(folder)
    address = url_of(url)
    if address is None:
        source = SourceBank(Bank.open(url).path)
    else:
        source = SourceBank(ensure_local(address, prompts=prompts, models=[]), place_at(address))
    _require_apart(source.root, folder)
    requested = chosen(source.root, models=models, steps=steps, prompts=prompts)
    objects.make_root(folder)
    return _move(requested, source, Folder(folder, indexed=False), progress)


def _require_apart(bank: Path, folder: Path) -> None:
    if folder.exists() and folder.samefile(bank):
        raise UsageError(f"{folder} is the bank itself; give another folder")


def _move(
    requested: Mapping[str, Object],
    source: SourceBank,
    target: Target,
    progress: Progress | None,
) -> Transfer:
    stored = target.stored()
    plan = moves(requested, stored, place=target.name)
    done, lock = 0, threading.Lock()

    def advance(size: int) -> None:
        nonlocal done
        with lock:  # several threads send
            done += size
            if progress is not None:
                progress(done, plan.bytes)

    for group in plan.groups:
        target.send(group, source, advance)
    sent = {path: value for group in plan.groups for path, value in group.items()}
    target.finish({**stored, **sent}, plan.replaced)
    return Transfer(len(sent), plan.bytes, len(requested) - len(sent))


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
        return HubDataset(url)
    raise UsageError(
        f"{url} cannot be written to over HTTP; push into a folder that the server gives out, to"
        " s3://bucket/prefix, or to hf://datasets/owner/name"
    )
