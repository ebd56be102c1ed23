"""Checkpoints on a Hugging Face hub: which there are, the files they consist of, and downloads.

huggingface_hub lists and downloads, with its own cache, token and retries. Code that a repository
ships is never downloaded.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.cache import offline
from logitbank.engine.suites.sources import HubSource
from logitbank.engine.weights.weights import GGUF, LEGACY, OF_GGUF, SAFE, weight_files, weight_names
from logitbank.errors import (
    DiskSpaceError,
    LogitbankError,
    MissingExtraError,
    SuiteError,
    WeightsError,
)
from logitbank.store.share.hub_token import keep_token

SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab*",
    "merges*",
    "special_tokens_map.json",
    "added_tokens.json",
)


class HubFile(NamedTuple):
    """One file of a repository at one revision."""

    name: str
    """Its path in the repository."""
    size: int
    """Bytes."""
    digest: str
    """Name of its content: equal for equal contents."""
    sha256: str | None = None
    """SHA-256 of the content if the hub lists it (large files)."""


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
        chosen = endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        home = os.environ.get("HF_HOME")
        cache = os.environ.get("HF_HUB_CACHE") or (
            Path(home) / "hub" if home else constants.HF_HUB_CACHE
        )
        self.endpoint = chosen.rstrip("/")
        self.cache_dir = Path(cache_dir or cache).expanduser().absolute()
        keep_token(self.endpoint)
        self._api = HfApi(endpoint=self.endpoint)
        self._files: dict[tuple[str, str], Mapping[str, HubFile]] = {}

    def refs(self, repo: str) -> tuple[list[str], list[str]]:
        """Branches and tags of a repository; offline, the revisions in the cache and none.

        Raises
        ------
        SuiteError
            The repository is unknown, closed to this token, or the hub cannot be reached.
        """
        if not offline():
            with self._explained(repo, repo):
                refs = self._api.list_repo_refs(repo)
                return [ref.name for ref in refs.branches], [ref.name for ref in refs.tags]
        names = _files_below(self._cached(repo) / "refs")
        if present := [name for name in names if self._snapshot(repo, name).is_dir()]:
            return present, []
        raise SuiteError(self._absent(f"the revisions of {repo}"))

    def files(self, repo: str, revision: str) -> Mapping[str, HubFile]:
        """All files of a repository at one revision, by name; listed once. Offline, the cached.

        Raises
        ------
        SuiteError
            As `refs`, or the revision is unknown.
        """
        if (repo, revision) not in self._files:
            what = f"{repo} at revision {revision}"
            if offline():
                root = self._snapshot(repo, revision)
                files = [HubFile(n, (root / n).stat().st_size, "") for n in _files_below(root)]
                if not files:
                    raise SuiteError(self._absent(f"the files of {what}"))
            else:
                with self._explained(repo, what):
                    entries = self._api.list_repo_tree(repo, recursive=True, revision=revision)
                    files = [_listed(entry) for entry in entries if hasattr(entry, "blob_id")]
            self._files[repo, revision] = {file.name: file for file in files}
        return self._files[repo, revision]

    def list_all(self, sources: Iterable[HubSource]) -> tuple[str, ...]:
        """List the files of many revisions side by side; returns one line for each that failed."""

        def problem(revision: tuple[str, str]) -> str:
            try:
                self.files(*revision)
            except SuiteError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(max_workers=8) as pool:
            problems = pool.map(problem, dict.fromkeys((s.repo, s.revision) for s in sources))
            return tuple(filter(None, problems))

    def folders(self, repo: str, revision: str) -> tuple[str, ...]:
        """Folders of a repository that contain a config and weights; "" is the root."""
        names: dict[str, list[str]] = {}
        for name in self.files(repo, revision):
            folder, _, last = name.rpartition("/")
            names.setdefault(folder, []).append(last)
        return tuple(f for f, n in names.items() if "config.json" in n and weight_names(n))

    def needed(self, source: HubSource) -> tuple[HubFile, ...]:
        """The files of a checkpoint: settings, tokenizer and weights, never code.

        Raises
        ------
        SuiteError
            As `files`.
        WeightsError
            There are no weights.
        """
        files = {
            name.rpartition("/")[2]: file
            for name, file in self.files(source.repo, source.revision).items()
            if name.rpartition("/")[0] == source.folder
        }
        weights = weight_names(sorted(files))
        if not weights and (packed := [name for name in sorted(files) if name.endswith(GGUF)]):
            raise WeightsError(f"{packed[0]} of {source} {OF_GGUF}")
        if not weights:
            raise WeightsError(
                f"{source} holds no weights: looked for {SAFE.single}, *.safetensors and "
                f"{LEGACY.single}; choose another revision"
            )
        kind = LEGACY if weights[0].endswith(".bin") else SAFE
        names = {*weights, kind.index}
        for pattern in SETTINGS:
            names |= {name for name in files if fnmatch(name, pattern) and name[-3:] != ".py"}
        return tuple(file for name, file in files.items() if name in names)

    def weights_digest(self, source: HubSource) -> str:
        """Digest of a checkpoint's weights before any download; "" if the hub lacks it.

        Equal digests are equal weights. Different digests may still be equal tensors, in other
        files.
        """
        files = [f for f in self.needed(source) if _is_weights(f)]
        known = sorted(file.sha256 for file in files if file.sha256)
        return ",".join(known) if len(known) == len(files) else ""

    def listed_config(self, source: HubSource) -> str:
        """Name of the content of config.json; "" if the files have not been listed yet."""
        files = self._files.get((source.repo, source.revision), {})
        file = files.get(f"{source.folder}/config.json".lstrip("/"))
        return "" if file is None else file.digest

    def missing(self, source: HubSource) -> tuple[HubFile, ...]:
        """The files of a checkpoint that the cache lacks."""
        blobs = self._cached(source.repo) / "blobs"
        files = self.needed(source)
        return () if offline() else tuple(f for f in files if not (blobs / f.digest).is_file())

    def fetch(
        self,
        source: HubSource,
        *,
        into: Path | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """Download a checkpoint and return its folder, in the cache or below a folder `into`.

        What is in the cache is not downloaded again, and it is used if the hub cannot be reached.
        The SHA-256 of each large file that comes is compared with the hub's. `on_bytes` is called
        with numbers of bytes as they come; an exception from it stops the download.

        Raises
        ------
        SuiteError
            As `files`.
        WeightsError
            As `needed`; or a file came twice with another content than the hub lists.
        DiskSpaceError
            The disk is full.
        """
        if offline():
            return self._from_cache(source)
        try:
            files = self.needed(source)
        except WeightsError:
            raise
        except SuiteError:
            with suppress(LogitbankError):
                return self._from_cache(source)
            raise
        new = files if into else self.missing(source)
        names, bar = [escape(file.name) for file in files], _counting_bar(on_bytes)
        for _ in range(2):  # a damaged transfer is rarely damaged twice
            root = self._download(source, names, local_dir=into, tqdm_class=bar)
            if not (damaged := _remove_damaged(root, new)):
                return root / source.folder
        raise WeightsError(
            f"{damaged} of {source} came twice with another content than its hub lists; it was"
            " deleted: run the same command again"
        )

    def _from_cache(self, source: HubSource) -> Path:
        """The folder of a checkpoint that is whole in the cache; sends no request."""
        patterns = [f"{source.folder}/{name}".lstrip("/") for name in SETTINGS]
        folder = self._download(source, patterns, local_files_only=True) / source.folder
        if not weight_names([path.name for path in folder.glob("*")]):
            raise SuiteError(self._absent(f"the weights of {source}"))
        weight_files(folder)
        return folder

    def _download(self, source: HubSource, patterns: list[str], **options: Any) -> Path:
        from huggingface_hub import snapshot_download

        with self._explained(source.repo, str(source)):
            return Path(
                snapshot_download(
                    source.repo,
                    revision=source.revision,
                    endpoint=self.endpoint,
                    cache_dir=self.cache_dir,
                    allow_patterns=patterns,
                    ignore_patterns=["*.py"],
                    **options,
                )
            )

    def _cached(self, repo: str) -> Path:
        return self.cache_dir / f"models--{repo.replace('/', '--')}"

    def _snapshot(self, repo: str, revision: str) -> Path:
        ref = self._cached(repo) / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else "none"
        return self._cached(repo) / "snapshots" / commit

    def _absent(self, what: str) -> str:
        return (
            f"{what} are not in the cache {self.cache_dir} and HF_HUB_OFFLINE is set; "
            "run `logitbank fetch` while online, or unset HF_HUB_OFFLINE"
        )

    @contextmanager
    def _explained(self, repo: str, what: str) -> Iterator[None]:
        """Turn what huggingface_hub raises into one line that names the next step."""
        from huggingface_hub import errors

        try:
            yield
        except Exception as error:
            cause: BaseException = error
            if isinstance(error, errors.LocalEntryNotFoundError):
                cause = error.__cause__ or error
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskSpaceError(
                    f"the disk of {self.cache_dir} filled up while fetching {what}; "
                    "free some of it, set HF_HOME to a folder on a larger one, or use --disk-budget"
                ) from error
            if (text := self._explanation(cause, repo, what)) is None:
                raise
            raise SuiteError(text) from error

    def _explanation(self, error: BaseException, repo: str, what: str) -> str | None:
        from huggingface_hub import errors

        hub, status = self.endpoint, getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.LocalEntryNotFoundError):
            return self._absent(f"all files of {what}")
        if isinstance(error, errors.GatedRepoError) or status == 403:
            return (
                f"{repo} is gated: accept its license on {hub}/{repo}, then set HF_TOKEN to a token"
                " of that account or run `hf auth login`; some authors grant access by hand"
            )
        if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
            return (
                f"repository {repo!r} is not on {hub}, or is private; `logitbank suites` lists"
                " known suites, and HF_TOKEN opens private repositories"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{what} is not on {hub}; choose a branch or tag of the repository"
        if isinstance(error, errors.HFValidationError):
            return f"{repo!r} is no repository name; use owner/name"
        if status == 429:
            return (
                f"{hub} limits requests (status 429) and did so to the end for {what}; run the"
                " same command later; HF_TOKEN raises the limit"
            )
        if status is not None:
            return f"{hub} answered {status} for {what}; try again later"
        # The base of HTTP and connection errors is httpx's or httpx2's, by version.
        transport = errors.HfHubHTTPError.__bases__[0]
        if isinstance(error, (transport, ConnectionError, errors.XetDownloadError)):
            return (
                f"cannot reach {hub} for {what} ({type(error).__name__}); check the network and"
                " HF_ENDPOINT, or set HF_HUB_OFFLINE=1 to use what was fetched before"
            )
        no_answers = ValueError, LookupError, TypeError, AttributeError, RecursionError
        short = isinstance(error, OSError) and error.errno is None  # the library's check of sizes
        if short or isinstance(error, (*no_answers, AssertionError)):
            return (
                f"{hub} gave no valid answer for {what} ({type(error).__name__}); a proxy or a page"
                " to log in may stand in between: open the address in a browser, check HF_ENDPOINT"
            )
        return None


def _listed(entry: Any) -> HubFile:
    sha256 = entry.lfs.sha256 if entry.lfs else None
    return HubFile(entry.path, int(entry.size), sha256 or entry.blob_id, sha256)


def _files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _is_weights(file: HubFile) -> bool:
    return file.name.endswith((".safetensors", ".bin"))


def _remove_damaged(root: Path, files: Iterable[HubFile]) -> str:
    """Delete a file whose SHA-256 is not the hub's; returns its name, or ""."""
    for file in files:
        path = root / file.name
        with path.open("rb") as opened:
            if file.sha256 in (None, hashlib.file_digest(opened, "sha256").hexdigest()):
                continue
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        return file.name
    return ""


def _counting_bar(on_bytes: Callable[[int], None]) -> type[Any]:
    """A progress bar that shows nothing, as the terminal shows ours, and counts bytes that came."""
    from tqdm import tqdm

    class CountingBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The library has three bars: bytes that came, bytes that are written, and files.
            self._counts = kwargs.get("desc") == "Downloading bytes"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            on_bytes(int(n or 0) if self._counts else 0)
            return super().update(n)  # type: ignore[no-any-return]

    return CountingBar
