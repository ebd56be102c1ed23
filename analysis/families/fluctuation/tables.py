"""The tables of fluctuation, from series of scores. Every one begins with model and run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.fluctuation.plateaus import Measures, Plateau
from logitbank.analysis.families.fluctuation.series import Scores, Series
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.correlation import (
    correlation_interval,
    pearson,
    pearson_matrix,
    variation,
)

RELATIONS = (("certainty", "cv_r"), ("certainty", "cv_n"))
"""RQ2 of the source: measures of a profession that are correlated over professions."""
_Schema = dict[str, type[pl.DataType]]
_KEY: _Schema = {"model": pl.String, "run": pl.String, "verb": pl.String, "plateau": pl.Int64}


def checkpoint_table(scores: Scores) -> pl.DataFrame:
    """What is there, and what other checkpoints and runs of the model have beyond it."""
    steps: dict[str, set[int]] = {}
    for s in scores.series:
        steps.setdefault(s.model, set()).update(s.steps.tolist(), s.unused.tolist())
    rows: list[tuple[object, ...]] = []
    for s in scores.series:
        missing = dict(zip(s.steps.tolist(), s.missing.sum(axis=1).tolist(), strict=True))
        total = int(s.present.sum())
        unused = set(s.unused.tolist())
        for step in sorted(steps[s.model]):
            lacks = missing.get(step, total)
            prior = step in missing or step in unused
            rows.append(
                (s.model, s.run, step, s.verb, total - lacks, lacks, prior, step in missing)
            )
    for model, run, verb, professions in _unscored(scores):
        rows += [(model, run, step, verb, 0, professions, False, False) for step in steps[model]]
    for model, run, verb, professions, prior in scores.released.iter_rows():
        rows.append((model, run, None, verb, professions, 0, prior, False))
    schema: _Schema = {
        "model": pl.String, "run": pl.String, "step": pl.Int64, "verb": pl.String,
        "professions": pl.Int64, "missing": pl.Int64, "prior": pl.Boolean, "used": pl.Boolean,
    }  # fmt: skip
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.sort("model", "run", "step", "verb", nulls_last=True)


def _unscored(scores: Scores) -> Iterator[tuple[str, str, str, int]]:
    """Model, run, verb and number of professions, of verbs that a run was asked and has nowhere."""
    expected = scores.asked.group_by("model", "verb", maintain_order=True).len().rows()
    verbs = {(s.model, s.run, s.verb) for s in scores.series}
    for model, run in {(model, run) for model, run, _ in verbs}:
        for asked_model, verb, professions in expected:
            if asked_model == model and (model, run, verb) not in verbs:
                yield model, run, verb, professions


def plateau_table(plateaus: Sequence[Plateau]) -> pl.DataFrame:
    """Where each plateau starts, and the prior's own CV and mean certainty over it."""
    rows = []
    for p in plateaus:
        s, k = p.series, p.k
        ratio = s.prior_ratio[k:]
        rows.append(
            {
                **p.key,
                "rule": p.rule,
                "first_step": int(s.steps[k]),
                "last_step": int(s.steps[-1]),
                "checkpoints": len(s.steps) - k,
                "prior_cv": float(variation(ratio)),
                "prior_mean_r": float(ratio.mean()),
                "prior_certainty": float(s.prior[k:].sum(axis=1).mean()),
            }
        )
    numbers: _Schema = dict.fromkeys(("prior_cv", "prior_mean_r", "prior_certainty"), pl.Float64)
    steps: _Schema = dict.fromkeys(("first_step", "last_step", "checkpoints"), pl.Int64)
    return pl.DataFrame(rows, schema=_KEY | {"rule": pl.String} | steps | numbers)


def profession_table(
    plateaus: Sequence[Plateau],
    measured: Sequence[Measures],
    occupations: pl.Series,
    frequencies: Mapping[str, Floats],
) -> pl.DataFrame:
    """The measures of every profession of every plateau, and its frequency in each case."""
    parts = []
    for p, m in zip(plateaus, measured, strict=True):
        s, k = p.series, p.k
        present = np.flatnonzero(s.present)
        columns = {name: values[present] for name, values in zip(m._fields, m, strict=True)}
        counts = {
            "missing": s.missing[k:, present].sum(axis=0),
            "she_zero": (s.scores[k:, present, 1] == 0).sum(axis=0),
        }
        named = {f"frequency_{case}": values[present] for case, values in frequencies.items()}
        parts.append(
            pl.DataFrame({"occupation": occupations.gather(present), **columns, **counts, **named})
            .with_columns(pl.col(*counts).cast(pl.Int64))
            .select(*_literals(p.key), pl.all())
        )
    return pl.concat(parts)


def spread_table(plateaus: Sequence[Plateau], measured: Sequence[Measures]) -> pl.DataFrame:
    """Smallest, largest, mean and median of each measure over the professions of a plateau."""
    rows: list[dict[str, object]] = []
    for p, m in zip(plateaus, measured, strict=True):
        for name, values in zip(m._fields, m, strict=True):
            present = values[p.series.present]
            finite = present[np.isfinite(present)]
            some = finite if len(finite) else np.array([np.nan])
            rows.append(
                {
                    **p.key,
                    "measure": name,
                    "min": some.min(),
                    "max": some.max(),
                    "mean": some.mean(),
                    "median": np.median(some),
                    "n": len(finite),
                    "excluded": len(present) - len(finite),
                }
            )
    numbers: _Schema = dict.fromkeys(("min", "max", "mean", "median"), pl.Float64)
    return pl.DataFrame(rows, schema=_KEY | {"measure": pl.String} | numbers | _COUNTS)


