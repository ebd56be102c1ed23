"""Ask a Hugging Face hub what there is and fetch it: a thin layer over huggingface_hub.

It knows repositories, revisions and files, and neither suites nor models. Code that a repository
ships is never fetched.
"""

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logitbank.engine.weights import LEGACY, SAFE, weight_files, weight_names
from logitbank.errors import DiskSpaceError, MissingExtraError, SuiteError, WeightsError

_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab*",
    "merges*",
    "special_tokens_map.json",
    "added_tokens.json",
)
_SAFE_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_LEGACY_WEIGHTS = ("pytorch_model*.bin", "pytorch_model*.bin.index.json")
_NEVER = ("*.py", "*/*")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository at one revision."""

    name: str
    size: int
    """Bytes."""
    sha256: str | None
    """Digest of the content where the hub knows it (large files), else None."""


class Hub:
    """One hub and one local cache.

    Parameters
    ----------
    endpoint
        Address of the hub; by default `HF_ENDPOINT`, else the public one.
    token
        Access token; by default `HF_TOKEN`, else the one saved by `hf auth login`.
    cache_dir
        Where files are kept; by default `HF_HUB_CACHE`, else `hub` in `HF_HOME`.

    Raises
    ------
    MissingExtraError
        huggingface_hub is not installed.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        _disable_telemetry()
        try:
            from huggingface_hub import HfApi, constants
        except ImportError as error:
            raise MissingExtraError(
                "huggingface_hub is not installed; install it with "
                '`pip install "logitbank[engine]"`'
            ) from error
        chosen = endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        self.endpoint = chosen.rstrip("/")
        self.cache_dir = cache_dir or _cache_from_environment() or Path(constants.HF_HUB_CACHE)
        self._token = token
        self._api = HfApi(endpoint=self.endpoint, token=token)
        self._files: dict[tuple[str, str], tuple[HubFile, ...]] = {}

    @property
    def offline(self) -> bool:
        """True where `HF_HUB_OFFLINE` forbids the network; then only the cache is used."""
        from huggingface_hub import constants

        asked = os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
        return asked or constants.HF_HUB_OFFLINE

    def revisions(self, repo: str) -> tuple[str, ...]:
        """Branch names of a repository; offline, those that the cache has seen.

        Raises
        ------
        SuiteError
            The repository is unknown, closed to this token, or the hub cannot be reached.
        """
        if self.offline:
            return self._cached_revisions(repo)
        with self._explained(repo):
            refs = self._api.list_repo_refs(repo)
        return tuple(branch.name for branch in refs.branches)

    def files(self, repo: str, revision: str) -> tuple[HubFile, ...]:
        """Files at the root of a repository at one revision; one request, remembered.

        Raises
        ------
        SuiteError
            As `revisions`, or the revision is unknown.
        """
        if (repo, revision) in self._files:
            return self._files[repo, revision]
        if self.offline:
            raise SuiteError(self._offline_message(f"the files of {repo} at {revision}"))
        from huggingface_hub.hf_api import RepoFile

        with self._explained(repo, revision):
            entries = list(self._api.list_repo_tree(repo, revision=revision))
        found = tuple(
            HubFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None)
            for entry in entries
            if isinstance(entry, RepoFile)
        )
        return self._files.setdefault((repo, revision), found)

    def weights_digest(self, repo: str, revision: str) -> str | None:
        """What the hub knows of the weights before any download.

        The SHA-256 of the weight file; for several files, that of their sorted digests. None
        where there are no weights or the hub lacks a digest. Equal digests are equal weights;
        different digests may still hold equal tensors in other files.
        """
        files = {file.name: file for file in self.files(repo, revision)}
        names = weight_names(sorted(files))
        known = sorted(digest for name in names if (digest := files[name].sha256))
        if not names or len(known) < len(names):
            return None
        return (
            known[0] if len(known) == 1 else hashlib.sha256("\n".join(known).encode()).hexdigest()
        )

    def fetch(self, repo: str, revision: str, *, legacy_weights: bool = False) -> Path:
        """Bring one checkpoint into the cache and return its folder.

        Only settings, tokenizer and weights are fetched, never code. Legacy weights are fetched
        only where they are asked for and there are no safetensors.

        Raises
        ------
        SuiteError
            As `files`.
        WeightsError
            The revision has no weights, or only legacy ones that were not asked for.
        """
        folder = self._snapshot(repo, revision, (*_SETTINGS, *_SAFE_WEIGHTS))
        names = [path.name for path in folder.glob("*.safetensors")]
        if not names and legacy_weights:
            folder = self._snapshot(repo, revision, (*_SETTINGS, *_LEGACY_WEIGHTS))
        elif not names:
            self._refuse_without_safetensors(repo, revision)
        weight_files(folder, legacy_weights=legacy_weights)
        return folder

    def _refuse_without_safetensors(self, repo: str, revision: str) -> None:
        where = f"{repo} at revision {revision}"
        if self.offline:
            raise WeightsError(f"{where} has no *.safetensors in the cache; fetch it while online")
        names = weight_names([file.name for file in self.files(repo, revision)])
        if names:
            raise WeightsError(
                f"{where} has only legacy weights ({names[0]}) and no *.safetensors; "
                "add --legacy-weights to load them without running any code they hold"
            )
        raise WeightsError(
            f"{where} holds no weights: looked for {SAFE.single}, *.safetensors and "
            f"{LEGACY.single}; choose another revision"
        )

    def _snapshot(self, repo: str, revision: str, patterns: tuple[str, ...]) -> Path:
        from huggingface_hub import snapshot_download

        with self._explained(repo, revision):
            folder = snapshot_download(
                repo,
                revision=revision,
                endpoint=self.endpoint,
                token=self._token,
                cache_dir=self.cache_dir,
                allow_patterns=list(patterns),
                ignore_patterns=list(_NEVER),
                local_files_only=self.offline,
                tqdm_class=_quiet_bar(),
            )
        return Path(folder)

    def _cached_revisions(self, repo: str) -> tuple[str, ...]:
        refs = self.cache_dir / f"models--{repo.replace('/', '--')}" / "refs"
        found = tuple(sorted(path.name for path in refs.glob("*") if path.is_file()))
        if not found:
            raise SuiteError(self._offline_message(f"the revisions of {repo}"))
        return found

    def _offline_message(self, what: str) -> str:
        return (
            f"{what} are not in the cache {self.cache_dir} and HF_HUB_OFFLINE is set; "
            "run `logitbank fetch` while online, or unset HF_HUB_OFFLINE"
        )

    @contextmanager
    def _explained(self, repo: str, revision: str | None = None) -> Iterator[None]:
        """Turn what huggingface_hub raises into one line that names the next step."""
        from huggingface_hub import errors

        # httpx or httpx2, by version: the base of both HTTP and connection errors.
        transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]
        what = repo if revision is None else f"{repo} at revision {revision}"
        try:
            yield
        except errors.GatedRepoError as error:
            raise SuiteError(
                f"{repo} is gated: accept its licence on {self.endpoint}/{repo} and set HF_TOKEN"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise SuiteError(
                f"repository {repo!r} is not on {self.endpoint}, or is private; `logitbank suites` "
                "lists known ones, and HF_TOKEN opens private ones"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise SuiteError(
                f"{repo} has no revision {revision!r}; choose one of its branches on "
                f"{self.endpoint}/{repo}, or a series that `logitbank suites` lists"
            ) from error
        except errors.HFValidationError as error:
            raise SuiteError(f"{repo!r} is no repository name; use owner/name") from error
        except errors.LocalEntryNotFoundError as error:
            if self.offline:
                raise SuiteError(self._offline_message(f"all files of {what}")) from error
            if isinstance(error.__cause__, errors.HfHubHTTPError):
                raise self._refused(what, error.__cause__) from error
            raise self._unreachable(what, error.__cause__ or error) from error
        except errors.HfHubHTTPError as error:
            raise self._refused(what, error) from error
        except (transport, ConnectionError, errors.XetDownloadError) as error:
            raise self._unreachable(what, error) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise DiskSpaceError(
                f"the disk of {self.cache_dir} filled up while fetching {what}; "
                "free some of it, or set HF_HOME to a folder on a larger one"
            ) from error

    def _refused(self, what: str, error: Any) -> SuiteError:
        status = error.response.status_code
        if status in (401, 403):
            return SuiteError(
                f"{self.endpoint} refused access to {what} (status {status}): accept the licence "
                "on the model page and set HF_TOKEN to a valid token"
            )
        return SuiteError(f"{self.endpoint} answered {status} for {what}; try again later")

    def _unreachable(self, what: str, error: BaseException) -> SuiteError:
        return SuiteError(
            f"cannot reach {self.endpoint} for {what} ({type(error).__name__}); check the network "
            "and HF_ENDPOINT, or set HF_HUB_OFFLINE=1 to use what was fetched before"
        )


def _disable_telemetry() -> None:
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    # The library reads the variable once, when it is imported.
    if constants := sys.modules.get("huggingface_hub.constants"):
        constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]


def _cache_from_environment() -> Path | None:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return None


def _quiet_bar() -> type[Any]:
    """A progress bar that shows nothing: the terminal shows ours."""
    from tqdm import tqdm

    class QuietBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return QuietBar
