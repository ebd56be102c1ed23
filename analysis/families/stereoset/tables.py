"""The tidy tables of StereoSet, from dense arrays."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.stereoset.blocks import OVERALL, TASKS, Block, Blocks, Outcomes
from logitbank.analysis.families.stereoset.measures import (
    AGGREGATIONS,
    MEASURES,
    REFERENCES,
    Measures,
    Resampler,
    Terms,
    example_micro,
    in_order,
    of_terms,
    ss_deviation,
    term_counts,
    term_macro,
    term_mean_icat,
)
from logitbank.analysis.families.stereoset.scores import CAUSAL, KEYS
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.stats.bootstrap import Interval
from logitbank.analysis.stats.from_baseline import beside_baseline, items_of

MANY_TIES = 0.01
"""Share of tied comparisons above which those without ties are reported too."""

Columns = Mapping[str, object]


class Scope(NamedTuple):
    """One domain of a block, or all of it."""

    block: Block
    domain: str
    members: NDArray[np.bool_]
    """(e,) whether an example belongs to it."""
    counts: Terms
    """(c, t) of the terms that have an example in it."""

    def rows(self, **columns: object) -> pl.DataFrame:
        """One row per checkpoint: its place, task and domain, then these columns."""
        head = {"at": self.block.at, "task": self.block.task, "domain": self.domain}
        return frame(len(self.block.at), {**head, **columns})


def scopes_of(blocks: Blocks) -> Iterator[Scope]:
    """Every domain of every block, and overall."""
    for block in blocks.blocks:
        for at, name in enumerate([*blocks.domains, OVERALL]):
            everything = name == OVERALL
            members = np.ones(len(block.terms), bool) if everything else block.domains == at
            if members.any():
                chosen = Outcomes(*(values[:, members] for values in block.outcomes))
                counts = term_counts(chosen, in_order(block.terms[members]))
                yield Scope(block, name, members, counts)


def score_table(scopes: Sequence[Scope], resampler: Resampler) -> list[pl.DataFrame]:
    """`term_macro` with intervals."""
    tables = []
    for scope in scopes:
        terms = of_terms(scope.counts)
        present = np.count_nonzero(scope.counts.n, axis=1)
        intervals = resampler.intervals(resampler.draws(terms), present)
        tables.append(
            scope.rows(
                **with_intervals(term_macro(terms), intervals),
                ss_sd=ss_deviation(terms),
                terms=present,
                examples=whole(scope.counts.n),
            )
        )
    return tables


def aggregation_table(scopes: Sequence[Scope]) -> list[pl.DataFrame]:
    """The three aggregations beside each other."""
    tables = []
    for scope in scopes:
        terms = of_terms(scope.counts)
        measures = (term_macro(terms), example_micro(scope.counts), term_mean_icat(terms))
        for name, values in zip(AGGREGATIONS, measures, strict=True):
            tables.append(scope.rows(aggregation=name, **values._asdict()))
    return tables


def tie_table(scopes: Sequence[Scope]) -> list[pl.DataFrame]:
    """How many comparisons are ties, and what the others say where those are many."""
    tables = []
    for scope in scopes:
        n, pro, related, pro_ties, related_ties = (values.sum(axis=1) for values in scope.counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            ss_rate, lms_rate = pro_ties / n, related_ties / (2 * n)
            many = (ss_rate > MANY_TIES) | (lms_rate > MANY_TIES)
            ss, lms = 100.0 * pro / (n - pro_ties), 100.0 * related / (2 * n - related_ties)
        tables.append(
            scope.rows(
                ss_comparisons=n.astype(np.int64),
                ss_ties=pro_ties.astype(np.int64),
                ss_tie_rate=ss_rate,
                lms_comparisons=(2 * n).astype(np.int64),
                lms_ties=related_ties.astype(np.int64),
                lms_tie_rate=lms_rate,
                ss_untied=_where(many, ss),
                ss_untied_comparisons=_where(many, n - pro_ties, whole=True),
                lms_untied=_where(many, lms),
                lms_untied_comparisons=_where(many, 2 * n - related_ties, whole=True),
            )
        )
    return tables


def term_table(scopes: Sequence[Scope], blocks: Blocks) -> list[pl.DataFrame]:
    """Every target term by itself, over all its examples."""
    tables = []
    for scope in scopes:
        if scope.domain != OVERALL:
            continue
        block, terms = scope.block, of_terms(scope.counts)
        first = np.unique(in_order(block.terms), return_index=True)[1]
        names = [blocks.terms[at] for at in block.terms[first]]
        domains = {
            term: " + ".join(
                blocks.domains[at] for at in np.unique(block.domains[block.terms == term])
            )
            for term in np.unique(block.terms)
        }
        c, t = terms.ss.shape
        tables.append(
            frame(
                c * t,
                {
                    "at": np.repeat(block.at, t),
                    "task": block.task,
                    "domain": [domains[term] for term in block.terms[first]] * c,
                    "term": names * c,
                    **{name: value.ravel() for name, value in terms._asdict().items()},
                    "examples": scope.counts.n.ravel().astype(np.int64),
                },
            ).filter(pl.col("examples") > 0)
        )
    return tables


def baseline_table(scores: pl.DataFrame, terms: pl.DataFrame) -> pl.DataFrame:
    """ss over all domains beside that of the first checkpoint, over the terms that both have.

    `scores` and `terms` are the tables of these names, of all checkpoints: the first may be in
    another batch.
    """
    group = [name for name in (*KEYS, "task") if name not in CHECKPOINT]
    overall = scores.filter(pl.col("domain") == OVERALL).select(*KEYS, "task", "ss")
    items = items_of(terms, group, item="term", value=pl.col("ss") / 100)
    return beside_baseline(overall, [items], group, scale=100.0)


def task_table(blocks: Blocks) -> list[pl.DataFrame]:
    """What was scored of each task, and what was skipped."""
    scored = {(int(at), block.task): (block, i) for block in blocks.blocks
              for i, at in enumerate(block.at)}  # fmt: skip
    rules = blocks.keys["score"].to_list()
    others = sorted({block.task for block in blocks.blocks} - set(TASKS))
    rows: list[tuple[object, ...]] = []
    for at in range(len(blocks.keys)):
        for task in (*TASKS, *others):
            block, i = scored.get((at, task), (None, 0))
            if block is None:
                if task in TASKS:
                    rows.append((at, task, "skipped", None, None, 0, 0, 0))
                continue
            present = block.outcomes.present[i]
            kind = block.kinds[i]
            rule = " + ".join(_rule(part, rules[at]) for part in kind.split(" + "))
            n = int(present.sum())
            terms = len(np.unique(block.terms[present > 0]))
            rows.append((at, task, "scored", kind, rule, terms, n, len(present) - n))
    schema = {
        "at": pl.Int64, "task": pl.String, "status": pl.String, "score_kind": pl.String,
        "rule": pl.String, "terms": pl.Int64, "examples": pl.Int64, "missing": pl.Int64,
    }  # fmt: skip
    return [pl.DataFrame(rows, schema=schema, orient="row")]


def _rule(kind: str, score: str) -> str:
    """What is done with a candidate's pieces."""
    if kind in ("file", "nsp"):
        return {"file": "as given", "nsp": "probability"}[kind]
    reference = "mean_prob" if kind == "masked" else "geometric"
    return reference if score == "reference" else score


