"""Checkpoints on a Hugging Face hub: the list of them, their files, and downloads.

huggingface_hub lists and downloads, with its own cache, token and retries. Code in a repository is
never downloaded.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.cache import offline
from logitbank.engine.tokenizers.tokenizer import TOKENIZER_FILES
from logitbank.engine.weights.weights import LEGACY, SAFE, choose_weights, weight_files
from logitbank.errors import (
    DiskSpaceError,
    LogitbankError,
    MissingExtraError,
    SuiteError,
    WeightsError,
)
from logitbank.store.format.schema import Json
from logitbank.store.share.remote import huggingface_hub_for
from logitbank.wording import without_credentials

SETTINGS = ("config.json", "generation_config.json", *TOKENIZER_FILES)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A checkpoint on the hub: one revision of one repository, or a folder in it."""

    repo: str
    revision: str
    folder: str = ""

    @property
    def name(self) -> str:
        """Name of the checkpoint in its repository."""
        return self.folder or self.revision

    def __str__(self) -> str:
        inside = f", folder {self.folder}" if self.folder else ""
        return f"{self.repo} at revision {self.revision}{inside}"

    def describe(self) -> dict[str, Json]:
        """Repository, revision and folder, for provenance."""
        inside: dict[str, Json] = {"folder": self.folder} if self.folder else {}
        return {"repo": self.repo, "revision": self.revision} | inside


class HubFile(NamedTuple):
    """One file of a repository at one revision."""

    path: str
    size: int
    """Bytes."""
    digest: str
    """Name of its content: equal for equal contents."""
    sha256: str | None = None
    """SHA-256 of the content if the hub lists it (large files)."""


Folders = dict[str, dict[str, HubFile]]
"""Files by folder and name; "" is the root."""


