"""Push to a dataset repository of the Hugging Face Hub, through huggingface_hub.

One commit there is all or nothing, and refused if somebody else was quicker.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from logitbank.errors import MissingExtraError, RemoteError, UsageError
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object
from logitbank.store.share.card import CARD, card, is_written_by_hand
from logitbank.store.share.hub_token import keep_token
from logitbank.store.share.moves import moves
from logitbank.store.share.places import Advance, explained, place_at
from logitbank.store.share.targets import SourceBank, known_objects
from logitbank.store.share.urls import HUB

MAX_FILES = 100_000
"""Most files that the Hub recommends for a repository."""
_ATTEMPTS = 10
_MOVED = (409, 412)


class HubDataset:
    """A bank in a dataset repository, as it was when it was last looked at."""

    def __init__(self, url: str) -> None:
        match = HUB.fullmatch(url)
        if match is None or match["revision"]:
            raise UsageError(f"{url} cannot be pushed to; write hf://datasets/owner/name")
        try:
            import huggingface_hub
            from huggingface_hub.utils.tqdm import disable_progress_bars
        except ImportError as error:
            raise MissingExtraError(
                f"{url} needs huggingface_hub; install it with `pip install 'logitbank[remote]'`"
            ) from error
        self.name, self._repo = url, match["repo"]
        self._api: Any = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self._head: str | None = None
        self._files: dict[str, int] = {}
        keep_token(self._api.endpoint)
        disable_progress_bars()  # ours counts all of it

    def stored(self) -> dict[str, Object]:
        self._look()
        known = known_objects(self._old(index.NAME), self.name)
        return index.complete(self._files, known, partial(in_parallel, self._read))

    def send(self, group: Mapping[str, Object], source: SourceBank, advance: Advance) -> None:
        from huggingface_hub import CommitOperationAdd

        if len(self._files) + len(group) > MAX_FILES:
            raise UsageError(
                f"{self.name} would have more than {MAX_FILES:,} files, and the Hub takes no more."
                " Push to s3://, or push a part with --model, --steps or --prompts"
            )
        left = dict(group)
        for attempt in range(_ATTEMPTS):
            add = [
                CommitOperationAdd(path, str(source.checked(path, value.digest)))
                for path, value in left.items()
            ]
            if not add or self._commit(add, f"{len(add)} objects"):
                break
            time.sleep(0.1 * 2**attempt)
            plan = moves(left, self.stored(), place=self.name)  # what is there now?
            left = {path: value for part in plan.groups for path, value in part.items()}
        else:
            raise self._too_busy()
        self._files |= {path: value.digest.bytes for path, value in group.items()}
        advance(sum(value.digest.bytes for value in group.values()))

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        for attempt in range(_ATTEMPTS):
            old = self._old(index.NAME)
            new = index.in_force({**known_objects(old, self.name), **stored})
            files = {index.NAME: index.render(new), CARD: card(new, url=self.name).encode()}
            before = {index.NAME: old, CARD: self._old(CARD)}
            if is_written_by_hand(before[CARD]):
                del files[CARD]
            operations: list[Any] = [
                CommitOperationAdd(name, data)
                for name, data in files.items()
                if before[name] != data
            ]
            operations += [CommitOperationDelete(p) for p in replaced if p in self._files]
            if not operations or self._commit(operations, "index"):
                return
            time.sleep(0.1 * 2**attempt)
            stored = {**self.stored(), **stored}
        raise self._too_busy()

    def _commit(self, operations: list[Any], message: str) -> bool:
        """Commit on top of what was seen; False if somebody was quicker."""
        from huggingface_hub.errors import HfHubHTTPError

        with self._explained():
            if self._head is None:
                self._api.create_repo(self._repo, repo_type="dataset", exist_ok=True)
                self._look()
            try:
                done = self._api.create_commit(
                    self._repo,
                    operations,
                    repo_type="dataset",
                    commit_message=f"logitbank push: {message}",
                    parent_commit=self._head,
                )
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code in _MOVED:
                    return False
                raise
        self._head = done.oid
        return True

    def _look(self) -> None:
        """Its last commit and the sizes of its files; nothing if it does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError
        from huggingface_hub.hf_api import RepoFile

        with self._explained():
            try:
                self._head = self._api.repo_info(self._repo, repo_type="dataset").sha
            except RepositoryNotFoundError:
                self._head, self._files = None, {}
                return
            tree = self._api.list_repo_tree(
                self._repo, repo_type="dataset", recursive=True, revision=self._head
            )
            self._files = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}

    def _old(self, path: str) -> bytes | None:
        return self._read(path) if path in self._files else None

    def _read(self, path: str) -> bytes:
        return place_at(f"{self.name}@{self._head}").read(path).data

    def _too_busy(self) -> RemoteError:
        return RemoteError(
            f"{self.name} was changed by others again and again; run the same command again"
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with explained(self.name):
                yield
        except RuntimeError as error:  # huggingface_hub raises this when an upload fails
            if "uploading" not in str(error):
                raise
            raise RemoteError(
                f"{self.name} refused an upload ({str(error).splitlines()[0][:200]}). Check the"
                " network and run the same command again: what arrived is kept"
            ) from error
