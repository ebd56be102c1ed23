"""Distances between distributions over the whole vocabulary, from full rows.

Rows are renormalised in float64. One block of rows of a few checkpoints is in memory at a time.
Axis letters: `q` rows, `v` vocabulary, `c` checkpoints, `r` references, `m` distances.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.distance import MEASURES, PAIRS
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT_SCHEMA
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import summarise
from logitbank.errors import KeepLevelError
from logitbank.store import Bank, Deposit
from logitbank.store.read.mapping import map_together
from logitbank.store.steps import Step, in_order
from logitbank.wording import counted

DISTANCES = ("js", "kl", "tv", "top1")
"""Jensen–Shannon and Kullback–Leibler divergence (nats), total variation, and whether the most
probable token is the same."""
VALUES = 2**23
"""Log-probabilities of one checkpoint in memory: 64 MB in float64."""
CHUNK = 128
"""Rows of which all are decompressed if one is read."""
THREADS = 2
"""Threads that compare rows, each with its own memory."""
PIECE = 8192
"""Numbers of a dot product that BLAS computes in one thread: up to 10,000."""
ROUNDING = 1e-13
"""More than float64's rounding of a sum over 100,000 outputs."""
LEAST = -700.0
"""The least log-probability: its probability is greater than 0 in float64."""
LN_2 = math.log(2)
MAP_ROWS = 256
"""Most contexts of which all pairs of checkpoints are compared, spread evenly."""
ALONG = ("entropy", *(f"{name}_{of}" for of in ("previous", "last") for name in DISTANCES))
OTHER = ("other_model", "other_run")
MAP = {**CHECKPOINT_SCHEMA, "other_step": pl.Int64, "kl": pl.Float64, "contexts": pl.Int64}


class Distributions(NamedTuple):
    """Distributions of some rows."""

    values: np.ndarray
    """(q, v) log-probabilities as stored."""
    log_total: Floats
    """(q,) the logarithm of the sum of their exponentials: that of p is `values - log_total`."""
    p: Floats
    """(q, v) in float64, each row with sum 1."""
    entropy: Floats
    """(q,) nats"""
    top: Codes
    """(q,) the most probable token."""


def dot(a: Floats, b: Floats) -> float:
    """A dot product in this thread: BLAS waits for threads of other cores if it has more numbers.

    Four times as fast as einsum.
    """
    whole = len(a) // PIECE * PIECE
    pieces = np.vecdot(a[:whole].reshape(-1, PIECE), b[:whole].reshape(-1, PIECE))
    return float(pieces.sum() + np.vecdot(a[whole:], b[whole:]))


def distributions(
    values: np.ndarray, references: Sequence[Distributions] = (), *, p: Floats | None = None
) -> tuple[Distributions, Floats]:
    """Distributions of stored log-probabilities (q, v), and their `DISTANCES` from references.

    Rows are renormalised in float64. The distances are (q, r, m); Kullback–Leibler is from the
    reference: the nats that a code for the row wastes on tokens of the reference. What is less than
    `ROUNDING` is 0. `p` is an array to write to: new memory for each checkpoint takes five times as
    long. One exponential and, for each reference, one logarithm per number: with total t,
    ln p = value − ln t, and the entropy of the mean of p and q is ln 2 − ½ Σ (p + q) ln(p + q).
    """
    size = len(values)
    found = Distributions(
        values, np.empty(size), np.empty(values.shape) if p is None else p, np.empty(size),
        values.argmax(axis=1),
    )  # fmt: skip
    distances = np.empty((size, len(references), len(DISTANCES)))
    logs, work, more = np.empty((3, values.shape[1]))
    for at in range(size):  # a row at a time stays in the processor's cache
        read_logs(values[at], into=logs)
        q = np.exp(logs, out=found.p[at])
        total = q.sum()
        q *= 1 / total
        found.log_total[at] = log_total = np.log(total)
        found.entropy[at] = entropy = log_total - dot(q, logs)
        for to, reference in enumerate(references):
            p = reference.p[at]
            both = np.add(p, q, out=work)
            of_mean = LN_2 - dot(both, np.log(both, out=more)) / 2
            distances[at, to] = (
                of_mean - (reference.entropy[at] + entropy) / 2,
                log_total - dot(p, logs) - reference.entropy[at],
                np.maximum(p, q, out=work).sum() - 1,
                found.top[at] == reference.top[at],
            )
    distances[distances < ROUNDING] = 0
    return found, distances


