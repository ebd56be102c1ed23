"""Title, license and citation of a bank.

The bank's own `zarr.json` is the only document that may be replaced, at once and under a lock: no
commit names it, and nothing in a deposit depends on these fields.
"""

from pathlib import Path

from logitbank.errors import DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.files import copies, documents, objects
from logitbank.store.format.about import checked_fields
from logitbank.store.share.targets import Folder
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
    _replace(Path(bank), fields)
    return Bank.open(bank)


def _replace(root: Path, fields: dict[str, str]) -> None:
    """Set fields of the root document."""

    def changed(_: bytes | None) -> bytes:
        metadata = documents.read_json(objects.plain_path(root, "zarr.json"))
        attributes = metadata["attributes"]["logitbank"]
        attributes.update(fields)
        return documents.signed(metadata, attributes)

    Folder(root).put_root(changed)
