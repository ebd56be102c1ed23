"""Title, license and citation of a bank and of its sources."""

from typing import Any

from logitbank.store.format.limits import MAX_ABOUT, MAX_ID, check_text

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
