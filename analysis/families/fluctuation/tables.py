"""Pronoun scores as dense arrays, one series per model, run and verb, and the tables made of them.

Axis letters: `m` checkpoints, `t` professions. A cell without a score is NaN. The tables that the
commands print begin with model and run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import isfinite
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes, distinct
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.prompt_sums import FIX_NOT_FINITE
from logitbank.analysis.frames.pronoun_scores import MASK, PRONOUNS
from logitbank.analysis.stats.correlation import (
    correlation_interval,
    pearson,
    pearson_matrix,
    variation,
)
from logitbank.errors import BankError, UsageError
from logitbank.store.steps import parse_count
from logitbank.wording import checkpoint_name

PRIOR = f"a {MASK}"
"""The only prior that is used, whatever the article of a profession."""
PUBLISHED = (
    [0, 10, 20, 40, *(100 * 2**i for i in range(8)), *range(20_000, 1_000_001, 20_000)],
    [*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)],
)
"""Steps of RoBERTa (62) and MultiBERTs (29), whose plateaus are published as the second half."""

_Schema = dict[str, type[pl.DataType]]
_KEY: _Schema = {"model": pl.String, "run": pl.String, "verb": pl.String, "plateau": pl.Int64}
_R: _Schema = dict.fromkeys(("r", "low", "high"), pl.Float64)
_COUNTS: _Schema = {"n": pl.Int64, "excluded": pl.Int64}


@dataclass(frozen=True)
class Series:
    """The scores of one model, run and verb over training."""

    model: str
    run: str
    verb: str
    steps: Codes
    """(m,) ascending: checkpoints with professions; with priors, where there is no profession."""
    scores: Floats
    """(m, t, 2): P(he) and P(she)."""
    prior: Floats
    """(m, 2): the same for the prior template."""
    present: NDArray[np.bool_]
    """(t,) professions with a score at any checkpoint, or expected of the model."""
    unused: Codes
    """Steps that have the prior and no profession, though others have professions."""
    release: Floats | None
    """(t + 1, 2) scores of a public release, the run's or the model's, the prior last; or None."""

    @property
    def certainty(self) -> Floats:
        """(m, t) C = P(he) + P(she)."""
        return self.scores[:, :, 0] + self.scores[:, :, 1]

    @cached_property
    def ratio(self) -> Floats:
        """(m, t) R = P(he) / P(she), inf where P(she) is 0."""
        return _ratio(self.scores)

    @cached_property
    def prior_ratio(self) -> Floats:
        """(m,) R of the prior."""
        return _ratio(self.prior)

    @property
    def normalised(self) -> Floats:
        """(m, t) N = R · P(she | prior) / P(he | prior)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = self.prior[:, 1] / self.prior[:, 0]
            n: Floats = self.ratio * factor[:, None]
        return n

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """(m, t) no score, of a profession that is expected or has one elsewhere in the series."""
        return np.isnan(self.certainty) & self.present


class Scores(NamedTuple):
    """All series of a frame, over one list of professions."""

    occupations: pl.Series
    """(t,) sorted, with article."""
    series: tuple[Series, ...]
    """Series in the order of model, run and verb; only those with training steps."""
    releases: tuple[tuple[Series, Floats], ...]
    """Those with a public release of their own, and its scores."""
    an_priors: int
    """Prior rows with “an”, which are not used."""
    merged: int
    """Rows that repeat another exactly."""
    expected: pl.DataFrame
    """model, verb, occupation: the expected professions, if they are known; scored or not."""


NOTHING = pl.DataFrame(schema=dict.fromkeys(("model", "verb", "occupation"), pl.String))