def read_logs(values: np.ndarray, *, into: Floats) -> None:
    """Stored log-probabilities (v,) in float64, at least `LEAST`."""
    np.copyto(into, values)
    if values.min() < LEAST:
        np.maximum(into, LEAST, out=into)


def along(values: Iterator[np.ndarray]) -> Floats:
    """(q, c, 1 + 2 m): entropy, and distances from the previous and from the last checkpoint.

    `values` are those of the last checkpoint, then of all in order. The first has NaN distances
    from its predecessor.
    """
    last, _ = distributions(next(values))
    previous: Distributions | None = None
    spare: Floats | None = None
    found = []
    for array in values:
        references = [last] if previous is None else [previous, last]
        row, distances = distributions(array, references, p=spare)
        if previous is None:
            distances = np.concatenate([np.full_like(distances, np.nan), distances], axis=1)
        found.append(np.hstack([row.entropy[:, None], *distances.transpose(1, 0, 2)]))
        previous, spare = row, None if previous is None else previous.p
    return np.stack(found, axis=1)


def between(values: Iterator[np.ndarray]) -> Floats:
    """(q, pairs, m): symmetric distances of all pairs; KL is the mean of both directions."""
    rows = list[Distributions]()
    found = dict[tuple[int, int], Floats]()
    for number, array in enumerate(values):
        row, distances = distributions(array, rows)
        for other, reference in enumerate(rows):
            pair = distances[:, other]
            pair[:, 1] = (pair[:, 1] + _divergence(row, reference)) / 2
            found[other, number] = pair
        rows.append(row)
    return np.stack([found[pair] for pair in combinations(range(len(rows)), 2)], axis=1)


def _divergence(reference: Distributions, row: Distributions) -> Floats:
    """(q,) Kullback–Leibler divergence of a row from a reference."""
    logs = np.empty(row.values.shape[1])
    found = np.empty(len(row.values))
    for at, p in enumerate(reference.p):
        read_logs(row.values[at], into=logs)
        found[at] = row.log_total[at] - dot(p, logs) - reference.entropy[at]
    found[found < ROUNDING] = 0
    return found


@dataclass(frozen=True, slots=True)
class Distances(Result):
    """Results of `distance_metric`; `step` is null for a release."""

    measures: pl.DataFrame
    """As `summarise` returns them: each measure at every checkpoint, with intervals over prompts
    and the change from the first checkpoint."""
    pairs: pl.DataFrame
    """The same for pairs of runs or models at one step: also `other_model` and `other_run`."""
    map: pl.DataFrame
    """model, run, step, other_step, kl: the mean of both directions, and over `contexts` rows."""


def distance_metric(scores: Scores, *, ray: str | None = None) -> Distances:
    r"""Distances between distributions over the vocabulary. All arithmetic is float64.

    A value of a prompt is the mean over the contexts at which it is scored. With :math:`p` the
    distribution of the reference (the previous checkpoint, the run's last, or another run at the
    same step) and :math:`q` that of the checkpoint, in nats:

    ``kl``
        :math:`\sum_v p_v\ln(p_v/q_v)`; between runs and models the mean of both directions.
    ``js``
        :math:`\frac12\sum_v p_v\ln(p_v/m_v)+\frac12\sum_v q_v\ln(q_v/m_v)`, :math:`m=(p+q)/2`.
    ``tv``
        :math:`\frac12\sum_v|p_v-q_v|`.
    ``top1``
        Share of contexts whose most probable token is the same (of equal ones the first).

    Parameters
    ----------
    ray
        As for `map_rows`.

    Raises
    ------
    KeepLevelError
        No complete checkpoint keeps full rows.
    UsageError, BankError
        As `Scores.frames`.

    References
    ----------
    Fehlauer et al. 2025, arXiv 2509.26643: the divergence of runs from each other.
    """
    items, pairs = read_distances(scores, ray=ray)
    tables = (summarise(items, MEASURES), summarise(pairs, PAIRS))
    measures, of_pairs = (table.filter(pl.col("items") > 0) for table in tables)
    if not pairs.groups:  # there is no pair
        of_pairs = of_pairs.with_columns(pl.lit("").alias(name) for name in OTHER)
    return Distances(measures, of_pairs, distance_map(scores))


