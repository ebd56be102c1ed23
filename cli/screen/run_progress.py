"""What is seen while checkpoints are run: a bar on a terminal, lines elsewhere."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.progress import ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from logitbank.cli.output import clean, err, say
from logitbank.cli.screen.progress import bars
from logitbank.cli.screen.run import ProgressLines, planned

if TYPE_CHECKING:
    from logitbank.engine.workers.events import Event, Planned
    from logitbank.store.format.schema import CheckpointId


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        rate = f"{task.finished_speed or task.speed or 0:,.0f} prompts/s"
        return Text(rate + task.fields.get("more", ""), style="cyan")


class ExtractProgress:
    """Follows an extraction's events: a bar on a terminal, elsewhere lines."""

    def __init__(self) -> None:
        self._progress = bars(TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), _Rate())
        self._committed = self._tokens = self._bytes = self._done = self._checkpoints = 0
        self._began = 0.0
        self._pending: Counter[CheckpointId] = Counter()
        self._rows = 0
        self._lines = ProgressLines(lambda line: say(clean(line)))
        self._task: TaskID | None = None

    def __enter__(self) -> "ExtractProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: "Event") -> None:
        from logitbank.engine.workers import events

        if not err.is_interactive:
            self._lines(event)
        match event:
            case events.Planned():
                self._plan(event)
            case events.Waiting(text=text) | events.Preparing(text=text):
                self._update(description=clean(text))
            case events.CheckpointStarted(checkpoint=checkpoint):
                self._say(f"{checkpoint}: loading")
            case events.WeightsLoaded(checkpoint=checkpoint):
                self._forget(checkpoint)  # of a worker that died and was replaced
                self._say(f"{checkpoint}")
            case events.RowsScored(checkpoint=checkpoint, rows=rows, tokens=tokens):
                self._tokens += tokens
                self._count(checkpoint, pending=rows)
            case events.BlockCommitted(checkpoint=checkpoint, rows=rows, bytes=size):
                self._bytes += size
                self._count(checkpoint, committed=rows, pending=-rows)
            case events.CheckpointDone(checkpoint=checkpoint):
                self._done += 1
                self._forget(checkpoint)
            case events.CheckpointFailed(checkpoint=checkpoint, message=message):
                self._forget(checkpoint)
                if not err.is_interactive:
                    return
                self._progress.print(f"[red]failed[/red] {clean(message)}")
            case events.Note(text=text):
                self._progress.print(f"[yellow]note[/yellow] {clean(text)}")

    def _count(self, checkpoint: "CheckpointId", *, committed: int = 0, pending: int = 0) -> None:
        """Rows that are durable, and those that are scored and may still be lost."""
        self._committed += committed
        self._pending[checkpoint] = max(0, self._pending[checkpoint] + pending)
        completed = self._committed + self._pending.total()
        self._update(completed=completed, more=self._more())

    def _more(self) -> str:
        """Tokens a second since the first were scored, and what is written, before compression."""
        from logitbank.wording import readable_bytes

        now = time.monotonic()
        self._began = self._began or now
        rate = self._tokens / (now - self._began) if now > self._began else 0
        return f", {rate:,.0f} tokens/s, {readable_bytes(self._bytes)}"

    def _forget(self, checkpoint: "CheckpointId") -> None:
        """Rows that were scored and lost, as when a worker died."""
        self._count(checkpoint, pending=-self._pending[checkpoint])

    def _plan(self, event: "Planned") -> None:
        plan = event.plan
        if self._task is None or plan.rows:  # each time that a training has saved something
            self._progress.print(planned(plan, event.engine))
        for note in event.notes:
            self._progress.print(f"[yellow]note[/yellow] {clean(note)}")
        self._checkpoints += len(plan.to_run)
        self._rows += plan.rows
        self._update(description="starting the engine", total=self._rows or 1)

    def _say(self, text: str) -> None:
        text = f"{self._done + 1}/{self._checkpoints} {text}"
        self._update(description=clean(text))

    def _update(self, **changes: Any) -> None:
        """Change the bar, which comes with the first thing that is told."""
        if self._task is None:
            self._task = self._progress.add_task("", total=1)
        self._progress.update(self._task, **changes)
