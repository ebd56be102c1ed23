"""The files of a repository, and which of them a checkpoint is made of."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab*",
    "merges*",
    "special_tokens_map.json",
    "added_tokens.json",
)
SAFE_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
LEGACY_WEIGHTS = ("pytorch_model*.bin", "pytorch_model*.bin.index.json")
NEVER = ("*.py", "*/*")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository at one revision."""

    name: str
    size: int
    """Bytes."""
    sha256: str | None
    """Digest of the content where the hub knows it (large files), else None."""
    blob: str = ""
    """Git's name of the content, by which files of two revisions are known to be equal."""


def listed_file(entry: Mapping[str, Any]) -> HubFile:
    """A file as a hub lists it.

    Raises
    ------
    KeyError, TypeError, AttributeError
        The entry lacks what is needed, or has it in another form.
    """
    size, digest = entry["size"], (entry.get("lfs") or {}).get("oid")
    if type(size) is not int or size < 0:
        raise TypeError(f"{size!r} is no number of bytes")
    if digest is not None and not re.fullmatch("[0-9a-f]{64}", digest):
        raise TypeError(f"{digest!r} is no SHA-256")  # it becomes the name of a file
    return HubFile(entry["path"], size, digest, entry.get("oid", ""))


def weights_of(files: Iterable[HubFile], patterns: tuple[str, ...]) -> list[HubFile]:
    """The files at the root whose names are of one of the patterns."""
    return [
        file
        for file in files
        if "/" not in file.name and any(fnmatch(file.name, pattern) for pattern in patterns)
    ]
