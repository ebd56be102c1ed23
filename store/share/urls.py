"""Which banks are at a URL rather than in a folder, and how such a URL is written. Pure."""

import re
from pathlib import Path

from logitbank.errors import UsageError

# A URL that went through a Path has one slash after its scheme; a drive's name is one letter.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(|[^/].*)", re.DOTALL)
SCHEMES = ("https", "http", "s3", "hf")
HUB = re.compile(
    r"hf://datasets/(?P<repo>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(?:@(?P<revision>[^@]+))?"
)


def url_of(path: str | Path) -> str | None:
    """The URL that a bank's address is, without a slash at its end; None of a local path.

    Raises
    ------
    UsageError
        It is a URL that no bank can be at.

    >>> url_of(Path("https://example.org/banks/pythia.zarr/"))
    'https://example.org/banks/pythia.zarr'
    """
    match = _URL.fullmatch(str(path))
    if not match:
        return None
    scheme = match[1].lower()
    url = f"{scheme}://{match[2].rstrip('/')}"
    if scheme == "file":
        raise UsageError(f"{path} is a file on this machine; give its path, /{match[2]}")
    if scheme not in SCHEMES:
        raise UsageError(
            f"Unsupported location {url}. Use a folder, https://, s3:// or hf://datasets/owner/name."
        )
    if not match[2]:
        raise UsageError(f"{path} names no place; write {scheme}:// and the address of the bank")
    if scheme == "hf" and not HUB.fullmatch(url):
        raise UsageError(
            f"{url} names no repository; write hf://datasets/owner/name or …/name@revision"
        )
    has_signs = any(sign in url for sign in "?#\\") and scheme != "hf"
    if has_signs or any(part in (".", "..") for part in url.split("/")):
        raise UsageError(
            f"{url} is no address of a folder; leave out what follows ? or #, and dots"
        )
    return url


def require_new_folder(path: str | Path) -> Path:
    """Where a bank is to be made.

    Raises
    ------
    UsageError
        It is a URL.
    """
    if url := url_of(path):
        raise UsageError(
            f"a bank is made in a folder; publish it at {url} afterwards with `logitbank push`"
        )
    return Path(path)
