"""What the prompt sets of banks ask of each model: what is missing is counted against it."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from logitbank.store import Readable
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId
from logitbank.store.tables.prompt_tables import query_sets_of
from logitbank.store.tables.query_tables import query_count, tokenizer_of
from logitbank.wording import counted


def expected_rows(banks: Sequence[Readable], prompts: str, columns: Sequence[str]) -> pl.DataFrame:
    """The distinct values of some columns of a prompt set, by model: model, then `columns`.

    A model is asked what the prompt set has for its tokenizer, whether or not any checkpoint has a
    score of it. Models without a deposit of the prompt set are not there, nor are prompt sets that
    lack a column.
    """
    empty = pl.DataFrame(
        schema={"model": pl.String} | {c: PROMPTS_SCHEMA.get(c, pl.String()) for c in columns}
    )
    parts = []
    for bank in banks:
        if prompts not in bank.prompt_sets:
            continue
        lazy = bank.prompts(prompts)
        if not set(columns).issubset(lazy.collect_schema().names()):
            continue
        table = lazy.select("query_set", *columns).unique().collect()
        for model, query_sets in expected_query_sets(bank, prompts).items():
            rows = table.filter(pl.col("query_set").is_in(list(query_sets))).drop("query_set")
            parts.append(rows.select(pl.lit(model).alias("model"), *columns).unique())
    return pl.concat(parts, how="vertical_relaxed").unique() if parts else empty


def expected_query_sets(bank: Readable, prompts: str) -> Mapping[str, frozenset[str]]:
    """By model with a deposit of a prompt set: those of its query sets that have its tokenizer."""
    names = query_sets_of(bank.prompts(prompts))
    scored: dict[str, set[str]] = {}
    for deposit in bank.deposits():
        if deposit.query_set in names:
            scored.setdefault(deposit.checkpoint.model, set()).add(deposit.query_set)
    if all(scored_sets == set(names) for scored_sets in scored.values()):
        return {model: frozenset(names) for model in scored}
    # A query set names its tokenizer in a file of its own, which is not needed above.
    made_by = {name: tokenizer_of(bank.path, name) for name in names}
    expected = {}
    for model, scored_sets in scored.items():
        tokenizers = {made_by[name] for name in scored_sets}
        expected[model] = frozenset(name for name in names if made_by[name] in tokenizers)
    return expected


def expected_pieces(
    banks: Sequence[Readable], prompts: str, *, columns: Sequence[str] = ()
) -> pl.DataFrame:
    """How many pieces each prompt has: model, prompt_id, pieces, and these columns."""
    rows = expected_rows(banks, prompts, ("prompt_id", "piece", *columns))
    return rows.group_by("model", "prompt_id").agg(
        pl.col(columns).first(), pieces=pl.col("piece").n_unique().cast(pl.Int64)
    )


def missing_sentence(missing: int, noun: str, plural: str = "", *, checkpoints: int = 1) -> str:
    """That so many are missing.

    >>> missing_sentence(1508, "pair", checkpoints=3)
    '1,508 pairs missing at 3 checkpoints, whose numbers are over what is there.'
    """
    return (
        f"{counted(missing, noun, plural)} missing at {counted(checkpoints, 'checkpoint')}, whose "
        "numbers are over what is there."
    )


def left_out_sentences(
    banks: Sequence[Readable],
    prompts: Collection[str],
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
) -> tuple[str, ...]:
    """That checkpoints are left out, as their deposits have no row, if any are."""
    names = without_rows(banks, prompts, models, steps)
    return (without_rows_sentence(names),) if names else ()


def without_rows(
    banks: Sequence[Readable],
    prompts: Collection[str],
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
) -> list[str]:
    """The checkpoints whose deposits of prompt sets have no row, as a repair may leave them.

    Named as people name them, in the order of training; of all models and steps if
    None.
    """
    empty: dict[str, None] = {}
    for bank in banks:
        for name in prompts:
            for deposit in bank.deposits_of(name) if name in bank.prompt_sets else ():
                checkpoint = deposit.checkpoint
                asked = models is None or checkpoint.model in models
                asked = asked and (steps is None or checkpoint.step in steps)
                if asked and not deposit.committed():
                    empty[str(checkpoint)] = None
    return list(empty)


def partly_scored_sentences(
    banks: Sequence[Readable], prompts: Collection[str], models: Collection[str] | None = None
) -> tuple[str, ...]:
    """That checkpoints lack scores of some prompts, if any do; for what counts no prompts itself.

    A checkpoint with rows of a prompt set is asked all that the set has for its model.
    """
    partly: dict[str, None] = {}
    for bank in banks:
        for name in prompts:
            if name not in bank.prompt_sets:
                continue
            scored: dict[CheckpointId, int] = {}
            for deposit in bank.deposits_of(name):
                if models is None or deposit.checkpoint.model in models:
                    scored.setdefault(deposit.checkpoint, 0)
                    scored[deposit.checkpoint] += deposit.rows_committed
            asked = {
                model: sum(query_count(bank.path, query_set) for query_set in query_sets)
                for model, query_sets in expected_query_sets(bank, name).items()
            }
            partly |= {str(c): None for c, rows in scored.items() if 0 < rows < asked[c.model]}
    if not partly:
        return ()
    where = f"{counted(len(partly), 'checkpoint')}: {', '.join(partly)}"
    return (f"Some prompts are not scored, and the numbers are over the others, at {where}.",)


def without_rows_sentence(names: Sequence[str]) -> str:
    """That deposits are left out.

    >>> without_rows_sentence(["a b 7"])
    'Left out is 1 checkpoint whose deposit has no row: a b 7; `logitbank extract` fills it.'
    """
    one = len(names) == 1
    return (
        f"Left out {'is' if one else 'are'} {counted(len(names), 'checkpoint')} whose"
        f" deposit{' has' if one else 's have'} no row: {', '.join(names)}; `logitbank extract`"
        f" fills {'it' if one else 'them'}."
    )
