"""Contents of sound objects that contradict each other or the format, as if signed by their maker.

Whatever a reader of scores, rows or prompts refuses is found here: both call the same checks.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.errors import AbsentError, BankError, DamagedError, UsageError
from logitbank.store.care.damage import Damage
from logitbank.store.deposits.deposit import Deposit, check_metadata
from logitbank.store.deposits.scores import scan_scores
from logitbank.store.files import objects
from logitbank.store.format import zarrays
from logitbank.store.format.block import check_scores
from logitbank.store.format.parquet import PARQUET_ERRORS, check_size
from logitbank.store.tables import prompt_checks, prompt_tables, query_tables
from logitbank.store.tables.table_files import TableFile

_TOLERANCE = {"float32": (1e-4, 2.0**-20), "float16": (1e-3, 2.0**-10)}
"""Nats, and part of a logit, by which a stored log-probability may differ from its score."""


def deposit_contradictions(deposit: Deposit, folder: str) -> Iterator[Damage]:
    """Objects of a deposit that readers refuse, or that have other numbers than its scores."""
    if not query_tables.query_file(deposit.bank, deposit.query_set).exists():
        return  # `verify` reports the query set
    try:
        check_metadata(deposit)
    except BankError as error:
        yield Damage(f"{folder}/zarr.json", "changed", str(error))
        return
    state = deposit.state()
    frames = []
    for relative in state.score_parts:
        try:
            frames.append(_scores_in(deposit, relative))
        except (DamagedError, UsageError) as error:
            yield Damage(f"{folder}/{relative}", "changed", str(error))
    if len(frames) < len(state.score_parts) or not frames:
        return
    scores = pl.concat(frames)
    if state.sealed:
        yield from _logsumexp_damage(deposit, folder, frames[0])
    for block in sorted(state.blocks) if deposit.layout.keep.array else ():
        try:
            _require_rows(deposit, deposit.layout.rows(block), scores)
        except DamagedError as error:
            yield Damage(f"{folder}/{deposit.layout.keep.array}/c/{block}/0", "changed", str(error))


def _scores_in(deposit: Deposit, relative: str) -> pl.DataFrame:
    """The scores of a part, or DamagedError or UsageError if a reader would refuse them."""
    part = objects.plain_path(deposit.path, relative)
    check_size(part)
    _require_names(deposit, part)
    try:
        scores = scan_scores(part).collect()
    except PARQUET_ERRORS as error:
        raise DamagedError(f"{part} is not a table of scores ({error})") from error
    layout, name = deposit.layout, part.stem
    rows = range(layout.queries) if name == "all" else None
    if name.isdecimal():
        rows = layout.rows(int(name))
    check_scores(layout, rows, scores)
    return scores


def _require_names(deposit: Deposit, part: Path) -> None:
    """Refuse a part that names another deposit than its own."""
    checkpoint = deposit.checkpoint
    expected: dict[str, object] = {"model": checkpoint.model, "run": checkpoint.run}
    expected |= {"step": checkpoint.step, "query_set": deposit.query_set}
    scores = pl.scan_parquet(part, glob=False)
    named = [name for name in expected if name in scores.collect_schema().names()]
    for row in scores.select(named).unique().collect().iter_rows(named=True):
        for name, value in row.items():
            if value != expected[name]:
                raise DamagedError(f"its {name} is {value!r}, but {expected[name]!r} in zarr.json")


def _logsumexp_damage(deposit: Deposit, folder: str, scores: pl.DataFrame) -> Iterator[Damage]:
    """The array `logsumexp` if it is not that of the scores."""
    name = "logsumexp/c/0"
    expected = scores.unique("query").sort("query")["logsumexp"].to_numpy()
    try:
        data = objects.plain_path(deposit.path, name).read_bytes()
        stored = zarrays.read_logsumexp(data, deposit.layout.queries)
    except ValueError as error:
        yield Damage(f"{folder}/{name}", "changed", str(error))
        return
    if not np.allclose(stored, expected, rtol=1e-6, atol=1e-6):
        yield Damage(f"{folder}/{name}", "changed", "it has other values than the scores")


def _require_rows(deposit: Deposit, rows: range, scores: pl.DataFrame) -> None:
    """Refuse a block that cannot be read, or whose rows are not those that its scores were of."""
    index = np.arange(rows.start, rows.stop)
    if deposit.layout.width is not None:
        deposit.hidden(index)  # `verify` compares them with the head
        return
    values = deposit.stored_logprobs(index)
    own = scores.filter(pl.col("query").is_between(rows.start, rows.stop - 1))
    query, token = (own[name].to_numpy() for name in ("query", "token"))
    logit = own["logit"].cast(pl.Float64).to_numpy()
    expected = logit - own["logsumexp"].to_numpy()
    nats, part = _TOLERANCE[deposit.layout.dtype]
    off = np.abs(values[query - rows.start, token].astype(np.float64) - expected)
    beyond = off > nats + part * np.maximum(np.abs(logit), np.abs(expected))
    if beyond.any():
        worst = int(np.where(beyond, off, 0).argmax())
        raise DamagedError(
            f"the log-probability of token {token[worst]} in row {query[worst]} differs by"
            f" {off[worst]:.3g} nats from that of its score"
        )


def prompt_contradictions(root: Path, damaged: set[str]) -> Iterator[Damage]:
    """Tables of prompts that refer to no query, or that change another table of their set.

    A prompt set changes by a new revision, which keeps the content of prompts. `damaged` tables are
    left out.
    """
    by_name: dict[str, list[tuple[int, TableFile]]] = {}
    for file in prompt_tables.prompt_files(root):
        name = f"prompts/{file.path.name}"
        if file.path.is_file() and damaged.isdisjoint({name, f"{name}.sha256"}):
            lazy = pl.scan_parquet(file.path, glob=False)
            by_name.setdefault(file.name, []).append((prompt_tables.table_revision(lazy), file))
    for files in by_name.values():
        tables = {file.path: pl.read_parquet(file.path, glob=False) for _, file in files}
        for path, table in tables.items():
            try:
                prompt_checks.check_prompts(
                    table, lambda name: query_tables.query_count(root, name)
                )
            except (AbsentError, DamagedError):
                continue  # `verify` reports the query set
            except UsageError as error:
                yield Damage(f"prompts/{path.name}", "foreign", str(error))
        for (_, first), (_, second) in combinations(sorted(files), 2):
            if changed := prompt_checks.changed_prompt(tables[second.path], tables[first.path]):
                yield Damage(
                    f"prompts/{second.path.name}",
                    "foreign",
                    f"prompt {changed} has another {changed.column!r} in {first.path.name}",
                )