def correlation_table(
    plateaus: Sequence[Plateau], measured: Sequence[Measures], frequencies: Mapping[str, Floats]
) -> pl.DataFrame:
    """Certainty, and frequency in each case, against CV, over the professions of a plateau."""
    rows: list[dict[str, object]] = []
    for p, m in zip(plateaus, measured, strict=True):
        present = p.series.present
        values = dict(zip(m._fields, m, strict=True))
        pairs: list[tuple[str, str, str | None, Floats]] = [
            (x, y, None, values[x]) for x, y in RELATIONS
        ]
        pairs += [
            ("frequency", y, case, frequency)
            for case, frequency in frequencies.items()
            for _, y in RELATIONS
        ]
        for x, y, case, numbers in pairs:
            about = {"x": x, "y": y, "case": case}
            rows.append(p.key | about | pearson(numbers[present], values[y][present])._asdict())
    names: _Schema = {"x": pl.String, "y": pl.String, "case": pl.String}
    return pl.DataFrame(rows, schema=_KEY | names | _R | _COUNTS)


def run_pair_table(plateaus: Sequence[Plateau], measured: Sequence[Measures]) -> pl.DataFrame:
    """Correlation of time-averaged R and N between every two runs of a model and verb."""
    groups: dict[tuple[str, str, int], list[tuple[str, Measures, NDArray[np.bool_]]]] = {}
    for p, m in zip(plateaus, measured, strict=True):
        key = (p.series.model, p.series.verb, p.start)
        groups.setdefault(key, []).append((p.series.run, m, p.series.present))
    rows: list[tuple[object, ...]] = []
    for key, runs in groups.items():
        for name in ("mean_r", "mean_n"):
            for (run_a, a, in_a), (run_b, b, in_b) in combinations(runs, 2):
                both = in_a & in_b
                found_r = pearson(getattr(a, name)[both], getattr(b, name)[both])
                rows.append((*key, name, run_a, run_b, *found_r))
    schema: _Schema = {
        "model": pl.String, "verb": pl.String, "plateau": pl.Int64, "measure": pl.String,
        "run_a": pl.String, "run_b": pl.String, **_R, **_COUNTS,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def checkpoint_pair_table(series: Iterable[Series]) -> pl.DataFrame:
    """Correlation of R between every two checkpoints of a series, those before a plateau too.

    Over the professions whose ratio is finite at every checkpoint; `excluded` counts the others.
    N has the same correlations, since a row of N is one of R times a number.
    """
    parts = [part for s in series for part in _checkpoint_pairs(s)]
    schema: _Schema = {
        "model": pl.String, "run": pl.String, "verb": pl.String, "step_a": pl.Int64,
        "step_b": pl.Int64, **_R, **_COUNTS,
    }  # fmt: skip
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _checkpoint_pairs(s: Series) -> Iterator[pl.DataFrame]:
    ratio = s.ratio[:, s.present]
    if not ratio.shape[1]:
        return
    finite = np.isfinite(ratio).all(axis=0)
    n = int(np.count_nonzero(finite))
    matrix = pearson_matrix(ratio if finite.all() else ratio[:, finite])
    a, b = np.triu_indices(len(matrix), 1)
    low, high = correlation_interval(matrix[a, b], n)
    ends = {"r": matrix[a, b], "low": low, "high": high}
    pairs = {"step_a": s.steps[a], "step_b": s.steps[b], **ends}
    key = {"model": s.model, "run": s.run, "verb": s.verb}
    counts = {"n": n, "excluded": ratio.shape[1] - n}
    yield pl.DataFrame(pairs).select(*_literals(key), pl.all(), *_literals(counts))


def frequency_table(occupations: pl.Series, frequencies: Mapping[str, Floats]) -> pl.DataFrame:
    """Professions by their frequency in each case, the most frequent first; equal ones by name."""
    schema: _Schema = {
        "case": pl.String, "rank": pl.Int64, "occupation": pl.String, "frequency": pl.Float64,
    }  # fmt: skip
    parts = [
        pl.DataFrame({"occupation": occupations, "frequency": values})
        .sort("frequency", "occupation", descending=[True, False])
        .select(
            pl.lit(case).alias("case"),
            pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("rank"),
            pl.all(),
        )
        for case, values in frequencies.items()
    ]
    return pl.concat([pl.DataFrame(schema=schema), *parts])


_R: _Schema = dict.fromkeys(("r", "low", "high"), pl.Float64)
_COUNTS: _Schema = {"n": pl.Int64, "excluded": pl.Int64}


def _literals(values: Mapping[str, object]) -> list[pl.Expr]:
    return [pl.lit(v, pl.Int64 if isinstance(v, int) else None).alias(k) for k, v in values.items()]
