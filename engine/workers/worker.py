"""One architecture loaded: reload and prove weights, score blocks, write them to the bank.

It does not know how jobs arrive: `serve` reads them from a pipe. Logits never leave its process,
only small events do.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.protocol import Backend, Tokens
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.weights.config_identity import config_digest
from logitbank.engine.workers.blocks.writer import BlockWriter, RowBuffers
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointStopped,
    Event,
    Job,
    Note,
    Phase,
    RowsScored,
    WeightsLoaded,
)
from logitbank.engine.workers.load_ahead import LoadAhead
from logitbank.engine.workers.reference_check import ReferenceCheck, ReferenceFork
from logitbank.errors import EngineError, SuiteError
from logitbank.store import Bank, BlockData, DepositSpec, DepositWriter
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import CheckpointId, Head, Json, Query
from logitbank.store.read.copied_weights import MATRICES
from logitbank.store.tables.prompt_tables import option_tokens

if TYPE_CHECKING:
    import torch

    from logitbank.engine.workers.blocks.reduce import ReducingSink

Emit = Callable[[Event], None]


class BlockProgress:
    """Reports the scored rows of a block a few times a second."""

    def __init__(self, queries: Sequence[Query], checkpoint: CheckpointId, emit: Emit) -> None:
        self._queries, self._checkpoint, self._emit = queries, checkpoint, emit
        self._last_report = time.monotonic()
        self._rows = self._tokens = 0

    def add(self, indices: Sequence[int]) -> None:
        self._rows += len(indices)
        self._tokens += sum(len(self._queries[i].ids) for i in indices)
        if time.monotonic() - self._last_report > 0.25:
            self.report()

    def report(self) -> None:
        if self._rows:
            self._emit(RowsScored(self._checkpoint, self._rows, self._tokens))
        self._rows, self._tokens, self._last_report = 0, 0, time.monotonic()


class Worker:
    """Runs jobs for one bank with one engine."""

    def __init__(
        self, bank: Path, *, log: Path, emit: Emit, fork: ReferenceFork | None = None
    ) -> None:
        self._path, self._emit = bank, emit
        self._backend: Backend | None = None
        self._reference = ReferenceCheck(log=log, emit=emit, fork=fork)
        self._buffers = RowBuffers()
        # Read once for all checkpoints: a set is named by the digest of its content.
        self._queries = lru_cache(1)(lambda query_set: self._bank.query_set(query_set).queries)
        self._loads = 0
        self._stop = threading.Event()
        self._in_deposit = False
        self._spent: dict[Phase, float] = {}
        self._tokens = Tokens(0, 0)
        self._ahead = LoadAhead()
        self._ahead_s = 0.0
        """Seconds of the load ahead for the next job, after the end of the last one."""
        self._endings = ThreadPoolExecutor(1, "deposit-ending")
        self._ending: Future[None] | None = None

    @cached_property
    def _bank(self) -> Bank:
        return Bank.open(self._path)  # it does not exist before the plan is complete

    def stop(self) -> bool:
        """Stop after the current block. Any thread may call this.

        False if no block is being scored or written.
        """
        self._stop.set()
        return self._in_deposit

    def run(self, job: Job) -> None:
        """Score and store all blocks of `job`; errors come out as LogitbankError."""
        self._in_deposit = False
        try:
            self._run(job)
        except BaseException:
            # Its process may be dead, or about to send a result that is no longer needed.
            self._reference.close()
            with suppress(Exception):  # the first error counts
                self._await_ending()
            raise

    def _run(self, job: Job) -> None:
        ahead_s, self._ahead_s = self._ahead_s, 0.0
        start = time.perf_counter() - ahead_s
        self._spent, self._tokens = {}, Tokens(0, 0)
        loaded = self._ahead.take(job)
        check_queries = self._reference.start(job, self._bank, loads=self._loads)
        if self._backend is None:
            with self._timed("load"):
                self._backend = open_backend(job.folder, job.settings)
        if loaded is None:
            with self._timed("swap"):
                digests = self._ahead.digests(job.folder)
                loaded = self._backend.load(
                    job.folder, checkpoint=str(job.checkpoint), digests=digests
                )
        else:
            self._spent["swap"] = ahead_s
        if loaded.vocab != job.vocab:
            raise SuiteError(
                f"{job.checkpoint}: its LM head has {loaded.vocab} outputs, that of the suite's"
                f" first checkpoint {job.vocab}; extract this checkpoint on its own"
            )
        if loaded.note:
            self._emit(Note(f"{job.checkpoint}: {loaded.note}"))
        provenance = job.provenance | self._backend.describe()
        provenance |= {
            "weights": loaded.weights,
            **({MATRICES: loaded.matrices} if loaded.matrices else {}),
            "config": config_digest(job.config),
            **loaded.made,
        }
        if check_queries:
            with self._timed("check"):
                provenance |= self._reference.finish(job, self._backend, check_queries)
        self._loads += 1
        self._emit(WeightsLoaded(job.checkpoint, loaded.weights, loaded.seconds))
        self._ahead.read(job)
        for deposit in job.deposits:
            self._run_deposit(job, deposit, provenance, loaded.heads)
        if self._stop.is_set():
            self._await_ending()
            self._in_deposit = False
            self._emit(CheckpointStopped(job.checkpoint))
            return
        done = self._endings.submit(self._complete, job, start, time.perf_counter())
        load_start = time.perf_counter()
        self._ahead.load(job, self._backend)
        load_end = time.perf_counter()
        done_at = done.result()
        # Until the end was written, this time counts as that of writing.
        self._ahead_s = max(0.0, load_end - max(load_start, done_at))

    def _complete(self, job: Job, start: float, scored: float) -> float:
        """Report the job as done when all is written, and return the time."""
        self._await_ending()
        self._in_deposit = False
        now = time.perf_counter()
        self._spent["write"] = self._spent.get("write", 0.0) + now - scored
        self._emit(CheckpointDone(job.checkpoint, now - start, self._spent, *self._tokens))
        return now

    def _await_ending(self) -> None:
        """Wait until the last deposit is written, or raise the error."""
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.result()

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._spent[phase] = self._spent.get(phase, 0.0) + seconds

    def kill_reference(self) -> None:
        """End the process of the reference check, because this process ends now."""
        self._reference.kill()

    def close(self) -> None:
        self._reference.close()
        self._endings.shutdown()
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
        from logitbank.engine.workers.blocks.states import BlockStates, proved_head

        queries = self._queries(plan.query_set)
        options = option_tokens(self._bank.path, plan.query_set)
        head, digests = None, dict[Head, str]()
        if plan.layout.keep.array == "hidden":
            head = proved_head(job, plan, queries[0].head, heads)
            with self._timed("write"):  # before the deposit that refers to it
                digests = {queries[0].head: self._bank.put_head(head)}
        vocab_entries = min(job.vocab_entries, plan.layout.vocab)
        spec = DepositSpec(
            job.checkpoint, plan.query_set, plan.layout, vocab_entries, provenance, digests
        )

        def on_written(block: int, data: BlockData) -> None:
            rows = len(writer.layout.rows(block))
            self._emit(BlockCommitted(job.checkpoint, block, rows, data.array_bytes))

        def make_sink(block: int) -> ReducingSink:
            reducer = BlockReducer(
                writer.layout,
                block,
                options=options,
                vocab_entries=vocab_entries,
                buffer=self._buffers.take(writer.layout),
            )
            states = None if head is None else BlockStates(head, reducer.rows)
            return ReducingSink(reducer, states, batch_invariant=job.settings.deterministic)

        self._in_deposit = True
        with ExitStack() as stack:
            writer = stack.enter_context(self._bank.begin(spec))
            blocks = stack.enter_context(BlockWriter(writer, on_written, self._buffers.give_back))
            # Another run may have made the deposit meanwhile, with blocks of another size.
            layout = writer.layout
            rows = (row for block in plan.blocks for row in plan.layout.rows(block))
            planned = {row // layout.block_rows for row in rows}
            for block in sorted(planned.intersection(writer.missing())):
                if self._stop.is_set():
                    break
                with self._timed("score"):
                    sink = make_sink(block)
                    self._score(sink, [queries[row] for row in layout.rows(block)], plan)
                with self._timed("write"):
                    blocks.put(block, partial(self._finish, sink, plan))
            with self._timed("write"):
                self._await_ending()  # of the deposit before
            ending = partial(_end_deposit, stack.pop_all(), writer, blocks)
            self._ending = self._endings.submit(ending)

    def _score(self, sink: "ReducingSink", queries: Sequence[Query], plan: DepositPlan) -> None:
        assert self._backend is not None
        progress = BlockProgress(queries, plan.checkpoint, self._emit)

        def counted(
            indices: Sequence[int],
            logits: "torch.Tensor",
            hidden: "torch.Tensor | None" = None,
        ) -> None:
            sink(indices, logits, hidden)
            progress.add(indices)

        try:
            cost = self._backend.score(queries, counted)
        except EngineError as error:
            raise self._named(error, plan) from error
        self._tokens = Tokens(*map(sum, zip(self._tokens, cost, strict=True)))
        progress.report()

    def _finish(self, sink: "ReducingSink", plan: DepositPlan) -> BlockData:
        try:
            return sink.finish()
        except EngineError as error:
            raise self._named(error, plan) from error

    def _named(self, error: EngineError, plan: DepositPlan) -> EngineError:
        """The error with its checkpoint and its prompt."""
        subject = ""
        if error.query is not None:
            subject = f"query {error.query} of {plan.query_set}: "
            is_query = (pl.col("query_set") == plan.query_set) & (pl.col("row") == error.query)
            for name in self._bank.prompt_sets:
                prompts = self._bank.prompts(name).filter(is_query).select("prompt_id").collect()
                if len(prompts):
                    subject = f"prompt {prompts.item(0, 0)!r} of {name!r}: "
                    break
        return EngineError(f"{plan.checkpoint}: {subject}{error}")


def _end_deposit(stack: ExitStack, writer: DepositWriter, blocks: BlockWriter) -> None:
    """Write what is left of a deposit, and seal it if it is complete."""
    with stack:
        blocks.drain()
        writer.seal()
