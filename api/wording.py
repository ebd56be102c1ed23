"""How messages write numbers, checkpoints, URLs, sizes and lists of storage levels."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

KEEP_LEVELS = "full, hidden, topk:K or options"
"""Storage levels."""
KEEP_WITHOUT_STATES = "full, topk:K or options"
"""Storage levels of logits for which no hidden states are available."""
SHRINK_LEVELS = "topk:K, options, or full for hidden states"
"""Storage levels that `shrink` computes from stored results."""
VERIFY = "run `logitbank verify`"
"""Advice at the end of messages about damage."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "checkpoint"), counted(1540, "query", "queries")
    ('1 checkpoint', '1,540 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: float) -> str:
    """A number with three significant digits and a true minus sign.

    >>> number(0.012345), number(-4321.9)
    ('0.0123', '−4,322')
    """
    text = f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"
    return text.replace("-", "−")


def step_name(step: int | None) -> str:
    """A training step, or "release" for None.

    >>> step_name(1000), step_name(None)
    ('step 1,000', 'release')
    """
    return "release" if step is None else f"step {step:,}"


def plain_step(step: int | None) -> str:
    """A training step as commands accept it, without commas.

    >>> plain_step(1000), plain_step(None)
    ('step 1000', 'release')
    """
    return "release" if step is None else f"step {step}"


def checkpoint_name(row: Mapping[str, Any]) -> str:
    """The model, run and step of a row.

    >>> checkpoint_name({"model": "toy", "run": "main", "step": 1000})
    'toy main step 1000'
    """
    return f"{row['model']} {row['run']} {plain_step(row['step'])}"


def readable_bytes(number: float) -> str:
    """A number of bytes with a unit.

    >>> readable_bytes(1_730_000)
    '1.73 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:/{1,3})"
    # A password may contain `/`; a port has digits only.
    r"(?P<user>[^/\s]*@|[^/\s:@]+:(?!\d*(?:/|$))[^\s]*@)?"
    r"(?P<address>[^\s?#'\"<>]*)"
    r"(?P<query>[?#][^\s'\"<>)]*)?"
)
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
ADDRESSES = re.compile(r"AWS_ENDPOINT\w*|HF_ENDPOINT|(?:HTTPS?|ALL)_PROXY", re.IGNORECASE)
"""Variables with addresses, which may contain passwords."""


_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:/{1,3})"
    r"(?P<user>[^/]*@|[^/:@]+:(?!\d*(?:/|$)).*@)?"
    r"(?P<address>[^?#]*)(?P<query>[?#].*)?",
    re.DOTALL,
)
"""A text that is one URL: its password may contain blanks."""


def public_url(url: str) -> str:
    """A URL as `without_credentials` gives it, also if its password contains blanks.

    >>> public_url("https://me:my secret@example.org/my bank")
    'https://example.org/my bank'
    """
    match = _ADDRESS.fullmatch(url)
    return without_credentials(url if match is None else _clean(match))


def without_credentials(text: str) -> str:
    """A URL, or a text with URLs, without user names, passwords, and values of queries.

    Values of variables like `HF_TOKEN` and passwords in `HF_ENDPOINT` are removed also.

    >>> without_credentials("https://me:secret@example.org/bank?key=1 is not a bank")
    'https://example.org/bank?… is not a bank'
    """
    for secret in _secrets():
        text = text.replace(secret, "…")
    return _URL.sub(_clean, text)


def _clean(url: re.Match[str]) -> str:
    query = url["query"] or ""
    return f"{url['scheme']}{url['address']}{f'{query[0]}…' if query[1:] else query}"


def _secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if name in _SECRETS:
            yield from (each for each in (value, value.strip()) if len(each) >= 4)
        elif ADDRESSES.fullmatch(name):
            user = value.rpartition("@")[0].rpartition("//")[2]
            if ":" in user:
                yield user
