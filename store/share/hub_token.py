"""Keep the Hub's token to the Hub: no page, redirect or upload address takes it to another host."""

import threading
from typing import Any
from urllib.parse import urlsplit

_lock = threading.Lock()
_hubs: set[tuple[str, str, int]] = set()
"""Scheme, host and port that the token may be sent to."""


def keep_token(endpoint: str) -> None:
    """From here on, huggingface_hub sends its token to its hubs alone.

    Its functions follow what an answer names (the next page of a list, where large files are
    to be sent and confirmed) with all their headers. Other hosts get no token.
    """
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import _http

    with _lock:
        _hubs.update({_origin(endpoint), _origin(constants.ENDPOINT)})
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
    from huggingface_hub import get_token

    is_token = request.headers.get("authorization") == f"Bearer {get_token()}"
    if is_token and _origin(str(request.url)) not in _hubs:
        del request.headers["authorization"]


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0),
    )
