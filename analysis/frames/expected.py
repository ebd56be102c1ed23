"""Expected scores of the prompt sets of banks, for each model: missing ones are counted."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.store import Bank, Deposit
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read.missing_scores import without_scores
from logitbank.store.tables.prompt_tables import linked_query_sets
from logitbank.store.tables.query_tables import query_set_tokenizer
from logitbank.wording import counted

Where = tuple[str, frozenset[str]]
"""A column of prompts, and the texts that it may have."""


class SetDeposits(NamedTuple):
    """The deposits of a prompt set in a bank, those of chosen checkpoints."""

    bank: Bank
    name: str
    deposits: Sequence[Deposit]


def chosen_rows(prompts: pl.LazyFrame, where: Where | None) -> pl.LazyFrame:
    """The rows of prompts with such texts in a column; without the column none, all if None."""
    if where is None:
        return prompts
    column, texts = where
    if column not in prompts.collect_schema():
        return prompts.clear()
    return prompts.filter(pl.col(column).cast(pl.String).is_in(list(texts)))


def expected_rows(
    banks: Sequence[Bank],
    prompts: str,
    columns: Sequence[str],
    where: Where | None = None,
) -> pl.DataFrame:
    """The distinct values of some columns of a prompt set, by model: model, then `columns`.

    They are those of the query sets with the model's tokenizer, whether or not any checkpoint has
    a score of them. Models without a deposit of the prompt set are excluded, and so are prompt sets
    without one of the columns.
    """
    empty = pl.DataFrame(
        schema={"model": pl.String} | {c: PROMPTS_SCHEMA.get(c, pl.String()) for c in columns}
    )
    parts = []
    for bank in banks:
        if prompts not in bank.prompt_sets:
            continue
        lazy = chosen_rows(bank.prompts(prompts), where)
        if not set(columns).issubset(lazy.collect_schema().names()):
            continue
        table = lazy.select("query_set", *columns).unique().collect()
        for model, query_sets in expected_query_sets(bank, prompts).items():
            rows = table.filter(pl.col("query_set").is_in(list(query_sets))).drop("query_set")
            parts.append(rows.select(pl.lit(model).alias("model"), *columns).unique())
    return pl.concat(parts, how="vertical_relaxed").unique() if parts else empty


def expected_query_sets(bank: Bank, prompts: str) -> Mapping[str, frozenset[str]]:
    """The query sets of a prompt set with a model's tokenizer, for each model with a deposit."""
    names = linked_query_sets(bank.prompts(prompts))
    scored: dict[str, set[str]] = {}
    for deposit in bank.deposits():
        if deposit.query_set in names:
            scored.setdefault(deposit.checkpoint.model, set()).add(deposit.query_set)
    if all(scored_sets == set(names) for scored_sets in scored.values()):
        return {model: frozenset(names) for model in scored}
    # A query set names its tokenizer in a file of its own, which is not needed above.
    tokenizers = {name: query_set_tokenizer(bank.path, name) for name in names}
    expected = {}
    for model, scored_sets in scored.items():
        of_model = {tokenizers[name] for name in scored_sets}
        expected[model] = frozenset(name for name in names if tokenizers[name] in of_model)
    return expected


def missing_note(missing: int, noun: str, *, checkpoints: int = 1) -> str:
    """The note that scores are missing.

    >>> missing_note(1508, "pair", checkpoints=3)
    'Missing: 1,508 pairs at 3 checkpoints. The numbers are over the others.'
    """
    return (
        f"Missing: {counted(missing, noun)} at {counted(checkpoints, 'checkpoint')}. "
        "The numbers are over the others."
    )


def exclusion_notes(sets: Collection[SetDeposits]) -> tuple[str, ...]:
    """Notes about checkpoints that are excluded because they have no score of a prompt set.

    Checkpoints are in the order of training.
    """
    empty: dict[str, None] = {}
    unscored: dict[str, dict[str, None]] = {}
    for bank, name, deposits in sets:
        empty |= {str(d.checkpoint): None for d in deposits if not d.committed()}
        without = without_scores(bank.path, name, deposits)
        number = Counter(deposit.checkpoint for deposit in deposits)
        for checkpoint, count in Counter(d.checkpoint for d in without).items():
            if count == number[checkpoint]:  # no other query set has scores either
                unscored.setdefault(str(checkpoint), {})[name] = None
    notes = []
    if empty:
        notes.append(
            f"Excluded: {counted(len(empty), 'checkpoint')} without results ({', '.join(empty)}). "
            "Fix: logitbank extract"
        )
    several = len({each.name for each in sets}) > 1
    by_names: dict[tuple[str, ...], list[str]] = {}
    for checkpoint_text, names in unscored.items():
        by_names.setdefault(tuple(names), []).append(checkpoint_text)
    for names_text, checkpoints in by_names.items():
        what = " and ".join(names_text) if several else "these prompts"
        notes.append(
            f"Excluded: {counted(len(checkpoints), 'checkpoint')} without scores of {what}, whose"
            f" options were added later ({', '.join(checkpoints)}). Extract them again, into"
            " another bank."
        )
    return tuple(notes)
