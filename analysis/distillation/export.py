"""Write what checkpoints said into files that trainers of other models read."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from logitbank.analysis.distillation.about import about, file_name
from logitbank.analysis.distillation.layouts import (
    DISTILLKIT,
    PARQUET,
    TRL,
    by_sequence,
    compression_config,
    distillkit_rows,
    parquet_rows,
    trl_rows,
)
from logitbank.analysis.distillation.teacher import require_teacher, teachers
from logitbank.analysis.results.files import require_outside
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit, Readable
from logitbank.store.filter.view import open_unfiltered
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen
from logitbank.wording import counted

To = Literal["parquet", "trl", "distillkit"]
SCHEMAS = {"parquet": PARQUET, "trl": TRL, "distillkit": DISTILLKIT}
AT_ONCE = 256
"""Queries whose whole rows are in memory at a time: 0.1 GB at 50,304 outputs."""


class Exported(NamedTuple):
    """What was written."""

    folder: Path
    files: tuple[str, ...]
    """Parquet files in it, one for each checkpoint and query set."""
    rows: int
    """Queries; of DistillKit's sequences, those that have labels."""

    def __str__(self) -> str:
        return f"{counted(self.rows, 'query', 'queries')} in {counted(len(self.files), 'file')}"


def export(
    bank: str | Path | Readable,
    out: str | Path,
    *,
    to: To = "parquet",
    prompts: str | None = None,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
    top_k: int = 64,
    tail: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write top log-probabilities of checkpoints, and a sample of the rest, for distillation.

    Parameters
    ----------
    bank
        A bank, or where it is; no view.
    out
        New folder. It gets Parquet files, and a README.md that says what is in them.
    to
        `parquet` for a row for each query, which any reader takes; `trl` for what TRL's client of a
        teacher returns; `distillkit` for DistillKit's sequences of compressed log-probabilities.
    prompts, models, runs, steps
        Keep these, as `Bank.scan` does. If None: queries of all prompt sets, all models and runs,
        and of each the last step, or the release where there is no step. `trl` and `distillkit`
        take one checkpoint.
    top_k
        Highest entries of each row.
    tail
        Draws from the rest of each row, so that sums over the vocabulary, such as the gradient of a
        KL divergence, are right on average, which they are not where the rest is cut off. From full
        rows only. Not for `trl`, whose loss puts the rest into one bucket.
    seed
        Of the draws.
    progress
        Called with the queries done and those to do.

    Raises
    ------
    UsageError
        The folder is there, or several checkpoints are chosen for one teacher; or queries are not
        of a next-token head, for `trl` and `distillkit`; or more tokens are asked for than there
        are.
    KeepLevelError
        Fewer entries are kept.
    BankError
        A chosen deposit is not complete, or there is none.
    """
    opened, out = open_unfiltered(bank), Path(out)
    _check(out, to=to, top_k=top_k, tail=tail)
    deposits = opened.deposits_of(prompts) if prompts else opened.deposits()
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    deposits = deposits if steps is not None else _last(deposits)
    checkpoints = {deposit.checkpoint.path for deposit in deposits}
    if to != "parquet" and len(checkpoints) > 1:
        raise UsageError(
            f"{len(checkpoints)} checkpoints are chosen, and {to} has one teacher; name it with"
            " --model, --run and --steps"
        )
    wanted = [(d, _queries(opened, d, prompts, to)) for d in deposits]
    for deposit, queries in wanted:
        require_teacher(deposit, k=top_k, draws=tail)
        deposit.require(queries["row"].to_numpy())
    length = max(int(queries["ids"].list.len().max() or 0) for _, queries in wanted)  # type: ignore[arg-type]
    total, done = sum(len(queries) for _, queries in wanted), 0
    beside = out.with_name(f".{out.name}-{uuid.uuid4().hex}")
    beside.mkdir()
    try:
        for i, (deposit, queries) in enumerate(wanted):

            def report(rows: int, before: int = done) -> None:
                if progress is not None:
                    progress(before + rows, total)

            said = {"k": top_k, "draws": tail, "seed": seed}
            frames = _frames(deposit, queries, said, to=to, length=length)
            _written(frames, SCHEMAS[to], report).sink_parquet(beside / file_name(i))
            done += len(queries)
        if to == "distillkit":
            sizes = deposits[0].layout.vocab, top_k + tail
            (beside / "compression_config.yaml").write_text(compression_config(*sizes))
        (beside / "README.md").write_text(
            about(opened, deposits, to=to, top_k=top_k, tail=tail, seed=seed), encoding="utf-8"
        )
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Exported(out, tuple(file_name(i) for i in range(len(wanted))), total)


def _check(out: Path, *, to: To, top_k: int, tail: int) -> None:
    if to not in SCHEMAS:
        raise UsageError(f"{to!r} is no format of distillation; use {', '.join(SCHEMAS)}")
    if top_k < 1 or tail < 0:
        raise UsageError(f"top {top_k} and a tail of {tail} are not possible; use 1 or more, and 0")
    if to == "trl" and tail:
        raise UsageError(
            "TRL's loss puts what is not among the highest entries into one bucket, and has no"
            " place for draws; leave --tail out, or use --to parquet or distillkit"
        )
    if out.exists():
        raise UsageError(f"{out} is there already; choose another folder or remove it")
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be made: there is no folder {out.parent}; make it first")
    require_outside(out)


def _last(deposits: list[Deposit]) -> list[Deposit]:
    """Those of the last step of each model and run, or of its release where there is no step."""
    last: dict[tuple[str, str], int] = {}
    for deposit in deposits:
        made = deposit.checkpoint
        step = -1 if made.step is None else made.step
        last[made.model, made.run] = max(step, last.get((made.model, made.run), -1))
    return [
        d
        for d in deposits
        if (-1 if d.checkpoint.step is None else d.checkpoint.step)
        == last[d.checkpoint.model, d.checkpoint.run]
    ]


def _queries(bank: Bank, deposit: Deposit, prompts: str | None, to: To) -> pl.DataFrame:
    """The queries to write of a deposit, by row."""
    queries = bank.query_set(deposit.query_set).to_frame()
    if prompts:
        named = bank.prompts(prompts).filter(query_set=deposit.query_set).select("row").unique()
        queries = queries.join(named.collect(), on="row", how="semi").sort("row")
    heads = set(queries["head"].unique()) - {"next_token"}
    if to != "parquet" and heads:
        raise UsageError(
            f"{deposit} has queries of the head {', '.join(sorted(heads))}, and {to} trains on next"
            " tokens; choose other prompts with --prompts, or use --to parquet"
        )
    return queries


def _frames(
    deposit: Deposit, queries: pl.DataFrame, said: dict[str, int], *, to: To, length: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Tables to write one after another, each with the number of queries in it."""
    if to == "distillkit":
        units = by_sequence(queries)
        sizes = units["row"].list.len().to_numpy()
    else:
        units, sizes = queries, np.ones(len(queries), np.int64)
    batches = [units[start:stop] for start, stop in spans(sizes, AT_ONCE)]
    rows = [batch["row"].explode().to_numpy().astype(np.int64) for batch in batches]
    for batch, teacher in zip(batches, teachers(deposit, rows, **said), strict=True):
        if to == "distillkit":
            frame = distillkit_rows(batch, teacher, vocab=deposit.layout.vocab, length=length)
        elif to == "trl":
            frame = trl_rows(batch, teacher)
        else:
            frame = parquet_rows(deposit, batch, teacher)
        yield len(teacher.rows), frame


def spans(sizes: np.ndarray, at_once: int) -> list[tuple[int, int]]:
    """Consecutive units, of these sizes, together: as many as fit, at least one.

    >>> spans(np.array([3, 3, 9, 1, 1]), 6)
    [(0, 2), (2, 3), (3, 5)]
    """
    made: list[tuple[int, int]] = []
    start, held = 0, 0
    for i, size in enumerate(sizes.tolist()):
        if i > start and held + size > at_once:
            made.append((start, i))
            start, held = i, 0
        held += size
    return [*made, (start, len(sizes))]


def _written(
    frames: Iterator[tuple[int, pl.DataFrame]], schema: pl.Schema, report: Callable[[int], None]
) -> pl.LazyFrame:
    """One table of many, of which one at a time is in memory while it is written."""

    def source(*_: object) -> Iterator[pl.DataFrame]:
        done = 0
        for queries, frame in frames:
            yield frame
            done += queries
            report(done)

    return register_io_source(source, schema=schema)
