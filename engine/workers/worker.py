"""One architecture loaded: swap and prove weights, score blocks, hand them to the bank.

It knows no transport: `serve` gives it jobs from a pipe. Logits never leave its process, only small
events do.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.protocol import Backend, EngineSettings, Tokens
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.weights.config_identity import config_digest
from logitbank.engine.workers.blocks.writer import BlockWriter, RowBuffers
from logitbank.engine.workers.canary import CanaryChecks
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointStopped,
    Event,
    Note,
    Phase,
    RowsScored,
    WeightsLoaded,
)
from logitbank.engine.workers.job import Job
from logitbank.errors import DamagedError, EngineError, SuiteError
from logitbank.store import Bank, BlockData, Deposit, DepositSpec, DepositWriter
from logitbank.store.change.duplicate_weights import COPIED_FROM, BlockCopier, find_duplicate
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import CheckpointId, Head, Json, Query

if TYPE_CHECKING:
    import torch

    from logitbank.engine.workers.blocks.reduce import ReducingSink


def about_prompt(bank: Bank, plan: DepositPlan, error: EngineError) -> EngineError:
    """The same error, with its checkpoint and its prompt."""
    subject = ""
    if error.query is not None:
        subject = f"query {error.query} of {plan.query_set}: "
        here = (pl.col("query_set") == plan.query_set) & (pl.col("row") == error.query)
        for name in bank.prompt_sets:
            prompts = bank.prompts(name).filter(here).select("prompt_id").collect()
            if len(prompts):
                subject = f"prompt {prompts.item(0, 0)!r} of {name!r}: "
                break
    return EngineError(f"{plan.checkpoint}: {subject}{error}")


def copy_duplicate(
    writer: DepositWriter,
    duplicate: Deposit,
    wanted: set[int],
    *,
    emit: Callable[[Event], None],
    stop: threading.Event,
) -> None:
    """Copy the wanted blocks from a deposit of the same weights. Blocks that are damaged are run.

    Stops after the current block when `stop` is set.
    """
    deposit, layout = writer.deposit, writer.layout
    # Nothing is taken into a deposit that was begun otherwise: its provenance does not say so.
    if (
        deposit.spec.provenance.get(COPIED_FROM) != str(duplicate.checkpoint)
        or layout != duplicate.layout
    ):
        return
    name, blocks = deposit.checkpoint, sorted(wanted.intersection(writer.missing()))
    copier = BlockCopier(deposit, duplicate)
    try:
        for block in blocks:
            if stop.is_set():
                return
            copier.copy(block)
            rows = len(layout.rows(block))
            emit(RowsScored(name, rows))
            emit(BlockCommitted(name, block, rows, rows * layout.array_bytes))
        emit(Note(f"{name}: copied from {duplicate.checkpoint}, not run again"))
    except DamagedError as error:
        emit(Note(f"{name}: run, because {duplicate.checkpoint} cannot be copied: {error}"))
    finally:
        copier.close()


class BlockProgress:
    """When the block that is being scored will be done."""

    def __init__(self, rows: int) -> None:
        self._start, self._rows, self._scored = time.monotonic(), rows, 0

    def add(self, rows: int) -> None:
        self._scored += rows

    def ends(self) -> float:
        """When, at its rate so far; nobody knows before the first batch."""
        if self._scored >= self._rows:
            return 0.0
        now = time.monotonic()
        rest = (self._rows - self._scored) / self._scored if self._scored else math.inf
        return now + (now - self._start) * rest


class RowCounter:
    """Turns row counts into events, a few a second."""

    def __init__(self, emit: Callable[[Event], None], checkpoint: CheckpointId) -> None:
        self._emit, self._checkpoint = emit, checkpoint
        self._rows, self._tokens, self._last = 0, 0, time.monotonic()

    def add(self, rows: int, tokens: int) -> None:
        self._rows += rows
        self._tokens += tokens
        if time.monotonic() - self._last > 0.25:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._emit(RowsScored(self._checkpoint, self._rows, self._tokens))
        self._rows, self._tokens, self._last = 0, 0, time.monotonic()


FINISH_S = 8.0
"""What is left of a block when a stop is asked for is scored if it takes no longer: the rest of the
time of grace is for writing it, and the one before, on a machine that may be busy."""


class _Left(Exception):  # noqa: N818 (nothing is wrong)
    """The block at hand is left without being committed."""


class Worker:
    """Runs jobs against one bank with one engine; on a cluster it would be an actor."""

    def __init__(
        self,
        bank: Path,
        *,
        log: Path,
        emit: Callable[[Event], None],
        open_engine: Callable[[Path, EngineSettings], Backend] = open_backend,
    ) -> None:
        self._path = bank
        self._emit, self._open_engine = emit, open_engine
        self._backend: Backend | None = None
        # What it emits goes where the worker emits at that moment.
        self._canary = CanaryChecks(log=log, emit=lambda event: self._emit(event))
        self._buffers = RowBuffers()
        # Read once for all checkpoints: a set is named by the digest of what it has.
        self._queries = lru_cache(1)(lambda query_set: self._bank.query_set(query_set).queries)
        self._loads = 0
        self._stop = threading.Event()
        self._finish_by = math.inf
        self._at_hand = False
        self._progress: BlockProgress | None = None
        self._spent: dict[Phase, float] = {}
        self._tokens = Tokens(0, 0)

    @cached_property
    def _bank(self) -> Bank:
        return Bank.open(self._path)  # made only when the plan is

    def stop(self) -> bool:
        """Leave the job at hand: after its current block, or without it where that takes long.

        May be called from any thread. False where nothing is at hand that could be committed.
        """
        self._finish_by = min(self._finish_by, time.monotonic() + FINISH_S)
        self._stop.set()
        return self._at_hand

    def leave(self) -> None:
        """Leave the block that is being scored, if it would take too long.

        For a handler of signals, which runs in the middle of what the engine does: on a busy
        machine a single batch may take as long as the time of grace. Nothing of the engine's is
        used afterwards.
        """
        if self._progress is not None and self._progress.ends() > self._finish_by:
            raise _Left

    def run(self, job: Job) -> None:
        """Score and deposit everything in `job`; errors come out as LogitbankError."""
        self._at_hand = False
        try:
            self._run(job)
        except BaseException:
            # It may be dead, or hold an answer about this checkpoint that nobody asked for again.
            self._canary.close()
            raise

    def _run(self, job: Job) -> None:
        start = time.perf_counter()
        self._spent, self._tokens = {}, Tokens(0, 0)
        canaries = self._canary.ask(job, self._bank, loads=self._loads)
        if self._backend is None:
            with self._timed("load"):
                self._backend = self._open_engine(job.folder, job.settings)
        with self._timed("swap"):
            loaded = self._backend.load(job.folder, checkpoint=str(job.checkpoint))
        if loaded.vocab != job.vocab:
            raise SuiteError(
                f"{job.checkpoint}: its head has {loaded.vocab} outputs, the suite's first "
                f"checkpoint {job.vocab}; a suite has one vocabulary. Extract it on its own"
            )
        if loaded.note:
            self._emit(Note(f"{job.checkpoint}: {loaded.note}"))
        provenance = job.provenance | self._backend.describe()
        provenance |= {
            "weights": loaded.weights,
            "config": config_digest(job.config),
            **loaded.made,
        }
        if canaries:
            with self._timed("canary"):
                provenance |= self._canary.check(job, self._backend, canaries)
        self._loads += 1
        self._emit(WeightsLoaded(job.checkpoint, loaded.weights, loaded.seconds))
        for deposit in job.deposits:
            self._run_deposit(job, deposit, provenance, loaded.heads)
            provenance |= self._sizes_now(job, provenance)
        if self._stop.is_set():
            self._emit(CheckpointStopped(job.checkpoint))
        else:
            seconds = time.perf_counter() - start
            self._emit(CheckpointDone(job.checkpoint, seconds, self._spent, *self._tokens))

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._spent[phase] = self._spent.get(phase, 0.0) + seconds

    def abandon(self) -> None:
        """End the canary, whatever it is at; this process ends now."""
        self._canary.close()

    def close(self) -> None:
        self._canary.close()
        if self._backend is not None:
            self._backend.close()

    def _run_deposit(
        self,
        job: Job,
        plan: DepositPlan,
        provenance: dict[str, Json],
        heads: Mapping[Head, OutputHead],
    ) -> None:
        from logitbank.engine.workers.blocks.reduce import ReducingSink
        from logitbank.engine.workers.blocks.states import BlockStates, head_of

        queries = self._queries(plan.query_set)
        options = self._bank.option_tokens(plan.query_set)
        head, digests = None, dict[Head, str]()
        if plan.layout.keep.array == "hidden":
            head = head_of(job, plan, queries[0].head, heads)
            with self._timed("write"):  # before the deposit that names it
                digests = {queries[0].head: self._bank.put_head(head)}
        spec = DepositSpec(
            job.checkpoint,
            plan.query_set,
            plan.layout,
            min(job.vocab_entries, plan.layout.vocab),
            provenance,
            digests,
        )
        duplicate = find_duplicate(self._bank, spec, plan.blocks)
        if duplicate is not None:
            spec = replace(spec, provenance=provenance | {COPIED_FROM: str(duplicate.checkpoint)})
        asked, checkpoint = job.settings, job.checkpoint

        def written(block: int, data: BlockData) -> None:
            rows = len(writer.layout.rows(block))
            self._emit(BlockCommitted(checkpoint, block, rows, data.array_bytes))

        def sink_of(block: int) -> ReducingSink:
            reducer = BlockReducer(
                writer.layout,
                block,
                options=options,
                vocab_entries=spec.vocab_entries,
                buffer=self._buffers.take(writer.layout),
            )
            states = None if head is None else BlockStates(head, reducer.rows)
            return ReducingSink(reducer, states, batch_invariant=asked.deterministic)

        self._at_hand = True
        with (
            self._bank.begin(spec) as writer,
            BlockWriter(writer, written, self._buffers.give_back) as blocks,
        ):
            # Another run may have made the deposit meanwhile, with blocks of another size.
            layout = writer.layout
            wanted = {row // layout.block_rows for b in plan.blocks for row in plan.layout.rows(b)}
            if duplicate is not None:
                with self._timed("write"):
                    copy_duplicate(writer, duplicate, wanted, emit=self._emit, stop=self._stop)
            todo = sorted(wanted.intersection(writer.missing()))
            for block in todo:
                if self._stop.is_set():
                    break
                with self._timed("score"):
                    sink = sink_of(block)
                    if not self._score(sink, [queries[row] for row in layout.rows(block)], plan):
                        break
                with self._timed("write"):
                    blocks.put(block, partial(self._finish, sink, plan))
            with self._timed("write"):
                blocks.drain()
                writer.seal()
        self._at_hand = False

    def _finish(self, sink: "ReducingSink", plan: DepositPlan) -> BlockData:
        try:
            return sink.finish()
        except EngineError as error:
            raise about_prompt(self._bank, plan, error) from error

    def _sizes_now(self, job: Job, before: dict[str, Json]) -> dict[str, Json]:
        """What the engine says of itself now; a note where it went on otherwise than it began."""
        assert self._backend is not None
        now = self._backend.describe()
        if (tokens := now.get("max_batch_tokens")) != before.get("max_batch_tokens"):
            text = f"out of memory; batches have {tokens:,} tokens from here on"
            self._emit(Note(f"{job.checkpoint}: {text}"))
        return now

    def _score(self, sink: "ReducingSink", wanted: Sequence[Query], plan: DepositPlan) -> bool:
        """False where a stop was asked for and the block would have taken too long."""
        assert self._backend is not None
        counter = RowCounter(self._emit, plan.checkpoint)
        progress = BlockProgress(len(wanted))

        def counted(
            indices: Sequence[int],
            logits: "torch.Tensor",
            hidden: "torch.Tensor | None" = None,
        ) -> None:
            sink(indices, logits, hidden)
            counter.add(len(indices), sum(len(wanted[i].ids) for i in indices))
            progress.add(len(indices))
            if self._stop.is_set():
                self.leave()

        try:
            self._progress = progress
            cost = self._backend.score(wanted, counted)
            self._tokens = Tokens(*map(sum, zip(self._tokens, cost, strict=True)))
            counter.flush()
        except EngineError as error:
            self._progress = None
            raise about_prompt(self._bank, plan, error) from error
        except Exception as error:
            if not _is_left(error):
                raise
            return False
        finally:
            self._progress = None
        return True


def _is_left(error: BaseException | None) -> bool:
    """An engine may put an error of its own around ours."""
    while error is not None and not isinstance(error, _Left):
        error = error.__cause__ or error.__context__
    return error is not None
