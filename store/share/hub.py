"""A dataset repository of the Hugging Face Hub as a target, through huggingface_hub.

One commit there is all or nothing, and is refused if somebody else committed first.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from logitbank.errors import RemoteError, UsageError
from logitbank.store.format.index import Object, Objects
from logitbank.store.progress import Advance
from logitbank.store.share.moves import moves
from logitbank.store.share.remote import explained, hub_files, huggingface_hub_for, read
from logitbank.store.share.targets import (
    ATTEMPTS,
    PUBLISHED,
    Check,
    Source,
    accept,
    busy,
    stored_objects,
)
from logitbank.store.share.urls import HUB
from logitbank.wording import without_credentials

_CONFLICTS = (409, 412)
"""Statuses of a commit that somebody else preceded."""


class HubDataset:
    """A repository, as it was when it was last listed."""

    has_leftovers = False

    def __init__(self, url: str) -> None:
        match = HUB.fullmatch(url)
        if match is None or match["revision"]:
            raise UsageError(f"Cannot push to {url}. Use hf://datasets/owner/name.")
        hub = huggingface_hub_for(url)
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()  # ours counts all bytes
        self.url = self.card_url = url
        self._repo = {"repo_id": match["repo"], "repo_type": "dataset"}
        self._api: Any = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self._head: str | None = None
        self._sizes: dict[str, int] = {}
        self._change: Callable[[bytes | None], bytes] | None = None

    def sizes(self) -> dict[str, int]:
        """Lists the repository; an absent one is empty."""
        from huggingface_hub.errors import RepositoryNotFoundError
        from huggingface_hub.hf_api import RepoFile

        with self._explained():
            try:
                self._head = self._api.repo_info(**self._repo).sha
            except RepositoryNotFoundError:
                self._head, self._sizes = None, {}
                return {}
            tree = self._api.list_repo_tree(**self._repo, recursive=True, revision=self._head)
            self._sizes = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
        return self._sizes

    def read(self, path: str) -> bytes:
        return read(hub_files(self.url, self._head), path)

    def unfinished(self) -> Objects:
        return {}

    def root(self) -> bytes | None:
        before = self._stored_root()
        return before if self._change is None else self._change(before)

    def _stored_root(self) -> bytes | None:
        return self.read("zarr.json") if "zarr.json" in self._sizes else None

    def put_root(self, change: Callable[[bytes | None], bytes]) -> None:
        self._change = change  # it is a part of the next commit
        self.root()  # raises

    def send(
        self, group: Objects, source: Source, advance: Advance, check: Check = accept
    ) -> Objects:
        from huggingface_hub import CommitOperationAdd

        left, kept = dict(group), dict[str, Object]()
        for attempt in range(ATTEMPTS):
            if attempt or self._is_created():  # perhaps by another push
                stored = stored_objects(self)
                left = moves(left, stored, location=self.url, origin=source.url).sent
                kept = {path: stored[path] for path in group if path in stored and path not in left}
            if any(path.startswith("prompts/") for path in left):
                check(self._sizes)  # a commit is refused if the listing has changed
            add = [
                CommitOperationAdd(path, str(source.file(path, value.digest)))
                for path, value in left.items()
            ]
            if not add or self._commit(add, f"{len(add)} objects"):
                advance(sum(value.digest.bytes for value in group.values()))
                return kept
            time.sleep(0.1 * 2**attempt)
        raise busy(self.url)

    def _is_created(self) -> bool:
        """Create the repository if it was absent; whether it was."""
        if self._head is not None:
            return False
        with self._explained():
            self._api.create_repo(**self._repo, exist_ok=True)
        return True

    def current(self) -> dict[str, bytes]:
        present = self.sizes()
        return {name: self.read(name) for name in PUBLISHED if name in present}

    def replace(self, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
        from huggingface_hub import CommitOperationAdd

        return self._commit([CommitOperationAdd(n, data) for n, data in files.items()], "index")

    def _commit(self, operations: list[Any], message: str) -> bool:
        """Commit on top of the last listing; False if somebody else committed first."""
        from huggingface_hub import CommitOperationAdd
        from huggingface_hub.errors import HfHubHTTPError

        with self._explained():
            if self._is_created():
                self.sizes()
            if (root := self.root()) is not None and root != self._stored_root():
                operations = [*operations, CommitOperationAdd("zarr.json", root)]
            try:
                done = self._api.create_commit(
                    **self._repo,
                    operations=operations,
                    commit_message=f"logitbank push: {message}",
                    parent_commit=self._head,
                )
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code in _CONFLICTS:
                    return False
                raise
        self._head, self._change = done.oid, None
        return True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with explained(self.url):
                yield
        except RuntimeError as error:  # huggingface_hub raises it when an upload fails
            if "uploading" not in str(error):
                raise
            reason = without_credentials(str(error)).splitlines()[0][:200]
            raise RemoteError(
                f"{self.url} refused an upload ({reason}). Check the network,"
                " then run the same command again to resume."
            ) from error
