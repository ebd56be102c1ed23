"""Push a bank to a URL or folder, and pull one from a URL: new objects only, resumable."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from logitbank.errors import UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.files.staging import remove_dead
from logitbank.store.format import index
from logitbank.store.format.about import licenses
from logitbank.store.progress import Progress
from logitbank.store.read.choose import Names, Steps
from logitbank.store.read.provenance import index_digest
from logitbank.store.share.copying import Copied, Part, copy, open_folder, require_other
from logitbank.store.share.hub import HubDataset
from logitbank.store.share.local import ensure_local, open_remote
from logitbank.store.share.s3 import S3
from logitbank.store.share.selection import chosen, selected
from logitbank.store.share.targets import Source, Target
from logitbank.store.share.urls import bank_url, shown_url
from logitbank.wording import counted


@dataclass(frozen=True, slots=True)
class Transfer:
    """Result of a push or pull."""

    objects: int
    """Objects that were sent."""
    bytes: int
    present: int
    """Existing objects of the same name and size; their bytes were not read again."""
    incomplete: int
    """Deposits that were left out because they are in progress."""
    digest: str = ""
    """Digest of the published bank; see `logitbank.store.read.provenance.bank_digest`."""
    has_license: bool = True
    """Whether the published bank, or each of its sources, states a license."""

    def __str__(self) -> str:
        left = f", {counted(self.incomplete, 'incomplete deposit')} left out"
        return (
            f"{self.objects:,} objects ({self.bytes:,} bytes) copied, {self.present:,} existing"
            f" objects skipped (same size){left if self.incomplete else ''}"
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

    Whole deposits are sent: data before their commit, and the index last. Existing objects
    stay, so several people may push different deposits to one target. Run the same call again to
    resume. `push` compares existing data objects by size only; `pull` checks every digest.

    Parameters
    ----------
    bank
        Folder or URL of the bank.
    target
        `s3://bucket/prefix`, with the usual `AWS_…` variables; `hf://datasets/owner/name`, with
        `HF_TOKEN`; or a folder, for a web server to publish.
    models, steps, prompts
        Models, training steps and prompt sets of the deposits to send; all if None.
    progress
        Called with the number of bytes sent, and the total.

    Raises
    ------
    UsageError
        The target cannot be written to, or the bank is too large for one index.
    BankError
        The target has an object with other bytes, which stays unchanged. Or the bank has no such
        model, step or prompt set.
    DamagedError
        An object of the bank is missing or differs from its commit.
    RemoteError
        The target cannot be reached, or refuses access.
    MissingExtraError
        The extra `remote` is not installed.
    """
    opened = Bank.open(bank, models=models, steps=steps, prompts=prompts, rows=True)
    require_tables(opened.path, opened.deposits())
    requested = chosen(opened.path, models=models, steps=steps, prompts=prompts)
    index.render(requested)  # before anything is sent: it may be too large
    if bank_url(target) is None:
        require_other(target, opened.path)
    part = Part(Source(opened.path), requested)
    done = copy([part], open_target(target), progress=progress, published=True)
    if bank_url(target) is None:
        remove_dead(Path(target))
    root = json.loads(done.stored["zarr.json"].text or "{}")["attributes"]["logitbank"]
    return replace(
        _transfer(part, done, models, steps, prompts),
        digest=index_digest(done.stored),
        has_license=bool(licenses(root)),
    )


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
    target = open_folder(folder)
    address = bank_url(url)
    if address is None:
        source = Source(Bank.open(url).path)
    else:
        source = Source(ensure_local(address, prompts=[]), open_remote(address))
    require_other(folder, source.root)
    requested = chosen(source.root, models=models, steps=steps, prompts=prompts)
    part = Part(source, requested)
    done = copy([part], target, progress=progress)
    remove_dead(Path(folder))
    return _transfer(part, done, models, steps, prompts)


def _transfer(part: Part, done: Copied, models: Names, steps: Steps, prompts: Names) -> Transfer:
    root = part.source.root
    deposits = selected(root, models=models, steps=steps, prompts=prompts).deposits
    incomplete = sum(not deposit.sealed for deposit in deposits)
    return Transfer(done.objects, done.bytes, len(part.objects) - done.objects, incomplete)


def open_target(target: str | Path) -> Target:
    url = bank_url(target)
    if url is None:
        return open_folder(target)
    if url.startswith("s3:"):
        return S3(url, write=True)
    if url.startswith("hf:"):
        return HubDataset(url)
    raise UsageError(
        f"Cannot push to {shown_url(target)}: HTTP is read-only. Push to a folder that the server"
        " publishes, to s3://bucket/prefix, or to hf://datasets/owner/name."
    )
