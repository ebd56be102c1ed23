"""Keep the Hub's token to the Hub: no page, redirect or upload address takes it to another host."""

import threading
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_lock = threading.Lock()
_tokens: dict[str, set["Origin"]] = {}
"""Tokens that were given by hand, and where each may go."""
_hubs: set["Origin"] = set()
"""Where the token of the environment or of `hf auth login` may go."""


class Origin(NamedTuple):
    """Who answers an address."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Origin":
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        return cls(scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme, 0))

    def covers(self, other: "Origin") -> bool:
        """Whether the other origin is this one, or the same host by TLS."""
        return other == self or (
            other.host == self.host
            and (self.scheme, self.port) == ("http", 80)
            and (other.scheme, other.port) == ("https", 443)
        )


def keep_token(endpoint: str, token: str | None = None) -> None:
    """From here on, huggingface_hub sends this hub's token to this hub alone.

    Its functions follow what an answer names (the next page of a list, where large files are
    to be sent and confirmed) with all their headers. Other hosts are asked without the token.
    """
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import _http

    with _lock:
        (_hubs if token is None else _tokens.setdefault(token, set())).add(Origin.of(endpoint))
        make = getattr(_http, "_GLOBAL_CLIENT_FACTORY", None) or _http.default_client_factory
        if not isinstance(make, _Guarded):
            set_client_factory(_Guarded(make))


class _Guarded:
    """Makes the sessions that the library shares, as before but for the token."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self) -> Any:
        client = self._make()
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "request": [*hooks.get("request", ()), _strip]}
        return client


def _strip(request: Any) -> None:
    """Called before each request, also of those that a redirect leads to."""
    from huggingface_hub import constants, get_token

    given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not given or given not in {*_tokens, get_token()}:
        return
    trusted = {*_tokens.get(given, ())}
    if given == get_token():
        trusted |= {*_hubs, Origin.of(constants.ENDPOINT)}
    to = Origin.of(str(request.url))
    if not any(origin.covers(to) for origin in trusted):
        del request.headers["authorization"]