def read_items(scores: Scores) -> Items:
    """Entropy and distances of each prompt at each checkpoint."""
    return read_distances(scores)[0]


def read_distances(scores: Scores, *, ray: str | None = None) -> tuple[Items, Items]:
    """Items of checkpoints, and of pairs of runs or models; read once in a report."""

    def read() -> tuple[Items, Items]:
        items, pairs = list[Items](), list[Items]()
        for prompts, deposits in _whole(scores):
            series, steps = _series(deposits), _at_one_step(deposits)
            read = partial(map_together, rows=_rows(deposits), ray=ray, threads=THREADS)
            with_last = [[own[-1], *own] for own in series]
            for own, values in zip(series, read(with_last, along), strict=True):
                items.append(prompts.items(values, own, ALONG))
            for own, values in zip(steps, read(steps, between), strict=True):
                both = [*combinations(own, 2)]
                for at, (a, b) in enumerate(both):
                    other = dict(zip(OTHER, (b.checkpoint.model, b.checkpoint.run), strict=True))
                    pairs.append(prompts.items(values[:, [at]], [a], DISTANCES, **other))
                of_runs = [
                    at for at, (a, b) in enumerate(both) if a.checkpoint.model == b.checkpoint.model
                ]
                for deposit in own:
                    mine = [at for at in of_runs if deposit in both[at]]
                    if mine:
                        mean = values[:, mine].mean(axis=1, keepdims=True)
                        names = [f"{name}_runs" for name in DISTANCES]
                        items.append(prompts.items(mean, [deposit], names))
        return gather_items(items), gather_items(pairs)

    return scores.cached("distance", read)


class Prompts(NamedTuple):
    """The prompts of a query set, and the contexts at which each is scored."""

    axes: pl.DataFrame
    """(p) item, order, cluster."""
    rows: Codes
    """Rows of the query set, those of the first prompt first."""
    starts: Codes
    """(p,) where the rows of each prompt begin."""

    def items(
        self, values: Floats, deposits: Sequence[Deposit], names: Sequence[str], **groups: str
    ) -> Items:
        """Items of values (q, c, m), averaged over each prompt's contexts; a part each name."""
        counts = np.diff([*self.starts, len(self.rows)])[:, None, None]
        means = np.add.reduceat(values[self.rows], self.starts, axis=0) / counts
        own = self.axes.with_columns(**{name: pl.lit(value) for name, value in groups.items()})
        axes = pl.concat(own.with_columns(part=pl.lit(name)) for name in names)
        dense = means.transpose(1, 2, 0).reshape(len(deposits), len(axes))
        return array_items(_checkpoints(deposits), axes, dense)


def excluded(scores: Scores) -> tuple[str, ...]:
    """A note about checkpoints with results of the prompts that have no distance."""
    deposits = [deposit for _, own in scores.holding() for deposit in own if deposit.committed()]
    used = {deposit.checkpoint for deposit in deposits if _is_whole(deposit)}
    others = dict.fromkeys(str(d.checkpoint) for d in deposits if d.checkpoint not in used)
    if not others:
        return ()
    number = counted(len(others), "checkpoint")
    return (f"Excluded: {number} without complete full rows ({', '.join(others)}).",)


def _is_whole(deposit: Deposit) -> bool:
    return deposit.layout.keep.has_full_rows and deposit.complete


def _whole(scores: Scores) -> Iterator[tuple[Prompts, list[Deposit]]]:
    """Each query set of the prompts, and its complete deposits that keep full rows."""
    found, banks = defaultdict[str, list[Deposit]](list), dict[str, Bank]()
    for bank, deposits in scores.holding():
        for deposit in deposits:
            if _is_whole(deposit):
                found[deposit.query_set].append(deposit)
                banks.setdefault(deposit.query_set, bank)
    if not found:
        raise KeepLevelError(
            f"No complete checkpoint keeps full rows for {scores.prompts!r}. Extract into another "
            "bank with --keep full or --keep hidden."
        )
    for query_set, deposits in found.items():
        table = scores.prompt_rows(banks[query_set], scores.prompts).filter(query_set=query_set)
        if len(table.head(1).collect()):
            yield _prompts(table), deposits


