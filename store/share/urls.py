"""Addresses of banks at URLs. Pure."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from logitbank.errors import UsageError
from logitbank.wording import ADDRESSES, public_url, without_credentials

# A URL that went through a Path has one slash after its scheme; a drive's name is one letter.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}(|[^/].*)", re.DOTALL)
_SCHEMES = ("https", "http", "s3", "hf")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_BLANK = re.compile(r"[\s\x00-\x20\x7f]")
HUB = re.compile(
    r"hf://datasets/(?P<repo>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(?:@(?P<revision>[^@]+))?"
)


def bank_url(path: str | Path) -> str | None:
    """The URL in an address of a bank, without a slash at its end; None for a local path.

    An `https://` URL may have a user name and a password: `shown_url` has none.

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
    public = public_url(url)
    if scheme not in _SCHEMES:
        raise UsageError(
            f"Unsupported location {public}. Use a folder, https://, s3:// or hf://datasets/owner/name."
        )
    if not url.isprintable():
        raise UsageError(f"{public!a} has a character that no address has. Correct it.")
    if not match[2]:
        raise UsageError(f"{public} has no address. Use {scheme}:// and the address of the bank.")
    if scheme == "hf" and not HUB.fullmatch(url):
        raise UsageError(
            f"{public} has no repository. Use hf://datasets/owner/name or …/name@revision."
        )
    if scheme == "s3" and "@" in match[2].partition("?")[0]:
        raise UsageError(
            f"{public} was given with a key. Remove it, and set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY."
        )
    has_query = any(sign in url for sign in "?#\\") and scheme != "hf"
    if has_query or any(part in (".", "..") for part in url.split("/")):
        raise UsageError(f"{public} is not the address of a folder. Remove ?, #, \\, and dots.")
    return url


def shown_url(path: str | Path) -> str | None:
    """The URL in an address of a bank for messages and files: without user name and password."""
    url = bank_url(path)
    return None if url is None else public_url(url)


def check_environment() -> None:
    """Refuse variables with addresses that no library can use, with a UsageError.

    obstore panics at some of them, and prints a trace.
    """
    for name, value in os.environ.items():
        if not (ADDRESSES.fullmatch(name) and value):
            continue
        is_proxy = name.upper().endswith("_PROXY")
        text = value if "://" in value or not is_proxy else f"http://{value}"
        schemes = ("http", "https", *(("socks5", "socks5h") if is_proxy else ()))
        try:
            parts = urlsplit(text)
            has_host = _HOST.fullmatch(parts.hostname or "") is not None and parts.port != 0
            is_plain = text.isascii() and not _BLANK.search(text)
            is_valid = parts.scheme in schemes and has_host and is_plain
        except ValueError:
            is_valid = False
        if not is_valid:
            raise UsageError(
                f"{name} is {without_credentials(text)!r}, which is no address. Use"
                " https://host or http://host:port."
            )


def require_new_folder(path: str | Path) -> Path:
    """The folder of a new bank, or UsageError for a URL."""
    if url := shown_url(path):
        raise UsageError(
            f"A bank is created in a folder. Then publish it at {url} with `logitbank push`."
        )
    return Path(path)
