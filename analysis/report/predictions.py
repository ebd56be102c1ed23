"""The most probable tokens after a few prompts, through training, for the prompt view of a page."""

from collections.abc import Sequence
from math import exp
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.prompts.top_tokens import tokens_at
from logitbank.store import Bank, Deposit
from logitbank.store.tables.token_texts import COLUMN, tokens_files

TOKENS = 5
"""Tokens at each checkpoint."""
PAIRS, FEWEST = 40, 5
"""Prompts times models and runs that a page has tokens of, and the fewest prompts. Twenty of one
run take less than 20 kB."""
READ = 1_000_000_000
"""Most bytes of full rows that are read for it: 1 to 2 s on two cores."""
Key = tuple[str, int | None]
"""Id and order seed of a prompt."""
EMPTY = pl.DataFrame(
    schema={
        "prompt_id": pl.String, "order_seed": pl.Int32, "query_set": pl.String, "row": pl.Int32
    }
)  # fmt: skip
Json = dict[str, Any]


class Run(NamedTuple):
    """A model and run of a bank, and the checkpoints whose predictions a page shows."""

    bank: Bank
    model: str
    run: str
    steps: Sequence[int | None]


def predictions(prompts: str, runs: Sequence[Run], keys: Sequence[tuple[int, Key]]) -> Json | None:
    """The most probable tokens after the first of these prompts; None without texts of tokens.

    Parameters
    ----------
    keys
        Place in the page's list, id and order of prompts, what is shown first in front.

    Returns
    -------
    k; prompts, their places; texts; and for each of `runs` its steps and tokens: of each prompt,
    of each step, text (index) and probability in turn, best first. A prompt whose options stand at
    different places has no single next token, and is not among them.
    """
    if not all(tokens_files(run.bank.path) for run in runs):
        return None
    names = [key for _, key in keys]
    queries = {id(run.bank): _queries(run.bank, prompts, names) for run in runs}
    deposits = [_deposits(prompts, run) for run in runs]
    known = {key for own in queries.values() for key in own}
    held = [(at, key) for at, key in keys if key in known][: _most(deposits)]
    if not held:
        return None
    texts: dict[str, int] = {}
    found = []
    for run, own in zip(runs, deposits, strict=True):
        tables = queries[id(run.bank)]
        rows = pl.concat([tables[key] for _, key in held if key in tables] or [EMPTY])
        frame = tokens_at(run.bank, own, rows, 1 if _remote(run.bank, own) else TOKENS)
        named = frame.with_columns(
            text=pl.coalesce(COLUMN, pl.format("#{}", "token")),
        ).join(rows, on=["query_set", "row"], maintain_order="left")
        by_place: dict[tuple[Key, int | None], list[float]] = {}
        columns = ("prompt_id", "order_seed", "step", "text", "logprob")
        for name, order, step, text, logprob in named.select(columns).iter_rows():
            pair = [texts.setdefault(text, len(texts)), float(f"{exp(logprob):.3g}")]
            by_place.setdefault(((name, order), step), []).extend(pair)
        tokens = [[by_place.get((key, step), []) for step in run.steps] for _, key in held]
        found.append({"steps": list(run.steps), "tokens": tokens})
    return {
        "k": TOKENS,
        "prompts": [at for at, _ in held],
        "texts": list(texts),
        "series": found,
    }


def _queries(bank: Bank, prompts: str, keys: Sequence[Key]) -> dict[Key, pl.DataFrame]:
    """Of each prompt, query_set and row of the place where all of its options begin."""
    wanted = pl.Series(list({name for name, _ in keys}), dtype=pl.String)
    first = (
        bank.prompts(prompts)
        .filter(pl.col("prompt_id").is_in(wanted.implode()), pl.col("piece") == 0)
        .select("prompt_id", "order_seed", "query_set", "row")
        .unique(maintain_order=True)
        .collect()
    )
    alone = first.filter(pl.len().over("prompt_id", "order_seed", "query_set") == 1)
    parts = alone.partition_by("prompt_id", "order_seed", as_dict=True, maintain_order=True)
    return {key: parts[key] for key in keys if key in parts}


def _deposits(prompts: str, run: Run) -> list[Deposit]:
    return [
        deposit
        for deposit in run.bank.deposits(prompts=prompts)
        if (deposit.checkpoint.model, deposit.checkpoint.run) == (run.model, run.run)
        and deposit.checkpoint.step in run.steps
    ]


def _remote(bank: Bank, deposits: Sequence[Deposit]) -> bool:
    """Whether full rows would come over a network; the most probable token is among the scores."""
    full = any(deposit.layout.keep.whole_rows for deposit in deposits)
    return full and not bank.has_rows


def _most(series: Sequence[Sequence[Deposit]]) -> int:
    """Prompts with predictions: a full row is read with those of its inner chunk."""
    each = sum(
        grid.chunk_shape[0] * grid.row_bytes
        for own in series
        for deposit in own
        if (grid := deposit.layout.grid) is not None
    )
    fit = READ // each if each else PAIRS
    return max(FEWEST, min(fit, PAIRS // max(1, len(series))))
