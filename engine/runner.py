"""Feed one worker with a plan's checkpoints and keep the account of what happened."""

import platform
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from logitbank import __version__
from logitbank.engine.config import ModelConfig
from logitbank.engine.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStarted,
    Event,
    Note,
    OnEvent,
    Summary,
    WeightsLoaded,
)
from logitbank.engine.fetcher import Fetcher
from logitbank.engine.job import Job
from logitbank.engine.plan import DepositPlan
from logitbank.engine.prepare import Extraction, Prepared, tokenizer_folder
from logitbank.engine.suites import HubSource, LocalSource
from logitbank.engine.tokenizer import Tokenizer, files_digest
from logitbank.engine.weights import check_weights
from logitbank.engine.worker_process import WorkerProcess
from logitbank.errors import LogitbankError, SuiteError
from logitbank.store.schema import CheckpointId, Json


class Runner:
    """One checkpoint after another; one that fails does not stop the others."""

    def __init__(
        self,
        extraction: Extraction,
        prepared: Prepared,
        fetcher: Fetcher,
        worker: WorkerProcess,
        summary: Summary,
        on_event: OnEvent,
    ) -> None:
        self._extraction, self._prepared = extraction, prepared
        self._fetcher, self._worker = fetcher, worker
        self._summary, self._on_event = summary, on_event
        self._weights: dict[str, CheckpointId] = {}
        self._same_tokenizer = {files_digest(tokenizer_folder(prepared.first))}

    def run(self) -> None:
        work: dict[CheckpointId, list[DepositPlan]] = {}
        for deposit in self._prepared.plan.deposits:
            work.setdefault(deposit.checkpoint, []).append(deposit)
        indices = {c.id: i for i, c in enumerate(self._extraction.suite.checkpoints)}
        todo = list(work)
        for position, checkpoint in enumerate(todo):
            try:
                folder = self._fetcher.folder(indices[checkpoint])
                if position + 1 < len(todo):
                    self._fetcher.start(indices[todo[position + 1]])
                self._check_fit(folder, checkpoint)
            except LogitbankError as error:
                self._handle(CheckpointFailed(checkpoint, f"{checkpoint}: {error}"))
                continue
            deposits = tuple(work[checkpoint])
            self._on_event(CheckpointStarted(checkpoint, sum(d.rows for d in deposits)))
            source = self._extraction.suite.checkpoints[indices[checkpoint]].source
            job = Job(
                checkpoint,
                folder,
                deposits,
                self._prepared.config.vocab,
                min(self._prepared.tokenizer.entries, self._prepared.config.vocab),
                _provenance(source, self._prepared),
                self._prepared.settings,
            )
            for event in self._tried_twice(job):
                self._handle(event)
            if self._hopeless():
                return

    def _tried_twice(self, job: Job) -> Iterator[Event]:
        """Events of a job, run again where its process dies: often chance, or another's memory.

        What the first try committed is not run again.
        """
        for event in self._worker.run(job):
            if isinstance(event, CheckpointFailed) and event.crash:
                note = f"{event.message}; trying it once more"
                self._summary.notes.append(note)
                yield Note(note)
                yield from self._worker.run(job)
            else:
                yield event

    def _hopeless(self) -> bool:
        """True after a fatal failure, or where the engine failed twice before it did anything."""
        failed = self._summary.failed
        if not failed:
            return False
        engine = sum(f.crash or f.engine for f in failed)
        return failed[-1].fatal or (not self._summary.done and engine >= 2)

    def _check_fit(self, folder: Path, checkpoint: CheckpointId) -> None:
        """Architecture, vocabulary and tokenizer must be the first's; weights must be there.

        Looked at here, a bad checkpoint costs no new worker: an engine whose load failed is not
        used again.
        """
        if difference := ModelConfig.read(folder).difference(self._prepared.config):
            raise SuiteError(
                f"its {difference}; a suite has one architecture and vocabulary: extract it on "
                "its own"
            )
        self._check_tokenizer(tokenizer_folder(folder))
        check_weights(folder, legacy_weights=self._extraction.settings.legacy_weights)

    def _check_tokenizer(self, folder: Path) -> None:
        if (files := files_digest(folder)) in self._same_tokenizer:
            return  # a second is saved: most suites have the same files at every step
        tokenizer, first = Tokenizer.load(folder), self._prepared.tokenizer
        if tokenizer.digest != first.digest:
            raise SuiteError(
                f"its tokenizer ({tokenizer.entries} entries, digest {tokenizer.digest[:12]}) "
                f"differs from the first checkpoint's ({first.entries} "
                f"entries, digest {first.digest[:12]}); extract it on its own"
            )
        self._same_tokenizer.add(files)

    def _handle(self, event: Event) -> None:
        match event:
            case BlockCommitted(rows=rows):
                self._summary.rows += rows
            case CheckpointDone(checkpoint=checkpoint):
                self._summary.done.append(checkpoint)
            case CheckpointFailed():
                self._summary.failed.append(event)
            case WeightsLoaded(checkpoint=checkpoint, weights=weights):
                twin = self._weights.setdefault(weights, checkpoint)
                if twin != checkpoint:
                    note = f"{checkpoint} has the same weights as {twin}"
                    self._summary.notes.append(note)
                    self._on_event(Note(note))
        self._on_event(event)


def _provenance(source: LocalSource | HubSource, prepared: Prepared) -> dict[str, Json]:
    settings, adapters = prepared.settings, prepared.adapters
    borrowed: dict[str, Json] = {}
    if settings.adapter_languages and adapters is not None:
        borrowed = {"adapter_from": adapters.describe()}
    return borrowed | {
        "source": source.describe(),
        "tokenizer": prepared.tokenizer.digest,
        "logitbank_version": __version__,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "trust_remote_code": settings.trust_remote_code,
        "legacy_weights": settings.legacy_weights,
    }
