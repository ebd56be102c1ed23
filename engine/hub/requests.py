"""Requests to one hub, repeated with patience where it limits them or fails for now."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from logitbank.engine.hub.blobs import Body
from logitbank.engine.hub.explained import transport
from logitbank.engine.hub.library import offline, timeout_s
from logitbank.engine.hub.patience import Patience
from logitbank.store.remote.retry_after import seconds_to_wait

_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


class HubRequests:
    """What one hub is asked. All threads share one patience."""

    def __init__(self, endpoint: str, token: str | None, patience: Patience) -> None:
        self.endpoint, self._token = endpoint, token
        self._patience, self._answered = patience, False

    def tree(self, repo: str, revision: str) -> Iterator[dict[str, Any]]:
        """Entries at the root of a repository, page after page."""
        # Not by HfApi.list_repo_tree, which has a patience of its own, of 23 s a failing request.
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            get_session,
            hf_raise_for_status,
        )

        url = f"{self.endpoint}/api/models/{repo}/tree/{quote(revision, safe='')}"
        while url:
            response = get_session().get(url, headers=self._headers(), timeout=timeout_s())
            hf_raise_for_status(response)
            yield from response.json()
            url = response.links.get("next", {}).get("url", "")

    @contextmanager
    def body(self, repo: str, revision: str, name: str, start: int) -> Iterator[Body]:
        """The content of a file from an offset on, as it comes."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            get_session,
            hf_raise_for_status,
        )

        url = hf_hub_url(repo, name, revision=revision, endpoint=self.endpoint)
        headers = self._headers() | {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with get_session().stream(
            "GET", url, headers=headers, timeout=timeout_s(), follow_redirects=True
        ) as response:
            hf_raise_for_status(response)
            begins = start if response.status_code == 206 else 0
            yield Body(begins, response.iter_raw(_CHUNK_BYTES))

    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        return dict(build_hf_headers(token=self._token))

    def answer(self, attempt: Callable[[], T]) -> T:
        """What the hub answers, with patience where it limits requests or fails for now."""
        answer = self._patience.call(attempt, self._wait)
        self._answered = True
        return answer

    def _wait(self, error: Exception) -> float | None:
        """Seconds to wait before asking again, as `Patience.call` wants them."""
        from huggingface_hub import errors

        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else error
        if isinstance(cause, errors.HfHubHTTPError):
            status = cause.response.status_code
            if status in (408, 429) or status >= 500:
                return seconds_to_wait(cause.response.headers)
            return None
        # A hub that never answered is out of reach, and the user hears so at once.
        broken = isinstance(cause, (transport(), ConnectionError))
        return 0.0 if broken and self._answered and not offline() else None
