"""Addresses of banks at URLs. Pure."""

import re
from pathlib import Path

from logitbank.errors import UsageError

# A URL that went through a Path has one slash after its scheme; a drive's name is one letter.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(|[^/].*)", re.DOTALL)
_SCHEMES = ("https", "http", "s3", "hf")
HUB = re.compile(
    r"hf://datasets/(?P<repo>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(?:@(?P<revision>[^@]+))?"
)


def bank_url(path: str | Path) -> str | None:
    """The URL in an address of a bank, without a slash at its end; None for a local path.

    Raises
    ------
    UsageError
        No bank can be at this URL.

    >>> bank_url(Path("https://example.org/banks/pythia.zarr/"))
    'https://example.org/banks/pythia.zarr'
    """
    match = _URL.fullmatch(str(path))
    if not match:
        return None
    scheme = match[1].lower()
    url = f"{scheme}://{match[2].rstrip('/')}"
    if scheme not in _SCHEMES:
        raise UsageError(
            f"Unsupported location {url}. Use a folder, https://, s3:// or hf://datasets/owner/name."
        )
    if not match[2]:
        raise UsageError(f"{path} has no address. Use {scheme}:// and the address of the bank.")
    if scheme == "hf" and not HUB.fullmatch(url):
        raise UsageError(
            f"{url} has no repository. Use hf://datasets/owner/name or …/name@revision."
        )
    has_query = any(sign in url for sign in "?#\\") and scheme != "hf"
    if has_query or any(part in (".", "..") for part in url.split("/")):
        raise UsageError(f"{url} is not the address of a folder. Remove ?, #, \\, and dots.")
    return url


def require_new_folder(path: str | Path) -> Path:
    """The folder of a new bank, or UsageError for a URL."""
    if url := bank_url(path):
        raise UsageError(
            f"A bank is created in a folder. Then publish it at {url} with `logitbank push`."
        )
    return Path(path)