def dense_scores(rows: pl.DataFrame, expected: pl.DataFrame = NOTHING) -> Scores:
    """Lay scores out densely.

    Parameters
    ----------
    rows
        Scores as `as_scores` gives them, in any order.
    expected
        model, verb and occupation that each model should have, if they are known.

    Raises
    ------
    UsageError
        No rows, no training step, a score outside [0, 1], two different scores of the same
        thing, one pronoun without the other, or a checkpoint with professions and no prior.
    """
    if rows.is_empty():
        raise UsageError("There are no scores: name a bank or table that has some.")
    _check_range(rows)
    used = rows.filter(~pl.col("prior") | (pl.col("occupation") == PRIOR))
    keys, series = _in_order(used.select("model", "run", "verb"))
    steps, step = _in_order(used.select("step"))
    names, name = _in_order(used.select("prior", "occupation"))
    known = steps["step"].drop_nulls().to_numpy()
    professions = names.filter(~pl.col("prior"))["occupation"]
    occupations = pl.concat([professions, expected["occupation"]]).unique().sort()
    places = np.full(len(names), len(occupations))
    if len(professions):
        places[: len(professions)] = occupations.search_sorted(professions).to_numpy()
    if not len(known):
        models = ", ".join(keys["model"].unique().sort())
        raise UsageError(
            f"Only the public release of {models} has scores: fluctuation needs the checkpoints "
            "of a run."
        )
    dense = np.full((len(keys), len(known) + 1, len(occupations) + 1, 2), np.nan)
    she = (used["pronoun"] == PRONOUNS[1]).to_numpy()
    place = ((series * dense.shape[1] + step) * dense.shape[2] + places[name]) * 2 + she
    values = used["score"].to_numpy()
    dense.reshape(-1)[place] = values
    _check_conflicts(used, stored=dense.reshape(-1)[place], new=values)
    merged = len(used) - int(np.count_nonzero(~np.isnan(dense)))
    built = [
        _series(key, own, known, occupations, expected)
        for key, own in zip(keys.rows(), dense, strict=True)
    ]
    # A release that belongs to no run of its model is beside every run that has none.
    alone = {(s.model, s.verb): s.release for s in built if not len(s.steps)}
    trained = tuple(
        s if s.release is not None else replace(s, release=alone.get((s.model, s.verb)))
        for s in built
        if len(s.steps)
    )
    releases = tuple((s, s.release) for s in built if s.release is not None)
    return Scores(occupations, trained, releases, len(rows) - len(used), merged, expected)