def reference_table() -> pl.DataFrame:
    """The lines to measure by."""
    rows = [(name, *values) for name, values in REFERENCES.items()]
    return pl.DataFrame(rows, schema=["reference", *MEASURES], orient="row")


def assembled(
    parts: Sequence[pl.DataFrame],
    blocks: Blocks,
    *,
    empty: Mapping[str, type[pl.DataType]] | None = None,
) -> pl.DataFrame:
    """Parts with the columns of `KEYS` in place of `at`: by checkpoint, task and domain.

    Where there is no part, no rows, and the columns `empty` after the keys.
    """
    if not parts:
        return pl.DataFrame(schema={**blocks.keys.schema, **(empty or {})})
    table = pl.concat(parts)
    order = {
        "task": [*TASKS, CAUSAL],
        "domain": [*blocks.domains, OVERALL],
        "aggregation": AGGREGATIONS,
        "term": blocks.terms,
    }
    ranks = [
        pl.col(name).replace_strict({v: i for i, v in enumerate(values)}, default=len(values))
        for name, values in order.items()
        if name in table.columns
    ]
    table = table.sort(["at", *ranks], maintain_order=True)
    return pl.concat([blocks.keys[table["at"]], table.drop("at")], how="horizontal")


def frame(height: int, columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(
        {
            name: pl.repeat(value, height, eager=True) if isinstance(value, str) else value
            for name, value in columns.items()
        }
    )


def with_intervals(values: Measures, intervals: Mapping[str, Interval]) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for name, value in values._asdict().items():
        low, high = intervals[name]
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return columns


def _where(mask: NDArray[np.bool_], values: Floats, *, whole: bool = False) -> pl.Series:
    """Values where the mask holds, null elsewhere."""
    column = pl.Series(values).set(pl.Series(~mask), None)
    return column.cast(pl.Int64) if whole else column


def whole(counts: Floats) -> Codes:
    total: Codes = counts.sum(axis=1).astype(np.int64)
    return total
