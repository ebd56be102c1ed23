"""Differences between two banks, or two models, at the checkpoints and queries of both.

They show the effect of storage dtypes, engines and hardware, and compare models: logits,
divergences, ranks, metrics and single prompts.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.comparison.findings import findings
from logitbank.analysis.comparison.metrics import (
    METRICS,
    PROMPTS,
    Comparison,
    Side,
    metric_differences,
    prompt_differences,
    run_differences,
)
from logitbank.analysis.comparison.rows import ROWS, compare_rows
from logitbank.analysis.frames.banks import check_same_prompts, no_prompts
from logitbank.analysis.frames.match import MOST_NAMES, listed_models, match_models
from logitbank.analysis.frames.prompt_sums import CHECKPOINT_SCHEMA
from logitbank.analysis.results.runs import DIFFERENCES, difference_findings
from logitbank.analysis.study import Study
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_bank
from logitbank.store.steps import Step, parse_steps

_DEPOSIT = {**CHECKPOINT_SCHEMA, "query_set": pl.String}
_PROVENANCE = {
    **dict.fromkeys(
        ("kept_a", "kept_b", "engine_a", "engine_b", "compute_a", "compute_b"), pl.String
    ),
    "same_weights": pl.Boolean,
}
_ONLY = dict.fromkeys(("rows_a", "rows_b", "only_a", "only_b"), pl.Int64)


Queries = Mapping[str, pl.DataFrame] | None
"""Rows and tokens of a prompt set, by query set; None for all."""
Key = tuple[str, str, int | None, str]
"""Model (its name in A), run, step and query set."""


def compare(
    a: str | Path | Bank,
    b: str | Path | Bank | None = None,
    *,
    prompts: str | None = None,
    steps: Collection[Step] | str | None = None,
    match: Mapping[str, str] | None = None,
    top: int = 10,
) -> Study[Comparison]:
    """Compare two banks, or two models, at every run, step, query set and row of both.

    Parameters
    ----------
    a, b
        Banks. A is the reference: KL is KL(A‖B), and differences of metrics are B − A. Without B,
        two models of A are compared, which needs `match`.
    prompts
        Only the queries and options of this prompt set; all if None.
    steps
        Only these training steps.
    match
        Models of A to the models of B with which they are compared, or runs of A to runs of B. By
        default, models of the same name are compared, or of names that differ only in their owner,
        and runs of the same name.
    top
        Number of prompts per run and prompt set in the table `prompts`, of the last checkpoint.

    Returns
    -------
    Study
        With a `Comparison`. Differences of logits are absolute, in nats; divergences are in nats,
        float64, of rows normalised again after rounding. If both sides have three runs of a model,
        the table `runs` has differences of their means. See docs/metrics.md.

    Raises
    ------
    BankError
        No bank has the prompt set, or the banks have no checkpoint and query set in common.
    UsageError
        The banks have other content of one prompt, such as another text; `match` contains an
        unknown model or run, or one twice; there is no second bank and no `match`.
    """
    if b is None and not match:
        raise UsageError(
            "Name two banks, or two models or runs of one with --match, as in --match seed1=seed2."
        )
    banks = [open_bank(bank, rows=True) for bank in (a, a if b is None else b)]
    sides = _sides(banks, match)
    queries = _queries(banks, prompts)
    names = sorted({*banks[0].prompt_sets} & {*banks[1].prompt_sets})
    names = [name for name in names if prompts in (None, name)]
    for name in names:
        check_same_prompts(banks, name)
    names = [name for name in names if all(side.has_results(name) for side in sides)]
    one_side, other_side = (_deposits(side, queries) for side in sides)
    keys = list(dict.fromkeys([*one_side, *other_side]))
    chosen: set[int | None] | None = None
    if steps is not None:
        known = {key[2] for key in keys}
        chosen = set(parse_steps(steps).pick(known) if isinstance(steps, str) else steps)
        keys = [key for key in keys if key[2] in chosen]
    logits: list[tuple[object, ...]] = []
    only: list[tuple[object, ...]] = []
    for key in keys:
        one, other = one_side.get(key), other_side.get(key)
        rows_a, rows_b = _rows(one, queries), _rows(other, queries)
        common = np.intersect1d(rows_a, rows_b)
        only_a, only_b = len(rows_a) - len(common), len(rows_b) - len(common)
        if only_a or only_b:
            only.append((*key, len(rows_a), len(rows_b), only_a, only_b))
        if len(common) and one is not None and other is not None:
            rows = compare_rows(one, other, common, queries)
            logits.append((*key, *_provenance(one, other), *rows))
    of_runs = list[dict[str, object]]()
    if not sides[0].runs:
        of_runs = [row for name in names for row in run_differences(sides, name, chosen)]
    if not logits and not of_runs:
        raise BankError(_nothing_common(sides, among="" if steps is None else " among these steps"))
    checkpoints = pl.DataFrame(
        list({row[:3] for row in logits}), schema=CHECKPOINT_SCHEMA, orient="row"
    ).sort(*CHECKPOINT_SCHEMA, nulls_last=True)
    metrics = [metric_differences(sides, name, checkpoints) for name in names]
    largest = [prompt_differences(sides, name, checkpoints, top) for name in names]
    table = pl.concat([pl.DataFrame(schema=METRICS), *metrics])
    runs = pl.DataFrame(of_runs, DIFFERENCES)
    result = Comparison(
        logits=pl.DataFrame(logits, schema={**_DEPOSIT, **_PROVENANCE, **ROWS}, orient="row"),
        metrics=table,
        prompts=pl.concat([pl.DataFrame(schema=PROMPTS), *largest]),
        only=pl.DataFrame(only, schema={**_DEPOSIT, **_ONLY}, orient="row"),
        unmeasured=tuple(sorted(set(names) - set(table["prompts"]))),
        names={
            one: own
            for side in sides[1:]
            for own, one in (*side.models.items(), *side.runs.items())
            if own != one
        },
    )
    return Study(
        result=result,
        findings=(*findings(result), *difference_findings(runs)),
        run_tables={"runs": runs} if of_runs else {},
        title=f"Comparison of {banks[0].path.name} (A) and {banks[1].path.name} (B)",
        description="Differences of logits, ranks, metrics and single prompts, B minus A.",
        banks=banks[:1] if b is None else banks,
        screen={
            "logits": ("max_logit_difference", "mean_logit_difference", "max_kl", "mean_kl",
                       "argmax_changed", "ranks_changed", "rows"),
            "metrics": ("metric", "group", "difference", "low", "high", "items"),
            "prompts": ("prompts", "prompt_id", "option", "a", "b", "difference"),
            "runs": ("prompts", "score", "a", "b", "difference", "low", "high", "runs_a", "runs_b",
                     "paired"),
        },
    )  # fmt: skip


def _sides(banks: Sequence[Bank], match: Mapping[str, str] | None) -> list[Side]:
    """Both banks with the models that are compared, by their names in A."""
    a, b = banks
    addresses = (str(a.path), str(b.path))
    runs, match = _matched_runs(banks, match or {})
    models = match_models(a.models, b.models, match, sources=addresses)
    if not match:
        models = {name: models.get(name, name) for name in b.models}
    own = {name: name for name in match or a.models}
    return [Side(a, own, {name: name for name in runs.values()}), Side(b, models, runs)]


def _matched_runs(
    banks: Sequence[Bank], match: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The runs of B that are matched with runs of A, and the models of `match`.

    Raises
    ------
    UsageError
        A name is neither a model nor a run, or a run of B is named twice.
    """
    a, b = banks
    for bank, names in ((a, match), (b, match.values())):
        for name in names:
            if name not in {*bank.models, *bank.runs}:
                known = ", ".join(sorted(bank.runs)[:MOST_NAMES])
                raise UsageError(
                    f"--match: {bank.path} has no model or run {name!r}. It has "
                    f"{listed_models(bank.models)}, and runs {known}."
                )
    models = {one: other for one, other in match.items() if one in a.models or other in b.models}
    pairs = [(one, other) for one, other in match.items() if one not in models]
    runs = {other: one for one, other in pairs}
    if len(runs) < len(pairs):
        raise UsageError(f"--match names one run of {b.path} twice. Compare it in two calls.")
    return runs, models


