"""Push to dataset repositories of the Hugging Face Hub, through huggingface_hub's own functions.

One commit there is all or nothing, and refused where somebody else was quicker. A bank that is too
large for one repository goes on in `<name>-2`, `<name>-3`, …: whole deposits, each with an index.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logitbank.errors import DamagedError, MissingExtraError, RemoteError, UsageError
from logitbank.store.files import objects
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object, part_url
from logitbank.store.remote import fetching
from logitbank.store.remote.hub_token import keep_token
from logitbank.store.remote.remote import Remote, Say
from logitbank.store.remote.urls import HUB
from logitbank.store.sharing.card import CARD, MARK, card, part_card
from logitbank.store.sharing.moves import moves
from logitbank.store.sharing.spaces import Limits, assign
from logitbank.store.sharing.targets import known_objects

_ATTEMPTS = 10
_MOVED = (409, 412)


@dataclass
class _Repository:
    """One part, as it was when it was last looked at."""

    name: str
    head: str
    files: dict[str, int]


class HubDataset:
    """A bank in dataset repositories, as something to push to."""

    def __init__(self, repo: str, *, limits: Limits | None = None) -> None:
        try:
            import huggingface_hub
            from huggingface_hub.utils.tqdm import disable_progress_bars
        except ImportError as error:
            raise MissingExtraError(
                "hf:// needs huggingface_hub; install it with `pip install 'logitbank[remote]'`"
            ) from error
        self.name = f"hf://datasets/{repo}"
        self._repo, self._limits = repo, limits or Limits()
        self._api: Any = huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        keep_token(self._api.endpoint)
        self._parts: list[_Repository] = []
        disable_progress_bars()  # ours counts all of it

    @classmethod
    def at(cls, url: str) -> "HubDataset":
        match = HUB.fullmatch(url)
        if match is None or match["revision"]:
            raise UsageError(f"{url} cannot be pushed to; write hf://datasets/owner/name")
        return cls(match["repo"])

    def stored(self) -> dict[str, Object]:
        self._parts = []
        stored: dict[str, Object] = {}
        parts = 1
        while len(self._parts) < parts:
            repository = self._look(len(self._parts) + 1)
            if repository is None:
                break
            self._parts.append(repository)
            part = len(self._parts)
            data = (
                self._read(repository, [index.NAME])[0] if index.NAME in repository.files else None
            )
            if part == 1 and data is not None:
                with suppress(DamagedError):  # it is derived, and written again
                    parts = index.parse(data, where=self.name).parts
            known = known_objects(data, self.name)
            listed = index.complete(
                repository.files,
                known,
                lambda p, r=repository: self._read(r, p),  # type: ignore[misc]
            )
            stored |= {
                p: dataclasses.replace(o, part=part) for p, o in listed.items() if p not in stored
            }
        return stored

    def send(self, group: Mapping[str, Object], source: Path, say: Say) -> None:
        for path, value in group.items():
            if value.digest.bytes > self._limits.file_bytes:
                raise UsageError(
                    f"{path} has {value.digest.bytes:,} bytes; the Hub takes files of at most"
                    f" {self._limits.file_bytes:,}: extract it again with smaller blocks"
                )
        left = dict(group)
        for attempt in range(_ATTEMPTS):
            if self._send(left, source):
                break
            time.sleep(0.1 * 2**attempt)
            stored = self.stored()  # somebody was quicker: what of ours is there now?
            plan = moves(left, stored, place=self.name)
            left = {path: value for group_ in plan.groups for path, value in group_.items()}
        else:
            raise self._too_busy()
        say(sum(value.digest.bytes for value in group.values()))

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        for attempt in range(_ATTEMPTS):
            if self._finish(index.in_force(stored), set(replaced)):
                return
            time.sleep(0.1 * 2**attempt)
            stored = {**self.stored(), **stored}
        raise self._too_busy()

    def _send(self, group: Mapping[str, Object], source: Path) -> bool:
        from huggingface_hub import CommitOperationAdd

        places = assign(group, [r.files for r in self._parts], self._limits)
        for part in sorted(set(places.values())):
            paths = [path for path in group if places[path] == part]
            add = []
            for path in paths:
                file = objects.plain_path(source, path)
                fetching.ensure_here(file)
                if objects.digest(file) != group[path].digest:
                    raise DamagedError(f"{file} is not what was committed; run `logitbank verify`")
                add.append(CommitOperationAdd(path, str(file)))
            if not self._commit(part, add, f"{len(add)} objects"):
                return False
            self._parts[part - 1].files |= {path: group[path].digest.bytes for path in paths}
        return True

    def _finish(self, stored: Mapping[str, Object], replaced: set[str]) -> bool:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        parts = len(self._parts)
        # The first last: it names the others.
        for part in range(parts, 0, -1):
            repository = self._parts[part - 1]
            names = [
                name for name in (index.NAME, index.COMPRESSED, CARD) if name in repository.files
            ]
            old = dict(zip(names, self._read(repository, names), strict=True))
            known = known_objects(old.get(index.NAME), self.name)  # others may have pushed since
            in_place = index.in_force({**known, **stored})
            in_place = {p: o for p, o in in_place.items() if p in repository.files}
            new = index.render(in_place, parts=parts if part == 1 else 1)
            files = {index.NAME: new}
            if not index.is_compressed(old.get(index.COMPRESSED), new):
                files[index.COMPRESSED] = index.compress(new)
            all_objects = {**known, **stored}
            text = (
                card(all_objects, url=self.name, parts=parts) if part == 1 else part_card(self.name)
            )
            files[CARD] = text.encode()
            if CARD in old and MARK.encode() not in old[CARD]:
                del files[CARD]  # its owner wrote it
            operations: list[Any] = [
                CommitOperationAdd(name, data)
                for name, data in files.items()
                if old.get(name) != data
            ]
            operations += [
                CommitOperationDelete(p) for p in sorted(replaced & set(repository.files))
            ]
            if operations and not self._commit(part, operations, "index"):
                return False
        return True

    def _commit(self, part: int, operations: list[Any], message: str) -> bool:
        """Commit on top of what was seen; False where somebody was quicker."""
        from huggingface_hub.errors import HfHubHTTPError

        if part > len(self._parts):
            self._parts.append(self._create(part))
        repository = self._parts[part - 1]
        with self._explained(repository.name):
            try:
                done = self._api.create_commit(
                    repository.name,
                    operations,
                    repo_type="dataset",
                    commit_message=f"logitbank push: {message}",
                    parent_commit=repository.head or None,
                )
            except HfHubHTTPError as error:
                if error.response is not None and error.response.status_code in _MOVED:
                    return False
                raise
        repository.head = done.oid
        return True

    def _create(self, part: int) -> _Repository:
        name = self._name(part)
        with self._explained(name):
            self._api.create_repo(name, repo_type="dataset", exist_ok=True)
        repository = self._look(part)
        if repository is None:
            raise RemoteError(f"{name} was created and is not there; run the same command again")
        if part > 1 and "zarr.json" in repository.files:
            raise UsageError(
                f"{name} is needed for the rest of {self.name}, and holds another bank; push to"
                " another name"
            )
        return repository

    def _look(self, part: int) -> _Repository | None:
        from huggingface_hub.errors import RepositoryNotFoundError
        from huggingface_hub.hf_api import RepoFile

        name = self._name(part)
        with self._explained(name):
            try:
                head = self._api.repo_info(name, repo_type="dataset").sha
            except RepositoryNotFoundError:
                return None
            tree = self._api.list_repo_tree(
                name, repo_type="dataset", recursive=True, revision=head
            )
            files = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
        return _Repository(name, head, files)

    def _read(self, repository: _Repository, paths: list[str]) -> list[bytes]:
        remote = Remote.at(f"hf://datasets/{repository.name}@{repository.head}")

        def read(path: str) -> bytes:
            answer = remote.read(path, limit=2**30)
            assert answer is not None
            return answer.data

        return in_parallel(read, paths)

    def _name(self, part: int) -> str:
        return part_url(self.name, part).removeprefix("hf://datasets/")

    def _too_busy(self) -> RemoteError:
        return RemoteError(
            f"{self.name} was changed by others again and again; run the same command again"
        )

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            where = f"hf://datasets/{name}"
            if status in (401, 403):
                raise RemoteError(
                    f"{where} refuses access; set HF_TOKEN to a token that may write there, or run"
                    " `hf auth login`"
                ) from error
            package = type(error).__module__.partition(".")[0]
            if package in ("huggingface_hub", "httpx", "httpcore", "httpx2", "httpcore2") or (
                isinstance(error, RuntimeError) and "uploading" in str(error)
            ):
                said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
                raise RemoteError(
                    f"{where} cannot be reached or answers wrongly ({said}); check the network and"
                    " run the same command again: what arrived is kept"
                ) from error
            raise
