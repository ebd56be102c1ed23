"""Requests to one hub, repeated with patience where it limits them or fails for now."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from logitbank.engine.hub.explained import transport
from logitbank.engine.hub.library import offline, timeout_s
from logitbank.engine.hub.patience import Patience
from logitbank.engine.hub.receive import Body
from logitbank.store.remote.retry_after import seconds_to_wait

_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


class HubRequests:
    """What one hub is asked. All threads share one patience."""

    def __init__(self, endpoint: str, token: str | None, patience: Patience) -> None:
        self.endpoint, self._token = endpoint, token
        self._patience, self._answered = patience, False
        self._elsewhere: dict[str, str] = {}
        """Where the hub has sent us for a file, by the address that was asked for."""

    def tree(self, repo: str, revision: str) -> Iterator[dict[str, Any]]:
        """Entries at the root of a repository, page after page."""
        # Not by HfApi.list_repo_tree, which has a patience of its own, of 23 s a failing request.
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            get_session,
            hf_raise_for_status,
        )

        url = f"{self.endpoint}/api/models/{repo}/tree/{quote(revision, safe='')}"
        asked: set[str] = set()
        while url:
            if url in asked:
                raise TypeError("the pages of a listing go round in a circle")
            asked.add(url)
            response = get_session().get(url, headers=self._headers(), timeout=timeout_s())
            hf_raise_for_status(response)
            yield from response.json()
            url = response.links.get("next", {}).get("url", "")

    @contextmanager
    def body(
        self, repo: str, revision: str, name: str, start: int, stop: int | None = None
    ) -> Iterator[Body]:
        """The content of a file from an offset on, up to `stop` or its end, as it comes."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(repo, name, revision=revision, endpoint=self.endpoint)
        headers = {"Accept-Encoding": "identity"}
        if stop is not None:
            headers["Range"] = f"bytes={start}-{stop - 1}"
        elif start:
            headers["Range"] = f"bytes={start}-"
        with self._response(url, headers) as response:
            ranged = response.status_code == 206
            told = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if ranged and told and int(told[1]) != start:
                raise ConnectionError(
                    f"asked for {name} from byte {start} on, got it from {told[1]}"
                )
            chunks = response.iter_raw(_CHUNK_BYTES)
            yield Body(start if ranged else 0, chunks, ranged, response.headers.get("ETag"))

    @contextmanager
    def _response(self, url: str, headers: dict[str, str]) -> Iterator[Any]:
        """A good answer: from where the hub sent us before, as long as that answers well.

        A hub counts requests, and sends each to a signed address that is good for an hour or so.
        """
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            get_session,
            hf_raise_for_status,
        )

        ask = partial(get_session().stream, "GET", timeout=timeout_s(), follow_redirects=True)
        if elsewhere := self._elsewhere.get(url):
            try:
                with ask(elsewhere, headers=headers) as response:  # without the token
                    if response.is_success:
                        yield response
                        return
            except BaseException:
                self._elsewhere.pop(url, None)
                raise
            self._elsewhere.pop(url, None)
        with ask(url, headers=self._headers() | headers) as response:
            hf_raise_for_status(response)
            if not str(response.url).startswith(f"{self.endpoint}/"):
                self._elsewhere[url] = str(response.url)
            yield response

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
