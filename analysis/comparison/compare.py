"""How two banks, or two models, differ where both have the same checkpoint and queries.

To judge storage dtypes, engines and hardware, and to compare models: logits, divergences, ranks,
metrics and single prompts.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.comparison.metrics import (
    CELLS,
    METRICS,
    PROMPTS,
    Side,
    metric_differences,
    prompt_differences,
)
from logitbank.analysis.comparison.rows import ROWS, compare_rows
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.steps import Step, parse_steps

_DEPOSIT = {"model": pl.String, "run": pl.String, "step": pl.Int64, "query_set": pl.String}
_PROVENANCE = {
    **dict.fromkeys(
        ("kept_a", "kept_b", "engine_a", "engine_b", "compute_a", "compute_b"), pl.String
    ),
    "same_weights": pl.Boolean,
}
_ONLY = dict.fromkeys(("rows_a", "rows_b", "only_a", "only_b"), pl.Int64)
_NAMED = 8
"""Models in a message."""


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """What `compare` found: tidy tables, see docs/metrics.md. Models are named as in A."""

    logits: pl.DataFrame
    """One row for each checkpoint and query set of which both have rows."""
    metrics: pl.DataFrame
    """Values of metrics of either side, over what both have, and their difference."""
    prompts: pl.DataFrame
    """The prompts whose options differ most at the last compared checkpoint of each run."""
    only: pl.DataFrame
    """Checkpoints and query sets of which one side has rows that the other lacks."""
    unmeasured: tuple[str, ...] = ()
    """Prompt sets of both sides that `metrics` has no row of."""


class _Sides(NamedTuple):
    a: Side
    b: Side


def compare(
    a: str | Path | Bank,
    b: str | Path | Bank | None = None,
    *,
    prompts: str | None = None,
    steps: Collection[Step] | str | None = None,
    match: Mapping[str, str] | None = None,
    top: int = 10,
) -> Study[Comparison]:
    """Compare two banks, or two models, wherever both have the same run, step, query set and row.

    Parameters
    ----------
    a, b
        Banks. A is the reference: KL is KL(A‖B), and differences of metrics are B − A. Without B,
        A is compared with itself, which needs `match`.
    prompts
        Only the queries and options of this prompt set; all if None.
    steps
        Only these training steps.
    match
        Models of A, and those of B that they are compared with. Without it, models of the same name
        are compared; with it, only these.
    top
        Prompts of each run and prompt set in the table `prompts`.

    Returns
    -------
    Study
        Of a `Comparison`. Differences of logits are absolute, in nats; divergences are in nats,
        float64, of rows normalised again after rounding. See docs/metrics.md.

    Raises
    ------
    BankError
        No bank has the prompt set, or the banks have no checkpoint and query set in common.
    UsageError
        The banks have other content of one prompt, such as another text; `match` names a model
        that its bank lacks, or one twice; there is no second bank and no `match`.
    """
    from logitbank.analysis.comparison.charts import charts
    from logitbank.analysis.comparison.findings import findings

    if b is None and not match:
        raise UsageError("Name two banks, or two models of one with --match MODEL=OTHER.")
    banks = _opened(a), _opened(a if b is None else b)
    sides = _matched(banks, match)
    named = _named(banks, prompts)
    names = sorted(_compared(banks, prompts))
    for name in names:
        check_same_prompts(banks, name)
    deposits = [_deposits(side, named) for side in sides]
    if steps is not None:
        steps_present = {d.checkpoint.step for by_key in deposits for d in by_key.values()}
        wanted = set(parse_steps(steps).pick(steps_present) if isinstance(steps, str) else steps)
        deposits = [
            {key: d for key, d in by_key.items() if d.checkpoint.step in wanted}
            for by_key in deposits
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
            logits.append((*key, *_provenance(one, other), *rows))
    if not logits:
        raise BankError(_nothing_common((a, a if b is None else b), sides, steps))
    checkpoints = pl.DataFrame(
        list({row[:3] for row in logits}),
        schema=dict(list(_DEPOSIT.items())[:3]),
        orient="row",
    ).sort(CELLS[:3], nulls_last=True)
    metrics = [metric_differences(sides, name, checkpoints) for name in names]
    moved = [prompt_differences(sides, name, checkpoints, top) for name in names]
    table = pl.concat([pl.DataFrame(schema=METRICS), *metrics])
    result = Comparison(
        logits=pl.DataFrame(logits, schema={**_DEPOSIT, **_PROVENANCE, **ROWS}, orient="row"),
        metrics=table,
        prompts=pl.concat([pl.DataFrame(schema=PROMPTS), *moved]),
        only=pl.DataFrame(only, schema={**_DEPOSIT, **_ONLY}, orient="row"),
        unmeasured=tuple(sorted(set(names) - set(table["prompts"]))),
    )
    return Study(
        result=result,
        findings=tuple(findings(result)),
        title=f"Comparison of {banks[0].path.name} (A) and {banks[1].path.name} (B)",
        description="Differences of logits, ranks, metrics and single prompts: B against A.",
        banks=banks[:1] if b is None else banks,
        make_charts=charts,
        screen={
            "logits": ("max_logit_difference", "mean_logit_difference", "max_kl", "mean_kl",
                       "argmax_changed", "ranks_changed", "rows"),
            "prompts": ("prompts", "prompt_id", "option", "a", "b", "difference"),
        },
    )  # fmt: skip


def _matched(banks: tuple[Bank, Bank], match: Mapping[str, str] | None) -> _Sides:
    """Both banks with the models that are compared, by their names in A."""
    if match is None:
        return _Sides(*(Side(bank, {name: name for name in bank.models}) for bank in banks))
    for names, bank in ((match, banks[0]), (match.values(), banks[1])):
        for name in names:
            if name not in bank.models:
                raise UsageError(
                    f"--match: {bank.path} has no model {name!r}; it has {_models(bank)}."
                )
    if len(set(match.values())) < len(match):
        raise UsageError("--match names one model of B twice. Compare it in two calls.")
    return _Sides(
        Side(banks[0], {name: name for name in match}),
        Side(banks[1], {theirs: mine for mine, theirs in match.items()}),
    )


def _nothing_common(
    given: tuple[str | Path | Bank, str | Path | Bank],
    sides: _Sides,
    steps: Collection[Step] | str | None,
) -> str:
    """Why there is nothing to compare, and what to do."""
    places = [str(each.path if isinstance(each, Bank) else each) for each in given]
    among = "" if steps is None else " among these steps"
    shared = set(sides.a.models.values()) & set(sides.b.models.values())
    if shared:
        return (
            f"No matching checkpoints{among}: {places[0]} and {places[1]} have no run, step and "
            f"query set of {', '.join(sorted(shared))} in common. `logitbank info` lists what each "
            "contains."
        )
    has = ", ".join(
        f"{place} has {_models(side.bank)}" for place, side in zip(places, sides, strict=True)
    )
    mine, theirs = (next(iter(side.bank.models), "MODEL") for side in sides)
    return f"No matching checkpoints{among}: {has}. Fix: compare … --match {mine}={theirs}"


def _models(bank: Bank) -> str:
    names = ", ".join(f'"{name}"' for name in bank.models[:_NAMED])
    more = f" and {len(bank.models) - _NAMED} more" if len(bank.models) > _NAMED else ""
    return f"model{'s' if len(bank.models) > 1 else ''} {names or 'none'}{more}"


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
        raise AbsentError(
            f"Neither bank has prompts {prompts!r}; there are {', '.join(available)}."
        )
    tables = [bank.prompts(prompts).select("query_set", "row", "token") for bank in holders]
    parts = pl.concat(tables).unique().collect().partition_by("query_set", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _deposits(side: Side, named: Named) -> dict[tuple[object, ...], Deposit]:
    return {
        (side.models[d.checkpoint.model], d.checkpoint.run, d.checkpoint.step, d.query_set): d
        for d in side.bank.deposits()
        if d.checkpoint.model in side.models and (named is None or d.query_set in named)
    }


def _rows(deposit: Deposit | None, named: Named) -> np.ndarray:
    """Committed rows, of the prompts asked for."""
    if deposit is None:
        return np.empty(0, np.int64)
    committed = np.flatnonzero(deposit.committed_rows())
    if named is None:
        return committed
    return committed[np.isin(committed, named[deposit.query_set]["row"])]


def _provenance(a: Deposit, b: Deposit) -> Iterator[object]:
    for deposit in (a, b):
        layout = deposit.layout
        yield f"{layout.keep} {layout.dtype}" if layout.keep.whole_rows else str(layout.keep)
    for name in ("engine", "compute_dtype"):
        for deposit in (a, b):
            value = deposit.spec.provenance.get(name)
            yield None if value is None else f"{value}"
    weights = [deposit.spec.provenance.get("weights") for deposit in (a, b)]
    yield None if None in weights else weights[0] == weights[1]


def _compared(banks: tuple[Bank, Bank], prompts: str | None) -> set[str]:
    """Prompt sets asked for that both banks have."""
    names = set(banks[0].prompt_sets) & set(banks[1].prompt_sets)
    return names if prompts is None else names & {prompts}
