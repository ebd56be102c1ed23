"""Title, license and citation of a bank and of its sources, in its root document."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from logitbank.errors import BankError
from logitbank.store.files.documents import signed
from logitbank.store.format import zarrays
from logitbank.store.format.limits import MAX_ABOUT, MAX_ID, check_text
from logitbank.version import __version__

FIELDS = ("title", "license", "citation")
Source = dict[str, Any]
"""title, license and citation of a source, and `models`: the models that came from it."""


def about_fields(attributes: dict[str, Any]) -> dict[str, str]:
    """Title, license and citation as texts; blank if they are not text."""
    values = {name: attributes.get(name) for name in FIELDS}
    return {name: value if isinstance(value, str) else "" for name, value in values.items()}


def checked_fields(fields: dict[str, str]) -> dict[str, str]:
    """The fields, or UsageError if one is not text, too long, or a title of several lines."""
    for name, value in fields.items():
        is_title = name == "title"
        check_text(value, name, one_line=is_title, most=MAX_ID if is_title else MAX_ABOUT)
    return fields


def bank_sources(attributes: dict[str, Any]) -> list[Source]:
    """Sources of a bank that are in the documented form."""
    listed = attributes.get("sources")
    sources = []
    for entry in listed if isinstance(listed, list) else []:
        models = entry.get("models") if isinstance(entry, dict) else None
        if isinstance(models, list) and all(isinstance(m, str) for m in models):
            sources.append({**about_fields(entry), "models": models})
    return sources


def licenses(attributes: dict[str, Any]) -> list[str]:
    """The licenses of a bank and of its sources, each once."""
    found: dict[str, str] = {}
    for each in (attributes, *bank_sources(attributes)):
        if license := about_fields(each)["license"].strip():
            found.setdefault(license.casefold(), license)
    return list(found.values())


class Incoming(NamedTuple):
    """A bank from which something is copied."""

    document: bytes
    """Its root document."""
    place: str
    """Folder or URL, for messages."""
    models: Collection[str]
    """Models of which deposits are copied."""
    is_sent: bool
    """Whether anything is copied."""


def root_document(
    current: bytes | None,
    incoming: Sequence[Incoming],
    *,
    place: str,
    published: bool = False,
    fills: bool = False,
) -> bytes:
    """The root document of a bank at `place` that gets data from other banks.

    A new bank has the title, license and citation that all sources share. Other fields of a source
    are recorded with its models. A published bank is under one license. With `fills`, the only
    source gives the fields that are blank.

    Raises
    ------
    BankError
        The bank is published under another license than a source.
    """
    if current is None:
        first, *others = [about_fields(_attributes(each.document)) for each in incoming]
        if not others:
            return incoming[0].document
        shared = {n: v if all(o[n] == v for o in others) else "" for n, v in first.items()}
        current = zarrays.root_metadata({**shared, "written_by": __version__})
    document = json.loads(current)
    attributes = document["attributes"]["logitbank"]
    before = {**attributes}
    if fills:
        given = about_fields(_attributes(incoming[0].document))
        attributes.update({n: v for n, v in given.items() if v and not attributes.get(n)})
    own, sources = about_fields(attributes), bank_sources(attributes)
    for each in incoming:
        for source in _described(each) if each.is_sent or each.models else ():
            fields = about_fields(source)
            same = [known for known in sources if about_fields(known) == fields]
            if fields == own or not any(fields.values()):
                continue
            if published and not same:
                _require_license(own["license"], fields["license"], place, each.place)
            if same:
                same[0]["models"] = sorted({*same[0]["models"], *source["models"]})
            elif each.models:
                sources.append(source)
    if sources:
        attributes["sources"] = sources
    return current if attributes == before else signed(document, attributes)


def _attributes(document: bytes) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(document)["attributes"]["logitbank"]
    return attributes


def _described(bank: Incoming) -> list[Source]:
    """The sources of a bank, then the bank itself."""
    attributes = _attributes(bank.document)
    here = {**about_fields(attributes), "models": sorted(bank.models)}
    return [*bank_sources(attributes), here]


def _require_license(published: str, other: str, place: str, origin: str) -> None:
    one, two = (license.strip().casefold() for license in (published, other))
    if one and two and one != two:
        raise BankError(
            f"{place} is published under the license {published!r}, but {origin} has data under"
            f" {other!r}. Nothing was sent. Push to another place. If you may license the data"
            f" again, run `logitbank describe {origin} --license {published!r}` first."
        )
