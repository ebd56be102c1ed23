"""A folder that a running training saves checkpoints to: what is complete, gone, waited for."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.suites.complete import TrainerState, Watch, trainer_state
from logitbank.engine.suites.folders import FoundCheckpoint, scan_growing
from logitbank.errors import UsageError
from logitbank.store.steps import StepSelector, parse_steps


class Look(NamedTuple):
    """What has changed in a folder since the last look."""

    complete: tuple[FoundCheckpoint, ...]
    """Checkpoints whose turn has come, by run and step; again and again until they are done."""
    deleted: tuple[FoundCheckpoint, ...]
    """Those that are gone and have not been done."""


@dataclass(frozen=True, slots=True)
class WantedSteps:
    """Which steps are run, and at which one there is no need to wait any longer."""

    selector: StepSelector
    until: int | None = None

    @classmethod
    def parse(cls, steps: str, *, until: int | None = None) -> "WantedSteps":
        """Read a choice that does not depend on which steps there will be.

        Raises
        ------
        UsageError
            It does, or cannot be read.
        """
        selector = parse_steps(steps)
        if selector.kind == "log" or selector.last or selector.release:
            raise UsageError(
                f"steps {steps!r} can be chosen only when all are there; with --follow use all, "
                "START:END:STRIDE, or a list of numbers"
            )
        if until is not None and until < 1:
            raise UsageError(f"--until {until} is no step that a training reaches; use 1 or more")
        return cls(selector, until)

    def has(self, step: int) -> bool:
        """Whether a step is to be run."""
        return (self.until is None or step <= self.until) and bool(self.selector.pick([step]))


class GrowingFolder:
    """Looks at a training's folder and remembers what it has seen there.

    A folder below it of another name than a step's is a run of its own, as in `extract`. What is
    in the folder itself is left alone: it is saved when all is over, and is a checkpoint that was
    there before.
    """

    def __init__(
        self, folder: Path, wanted: WantedSteps, watch: Watch, *, base: bool = False
    ) -> None:
        """`base` says that it is known what adapters are added to."""
        self._folder, self._wanted, self._watch, self._base = folder, wanted, watch, base
        self._pending: dict[Path, FoundCheckpoint] = {}
        self._done: set[Path] = set()
        self._lacking: dict[Path, str] = {}
        self._newest: dict[str, tuple[int, TrainerState | None]] = {}
        """Of each run, the last step that is complete, and what the training noted with it."""
        self._notes: tuple[str, ...] = ()

    def look(self) -> Look:
        """Read the folder once more.

        Raises
        ------
        SuiteError
            It is a file, or holds two checkpoints of the same run and step.
        """
        scan = scan_growing(self._folder, base=self._base)
        self._notes = scan.notes
        self._lacking, complete = {}, []
        for found in scan.checkpoints:
            if found.step is None or found.path in self._done:
                continue
            lacks = self._watch.lacks(found.path)
            if not lacks:
                self._learn(found.run, found.step, found.path)
            if self._wanted.has(found.step):
                self._pending[found.path] = found
                if lacks:
                    self._lacking[found.path] = lacks
                else:
                    complete.append(found)
        gone = tuple(found for path, found in self._pending.items() if not path.exists())
        for found in gone:
            del self._pending[found.path]
        return Look(tuple(sorted(c for c in complete if c not in gone)), gone)

    def done(self, found: FoundCheckpoint) -> None:
        """Do not name this checkpoint again, whether it is there or not."""
        self._done.add(found.path)
        self._pending.pop(found.path, None)

    def is_going(self, found: FoundCheckpoint) -> bool:
        """Whether a checkpoint that was complete is being deleted, or is gone."""
        return self._watch.has_lost_files(found.path)

    def end(self) -> str:
        """Why there is nothing more to come, for people; empty where there may be."""
        if not self._newest:
            return ""
        steps = {run: step for run, (step, _) in self._newest.items()}
        if (until := self._wanted.until) is not None:
            return f"step {until} was reached" if min(steps.values()) >= until else ""
        states = [state for _, state in self._newest.values()]
        if all(state is not None and state.ended for state in states):
            return f"the training ended at step {max(steps.values())}"
        return ""

    def waits_for(self) -> str:
        """What is waited for, for people."""
        if not self._folder.exists():
            return f"waiting for the folder {self._folder}, which is not there yet"
        if self._lacking:
            path, lacks = [*self._lacking.items()][-1]
            return f"waiting for {path}: {lacks}"
        text = f"waiting for the next checkpoint in {self._folder}"
        if not self._newest:
            return f"{text}; {self._notes[0]}" if self._notes else text
        step, state = min(self._newest.values(), key=lambda each: each[0])
        if self._wanted.until is not None:
            return f"{text}; the last is step {step}, and step {self._wanted.until} is the end"
        if state is None or not state.max_steps:
            why = "nothing in it says when the training ends: --until or Ctrl-C does"
            return f"{text}; the last is step {step}, and {why}"
        return f"{text}; the last is step {step} of {state.max_steps}"

    def left_out(self) -> Iterator[str]:
        """A line about each checkpoint that was never complete, or that nobody can name."""
        for path, lacks in self._lacking.items():
            yield f"{path} is left out: {lacks}"
        yield from self._notes

    def _learn(self, run: str, step: int, path: Path) -> None:
        if step >= self._newest.get(run, (0, None))[0]:
            self._newest[run] = (step, trainer_state(path))