def _prompts(table: pl.LazyFrame) -> Prompts:
    clusters = {"cluster": "sentence_id"} if "sentence_id" in table.collect_schema() else {}
    columns = table.select(
        pl.col("order_seed").cast(pl.String).fill_null("").alias("order"),
        "row",
        item="prompt_id",
        **clusters,
    )
    places = columns.unique().sort("item", "order", "row").collect()
    axes = places.drop("row").unique(["item", "order"], keep="first", maintain_order=True)
    sizes = places.group_by("item", "order", maintain_order=True).len()["len"].to_numpy()
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return Prompts(axes, places["row"].to_numpy().astype(np.int64), starts)


def _checkpoints(deposits: Sequence[Deposit]) -> pl.DataFrame:
    rows = [(d.checkpoint.model, d.checkpoint.run, d.checkpoint.step) for d in deposits]
    return pl.DataFrame(rows, CHECKPOINT_SCHEMA, orient="row")


def _series(deposits: Sequence[Deposit]) -> list[list[Deposit]]:
    """The deposits of each model and run in the order of training."""
    found = defaultdict[tuple[str, str], dict[Step, Deposit]](dict)
    for each in deposits:
        found[each.checkpoint.model, each.checkpoint.run][each.checkpoint.step] = each
    return [[own[step] for step in in_order(own)] for own in found.values()]


def _at_one_step(deposits: Sequence[Deposit]) -> list[list[Deposit]]:
    """Deposits of several runs or models at one step, with one number of outputs."""
    found = defaultdict[tuple[Step, int], list[Deposit]](list)
    for each in sorted(deposits, key=lambda each: (each.checkpoint.model, each.checkpoint.run)):
        found[each.checkpoint.step, each.layout.vocab].append(each)
    return [own for own in found.values() if len(own) > 1]


def _rows(deposits: Sequence[Deposit]) -> int:
    """Rows that are compared at once: whole chunks, if `VALUES` allows."""
    rows = max(1, VALUES // max(deposit.layout.vocab for deposit in deposits))
    return rows // CHUNK * CHUNK or rows


def distance_map(scores: Scores) -> pl.DataFrame:
    """The table `map`, over at most `MAP_ROWS` contexts."""
    tables = [pl.DataFrame(schema=MAP)]
    for prompts, deposits in _whole(scores):
        every = np.unique(prompts.rows)
        chosen = every[np.linspace(0, len(every) - 1, min(len(every), MAP_ROWS)).astype(np.int64)]
        for own in _series(deposits):
            heads = _checkpoints(own)
            kl = _all_pairs(own, chosen)
            pairs = heads.join(heads.select(other_step="step"), how="cross")
            tables.append(
                pairs.with_columns(kl=pl.Series(kl.reshape(-1)), contexts=pl.lit(len(chosen)))
            )
    return pl.concat(tables, how="vertical_relaxed")


def _all_pairs(deposits: Sequence[Deposit], rows: Codes) -> Floats:
    """(c, c) KL of all pairs of checkpoints, the mean of both directions and over rows."""
    count, vocab = len(deposits), deposits[0].layout.vocab
    total = np.zeros((count, count))
    p, logp = np.empty((2, count, vocab))
    step = max(1, 4 * VALUES // (count * vocab))  # a row is in float64, the others in float32
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        read = [deposit.logprobs(part) for deposit in deposits]
        for values in map(np.stack, zip(*read, strict=True)):
            row, _ = distributions(values, p=p)
            np.subtract(values, row.log_total[:, None], out=logp)
            cross = -(p @ logp.T)  # cross entropy of row b from row a
            kl = cross - np.diag(cross)[:, None]
            total += (kl + kl.T) / 2
    return np.maximum(total / len(rows), 0)
