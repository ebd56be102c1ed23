"""Copy the requested part of a bank at a URL into a folder of the cache."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from logitbank.errors import (
    AbsentError,
    BankError,
    BankFormatError,
    DiskSpaceError,
    RemoteError,
    UsageError,
)
from logitbank.store.files import copies, documents, locks, objects, verified
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Objects, object_deposit, object_head
from logitbank.store.read.choose import Names, Steps
from logitbank.store.share.remote import Remote, absent, download, hub_files, read, web
from logitbank.store.share.s3 import S3
from logitbank.store.share.selection import selected
from logitbank.store.share.urls import bank_url, shown_url
from logitbank.whole_files import whole_file

LOG = logging.getLogger("logitbank")
"""Reports repaired damage; the command line and Python show it by default."""


def open_remote(url: str) -> Remote:
    """The remote store at a URL. No request is sent yet.

    Raises MissingExtraError if a library of the extra `remote` is not installed.
    """
    if url.startswith("s3:"):
        return S3(url)
    return hub_files(url) if url.startswith("hf:") else web(url)


def ensure_local(
    url: str,
    *,
    models: Names = None,
    steps: Steps = None,
    prompts: Names = None,
    rows: bool = False,
) -> Path:
    """Copy the requested part of a bank at a URL into the cache; return the folder of the copy.

    All JSON documents, `.sha256` files (metadata) and tables are copied, and the scores of the
    requested deposits. Every object is compared with the digest in the bank's index, including
    those of earlier calls. Damaged objects are fetched again.

    Parameters
    ----------
    url
        https://…, s3://bucket/prefix, or hf://datasets/owner/name[@revision].
    models, steps, prompts
        Models, training steps and prompt sets; all if None. `prompts=[]` copies no scores.
    rows
        Also copy the full rows, states and heads of these deposits.

    Raises
    ------
    AbsentError
        The bank has no such model, step or prompt set.
    BankFormatError
        There is no bank at the URL.
    DamagedError
        The index of the bank is damaged.
    RemoteError
        The URL cannot be reached, refuses access, or sends bytes that do not match a digest in the
        index.
    UsageError
        The URL is unsupported, or the cache folder cannot be written.
    MissingExtraError
        The extra `remote` is not installed.
    """
    address, shown = bank_url(url), shown_url(url)
    if address is None or shown is None:
        raise UsageError(f"{url} is not a URL. Use https://, s3:// or hf://.")
    remote, root = open_remote(address), copies.copy_folder(shown)

    with _explained(shown, root):
        root.mkdir(parents=True, exist_ok=True)
        with locks.locked(root / ".lock"):
            listed = _copy_documents(root, remote)
            _copy_selected(root, remote, listed, models, steps, prompts, rows=rows)
    return root


@contextmanager
def _explained(url: str, root: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise absent(error) from error
    except DiskSpaceError:
        raise
    except (BankError, UnicodeDecodeError) as error:  # about a file of the copy, not about the bank
        if isinstance(error, RemoteError | AbsentError) or str(root) not in str(error):
            raise
        raise UsageError(
            f"The copy of {url} in {root} is damaged ({error}). Delete that folder, then run the"
            " same command again."
        ) from error
    except OSError as error:
        raise UsageError(
            f"The copy of {url} in {root} cannot be written ({error.strerror}). Delete that folder,"
            " or set LOGITBANK_CACHE to a writable folder."
        ) from error


def _copy_documents(root: Path, remote: Remote) -> Objects:
    """Bring all documents up to date; return the objects that the index lists now."""
    url, file = f"{remote.url}/{index.NAME}", root / index.NAME
    try:
        data = read(remote, index.NAME)
    except FileNotFoundError as error:
        raise BankFormatError(
            f"There is no bank at {remote.url}: {url} does not exist. Check the address, or"
            " publish the bank there with `logitbank push`."
        ) from error
    listed = index.parse(data, where=url)
    if "zarr.json" not in listed:
        raise BankFormatError(f"The index of {remote.url} lists no zarr.json. Check the address.")
    # Write new documents before deleting old objects, so that readers of the copy always find
    # complete data.
    _fetch(root, remote, listed, (p for p, value in listed.items() if value.text is not None))
    source = {"url": remote.url}
    _write(root / copies.SOURCE, documents.signed(source, source))
    if not file.is_file() or file.read_bytes() != data:
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if index.is_object(name) and name not in listed and path.is_file():
                path.unlink()
        _write(file, data)
    return listed


def _copy_selected(
    root: Path,
    remote: Remote,
    listed: Objects,
    models: Names,
    steps: Steps,
    prompts: Names,
    *,
    rows: bool,
) -> None:
    _fetch(root, remote, listed, (path for path in listed if index.is_table(path)))
    deposits = selected(root, models=models, steps=steps, prompts=prompts).deposits
    folders = {d.path.relative_to(root).as_posix() for d in deposits}
    heads = {f"heads/{digest}" for d in deposits for digest in d.spec.heads.values()}
    _fetch(
        root,
        remote,
        listed,
        (
            path
            for path in listed
            if (object_deposit(path) in folders and (rows or "/scores/" in path))
            or (rows and object_head(path) in heads)
        ),
    )


def _fetch(root: Path, remote: Remote, listed: Objects, paths: Iterable[str]) -> None:
    """Fetch listed objects that the copy does not contain, or contains with other bytes."""
    files = {path: objects.plain_path(root, path) for path in paths}
    present = {file: listed[path].digest for path, file in files.items() if file.is_file()}
    damaged = set(verified.unsound(present))
    for file in damaged:
        file.unlink()

    def fetch(path: str) -> None:
        value, file = listed[path], files[path]
        file.parent.mkdir(parents=True, exist_ok=True)
        if value.text is not None:
            _write(file, value.text.encode())
        else:
            download(remote, path, value.digest, file)

    in_parallel(fetch, [p for p, file in files.items() if file in damaged or file not in present])
    for file in damaged:
        LOG.warning("%s was damaged and was fetched again.", file)


def _write(file: Path, data: bytes) -> None:
    if file.is_file() and file.read_bytes() == data:
        return
    with whole_file(file, is_shared=False) as part:  # the caller holds the lock of the copy
        part.write_bytes(data)
