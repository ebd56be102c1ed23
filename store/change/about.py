"""Title, license and citation of a bank, and of the banks that it was made of.

The bank's own `zarr.json` is the only document that may be replaced, at once and under a lock: no
commit names it, and nothing in a deposit depends on these fields.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from logitbank.errors import DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.files import copies, disk, documents, locks, objects
from logitbank.store.format.about import Source, about_fields, bank_sources, checked_fields
from logitbank.store.share.urls import bank_url


def describe(
    bank: str | Path,
    *,
    title: str | None = None,
    license: str | None = None,
    citation: str | None = None,
) -> Bank:
    """Set a bank's title, license or citation, and return the bank. None leaves a field unchanged.

    This also repairs a bank whose `zarr.json` was damaged in these fields.

    Raises
    ------
    UsageError
        No field is given.
    BankFormatError
        The folder is not a bank.
    """
    texts = {"title": title, "license": license, "citation": citation}
    fields = checked_fields({name: value for name, value in texts.items() if value is not None})
    if not fields:
        raise UsageError("Nothing to set. Use a title, a license or a citation.")
    try:
        copies.require_folder(Bank.open(bank, prompts=[]).path)
    except DamagedError:  # in fields that are written again here
        if bank_url(bank):
            raise
    _replace(Path(bank), lambda _: fields)
    return Bank.open(bank)


def described_as(bank: Bank, models: Iterable[str]) -> list[Source]:
    """The sources of a bank, then the bank itself if it has any of the fields."""
    fields = about_fields(bank.attributes)
    here = [{**fields, "models": sorted(set(models))}] if any(fields.values()) else []
    return [*bank_sources(bank.attributes), *here]


def add_sources(root: Path, sources: Sequence[Source]) -> None:
    """Record where deposits came from. Sources with equal fields are joined."""

    def joined(attributes: dict[str, Any]) -> dict[str, Any]:
        merged = bank_sources(attributes)
        for source in sources:
            same = [s for s in merged if about_fields(s) == about_fields(source)]
            if same:
                same[0]["models"] = sorted({*same[0]["models"], *source["models"]})
            else:
                merged.append(dict(source))
        return {"sources": merged} if merged else {}

    _replace(root, joined)


def _replace(root: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Update the root document with the result of `change`, at once."""
    path = objects.plain_path(root, "zarr.json")
    with disk.naming_full(root, 2**20), locks.locked(root / ".lock"):
        objects.remove_dead_files(root)
        metadata = documents.read_json(path)
        attributes = metadata["attributes"]["logitbank"]
        attributes.update(change(attributes))
        content = documents.signed(metadata, attributes)
        if content == path.read_bytes():
            return
        with objects.temporary_file(path, content) as file:
            file.replace(path)
        objects.sync(root)
