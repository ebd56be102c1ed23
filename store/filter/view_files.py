"""The two files of a view: written so that a stopped call is gone on with, and checked when read.

`view.json` names the bank and holds the digests of the filter's file, of the documents of the
deposits that the view was made of, and of itself.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logitbank.errors import BankFormatError, DamagedError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import documents, objects
from logitbank.store.filter.filters import Filter
from logitbank.store.format.schema import VIEW
from logitbank.store.remote.urls import url_of

FORMAT = 1
FILTER = "filter.safetensors"
_DIGESTS = ("filter", "source", documents.SELF_DIGEST)
_AGAIN = "make it again with `logitbank debias apply`"
_BANKS_REMEDY = re.compile(r"; (move it away, then )?run `logitbank verify[^`]*`$")
"""What a bank's damaged document says to do; nothing of a view is repaired."""


@dataclass(frozen=True, slots=True)
class ViewDocument:
    """What `view.json` says."""

    bank: str
    """Path from the view's folder, or URL."""
    model: str
    """What the model is called in the view."""
    filter: str | None = None
    """SHA-256 (hex) of the filter's file; None in a view of before there were digests."""
    source: Mapping[str, str] | None = None
    """SHA-256 (hex) of each deposit's `zarr.json`, by its folder in the bank. A deposit keeps that
    document for good, while the bank around it grows and is described anew."""

    @property
    def checked(self) -> bool:
        """Whether anything vouches for the filter and the bank."""
        return self.filter is not None

    def render(self) -> bytes:
        content: dict[str, Any] = {"format": FORMAT, "bank": self.bank, "model": self.model}
        content |= {"filter": self.filter, "source": dict(self.source or {})}
        return documents.json_bytes({**content, documents.SELF_DIGEST: _own_digest(content)})

    @classmethod
    def read(cls, folder: Path) -> "ViewDocument":
        """Read and check `view.json` of a view's folder.

        Raises
        ------
        BankFormatError
            It is no view, or of another format.
        DamagedError
            `view.json` is not as it was written.
        """
        try:
            content = documents.read_json(folder / VIEW)
        except (FileNotFoundError, DamagedError) as error:
            raise _no_view(folder, _BANKS_REMEDY.sub("", str(error))) from error
        if content.get("format") != FORMAT or type(content["format"]) is not int:
            raise BankFormatError(
                f"{folder} is a view of format {ascii(content.get('format'))[:80]}, not {FORMAT};"
                f" {_AGAIN}"
            )
        if not all(isinstance(content.get(name), str) for name in ("bank", "model")):
            raise _no_view(folder, "it does not say of which bank, or what its model is called")
        bank, model = content["bank"], content["model"]
        if "\0" in bank:
            raise _no_view(folder, "its bank is no path")
        if not any(name in content for name in _DIGESTS):
            return cls(bank, model)
        filter_, source = content.get("filter"), content.get("source")
        if content.get(documents.SELF_DIGEST) != _own_digest(content):
            raise DamagedError(
                f"{folder / VIEW} is not as it was written: its SHA-256 is not the one that it"
                f" tells of itself; only bank may be changed; {_AGAIN}"
            )
        if not isinstance(filter_, str) or not _are_texts(source):
            raise _no_view(folder, "its digests are none")
        return cls(bank, model, filter_, source)


def read_filter(folder: Path, document: ViewDocument) -> Filter:
    """The filter of a view, which must be the one that it was made with.

    Raises
    ------
    UsageError
        It is not there, or no filter.
    DamagedError
        It has other bytes.
    """
    path = folder / FILTER
    if not path.is_file():
        state = "is no file" if path.exists() else "is not there"
        raise UsageError(
            f"{path} {state}, and the view {folder} was made with it; put back the file, or make"
            " the view again with `logitbank debias apply`"
        )
    if document.checked and objects.digest(path).sha256 != document.filter:
        raise DamagedError(
            f"{path} is not the filter that this view was made with: its bytes are others; take it"
            " from a copy, or make the view again with `logitbank debias apply`"
        )
    return Filter.load(path)


def bank_of(folder: Path, document: ViewDocument) -> str:
    """Path or URL of the bank that a view is of."""
    if url_of(document.bank):
        return document.bank
    return os.path.normpath(folder.resolve() / document.bank)


def source_of(deposits: Sequence[Deposit], root: Path) -> dict[str, str]:
    """Which deposits a view is made of: digests of their documents, by folder."""
    return {
        deposit.path.relative_to(root).as_posix(): objects.digest(deposit.path / "zarr.json").sha256
        for deposit in deposits
    }


def check_source(folder: Path, document: ViewDocument, bank: Path) -> None:
    """Refuse another bank than a view was made of; one that has grown since is the same.

    Raises
    ------
    BankFormatError
        It lacks a deposit of then, or has another in its place; names the first.
    """
    for deposit, sha256 in (document.source or {}).items():
        try:
            same = objects.digest(objects.plain_path(bank, f"{deposit}/zarr.json")).sha256 == sha256
            why = "has another deposit there"
        except (FileNotFoundError, NotADirectoryError):
            same, why = False, "has no such deposit"
        if not same:
            raise BankFormatError(
                f"{folder} was made of another bank than {bank}: of {deposit}, where this one"
                f" {why}; write into {folder / VIEW} as bank where the right one is, or make a view"
                " of this one with `logitbank debias apply`"
            )


def write(folder: Path, by: Filter, document: ViewDocument) -> None:
    """Write a view's files into its folder: the filter first, and `view.json` last.

    A folder with nothing but the same filter is what a stopped call left, and is completed.

    Raises
    ------
    UsageError
        Something else is there.
    """
    taken = UsageError(f"{folder} is there already; choose another folder, or remove it")
    if objects.holds_something(folder) and not _begun(folder, by):
        raise taken
    objects.make_root(folder)
    for file in (FILTER, VIEW):
        for beside in folder.glob(f".{file}-*"):
            beside.unlink(missing_ok=True)
    if not (folder / FILTER).exists():
        by.save(folder / FILTER)
    sha256 = objects.digest(folder / FILTER).sha256
    final = ViewDocument(document.bank, document.model, sha256, document.source)
    if not objects.write_new(folder / VIEW, final.render()):
        raise taken


def _begun(folder: Path, by: Filter) -> bool:
    """Whether a stopped call left this: the filter, perhaps, and nothing else."""
    if not folder.is_dir() or [e.name for e in objects.entries(folder)] != [FILTER]:
        return False
    try:
        return Filter.load(folder / FILTER).is_same(by)
    except UsageError:
        return False


def _own_digest(content: Mapping[str, Any]) -> str:
    """Digest of all but itself and `bank`, which changes where the bank is moved."""
    rest = {k: v for k, v in content.items() if k not in ("bank", documents.SELF_DIGEST)}
    return objects.digest_of(json.dumps(rest, indent=2).encode()).sha256


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _no_view(folder: Path, why: str) -> BankFormatError:
    return BankFormatError(
        f"{folder} is no view of a bank ({why}); make one with `logitbank debias apply`"
    )
