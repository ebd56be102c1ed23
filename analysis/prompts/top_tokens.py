"""The most probable tokens after a prompt, at every checkpoint."""

from dataclasses import asdict

import numpy as np
import polars as pl

from logitbank.analysis.prompts.lookup import prompt_set
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.filter.top import first_entries, top
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen
from logitbank.store.tables.token_texts import COLUMN, look_up_texts

_QUERY = ("order_seed", "piece", "query_set", "row")
_SCHEMA = pl.Schema({"query_set": pl.String, "row": pl.Int32, "model": pl.String, "run": pl.String,
                     "step": pl.Int64, "place": pl.Int32, "token": pl.Int32,
                     "logprob": pl.Float64})  # fmt: skip


def top_tokens(
    bank: Bank,
    prompt_id: str,
    *,
    k: int = 10,
    prompts: str | None = None,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
) -> pl.DataFrame:
    """The k most probable tokens after a prompt, at every checkpoint that has it.

    From full rows if they are stored. Otherwise from the tokens that the bank lists: K at the
    storage level `topk:K`, and one at the level `options`. A query whose block is not committed has
    none.

    Parameters
    ----------
    prompts
        Prompt set; needed if several have a prompt of this id.
    models, runs, steps
        Keep these checkpoints, as `Bank.scan` does; all if None.

    Returns
    -------
    Columns model, run, step, order_seed, piece, place (1 for the most probable), token, token_text
    (null for padding, and if the bank has no token texts), logprob (nats, over the whole
    vocabulary), by checkpoint, order, piece and place.

    Raises
    ------
    UsageError
        k is below 1, or there is no such prompt.
    AbsentError
        There are no such models, runs or steps.
    DamagedError
        Scores, rows or the texts of tokens are not what was committed.
    """
    if k < 1:
        raise UsageError(f"Cannot show {k} tokens. The number must be at least 1.")
    name = prompt_set(bank, prompts, prompt_id=prompt_id)
    rows = bank.prompts(name).filter(pl.col("prompt_id") == prompt_id)
    queries = rows.select(_QUERY).unique().collect()
    deposits = checkpoints_chosen(
        bank.deposits(prompts=name), models=models, runs=runs, steps=steps
    )
    parts = [_deposit_top_tokens(deposit, queries, k) for deposit in deposits]
    frame = pl.concat([pl.DataFrame(schema=_SCHEMA), *parts]).with_row_index("_at")
    texts = look_up_texts(bank.path, frame.select("query_set", "token").to_struct())
    return (
        frame.with_columns(texts)
        .join(queries, on=["query_set", "row"])
        .with_columns(_first=pl.col("_at").min().over("model", "run", "step"))
        .sort("_first", "order_seed", "piece", "place", nulls_last=False)
        .select("model", "run", "step", "order_seed", "piece", "place", "token", COLUMN, "logprob")
    )


def _deposit_top_tokens(deposit: Deposit, queries: pl.DataFrame, k: int) -> pl.DataFrame:
    """The tokens of one checkpoint at the queries whose blocks are committed."""
    rows = queries.filter(query_set=deposit.query_set)["row"].unique()
    keep, vocab = deposit.layout.keep, deposit.layout.vocab
    k = min(k, vocab, vocab if keep.has_full_rows else keep.k)
    scores = deposit.scores().filter(first_entries(k), pl.col("query").is_in(rows.implode()))
    best = top(deposit, k, scores.collect())
    frame = pl.DataFrame({
        "row": np.repeat(best.rows, k), "token": best.tokens.ravel(),
        "logprob": (best.logits - best.logsumexp[:, None]).ravel(),
    })  # fmt: skip
    about = {"query_set": deposit.query_set, **asdict(deposit.checkpoint)}
    known = frame.with_columns(
        *(pl.lit(value).alias(name) for name, value in about.items()),
        place=pl.int_range(1, pl.len() + 1).over("row"),
    )
    return known.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
