"""Ask a Hugging Face hub what there is and fetch it: a thin layer over huggingface_hub.

It knows repositories, revisions and files, and neither suites nor models. Code that a repository
ships is never fetched.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from logitbank.engine.hub.blobs import Blob
from logitbank.engine.hub.explained import explained, offline_message, read_as_listing, transport
from logitbank.engine.hub.files import (
    LEGACY_WEIGHTS,
    NEVER,
    SAFE_WEIGHTS,
    SETTINGS,
    HubFile,
    listed_file,
    weights_of,
)
from logitbank.engine.hub.library import (
    cache_from_environment,
    disable_telemetry,
    offline,
    quiet_bar,
)
from logitbank.engine.hub.patience import Patience
from logitbank.engine.hub.ranges import Connections
from logitbank.engine.hub.requests import HubRequests
from logitbank.engine.weights.weights import GGUF, LEGACY, SAFE, weight_files, weight_names
from logitbank.errors import MissingExtraError, SuiteError, WeightsError
from logitbank.store.remote.hub_token import keep_token


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
    patience
        How long to go on asking a hub that limits requests or fails.
    connections
        How many a large file is fetched over; by default up to 4, and as many as there are files
        and 6 more in all.

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
        *,
        patience: Patience | None = None,
        connections: Connections | None = None,
    ) -> None:
        disable_telemetry()
        try:
            from huggingface_hub import HfApi, constants
        except ImportError as error:
            raise MissingExtraError(
                "huggingface_hub is not installed; install it with "
                '`pip install "logitbank[engine]"`'
            ) from error
        chosen = endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
        self.endpoint = chosen.rstrip("/")
        self.cache_dir = cache_dir or cache_from_environment() or Path(constants.HF_HUB_CACHE)
        self._token = token
        self._requests = HubRequests(self.endpoint, token, patience or Patience())
        self._connections = connections or Connections()
        keep_token(self.endpoint, token)
        self._api = HfApi(endpoint=self.endpoint, token=token)
        self._files: dict[tuple[str, str], tuple[HubFile, ...]] = {}

    @property
    def offline(self) -> bool:
        """True where `HF_HUB_OFFLINE` forbids the network; then only the cache is used."""
        return offline()

    def revisions(self, repo: str) -> tuple[str, ...]:
        """Branch names of a repository; offline, those that the cache has seen.

        Raises
        ------
        SuiteError
            The repository is unknown, closed to this token, or the hub cannot be reached.
        """
        if self.offline:
            return self._cached_revisions(repo)
        with explained(self, repo), read_as_listing(self, repo):
            refs = self._requests.answer(lambda: self._api.list_repo_refs(repo))
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
            raise SuiteError(offline_message(self, f"the files of {repo} at {revision}"))
        what = f"{repo} at revision {revision}"
        with explained(self, repo, revision), read_as_listing(self, what):
            entries = self._requests.answer(lambda: list(self._requests.tree(repo, revision)))
            files = tuple(listed_file(entry) for entry in entries if entry["type"] == "file")
        return self._files.setdefault((repo, revision), files)

    def listed_config(self, repo: str, revision: str) -> str:
        """Git's name of what config.json holds; "" where the files have not been listed yet.

        Asks nothing: whoever plans has listed each revision for its weights.
        """
        files = self._files.get((repo, revision), ())
        return next((file.blob for file in files if file.name == "config.json"), "")

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

    def blobs(self, repo: str, revision: str, *, legacy_weights: bool = False) -> tuple[Blob, ...]:
        """The weight files of a checkpoint whose digests the hub knows: where its bytes are.

        Raises
        ------
        SuiteError
            As `files`.
        WeightsError
            As `fetch`.
        """
        files = self.files(repo, revision)
        patterns = SAFE_WEIGHTS
        if not weights_of(files, SAFE_WEIGHTS[:1]):
            if not legacy_weights:
                self._refuse_without_safetensors(repo, revision)
            patterns = LEGACY_WEIGHTS
        folder = self.cache_dir.expanduser().absolute() / f"models--{repo.replace('/', '--')}"
        return tuple(
            Blob(folder, file.name, file.size, file.sha256)
            for file in weights_of(files, patterns)
            if file.sha256
        )

    def fetch(
        self,
        repo: str,
        revision: str,
        *,
        legacy_weights: bool = False,
        keep: bool = True,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """Bring one checkpoint into the cache and return its folder.

        Only settings, tokenizer and weights are fetched, never code. Legacy weights are fetched
        only where they are asked for and there are no safetensors. What came of a weight file
        before a connection broke or a process was killed is not fetched again.

        Parameters
        ----------
        keep
            False where it may be evicted later.
        on_bytes
            Told of the bytes of weights as they come; what it raises stops the transfer.

        Raises
        ------
        SuiteError
            As `files`.
        WeightsError
            The revision has no weights, or only legacy ones that were not asked for; or they are
            not those of the hub's digest.
        """
        if not self.offline:
            try:
                blobs = self.blobs(repo, revision, legacy_weights=legacy_weights)
            except WeightsError:
                raise
            except SuiteError:
                # A hub that is out of reach does not keep from what is here.
                with suppress(SuiteError):
                    return self._whole(repo, revision, legacy_weights, local=True)
                raise
            for blob in blobs:
                self._bring(repo, revision, blob, on_bytes)
                if keep:
                    blob.keep()
            on_bytes(0)  # it may be stopped here too
        return self._whole(repo, revision, legacy_weights)

    def _whole(
        self, repo: str, revision: str, legacy_weights: bool, *, local: bool = False
    ) -> Path:
        """The snapshot's folder, after fetching what it lacks unless that is `local`."""
        folder = self._snapshot(repo, revision, (*SETTINGS, *SAFE_WEIGHTS), local=local)
        names = [path.name for path in folder.glob("*.safetensors")]
        if not names and legacy_weights:
            folder = self._snapshot(repo, revision, (*SETTINGS, *LEGACY_WEIGHTS), local=local)
        elif not names and not local:
            self._refuse_without_safetensors(repo, revision)
        weight_files(folder, legacy_weights=legacy_weights)
        return folder

    def _bring(self, repo: str, revision: str, blob: Blob, on_bytes: Callable[[int], None]) -> None:
        if blob.present:
            return
        with explained(self, repo, revision):
            blob.fetch(
                lambda start, stop: self._requests.body(repo, revision, blob.name, start, stop),
                self._connections,
                patiently=self._requests.answer,
                broken=(transport(), ConnectionError),
                on_bytes=on_bytes,
            )

    def _refuse_without_safetensors(self, repo: str, revision: str) -> None:
        where = f"{repo} at revision {revision}"
        if self.offline:
            raise WeightsError(f"{where} has no *.safetensors in the cache; fetch it while online")
        files = sorted(file.name for file in self.files(repo, revision))
        names = weight_names(files)
        if not names and (packed := [name for name in files if name.endswith(GGUF)]):
            raise WeightsError(
                f"{where} holds GGUF files alone ({packed[0]}); fetch one of them, `hf download"
                f" {repo} {packed[0]} --local-dir DIR`, and give it as --suite"
            )
        if names:
            raise WeightsError(
                f"{where} has only legacy weights ({names[0]}) and no *.safetensors; "
                "add --legacy-weights to load them without running any code they hold"
            )
        raise WeightsError(
            f"{where} holds no weights: looked for {SAFE.single}, *.safetensors and "
            f"{LEGACY.single}; choose another revision"
        )

    def _snapshot(
        self, repo: str, revision: str, patterns: tuple[str, ...], *, local: bool = False
    ) -> Path:
        from huggingface_hub import snapshot_download

        with explained(self, repo, revision):
            folder = self._requests.answer(
                lambda: snapshot_download(
                    repo,
                    revision=revision,
                    endpoint=self.endpoint,
                    token=self._token,
                    cache_dir=self.cache_dir,
                    allow_patterns=list(patterns),
                    ignore_patterns=list(NEVER),
                    local_files_only=local or self.offline,
                    tqdm_class=quiet_bar(),
                )
            )
        return Path(folder)

    def _cached_revisions(self, repo: str) -> tuple[str, ...]:
        refs = self.cache_dir / f"models--{repo.replace('/', '--')}" / "refs"
        revisions = tuple(sorted(path.name for path in refs.glob("*") if path.is_file()))
        if not revisions:
            raise SuiteError(offline_message(self, f"the revisions of {repo}"))
        return revisions
