"""How long a server asks to wait, as its answers say it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from re import search


def seconds_to_wait(headers: Mapping[str, str], now: datetime | None = None) -> float:
    """Seconds that an answer asks to wait, 0 where it does not say.

    `Retry-After` in either form, else the reset of the hub's `RateLimit`.

    >>> seconds_to_wait({"Retry-After": "30"}), seconds_to_wait({"RateLimit": '"api";r=0;t=55'})
    (30.0, 55.0)
    """
    lower = {name.lower(): value for name, value in headers.items()}
    after = lower.get("retry-after", "").strip()
    if search(r"^\d{1,9}(\.\d+)?$", after):
        return float(after)
    if after:
        try:
            at = parsedate_to_datetime(after)
        except ValueError:
            return 0.0
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())
    if limit := search(r"r=0\b.*t=(\d{1,9})", lower.get("ratelimit", "")):
        return float(limit[1])
    return 0.0
