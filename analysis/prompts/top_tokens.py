"""The most probable tokens after a prompt, at every checkpoint."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from logitbank.analysis.prompts.lookup import prompt_set
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen
from logitbank.store.tables.token_texts import COLUMN, texts_of

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
    storage level `topk:K`, and one at the level `options`.

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
    frame = tokens_at(bank, deposits, queries, k).with_row_index("_at")
    return (
        frame.join(queries, on=["query_set", "row"])
        .with_columns(_first=pl.col("_at").min().over("model", "run", "step"))
        .sort("_first", "order_seed", "piece", "place", nulls_last=False)
        .select("model", "run", "step", "order_seed", "piece", "place", "token", COLUMN, "logprob")
    )


def tokens_at(
    bank: Bank, deposits: Iterable[Deposit], queries: pl.DataFrame, k: int
) -> pl.DataFrame:
    """The k most probable tokens at queries (query_set, row), and `token_text`, by deposit and row.

    Fewer if a deposit lists fewer, and none of a query whose block is not committed.
    """
    rows = [row for deposit in deposits for row in _of_deposit(deposit, queries, k)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    return frame.with_columns(texts_of(bank.path, frame.select("query_set", "token").to_struct()))


def _of_deposit(
    deposit: Deposit, queries: pl.DataFrame, k: int
) -> Iterator[tuple[str, int, str, str, int | None, int, int, float]]:
    checkpoint, layout = deposit.checkpoint, deposit.layout
    committed = deposit.committed()
    query_rows = queries.filter(query_set=deposit.query_set)["row"].unique().sort()
    rows = [row for row in query_rows if row // layout.block_rows in committed]
    listed = _listed(deposit, rows)
    for row in rows:
        tokens, logprobs = listed[row]
        if len(tokens) < min(k, layout.vocab) and layout.keep.whole_rows:
            values = deposit.logprobs([row])[0].astype(np.float64)
            tokens = np.argsort(-values, kind="stable")
            logprobs = values[tokens]
        query = (deposit.query_set, row, checkpoint.model, checkpoint.run, checkpoint.step)
        for place, (token, logprob) in enumerate(zip(tokens[:k], logprobs[:k], strict=True), 1):
            yield (*query, place, int(token), float(logprob))


def _listed(deposit: Deposit, rows: Sequence[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The highest entries that scores list, of each query best first: exact, before rounding."""
    scores = deposit.scores().filter(
        pl.col("kind") == "top", pl.col("query").is_in(pl.Series(rows, dtype=pl.Int32).implode())
    )
    frame = scores.select("query", "token", "logit", "logsumexp").collect()
    ordered = frame.sort("logit", descending=True, maintain_order=True)
    listed = dict.fromkeys(rows, (np.zeros(0, np.int32), np.zeros(0)))
    for (query,), part in ordered.partition_by("query", as_dict=True).items():
        logprobs = part["logit"].cast(pl.Float64) - part["logsumexp"].cast(pl.Float64)
        listed[query] = part["token"].to_numpy(), logprobs.to_numpy()
    return listed
