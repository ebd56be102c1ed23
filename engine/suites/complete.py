"""Whether a checkpoint that a training is writing is all there, by what is on the disk alone."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.weights.weights import check_weights
from logitbank.errors import WeightsError

SETTLE_S = 5.0
"""A folder in which nothing has changed for this long is not being written: `Trainer` writes
without pauses, and what is cut short by its death is told by the files themselves."""
CHANGING = "its files are still being written"
STATE = "trainer_state.json"
"""`Trainer` writes it after all else, with `save_only_model` too."""
_OF_TRAINER = ("training_args.bin", "optimizer.", "scheduler.pt", "rng_state", "global_step")
"""Beginnings of names that `Trainer` writes between the weights and its state."""

_Files = tuple[tuple[str, int, int], ...]
"""Name, size and time of change in nanoseconds of each file in a folder."""


class TrainerState(NamedTuple):
    """How far a training was when it saved a checkpoint."""

    step: int
    max_steps: int
    """The step at which it ends; 0 where the file does not say."""

    @property
    def ended(self) -> bool:
        return 0 < self.max_steps <= self.step


@dataclass(slots=True)
class _Seen:
    files: _Files
    since: float


class Watch:
    """Looks at folders again and again, and says what each of them still lacks.

    A folder is complete when nothing in it has changed for `SETTLE_S`, its weights are whole (all
    shards of the index, each file as long as its header says), and where `Trainer` writes it, the
    state is there that comes last. Times are this machine's, between two looks: a file server's
    clock may be another.
    """

    def __init__(
        self,
        *,
        legacy_weights: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._legacy, self._clock = legacy_weights, clock
        self._seen: dict[Path, _Seen] = {}

    def lacks(self, folder: Path) -> str:
        """What is waited for, for people; empty where the checkpoint is complete."""
        now = self._clock()
        try:
            files = _files(folder)
            seen = self._seen.setdefault(folder, _Seen(files, now))
            if seen.files != files:
                self._seen[folder] = seen = _Seen(files, now)
            if now - seen.since < SETTLE_S:
                return CHANGING
            check_weights(folder, legacy_weights=self._legacy)
            names = [name for name, _, _ in files]
            if STATE in names:
                return "" if trainer_state(folder) else f"its {STATE} is not whole"
        except WeightsError as error:
            return "its weights are not whole yet (" + str(error).partition(";")[0] + ")"
        except OSError as error:  # it may be deleted meanwhile
            return f"it cannot be read ({error.strerror or error})"
        if any(name.startswith(_OF_TRAINER) for name in names):
            return f"its {STATE}, which Trainer writes last, is not there"
        return ""

    def has_lost_files(self, folder: Path) -> bool:
        """Whether a file that was there at the last look is gone: somebody deletes the folder."""
        seen = self._seen.get(folder)
        return seen is not None and any(not (folder / name).exists() for name, _, _ in seen.files)


def trainer_state(folder: Path) -> TrainerState | None:
    """What `Trainer` noted with a checkpoint; None where it did not, or the note is not whole."""
    try:
        state = json.loads((folder / STATE).read_bytes())
        return TrainerState(int(state["global_step"]), int(state.get("max_steps") or 0))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _files(folder: Path) -> _Files:
    """Everything in a checkpoint's folder; sub-folders, such as DeepSpeed's, by themselves only."""
    stats = ((path.name, path.stat()) for path in folder.iterdir())
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))
