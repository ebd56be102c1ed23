"""What the prompt sets of banks ask of each model: what is missing is counted against it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from logitbank.store import Bank, Deposit
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId
from logitbank.store.tables.prompt_tables import query_sets_of
from logitbank.store.tables.query_tables import tokenizer_of
from logitbank.wording import counted

_ASKED = ("prompt_id", "order_seed", "piece")


def expected_rows(banks: Sequence[Bank], prompts: str, columns: Sequence[str]) -> pl.DataFrame:
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


def expected_query_sets(bank: Bank, prompts: str) -> Mapping[str, frozenset[str]]:
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
    banks: Sequence[Bank], prompts: str, *, columns: Sequence[str] = ()
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
    banks: Sequence[Bank],
    prompts: Collection[str],
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
) -> tuple[str, ...]:
    """That checkpoints are left out, as their deposits have no row or none of the scores.

    Checkpoints are named as people name them, in the order of training; of all models and steps if
    None.
    """
    empty: dict[str, None] = {}
    unscored: dict[str, dict[str, None]] = {}
    for bank in banks:
        for name in prompts:
            asked = [
                deposit
                for deposit in (bank.deposits_of(name) if name in bank.prompt_sets else ())
                if models is None or deposit.checkpoint.model in models
                if steps is None or deposit.checkpoint.step in steps
            ]
            empty |= {str(d.checkpoint): None for d in asked if not d.committed()}
            lacking = bank.without_scores(name, asked) if asked else []
            own = Counter(deposit.checkpoint for deposit in asked)
            for checkpoint, count in Counter(d.checkpoint for d in lacking).items():
                if count == own[checkpoint]:  # none of another query set of these prompts, either
                    unscored.setdefault(name, {})[str(checkpoint)] = None
    sets_of: dict[tuple[str, ...], list[str]] = {}
    for name, checkpoints in unscored.items():
        sets_of.setdefault(tuple(checkpoints), []).append(name)
    return (
        *([without_rows_sentence([*empty])] if empty else []),
        *(
            without_scores_sentence(checkpoints, sets if len(prompts) > 1 else ())
            for checkpoints, sets in sets_of.items()
        ),
    )


def without_scores_sentence(names: Sequence[str], prompts: Sequence[str] = ()) -> str:
    """That deposits are left out, of all prompts or of these prompt sets.

    >>> without_scores_sentence(["a b 7"])
    'Left out is 1 checkpoint that keeps no full rows and lists no option of these prompts, which \
were named later: a b 7; extract it again, into another bank.'
    """
    one = len(names) == 1
    return (
        f"Left out {'is' if one else 'are'} {counted(len(names), 'checkpoint')} that"
        f" keep{'s' if one else ''} no full rows and list{'s' if one else ''} no option of"
        f" {' and '.join(prompts) or 'these prompts'}, which were named later: {', '.join(names)};"
        f" extract {'it' if one else 'them'} again, into another bank."
    )


def partly_scored_sentences(
    banks: Sequence[Bank], prompts: Collection[str], models: Collection[str] | None = None
) -> tuple[str, ...]:
    """That checkpoints lack scores of some prompts, if any do; for what counts no prompts itself.

    A checkpoint with rows of a prompt set is asked all that the set has for its model.
    """
    partly: dict[str, None] = {}
    for bank in banks:
        for name in prompts:
            if name not in bank.prompt_sets:
                continue
            deposits: dict[CheckpointId, list[Deposit]] = {}
            for deposit in bank.deposits_of(name):
                if models is None or deposit.checkpoint.model in models:
                    deposits.setdefault(deposit.checkpoint, []).append(deposit)
            rows = bank.prompts(name).select("query_set", "row", *_ASKED).unique().collect()
            asked = expected_rows([bank], name, _ASKED)
            of_model = dict(asked.group_by("model").len().iter_rows())
            for checkpoint, own in deposits.items():
                there = pl.concat([_committed(rows, deposit) for deposit in own]).n_unique()
                if 0 < there < of_model[checkpoint.model]:
                    partly[str(checkpoint)] = None
    if not partly:
        return ()
    where = f"{counted(len(partly), 'checkpoint')}: {', '.join(partly)}"
    return (f"Some prompts are not scored, and the numbers are over the others, at {where}.",)


def _committed(rows: pl.DataFrame, deposit: Deposit) -> pl.DataFrame:
    """What a deposit was asked, of its committed rows."""
    own = rows.filter(pl.col("query_set") == deposit.query_set)
    if not deposit.complete:
        block = pl.col("row") // deposit.layout.block_rows
        own = own.filter(block.is_in(sorted(deposit.committed())))
    return own.select(_ASKED).unique()


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