def _nothing_common(sides: Sequence[Side], *, among: str) -> str:
    a, b = (side.bank for side in sides)
    shared = {*sides[0].models.values()} & {*sides[1].models.values()}
    if shared:
        text = (
            f"No matching checkpoints{among}: {a.path} and {b.path} have no run, step and query "
            f"set of {', '.join(sorted(shared))} in common."
        )
        runs = [sorted(_runs(side, shared)) for side in sides]
        if sides[0].runs or not all(runs) or {*runs[0]} & {*runs[1]}:
            return f"{text} `logitbank info` lists their contents."
        names = {side.models[name]: name for side in sides for name in side.models}
        match = [(one, names[one]) for one in sorted(shared) if one != names[one]]
        return f"{text} Their runs have other names. {_match(*match, (runs[0][0], runs[1][0]))}"
    models = ", ".join(f"{bank.path} has {listed_models(bank.models)}" for bank in (a, b))
    text = f"No matching checkpoints{among}: {models}."
    sets = [{d.query_set for d in bank.deposits()} for bank in (a, b)]
    if not sets[0] & sets[1]:
        return f"{text} No model of one has a query set of the other: tokenizers or prompts differ."
    first, second = (next(iter(bank.models), "MODEL") for bank in (a, b))
    return f"{text} {_match((first, second))}"