def _in_order(frame: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """Distinct rows, sorted, text as text and nulls last; and which of them each row is."""
    rows, codes = distinct(frame)
    table = frame[rows].with_columns(pl.col(pl.Categorical).cast(pl.String)).with_row_index("code")
    table = table.sort(frame.columns, nulls_last=True)
    places = np.empty(len(table), np.int64)
    places[table["code"].to_numpy()] = np.arange(len(table))
    return table.drop("code"), places[codes]


def _cell_name(row: Mapping[str, object]) -> str:
    sentence = f"“{row['pronoun']} {row['verb']} {row['occupation']}”"
    return f"{sentence} at {checkpoint_name(row)}"


def _check_range(scores: pl.DataFrame) -> None:
    # 1e-6 above 1 is a softmax summed in float32.
    invalid = scores.filter(~pl.col("score").is_between(0, 1 + 1e-6).fill_null(False))
    if invalid.is_empty():
        return
    row = invalid.row(0, named=True)
    what = f"The score of {_cell_name(row)} is {row['score']} ({len(invalid)} such rows)"
    if row["score"] is not None and not isfinite(row["score"]):
        raise BankError(f"{what}. {FIX_NOT_FINITE}")
    raise UsageError(f"{what}: scores are probabilities over the vocabulary, within 0 and 1.")


def _check_conflicts(rows: pl.DataFrame, *, stored: Floats, new: Floats) -> None:
    other = np.flatnonzero(stored != new)
    if len(other):
        row = rows.row(int(other[0]), named=True)
        raise UsageError(
            f"{_cell_name(row)} has two scores, {new[other[0]]} and {stored[other[0]]} "
            f"({len(other)} such rows): keep one of them."
        )


def _series(
    key: tuple[str, str, str], dense: Floats, steps: Codes, occupations: pl.Series,
    expected: pl.DataFrame,
) -> Series:  # fmt: skip
    """One series from its (steps + release, professions + prior, 2) scores."""
    model, run, verb = key
    present = ~np.isnan(dense)
    half = np.argwhere(present[..., 0] != present[..., 1])
    if len(half):
        row, column = (int(i) for i in half[0])
        cell = {
            "model": model, "run": run, "step": int(steps[row]) if row < len(steps) else None,
            "verb": verb, "pronoun": PRONOUNS[int(present[row, column, 0])],
            "occupation": occupations[column] if column < len(occupations) else PRIOR,
        }  # fmt: skip
        raise UsageError(
            f"{_cell_name(cell)} has no score, and the other pronoun has one ({len(half)} such "
            "cells): add that row."
        )
    trained = present[:-1, :, 0]
    professions, priors = trained[:, :-1].any(axis=1), trained[:, -1]
    rows = professions if professions.any() else priors
    without_prior = np.flatnonzero(rows & ~priors)
    if len(without_prior):
        raise UsageError(
            f"There is no prior for “{verb}” at {model} {run} step {steps[without_prior[0]]} "
            f"({len(without_prior)} such checkpoints): add the scores of “{MASK} {verb} {PRIOR}.” "
            "to the table, or extract that prompt."
        )
    scores = dense[:-1] if rows.all() else dense[:-1][rows]  # a copy is as large as all scores
    names = expected.filter(model=model, verb=verb)["occupation"]
    return Series(
        *(model, run, verb, steps[rows], scores[:, :-1], scores[:, -1]),
        present=trained[:, :-1].any(axis=0) | occupations.is_in(names.implode()).to_numpy(),
        unused=steps[priors & ~rows],
        release=dense[-1] if present[-1].any() else None,
    )


def _ratio(scores: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = scores[..., 0] / scores[..., 1]
    return ratio


class Measures(NamedTuple):
    """Measures of professions over a plateau, (t,) each; NaN where a score is missing."""

    certainty: Floats
    mean_r: Floats
    mean_n: Floats
    cv_r: Floats
    cv_n: Floats


class Plateau(NamedTuple):
    """The last checkpoints of a series, from a training step on, and what is measured there."""

    series: Series
    start: int
    """The requested step."""
    k: int
    """Index of the first checkpoint at or after it."""
    rule: str
    """`given`, `published` or `half of the last step`."""
    measures: Measures

    @property
    def key(self) -> dict[str, object]:
        """Its columns in every table."""
        s = self.series
        return {"model": s.model, "run": s.run, "verb": s.verb, "plateau": self.start}


def plateau_starts(texts: Sequence[int | str]) -> dict[str, list[int]]:
    """First steps of plateaus by model; those for all models are below an empty name.

    Raises
    ------
    UsageError
        A step is no number.

    >>> plateau_starts(["20k,1000", "roberta-base=500000"])
    {'': [20000, 1000], 'roberta-base': [500000]}
    """
    starts: dict[str, list[int]] = {}
    for text in texts:
        model, _, steps = str(text).rpartition("=")
        for step in steps.split(","):
            if (start := parse_count(step.strip())) is None:
                raise UsageError(
                    f"--plateaus {text}: {step!r} is no step. Use 500000,760000 or MODEL=500000."
                )
            starts.setdefault(model, []).append(start)
    return starts


def all_plateaus(series: Sequence[Series], given: Sequence[int | str] | None) -> list[Plateau]:
    """Every series with every plateau start that is given for its model, or for all.

    Without any, one from half of the model's last step on. For the published lists of steps that is
    the published start, and is called so.

    Raises
    ------
    UsageError
        A start that leaves fewer than two checkpoints, or an unknown model.
    """
    by_model = plateau_starts(given or ())
    models = sorted({s.model for s in series})
    if unknown := sorted({*by_model} - {"", *models}):
        raise UsageError(f"--plateaus: there is no model {unknown[0]!r}. {', '.join(models)} are.")
    last: dict[str, int] = {}
    for s in series:
        last[s.model] = max(last.get(s.model, 0), int(s.steps[-1]))
    plateaus = []
    for s in series:
        known = "published" if s.steps.tolist() in PUBLISHED else "half of the last step"
        half = (last[s.model] + 1) // 2
        starts = by_model.get(s.model, by_model.get(""))
        for start in (half,) if starts is None else dict.fromkeys(starts):
            k = int(np.searchsorted(s.steps, start))
            _check_plateau(s, start, len(s.steps) - k)
            rule = known if starts is None else "given"
            plateaus.append(Plateau(s, start, k, rule, _measures(s, k)))
    return plateaus


def _measures(s: Series, k: int) -> Measures:
    """CV and means as in arXiv 2211.14639, §3."""
    r, n = s.ratio[k:], s.normalised[k:]
    with np.errstate(invalid="ignore"):
        return Measures(
            s.certainty[k:].mean(axis=0), r.mean(axis=0), n.mean(axis=0), variation(r), variation(n)
        )


def _check_plateau(s: Series, start: int, left: int) -> None:
    if left < 2:
        raise UsageError(
            f"A plateau from step {start} leaves {('no checkpoint', 'one checkpoint')[left]} of "
            f"{s.model} {s.run} “{s.verb}”, whose steps are {s.steps[0]} to {s.steps[-1]} "
            f"({len(s.steps)} of them): a CV needs two. Start it earlier with --plateaus."
        )


def checkpoint_table(scores: Scores) -> pl.DataFrame:
    """Present scores, and those that only other checkpoints and runs of the model have."""
    steps: dict[str, set[int]] = {}
    for s in scores.series:
        steps.setdefault(s.model, set()).update(s.steps.tolist(), s.unused.tolist())
    rows: list[tuple[object, ...]] = []
    for s in scores.series:
        missing = dict(zip(s.steps.tolist(), s.missing.sum(axis=1).tolist(), strict=True))
        total, unused = int(s.present.sum()), set(s.unused.tolist())
        for step in sorted(steps[s.model]):
            lacks, used = missing.get(step, total), step in missing
            prior = used or step in unused
            rows.append((s.model, s.run, step, s.verb, total - lacks, lacks, prior, used))
    # Verbs that are expected of a run and that it has nowhere.
    verbs = {(s.model, s.run, s.verb) for s in scores.series}
    for model, run in {(model, run) for model, run, _ in verbs}:
        for verb, count in scores.expected.filter(model=model).group_by("verb").len().rows():
            if (model, run, verb) not in verbs:
                rows += [(model, run, step, verb, 0, count, False, False) for step in steps[model]]
    for s, release in scores.releases:
        *professions, prior = (~np.isnan(release[:, 0])).tolist()
        rows.append((s.model, s.run, None, s.verb, sum(professions), 0, prior, False))
    schema: _Schema = {
        "model": pl.String, "run": pl.String, "step": pl.Int64, "verb": pl.String,
        "professions": pl.Int64, "missing": pl.Int64, "prior": pl.Boolean, "used": pl.Boolean,
    }  # fmt: skip
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.sort("model", "run", "step", "verb", nulls_last=True)


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
    plateaus: Sequence[Plateau], occupations: pl.Series, frequencies: Mapping[str, Floats]
) -> pl.DataFrame:
    """The measures of every profession of every plateau, and its frequency in each case."""
    parts = []
    for p in plateaus:
        s, k = p.series, p.k
        present = np.flatnonzero(s.present)
        columns = {name: values[present] for name, values in p.measures._asdict().items()}
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


def spread_table(plateaus: Sequence[Plateau]) -> pl.DataFrame:
    """Smallest, largest, mean and median of each measure over the professions of a plateau."""
    rows: list[dict[str, object]] = []
    for p in plateaus:
        for name, values in p.measures._asdict().items():
            present = values[p.series.present]
            finite = present[np.isfinite(present)]
            some = finite if len(finite) else np.array([np.nan])
            summary = {each: getattr(np, each)(some) for each in ("min", "max", "mean", "median")}
            counts = {"n": len(finite), "excluded": len(present) - len(finite)}
            rows.append(p.key | {"measure": name} | summary | counts)
    numbers: _Schema = dict.fromkeys(("min", "max", "mean", "median"), pl.Float64)
    return pl.DataFrame(rows, schema=_KEY | {"measure": pl.String} | numbers | _COUNTS)


def correlation_table(
    plateaus: Sequence[Plateau], frequencies: Mapping[str, Floats]
) -> pl.DataFrame:
    """Certainty, and frequency in each case, against CV, over the professions of a plateau."""
    rows: list[dict[str, object]] = []
    for p in plateaus:
        present, m = p.series.present, p.measures
        sides: list[tuple[str, str | None, Floats]] = [("certainty", None, m.certainty)]
        sides += [("frequency", case, numbers) for case, numbers in frequencies.items()]
        for x, case, numbers in sides:
            for y, cv in (("cv_r", m.cv_r), ("cv_n", m.cv_n)):
                about = {"x": x, "y": y, "case": case}
                rows.append(p.key | about | pearson(numbers[present], cv[present])._asdict())
    names: _Schema = {"x": pl.String, "y": pl.String, "case": pl.String}
    return pl.DataFrame(rows, schema=_KEY | names | _R | _COUNTS)


def run_pair_table(plateaus: Sequence[Plateau]) -> pl.DataFrame:
    """Correlation of time-averaged R and N between every two runs of a model and verb."""
    groups: dict[tuple[str, str, int], list[Plateau]] = {}
    for p in plateaus:
        groups.setdefault((p.series.model, p.series.verb, p.start), []).append(p)
    rows: list[tuple[object, ...]] = []
    for key, of_runs in groups.items():
        for name in ("mean_r", "mean_n"):
            for a, b in combinations(of_runs, 2):
                both = a.series.present & b.series.present
                values = (getattr(p.measures, name)[both] for p in (a, b))
                rows.append((*key, name, a.series.run, b.series.run, *pearson(*values)))
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
    schema: _Schema = {
        "model": pl.String, "run": pl.String, "verb": pl.String, "step_a": pl.Int64,
        "step_b": pl.Int64, **_R, **_COUNTS,
    }  # fmt: skip
    parts = [pl.DataFrame(schema=schema)]
    for s in series:
        ratio = s.ratio[:, s.present]
        if not ratio.shape[1]:
            continue
        finite = np.isfinite(ratio).all(axis=0)
        n = int(np.count_nonzero(finite))
        matrix = pearson_matrix(ratio if finite.all() else ratio[:, finite])
        a, b = np.triu_indices(len(matrix), 1)
        low, high = correlation_interval(matrix[a, b], n)
        ends = {"r": matrix[a, b], "low": low, "high": high}
        pairs = pl.DataFrame({"step_a": s.steps[a], "step_b": s.steps[b], **ends})
        key = {"model": s.model, "run": s.run, "verb": s.verb}
        counts = {"n": n, "excluded": ratio.shape[1] - n}
        parts.append(pairs.select(*_literals(key), pl.all(), *_literals(counts)))
    return pl.concat(parts)


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


def trajectory_table(
    scores: Scores, plateaus: Sequence[Plateau], chosen: Sequence[int] | None
) -> pl.DataFrame:
    """P(he) and P(she) over training, of the prior and of a few professions of every series.

    `relative` is the score divided by the largest of its pronoun over the training steps; a
    release, whose step is null, is divided by the same. `chosen` are indices of professions; by
    default those whose CV of R over the first plateau is the largest and the smallest.
    """
    first: dict[int, Measures] = {}
    for p in plateaus:
        first.setdefault(id(p.series), p.measures)
    schema: _Schema = {
        "model": pl.String, "run": pl.String, "verb": pl.String, "step": pl.Int64,
        "role": pl.String, "occupation": pl.String, "pronoun": pl.String,
        "score": pl.Float64, "relative": pl.Float64,
    }  # fmt: skip
    parts = []
    for s in scores.series:
        for role, at in _examples(s, first[id(s)], chosen):
            occupation = PRIOR if at < 0 else scores.occupations[at]
            trained = s.prior if at < 0 else s.scores[:, at]
            steps: list[int | None] = s.steps.tolist()
            values = trained
            if s.release is not None and not np.isnan(s.release[at, 0]):
                values, steps = np.vstack([trained, s.release[at]]), [*steps, None]
            for column, pronoun in enumerate(PRONOUNS):
                # Not zero: a pronoun without any probability has no relative score.
                largest = np.fmax.reduce(trained[:, column], initial=0.0) or np.nan
                table = {
                    "model": s.model, "run": s.run, "verb": s.verb, "step": steps, "role": role,
                    "occupation": occupation, "pronoun": pronoun, "score": values[:, column],
                    "relative": values[:, column] / largest,
                }  # fmt: skip
                parts.append(pl.DataFrame(table, schema=schema))
    return pl.concat(parts)


def _examples(
    series: Series, measured: Measures, chosen: Sequence[int] | None
) -> Iterator[tuple[str, int]]:
    """The role of each profession shown and its index; −1 is the prior."""
    yield "prior", -1
    if chosen is not None:
        yield from (("chosen", at) for at in chosen if series.present[at])
        return
    finite = np.flatnonzero(np.isfinite(measured.cv_r) & series.present)
    if len(finite):
        cv = measured.cv_r[finite]
        yield "largest cv_r", int(finite[cv.argmax()])
        if len(finite) > 1:
            yield "smallest cv_r", int(finite[cv.argmin()])


def _literals(values: Mapping[str, object]) -> list[pl.Expr]:
    return [pl.lit(v, pl.Int64 if isinstance(v, int) else None).alias(k) for k, v in values.items()]
