"""The next checkpoint: read while another one is scored, loaded while the end of it is written."""

from collections.abc import Mapping
from pathlib import Path

from logitbank.engine.backends.protocol import Backend, Loaded
from logitbank.engine.weights.config_identity import config_fields, differing_fields
from logitbank.engine.weights.digests import DigestsAhead
from logitbank.engine.workers.events import Job, NextCheckpoint


class LoadedAheadError(Exception):
    """The engine failed while it loaded a checkpoint that is not the one of this job."""


class LoadAhead:
    """A worker's preparations for its next job."""

    def __init__(self) -> None:
        self._digests: DigestsAhead | None = None
        self._loaded: tuple[NextCheckpoint, Loaded | Exception] | None = None

    def read(self, job: Job) -> None:
        """Begin to read and hash the files of the checkpoint after the job's."""
        if job.following is not None:
            self._digests = DigestsAhead(job.following.folder)

    def digests(self, folder: Path) -> Mapping[str, str]:
        """Digests of the tensors in `folder`, as far as they are known."""
        ahead, self._digests = self._digests, None
        return {} if ahead is None else ahead.take(folder)

    def load(self, job: Job, backend: Backend) -> None:
        """Load the checkpoint after the job's, all of whose logits are computed.

        Nothing happens if it needs another engine. An error is kept for the next job.
        """
        if (following := job.following) is None:
            return
        try:
            if differing_fields(job.config, config_fields(following.folder)):
                return
            digests = self.digests(following.folder)
            checkpoint = str(following.checkpoint)
            loaded = backend.load(following.folder, checkpoint=checkpoint, digests=digests)
            self._loaded = following, loaded
        except Exception as error:
            self._loaded = following, error

    def take(self, job: Job) -> Loaded | None:
        """The job's checkpoint, if it is loaded; raises the error of its load.

        Raises
        ------
        LoadedAheadError
            The load of another checkpoint failed, so the engine cannot be used.
        """
        ahead, self._loaded = self._loaded, None
        if ahead is None:
            return None
        following, loaded = ahead
        is_own = following == (job.checkpoint, job.folder)
        if not isinstance(loaded, Exception):
            return loaded if is_own else None
        if is_own:
            raise loaded
        raise LoadedAheadError(f"the engine failed to load {following.checkpoint}") from loaded