def _match(*names: tuple[str, str]) -> str:
    options = (f"--match {shlex.quote(f'{one}={other}')}" for one, other in names)
    return f"Fix: compare … {' '.join(options)}"


def _runs(side: Side, models: Collection[str]) -> set[str]:
    """The runs of models, which are named as in A."""
    return {
        place[1] for d in side.bank.deposits()
        if (place := side.place(d.checkpoint)) and place[0] in models
    }  # fmt: skip


def _queries(banks: Sequence[Bank], prompts: str | None) -> Queries:
    if prompts is None:
        return None
    tables = [
        bank.prompts(prompts).select("query_set", "row", "token")
        for bank in banks
        if prompts in bank.prompt_sets
    ]
    if not tables:
        raise AbsentError(no_prompts(banks, prompts))
    parts = pl.concat(tables).unique().collect().partition_by("query_set", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _deposits(side: Side, queries: Queries) -> dict[Key, Deposit]:
    return {
        (*place, d.query_set): d
        for d in side.bank.deposits()
        if (place := side.place(d.checkpoint)) and (queries is None or d.query_set in queries)
    }


def _rows(deposit: Deposit | None, queries: Queries) -> np.ndarray:
    """Committed rows of the requested prompts."""
    if deposit is None:
        return np.empty(0, np.int64)
    committed = np.flatnonzero(deposit.committed_rows())
    if queries is None:
        return committed
    return committed[np.isin(committed, queries[deposit.query_set]["row"])]


def _provenance(a: Deposit, b: Deposit) -> Iterator[object]:
    for deposit in (a, b):
        layout = deposit.layout
        yield f"{layout.keep} {layout.dtype}" if layout.keep.has_full_rows else str(layout.keep)
    for name in ("engine", "compute_dtype"):
        for deposit in (a, b):
            value = deposit.spec.provenance.get(name)
            yield None if value is None else f"{value}"
    weights = [deposit.spec.provenance.get("weights") for deposit in (a, b)]
    yield None if None in weights else weights[0] == weights[1]
