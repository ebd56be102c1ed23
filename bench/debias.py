"""Training a filter on a hundred thousand instances, and what looking through it costs a scan."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from bench.figures import Figure
from logitbank.analysis.debias.study import debias_train
from logitbank.analysis.debias.train import Training, published
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Filter,
    Keep,
    Layout,
    Query,
    QuerySet,
    Readable,
    View,
)
from logitbank.store.format.schema import PROMPTS_SCHEMA, SCORES_SCHEMA

INSTANCES, LISTED, VOCAB, FORMS = 100_000, 64, 30_522, 4
PROMPTS = "unqover-gender"


def debias_figures(tmp: Path) -> Iterator[Figure]:
    bank = large_bank(tmp / "debias.zarr")
    name = f"debias train, {INSTANCES:,} stored instances, k = 8"
    for label, training in (
        ("direct", Training()),
        ("published", published("gender", "roberta")),
    ):
        start = time.perf_counter()
        debias_train(bank, prompts=PROMPTS, training=training, split=None, bootstrap=0)
        took = time.perf_counter() - start
        yield Figure(f"{name}, {label}", took, "s", "< 60 s", took < 60)
    for mode in ("keep_tail", "truncate"):
        for columns in (("prompt_id", "continuation", "logprob"), ()):
            yield _view(bank, mode, columns)


def _view(bank: Bank, mode: str, columns: tuple[str, ...]) -> Figure:
    """Every scan computes, as the first one of a view does."""
    name = f"a scan of {_what(columns)} through a filter ({mode}), more than without"
    return _more(name, 0.2, bank, View.of(bank, _filter(mode)), columns)


def _filter(mode: str) -> Filter:
    weight = np.eye(8) + 0.1 * np.random.default_rng(0).normal(size=(8, 8))
    return Filter(weight, np.zeros(8), mode)  # type: ignore[arg-type]


def _what(columns: tuple[str, ...]) -> str:
    return f"{4 * INSTANCES:,} questions ({', '.join(columns) or 'all columns'})"


def _scan(source: Readable, columns: tuple[str, ...]) -> None:
    source.scan(PROMPTS).select(columns or pl.all()).collect()


def _more(name: str, target: float, bank: Bank, view: Readable, columns: tuple[str, ...]) -> Figure:
    """Time of a view's scan over that of the bank's own, less 1, by turns."""
    shares, times = [], []
    for _ in range(6):
        seconds = []
        for source in (bank, view):
            start = time.perf_counter()
            _scan(source, columns)
            seconds.append(time.perf_counter() - start)
        shares.append(seconds[1] / seconds[0] - 1)
        times.append(seconds)
    value = median(shares[1:])
    detail = ", ".join(f"{median(t):.2f} s" for t in zip(*times[1:], strict=True))
    return Figure(
        name, value, "of the scan", f"< {target}", value < target, shares[1:],
        f"without and with: {detail}",
    )  # fmt: skip


def large_bank(path: Path, *, instances: int = INSTANCES) -> Bank:
    """One checkpoint that answered `instances` × 4 drawn questions, the highest tokens listed."""
    bank, number = Bank.create(path), 4 * instances
    queries = QuerySet("ab" * 32, tuple(Query((i, 103), 1, head="mask") for i in range(number)))
    bank.add_query_set(queries)
    bank.add_prompts(PROMPTS, _prompts(queries.name, instances))
    layout = Layout.plan(queries=number, vocab=VOCAB, dtype="float16", keep=Keep("topk", LISTED))
    made = {"weights": "ab" * 32, "tokenizer": "ab" * 32, "engine": "drawn"}
    spec = DepositSpec(CheckpointId("drawn", step=0), queries.name, layout, VOCAB, made)
    with bank.begin(spec) as writer:
        for block in writer.missing():
            writer.write(block, BlockData(None, _scores(layout.rows(block), block)))
        writer.seal()
    return bank


def _prompts(query_set: str, instances: int) -> pl.DataFrame:
    row = np.repeat(np.arange(4 * instances), FORMS)
    form, question = np.tile(np.arange(FORMS), 4 * instances), row % 4
    instance = row // 4
    subjects = {"subject1": instance % 50, "subject2": 50 + instance // 50 % 50}
    frame = pl.DataFrame(
        {"instance": instance, "row": row, "form": form, "question": question, **subjects}
    )
    name = pl.when(pl.col("form") < 2).then("subject1").otherwise("subject2")
    own = pl.format("n{}", name)
    text = pl.when(pl.col("form") % 2 == 0).then(own).otherwise(pl.format(" N{}", name))
    table = frame.with_columns(
        prompt_id=pl.format("{}|{}", "instance", "question"), order_seed=None, piece=0,
        text=pl.lit("x"), answer=None, option=text, continuation=text, is_answer=None,
        token=pl.when(pl.col("form") < 2).then(pl.col("form")).otherwise(pl.col("form")) + 1000,
        query_set=pl.lit(query_set),
        category=pl.lit("gender"), split=pl.lit("train"),
        order=pl.when(pl.col("question") % 2 == 0).then(pl.lit("12")).otherwise(pl.lit("21")),
        negated=pl.col("question") >= 2, context=pl.format("c{}", pl.col("instance") % 4),
        attribute=pl.format("a{}", pl.col("instance") % 70),
        attribute_class=pl.lit(None, pl.String), gender1=pl.lit("female"), gender2=pl.lit("male"),
    ).with_columns(pl.format("n{}", "subject1").alias("subject1"),
                   pl.format("n{}", "subject2").alias("subject2"),
                   pl.format("i{}", "instance").alias("instance"))  # fmt: skip
    head = [pl.col(c).cast(t) for c, t in PROMPTS_SCHEMA.items()]
    names = ("instance", "category", "split", "subject1", "subject2", "order", "negated", "context",
             "attribute", "attribute_class", "gender1", "gender2")  # fmt: skip
    return table.select(*head, *names)


def _scores(rows: range, seed: int) -> pl.DataFrame:
    """Tokens 1000 to 1003 are the forms; one of each subject is among the eight highest."""
    random, n = np.random.default_rng(seed), len(rows)
    logits = -np.sort(-random.normal(size=(n, LISTED)) * 2, axis=1)
    tokens = 2000 + np.tile(np.arange(LISTED), (n, 1))
    places = random.permuted(np.tile(np.arange(8), (n, 1)), axis=1)[:, :2]
    at = np.arange(n)
    tokens[at, places[:, 0]], tokens[at, places[:, 1]] = 1000, 1002
    lse = np.log(np.exp(logits).sum(axis=1) / 0.8)
    option_logit = np.stack(
        [logits[at, places[:, 0]], logits[:, -1] - 1, logits[at, places[:, 1]], logits[:, -1] - 2],
        axis=1,
    )
    option_rank = np.stack(
        [places[:, 0] + 1, np.full(n, 90), places[:, 1] + 1, np.full(n, 200)], axis=1
    )
    parts = []
    for kind, token, logit, rank in (
        ("option", np.tile(np.arange(FORMS) + 1000, (n, 1)), option_logit, option_rank),
        ("top", tokens, logits, np.tile(np.arange(LISTED) + 1, (n, 1))),
    ):
        count = token.shape[1]
        parts.append(
            pl.DataFrame(
                {
                    "query": np.repeat(np.arange(rows.start, rows.stop), count),
                    "token": token.ravel(),
                    "logit": logit.ravel(),
                    "logsumexp": np.repeat(lse, count),
                    "rank": rank.ravel(),
                }
            ).with_columns(
                kind=pl.lit(kind), ties=0, padding_above=0, padding_ties=0, exact=pl.lit(True)
            )
        )
    return (
        pl.concat(parts)
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
        .sort("query", "kind", "rank", "token")
    )