class Hub:
    """One hub and one local cache.

    Parameters
    ----------
    endpoint
        Address of the hub; by default `HF_ENDPOINT`, else the public one.
    cache_dir
        Folder of the cache; by default `HF_HUB_CACHE`, else `hub` in `HF_HOME`.

    Raises
    ------
    MissingExtraError
        huggingface_hub is not installed.
    """

    def __init__(self, endpoint: str | None = None, cache_dir: Path | None = None) -> None:
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        try:
            from huggingface_hub import HfApi, constants
        except ImportError as error:
            raise MissingExtraError(
                "huggingface_hub is not installed; install it with "
                '`pip install "logitbank[engine]"`'
            ) from error
        # The library reads the environment once, when it is imported.
        constants.HF_HUB_DISABLE_TELEMETRY = True
        home = os.environ.get("HF_HOME")
        cache = os.environ.get("HF_HUB_CACHE") or (
            Path(home) / "hub" if home else constants.HF_HUB_CACHE
        )
        address = endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        huggingface_hub_for(address)  # checks variables, and hides passwords in logs
        self.endpoint = address.rstrip("/")
        self.cache_dir = Path(cache_dir or cache).expanduser().absolute()
        self._api = HfApi(endpoint=self.endpoint)
        self._files: dict[tuple[str, str], Folders] = {}

    def refs(self, repo: str) -> tuple[list[str], list[str]]:
        """Branches and tags of a repository; offline, the revisions in the cache and no tags."""
        if not offline():
            with self._readable_errors(repo, repo):
                refs = self._api.list_repo_refs(repo)
                return [ref.name for ref in refs.branches], [ref.name for ref in refs.tags]
        names = _files_below(self._cached(repo) / "refs")
        if present := [name for name in names if self._snapshot(repo, name).is_dir()]:
            return present, []
        raise SuiteError(self._not_cached(f"the revisions of {repo}"))

    def files(self, repo: str, revision: str) -> Folders:
        """All files of a repository at one revision, listed once; offline, those in the cache."""
        if (repo, revision) not in self._files:
            name = f"{repo} at revision {revision}"
            if offline():
                root = self._snapshot(repo, revision)
                files = [HubFile(n, (root / n).stat().st_size, "") for n in _files_below(root)]
                if not files:
                    raise SuiteError(self._not_cached(f"the files of {name}"))
            else:
                with self._readable_errors(repo, name):
                    entries = self._api.list_repo_tree(repo, recursive=True, revision=revision)
                    files = [_listed(entry) for entry in entries if hasattr(entry, "blob_id")]
            folders: Folders = {}
            for file in files:
                folder, _, name = file.path.rpartition("/")
                folders.setdefault(folder, {})[name] = file
            self._files[repo, revision] = folders
        return self._files[repo, revision]

    def needed(self, source: HubSource) -> tuple[HubFile, ...]:
        """The files of a checkpoint: settings, tokenizer and weights, never code.

        Raises
        ------
        SuiteError
            The files cannot be listed.
        WeightsError
            There are no weights.
        """
        files = self.files(source.repo, source.revision).get(source.folder, {})
        weights = choose_weights(sorted(files), str(source))
        index = (LEGACY if weights[0].endswith(".bin") else SAFE).index
        return tuple(file for name, file in files.items() if name in (*weights, index, *SETTINGS))

    def needed_by_all(self, sources: Iterable[object]) -> dict[HubSource, tuple[HubFile, ...]]:
        """`needed` of all sources on the hub, without those that fail."""

        def needed(source: HubSource) -> tuple[HubFile, ...]:
            with suppress(SuiteError):  # raised again by the download
                return self.needed(source)
            return ()

        on_hub = [source for source in sources if isinstance(source, HubSource)]
        with ThreadPoolExecutor(max_workers=8) as pool:
            listed = zip(on_hub, pool.map(needed, on_hub), strict=True)
            return {source: files for source, files in listed if files}

    def config_digest(self, source: HubSource) -> str:
        """Digest of config.json; "" if the files have not been listed yet."""
        folders = self._files.get((source.repo, source.revision), {})
        config = folders.get(source.folder, {}).get("config.json")
        return "" if config is None else config.digest

    def missing(self, source: HubSource, files: Iterable[HubFile]) -> tuple[HubFile, ...]:
        """The files of a checkpoint that are not in the cache; none offline."""
        blobs = self._cached(source.repo) / "blobs"
        return () if offline() else tuple(f for f in files if not (blobs / f.digest).is_file())

    def missing_bytes(self, sources: Iterable[object]) -> int:
        """Bytes that checkpoints add to the cache; files of equal content count once."""
        sizes: dict[str, int] = {}
        for source, files in self.needed_by_all(sources).items():
            sizes |= {file.digest: file.size for file in self.missing(source, files)}
        return sum(sizes.values())

    def fetch(
        self,
        source: HubSource,
        *,
        into: Path | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """Download a checkpoint, and return its folder in the cache or below the folder `into`.

        Files in the cache are not downloaded again. `on_bytes` is called with the number of bytes
        of each part; a LogitbankError from it stops the download.

        Raises
        ------
        SuiteError
            The hub cannot be reached or refuses, or offline, a file is not in the cache.
        WeightsError
            There are no weights, or the SHA-256 of a large file is not the one that the hub lists.
        DiskSpaceError
            The disk is full.
        """
        if offline():
            folder = self._snapshot(source.repo, source.revision) / source.folder
            try:
                weight_files(folder)
            except WeightsError as error:
                raise SuiteError(self._not_cached(f"the weights of {source}")) from error
            return folder
        from huggingface_hub import snapshot_download

        files = self.needed(source)
        new = files if into else self.missing(source, files)
        with self._readable_errors(source.repo, str(source)):
            root = Path(
                snapshot_download(
                    source.repo,
                    revision=source.revision,
                    endpoint=self.endpoint,
                    cache_dir=self.cache_dir,
                    local_dir=into,
                    allow_patterns=[escape(file.path) for file in files],
                    tqdm_class=_counting_bar(on_bytes),
                )
            )
        _check_content(root, new, source)
        return root / source.folder

    def cached_folder(self, source: HubSource) -> Path | None:
        """The folder of a checkpoint whose weights are all in the cache; requests nothing."""
        folder = self._snapshot(source.repo, source.revision) / source.folder
        try:
            weight_files(folder)
        except WeightsError:
            return None
        return folder

    def _cached(self, repo: str) -> Path:
        return self.cache_dir / f"models--{repo.replace('/', '--')}"

    def _snapshot(self, repo: str, revision: str) -> Path:
        ref = self._cached(repo) / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else revision
        return self._cached(repo) / "snapshots" / commit

    def _not_cached(self, what: str) -> str:
        return (
            f"{what} are not in the cache {self.cache_dir} and HF_HUB_OFFLINE is set; "
            "run `logitbank fetch` while online, or unset HF_HUB_OFFLINE"
        )

    @contextmanager
    def _readable_errors(self, repo: str, what: str) -> Iterator[None]:
        """Turn errors of huggingface_hub into one line that names the next step."""
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            yield
        except LogitbankError:
            raise
        except Exception as error:
            cause: BaseException = error
            if isinstance(error, LocalEntryNotFoundError):
                cause = error.__cause__ or error
            number = cause.errno if isinstance(cause, OSError) else None
            if number in (errno.ENOSPC, errno.EDQUOT):
                raise DiskSpaceError(
                    f"the disk of {self.cache_dir} filled up while fetching {what}; "
                    "free some of it, set HF_HOME to a folder on a larger one, or use --disk-budget"
                ) from error
            if number is not None and not isinstance(cause, ConnectionError):
                raise  # a folder of the cache cannot be written, for example
            hub = without_credentials(self.endpoint)
            reason = None if hub != self.endpoint else error  # a traceback would show it
            raise SuiteError(_explanation(cause, hub, repo, what)) from reason


def _explanation(error: BaseException, hub: str, repo: str, what: str) -> str:
    """An error of huggingface_hub in one line with the next step."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return (
            f"{repo} is gated: accept its license on {hub}/{repo}, then set HF_TOKEN to a token"
            " of that account or run `hf auth login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return (
            f"repository {repo!r} is not on {hub}, or is private; check the name (`logitbank"
            " suites` lists known suites), or set HF_TOKEN to open a private repository"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{what} is not on {hub}; choose a branch or tag of the repository"
    if isinstance(error, errors.HFValidationError):
        return f"{repo!r} is not a repository name; use owner/name"
    if status is not None:
        limit = "; HF_TOKEN raises the limit of requests" if status == 429 else ""
        return f"{hub} answered {status} for {what}; run the same command later{limit}"
    return (
        f"cannot reach {hub} for {what}, or it gave no valid answer ({type(error).__name__});"
        " check the network, HF_ENDPOINT and any proxy or login page in between, or set"
        " HF_HUB_OFFLINE=1 to use the cache"
    )


def _listed(entry: Any) -> HubFile:
    sha256 = entry.lfs.sha256 if entry.lfs else None
    return HubFile(entry.path, int(entry.size), sha256 or entry.blob_id, sha256)


def _files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _check_content(root: Path, files: Iterable[HubFile], source: HubSource) -> None:
    """Delete and refuse a file whose SHA-256 is not the hub's; the library compares sizes only."""
    for file in files:
        path = root / file.path
        with path.open("rb") as opened:
            if file.sha256 in (None, hashlib.file_digest(opened, "sha256").hexdigest()):
                continue
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise WeightsError(
            f"{file.path} of {source} does not have the SHA-256 that the hub lists, and was"
            " deleted; run the same command again"
        )


def _counting_bar(on_bytes: Callable[[int], None]) -> type[Any]:
    """A progress bar that shows nothing and counts the bytes downloaded."""
    from tqdm import tqdm

    class CountingBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The library has three bars: bytes downloaded, bytes written, and files.
            self._counts = kwargs.get("desc") == "Downloading bytes"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            on_bytes(int(n or 0) if self._counts else 0)
            return super().update(n)  # type: ignore[no-any-return]

    return CountingBar
