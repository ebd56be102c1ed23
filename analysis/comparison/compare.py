"""How two banks differ where both have the same checkpoint and queries.

To judge storage dtypes, engines and hardware: logits, divergences, ranks, and what metrics move.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.comparison.metrics import METRICS, metric_differences
from logitbank.analysis.comparison.results import Comparison
from logitbank.analysis.comparison.rows import ROWS, compare_rows
from logitbank.analysis.comparison.summary import comparison_summary
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from logitbank.errors import AbsentError, BankError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.steps import Step, parse_steps

_DEPOSIT = {"model": pl.String, "run": pl.String, "step": pl.Int64, "query_set": pl.String}
_MADE = {
    "kept_a": pl.String,
    "kept_b": pl.String,
    "engine_a": pl.String,
    "engine_b": pl.String,
    "compute_a": pl.String,
    "compute_b": pl.String,
    "same_weights": pl.Boolean,
}
_ONLY = {"rows_a": pl.Int64, "rows_b": pl.Int64, "only_a": pl.Int64, "only_b": pl.Int64}


def compare(
    a: str | Path | Bank,
    b: str | Path | Bank,
    *,
    prompts: str | None = None,
    steps: Collection[Step] | str | None = None,
) -> Study[Comparison]:
    """Compare two banks wherever both have the same checkpoint, query set and row.

    Parameters
    ----------
    a, b
        Banks. A is the reference: KL is KL(A‖B), and differences of metrics are B − A.
    prompts
        Only the queries and options of this prompt set; all if None.
    steps
        Only these training steps.

    Returns
    -------
    Study
        Of a `Comparison`. Differences of logits are absolute, in nats; divergences are in nats,
        float64, of rows normalised again after rounding. See docs/tables.md.

    Raises
    ------
    BankError
        No bank has the prompt set, or the banks have no checkpoint and query set in common.
    UsageError
        The banks have other content of one prompt, such as another text.
    """
    banks = _opened(a), _opened(b)
    named = _named(banks, prompts)
    for name in sorted(_compared(banks, prompts)):
        check_same_prompts(banks, name)
    deposits = [_deposits(bank, named) for bank in banks]
    if steps is not None:
        steps_present = {
            deposit.checkpoint.step for by_key in deposits for deposit in by_key.values()
        }
        wanted = set(parse_steps(steps).pick(steps_present) if isinstance(steps, str) else steps)
        deposits = [
            {k: d for k, d in by_key.items() if d.checkpoint.step in wanted} for by_key in deposits
        ]
    logits: list[tuple[object, ...]] = []
    only: list[tuple[object, ...]] = []
    for key in dict.fromkeys([*deposits[0], *deposits[1]]):
        one, other = deposits[0].get(key), deposits[1].get(key)
        rows_a, rows_b = _rows(one, named), _rows(other, named)
        common = np.intersect1d(rows_a, rows_b)
        only_a, only_b = len(rows_a) - len(common), len(rows_b) - len(common)
        if only_a or only_b:
            only.append((*key, len(rows_a), len(rows_b), only_a, only_b))
        if len(common) and one is not None and other is not None:
            rows = compare_rows(one, other, common, named)
            logits.append((*key, *_made(one, other), *rows))
    if not logits:
        raise BankError(
            f"{a} and {b} have no checkpoint with the same query set in common"
            f"{_steps_note(steps)}{_models_note(*banks)}; `logitbank info` says what each holds"
        )
    schema = {**_DEPOSIT, **_MADE, **ROWS}
    metrics = _metrics(banks, prompts, {row[:3] for row in logits})
    result = Comparison(
        pl.DataFrame(logits, schema=schema, orient="row"),
        metrics,
        pl.DataFrame(only, schema={**_DEPOSIT, **_ONLY}, orient="row"),
        tuple(sorted(_compared(banks, prompts) - set(metrics["prompts"]))),
    )
    return Study(result, Summary(tuple(comparison_summary(result))))


def _models_note(one: Bank, other: Bank) -> str:
    """That no model of one has a name of the other's, by which checkpoints are known."""
    if {*one.models} & {*other.models}:
        return ""
    names = (", ".join(bank.models) or "none" for bank in (one, other))
    return f", as models are known by their names: {' and '.join(names)}"


Named = dict[str, pl.DataFrame] | None
"""Rows and tokens of the queries of a prompt set, by query set; None for everything."""


def _opened(bank: str | Path | Bank) -> Bank:
    return open_unfiltered(bank, rows=True)


def _named(banks: tuple[Bank, Bank], prompts: str | None) -> Named:
    if prompts is None:
        return None
    holders = [bank for bank in banks if prompts in bank.prompt_sets]
    if not holders:
        available = sorted({name for bank in banks for name in bank.prompt_sets})
        raise AbsentError(f"neither bank has prompts {prompts!r}; there are {', '.join(available)}")
    tables = [bank.prompts(prompts).select("query_set", "row", "token") for bank in holders]
    parts = pl.concat(tables).unique().collect().partition_by("query_set", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _deposits(bank: Bank, named: Named) -> dict[tuple[object, ...], Deposit]:
    return {
        (d.checkpoint.model, d.checkpoint.run, d.checkpoint.step, d.query_set): d
        for d in bank.deposits()
        if named is None or d.query_set in named
    }


def _rows(deposit: Deposit | None, named: Named) -> np.ndarray:
    """Committed rows, of the prompts asked for."""
    if deposit is None:
        return np.empty(0, np.int64)
    committed = np.flatnonzero(deposit.committed_rows())
    return (
        committed
        if named is None
        else committed[np.isin(committed, named[deposit.query_set]["row"])]
    )


def _made(a: Deposit, b: Deposit) -> Iterator[object]:
    for deposit in (a, b):
        layout = deposit.layout
        yield f"{layout.keep} {layout.dtype}" if layout.keep.whole_rows else str(layout.keep)
    for name in ("engine", "compute_dtype"):
        for deposit in (a, b):
            value = deposit.spec.provenance.get(name)
            yield None if value is None else f"{value}"
    weights = [deposit.spec.provenance.get("weights") for deposit in (a, b)]
    yield None if None in weights else weights[0] == weights[1]


def _metrics(
    banks: tuple[Bank, Bank], prompts: str | None, common: set[tuple[object, ...]]
) -> pl.DataFrame:
    checkpoints = pl.LazyFrame(list(common), schema=dict(list(_DEPOSIT.items())[:3]), orient="row")
    names = sorted(_compared(banks, prompts))
    parts = [metric_differences(banks, name, checkpoints) for name in names]
    return pl.concat([pl.DataFrame(schema=METRICS), *parts])


def _compared(banks: tuple[Bank, Bank], prompts: str | None) -> set[str]:
    """Prompt sets asked for that both banks have."""
    names = set(banks[0].prompt_sets) & set(banks[1].prompt_sets)
    return names if prompts is None else names & {prompts}


def _steps_note(steps: Collection[Step] | str | None) -> str:
    return "" if steps is None else " among these steps"
