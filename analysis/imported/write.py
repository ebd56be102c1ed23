"""Put items of an evaluation into a bank: a query for each, whose outputs are its continuations.

A query's scores are sums over the tokens of a continuation, so its head is `continuation` and not
one of tokens: no reader takes a sum for the score of a vocabulary entry.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from logitbank.analysis.imported.items import Evaluation, Item, provenance
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Deposit,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
)
from logitbank.store.files.objects import digest
from logitbank.store.format.attributes import ARRAY
from logitbank.store.format.schema import (
    PROMPTS_SCHEMA,
    RESERVED_COLUMNS,
    SCORES_SCHEMA,
    json_digest,
)

TOKENIZER = "none: SHA-256 of texts"
"""What the ids of these queries are of: they are the bytes of a digest of what was compared."""


def write_evaluation(
    bank: Bank, evaluation: Evaluation, *, checkpoint: CheckpointId, prompts: str
) -> Deposit:
    """Deposit an evaluation; the same again changes nothing.

    Raises
    ------
    UsageError
        Prompts of this name are in the bank with other content.
    BankError
        Other scores of this checkpoint and these items are there.
    """
    items = evaluation.items
    query_set = QuerySet(TOKENIZER, tuple(query_of(item) for item in items))
    outputs = max(_outputs(item) for item in items)
    scored = [row for at, item in enumerate(items) for row in _scores(item, at)]
    scores = pl.DataFrame(scored, SCORES_SCHEMA, orient="row")
    name = bank.add_query_set(query_set)
    bank.add_prompts(prompts, _prompts(items, name))
    layout = Layout.plan(
        queries=len(query_set), vocab=outputs, dtype="float32", keep=Keep("options")
    )
    files = {path.name: digest(path).sha256 for path in evaluation.files}
    made = provenance(evaluation.tool, evaluation.version, evaluation.task, files)
    made |= {"tokenizer": TOKENIZER, ARRAY: _digest(scores)}
    spec = DepositSpec(checkpoint, name, layout, outputs, made)
    with bank.begin(spec) as writer:
        for block in writer.missing():
            span = writer.layout.rows(block)
            own = scores.filter(pl.col("query").is_between(span.start, span.stop - 1))
            writer.write(block, BlockData(None, own))
        writer.seal()
    return writer.deposit


def query_of(item: Item) -> Query:
    """The query that asks how probable the continuations of an item are."""
    digest = json_digest([item.id, [list(pair) for pair in item.pairs]])
    return Query(tuple(bytes.fromhex(digest)), 0, "continuation")


def _outputs(item: Item) -> int:
    """Continuations; beside a single one, what greedy decoding writes in its place."""
    return max(2, len(item.pairs))


def _scores(item: Item, row: int) -> Iterator[tuple[object, ...]]:
    """Rows of `SCORES_SCHEMA` of one query: its continuations, and the first of them as its top."""
    known = [(i, value) for i, value in enumerate(item.logprobs) if value is not None]
    exact = len(known) == len(item.pairs)
    values = np.array([value for _, value in known], np.float32)
    ranks = 1 + (values[:, None] < values).sum(axis=1)
    ties = (values[:, None] == values).sum(axis=1) - 1
    best = int(np.argmin(ranks))
    top = (known[best][0], float(values[best]), 1, int(ties[best]), exact)
    if len(item.pairs) == 1 and item.greedy is not True:
        # Of the other text it is known, if anything, that it comes first; none has more than ln 1.
        ranks, ties = ranks + (item.greedy is False), ties + (item.greedy is None)
        exact = item.greedy is False
        top = (1, 0.0, 1, 0, False) if exact else (0, float(values[0]), 1, 1, False)
    scored = zip(known, values.tolist(), ranks.tolist(), ties.tolist(), strict=True)
    listed = [("option", (i, value, rank, tie, exact)) for (i, _), value, rank, tie in scored]
    for kind, (token, value, rank, tie, is_exact) in [*listed, ("top", top)]:
        yield row, token, kind, value, 0.0, rank, tie, 0, 0, is_exact


def _digest(scores: pl.DataFrame) -> str:
    columns = scores.select("query", "token", "logit", "rank", "ties", "exact")
    return json_digest([series.to_list() for series in columns])


def _prompts(items: Sequence[Item], query_set: str) -> pl.DataFrame:
    """One row per item and continuation; the items' own columns come last."""
    rows = []
    for row, item in enumerate(items):
        labels = _labels(item)
        right = None if item.answer is None else labels[item.answer]
        for i, (_, continuation) in enumerate(item.pairs):
            is_answer = None if right is None else i == item.answer
            rows.append(
                (item.id, None, 0, item.text, right, labels[i], continuation, i, is_answer,
                 query_set, row)
            )  # fmt: skip
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    counts = [len(item.pairs) for item in items]
    names = dict.fromkeys(name for item in items for name in item.columns)
    own = {
        name: [
            item.columns.get(name) for item, n in zip(items, counts, strict=True) for _ in [0] * n
        ]
        for name in names
        if name not in RESERVED_COLUMNS and all(name in item.columns for item in items)
    }
    kind = "target" if max(counts) == 1 else "choice"
    columns = [pl.Series(name, values, pl.String) for name, values in own.items()]
    return table.with_columns(pl.lit(kind).alias("score_kind"), *columns)


def _labels(item: Item) -> list[str]:
    """What its options are called: `target`, their texts, or numbers where those are alike."""
    if len(item.pairs) == 1:
        return ["target"]
    labels = [continuation.strip() for _, continuation in item.pairs]
    if len(set(labels)) < len(labels) or "" in labels:
        return [str(i) for i in range(len(labels))]
    return labels
