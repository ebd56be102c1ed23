"""Pronoun scores as items and as series of checkpoints, and the tables made of them.

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

from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.codes import Codes, distinct
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, FIX_NOT_FINITE
from logitbank.analysis.frames.pronoun_scores import (
    MASK,
    PRONOUNS,
    as_scores,
    expected_professions,
)
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

MEASURES = ("certainty", "mean_r", "mean_n", "cv_r", "cv_n")
"""Those of a profession over a plateau."""

_Schema = dict[str, type[pl.DataType]]
_KEY: _Schema = {"model": pl.String, "run": pl.String, "verb": pl.String, "plateau": pl.Int64}
_R: _Schema = dict.fromkeys(("r", "low", "high"), pl.Float64)
_COUNTS: _Schema = {"n": pl.Int64, "excluded": pl.Int64}


class Pronouns(NamedTuple):
    """The probabilities of both pronouns in every sentence, also in those of the priors."""

    he: Items
    """P(he) by verb. The cluster of a sentence is its profession, with article."""
    she: Items
    """P(she) at the same checkpoints, with the same axes."""
    an_priors: int
    """Prior rows with “an”, which are not used."""
    merged: int
    """Rows that repeat another exactly."""

    @property
    def occupations(self) -> pl.Series:
        """All professions, sorted."""
        names = self.he.axes["cluster"].unique().sort()
        return names.filter(names != PRIOR)


def read_pronouns(
    frames: Iterable[pl.LazyFrame | pl.DataFrame], expected: pl.DataFrame | None = None
) -> Pronouns:
    """The scores of frames, each of other checkpoints.

    Parameters
    ----------
    frames
        As `as_scores` reads them, with rows in any order.
    expected
        Columns model, verb, occupation, prior: the prompts that each model should have, if they
        are known. Without it, those that any checkpoint of the model has.

    Raises
    ------
    NoRowsError
        There are no scores.
    UsageError
        A score outside [0, 1], two different scores of the same thing, or one pronoun without the
        other.
    """
    rows, an_priors, merged = zip(*map(_read, map(as_scores, frames)), strict=True)
    both = gather_items(map(_items, rows))
    if not len(both.axes):
        raise NoRowsError("There are no scores: name a bank or table that has some.")
    if expected is not None:
        some = both.checkpoints.unique("model", keep="first")
        pronouns = pl.DataFrame({"pronoun": PRONOUNS}).with_columns(score=pl.lit(None, pl.Float64))
        wanted = expected_professions(expected).join(some, on="model").join(pronouns, how="cross")
        both = gather_items([both, _items(wanted)])
    he, she = (
        own._replace(axes=own.axes.with_columns(part=pl.lit("")))
        for own in (both.only(part=pronoun) for pronoun in PRONOUNS)
    )
    return Pronouns(he, she, sum(an_priors), sum(merged))


def _items(scores: pl.DataFrame) -> pl.DataFrame:
    """Scores as rows of items."""
    return scores.select(
        *CHECKPOINT, "verb", part="pronoun", cluster="occupation",
        item=pl.format("{} {}", "verb", "occupation"), value="score",
    )  # fmt: skip


def _read(scores: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Scores that are used, each once; how many rows are not; and how many repeat another."""
    _check_range(scores)
    used = scores.filter(~pl.col("prior") | (pl.col("occupation") == PRIOR))
    sentence = (*CHECKPOINT, "verb", "occupation")
    first, codes = distinct(used.select(*sentence, "pronoun"))
    once = used[first]
    other = np.flatnonzero(used["score"] != once["score"][codes])
    if len(other):
        row, stored = used.row(int(other[0]), named=True), once.row(codes[other[0]], named=True)
        raise UsageError(
            f"{_cell_name(row)} has two scores, {row['score']} and {stored['score']} "
            f"({len(other)} such rows): keep one of them."
        )
    codes = distinct(once.select(sentence)).codes
    half = once.filter(np.bincount(codes)[codes] == 1)
    if len(half):
        row = half.row(0, named=True)
        missing = PRONOUNS[row["pronoun"] == PRONOUNS[0]]
        raise UsageError(
            f"{_cell_name(row | {'pronoun': missing})} has no score, and the other pronoun has one "
            f"({len(half)} such cells): add that row."
        )
    return once, len(scores) - len(used), len(used) - len(once)


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


def profession_items(pronouns: Pronouns) -> Items:
    """Each profession's ln R, ln N, whether “he” is more probable (½ for a tie), and C, by verb.

    No value for an infinite logarithm.
    """
    he, she = pronouns.he, pronouns.she
    priors = (he.axes["cluster"] == PRIOR).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ln_r = np.log(he.values / she.values)
        ln_n = np.full_like(ln_r, np.nan)
        for _, which in he.by_group():
            if priors[which].any():
                ln_n[:, which] = ln_r[:, which] - ln_r[:, which[priors[which]]]
    first = np.where(np.isnan(ln_r), np.nan, (ln_r > 0) + (ln_r == 0) / 2)
    parts = {"ln_r": ln_r, "ln_n": ln_n, "he": first, "c": he.values + she.values}
    return gather_items(
        he._replace(
            axes=he.axes.with_columns(part=pl.lit(part)),
            values=np.where(np.isfinite(values), values, np.nan),
        ).chosen(np.flatnonzero(~priors))
        for part, values in parts.items()
    )


@dataclass(frozen=True)
class Series:
    """The scores of one model, run and verb over training."""

    model: str
    run: str
    verb: str
    names: Sequence[str]
    """(t + 1,) professions of the model, sorted, with article; then the prior."""
    steps: Codes
    """(m,) ascending: checkpoints with professions; with priors, where there is no profession."""
    values: Floats
    """(m, t + 1, 2): P(he) and P(she)."""
    release: Floats | None
    """(t + 1, 2) scores of a public release, the run's or the model's; or None."""

    @property
    def key(self) -> dict[str, str]:
        """Its columns in every table."""
        return {"model": self.model, "run": self.run, "verb": self.verb}

    @property
    def certainty(self) -> Floats:
        """(m, t + 1) C = P(he) + P(she)."""
        return self.values[..., 0] + self.values[..., 1]

    @cached_property
    def ratio(self) -> Floats:
        """(m, t + 1) R = P(he) / P(she), inf where P(she) is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Floats = self.values[..., 0] / self.values[..., 1]
        return ratio

    @property
    def normalised(self) -> Floats:
        """(m, t + 1) N = R · P(she | prior) / P(he | prior)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            n: Floats = self.ratio * (self.values[:, -1:, 1] / self.values[:, -1:, 0])
        return n


def all_series(pronouns: Pronouns) -> list[Series]:
    """The series with training steps, in the order of model, run and verb.

    Raises
    ------
    UsageError
        There is no training step, or a checkpoint has professions and no prior.
    """
    found = list[Series]()
    releases = dict[tuple[str, ...], Floats]()
    """Those of models, for runs that have none of their own."""
    checkpoints = pronouns.he.checkpoints.with_row_index("at")
    for rows in checkpoints.partition_by("model", "run", maintain_order=True):
        for group, which in pronouns.he.by_group():
            series = _series(pronouns, rows, group["verb"], which)
            if len(series.steps):
                found.append(series)
            elif series.release is not None:
                releases[series.model, series.verb] = series.release
    if not found:
        models = ", ".join(checkpoints["model"].unique().sort())
        raise UsageError(
            f"Only the public release of {models} has scores: fluctuation needs the checkpoints "
            "of a run."
        )
    return [
        s if s.release is not None else replace(s, release=releases.get((s.model, s.verb)))
        for s in found
    ]


def _series(pronouns: Pronouns, rows: pl.DataFrame, verb: str, which: Codes) -> Series:
    """One series from the items of a verb, at the checkpoints of a run."""
    model, run = rows.row(0, named=True)["model"], rows.row(0, named=True)["run"]
    which = which[pronouns.he.expected[model][which]]
    names = pronouns.he.axes["cluster"][which]
    own = which[(names != PRIOR).to_numpy()]
    prior = which[(names == PRIOR).to_numpy()]
    values = np.full((len(rows), len(own) + 1, 2), np.nan)
    for side, items in enumerate((pronouns.he, pronouns.she)):
        at = items.values[rows["at"]]
        values[:, :-1, side] = at[:, own]
        values[:, len(own) : len(own) + len(prior), side] = at[:, prior]
    present = ~np.isnan(values[..., 0])
    trained = rows["step"].is_not_null().to_numpy()
    professions = trained & present[:, :-1].any(axis=1)
    used = professions if professions.any() else trained & present[:, -1]
    without_prior = rows.filter(used & ~present[:, -1])
    if len(without_prior):
        raise UsageError(
            f"There is no prior for “{verb}” at {model} {run} step {without_prior['step'][0]} "
            f"({len(without_prior)} such checkpoints): add the scores of “{MASK} {verb} {PRIOR}.” "
            "to the table, or extract that prompt."
        )
    return Series(
        *(model, run, verb, [*names.filter(names != PRIOR), PRIOR]),
        steps=rows["step"].filter(used).to_numpy(),
        values=values[used],
        release=values[-1] if present[-1].any() and not trained[-1] else None,
    )


class Plateau(NamedTuple):
    """The last checkpoints of a series, from a training step on."""

    series: Series
    start: int
    """The requested step."""
    k: int
    """Index of the first checkpoint at or after it."""
    rule: str
    """`given`, `published` or `half of the last step`."""

    @property
    def key(self) -> dict[str, object]:
        """Its columns in every table."""
        return {**self.series.key, "plateau": self.start}


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
            plateaus.append(Plateau(s, start, k, known if starts is None else "given"))
    return plateaus


def _check_plateau(s: Series, start: int, left: int) -> None:
    if left < 2:
        raise UsageError(
            f"A plateau from step {start} leaves {('no checkpoint', 'one checkpoint')[left]} of "
            f"{s.model} {s.run} “{s.verb}”, whose steps are {s.steps[0]} to {s.steps[-1]} "
            f"({len(s.steps)} of them): a CV needs two. Start it earlier with --plateaus."
        )


def plateau_table(plateaus: Sequence[Plateau]) -> pl.DataFrame:
    """Where each plateau starts, and the prior's own CV and mean certainty over it."""
    rows = [
        {
            **p.key, "rule": p.rule, "first_step": int(p.series.steps[p.k]),
            "last_step": int(p.series.steps[-1]), "checkpoints": len(p.series.steps) - p.k,
            "prior_cv": float(variation(p.series.ratio[p.k :, -1])),
            "prior_mean_r": float(p.series.ratio[p.k :, -1].mean()),
            "prior_certainty": float(p.series.certainty[p.k :, -1].mean()),
        }
        for p in plateaus
    ]  # fmt: skip
    return pl.DataFrame(rows)


def profession_table(plateaus: Sequence[Plateau], frequencies: pl.DataFrame) -> pl.DataFrame:
    """CV and means of every profession over every plateau, and its frequency in each case.

    `frequencies` are as `frequency_table` returns them.

    References
    ----------
    arXiv 2211.14639, §3.
    """
    parts = []
    for p in plateaus:
        c, r, n = (
            each[p.k :, :-1] for each in (p.series.certainty, p.series.ratio, p.series.normalised)
        )
        with np.errstate(invalid="ignore"):
            measures = c.mean(axis=0), r.mean(axis=0), n.mean(axis=0), variation(r), variation(n)
        table = pl.DataFrame({
            "occupation": pl.Series(p.series.names[:-1], dtype=pl.String),
            **dict(zip(MEASURES, measures, strict=True)),
            "missing": np.isnan(c).sum(axis=0),
            "she_zero": (p.series.values[p.k :, :-1, 1] == 0).sum(axis=0),
        })  # fmt: skip
        parts.append(table.select(*_literals(p.key), pl.all()))
    wide = frequencies.pivot("case", index="occupation", values="frequency")
    wide = wide.rename(lambda name: name if name == "occupation" else f"frequency_{name}")
    return pl.concat(parts).join(wide, on="occupation", how="left", maintain_order="left")


def spread_table(professions: pl.DataFrame) -> pl.DataFrame:
    """Smallest, largest, mean and median of each measure over the professions of a plateau."""
    rows = professions.unpivot(MEASURES, index=[*_KEY], variable_name="measure")
    value = pl.col("value").filter(pl.col("value").is_finite())
    n = value.len().cast(pl.Int64)
    some = {"min": value.min(), "max": value.max(), "mean": value.mean(), "median": value.median()}
    spread = rows.group_by(*_KEY, "measure", maintain_order=True).agg(
        **{name: each.fill_null(np.nan) for name, each in some.items()},
        n=n, excluded=pl.len().cast(pl.Int64) - n,
    )  # fmt: skip
    return spread.sort(*_KEY, maintain_order=True)


def correlation_table(professions: pl.DataFrame) -> pl.DataFrame:
    """Certainty, and frequency in each case, against CV, over the professions of a plateau."""
    rows: list[dict[str, object]] = []
    for own in professions.partition_by(*_KEY, maintain_order=True):
        key = own.select(*_KEY).row(0, named=True)
        for column in ("certainty", *(n for n in own.columns if n.startswith("frequency_"))):
            x, _, case = column.partition("_")
            for y in ("cv_r", "cv_n"):
                about = {"x": x, "y": y, "case": case or None}
                rows.append(key | about | pearson(own[column], own[y])._asdict())
    names: _Schema = {"x": pl.String, "y": pl.String, "case": pl.String}
    return pl.DataFrame(rows, schema=_KEY | names | _R | _COUNTS)


def run_pair_table(professions: pl.DataFrame) -> pl.DataFrame:
    """Correlation of time-averaged R and N between every two runs of a model and verb."""
    rows: list[tuple[object, ...]] = []
    for own in professions.partition_by("model", "verb", "plateau", maintain_order=True):
        key = own.select("model", "verb", "plateau").row(0)
        for name in ("mean_r", "mean_n"):
            runs = own.pivot("run", index="occupation", values=name).drop("occupation")
            for a, b in combinations(runs.columns, 2):
                rows.append((*key, name, a, b, *pearson(runs[a], runs[b])))
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
        ratio = s.ratio[:, :-1]
        if not ratio.shape[1]:
            continue
        finite = np.isfinite(ratio).all(axis=0)
        n = int(np.count_nonzero(finite))
        matrix = pearson_matrix(ratio if finite.all() else ratio[:, finite])
        a, b = np.triu_indices(len(matrix), 1)
        low, high = correlation_interval(matrix[a, b], n)
        ends = {"r": matrix[a, b], "low": low, "high": high}
        pairs = pl.DataFrame({"step_a": s.steps[a], "step_b": s.steps[b], **ends})
        counts = {"n": n, "excluded": ratio.shape[1] - n}
        parts.append(pairs.select(*_literals(s.key), pl.all(), *_literals(counts)))
    return pl.concat(parts)


def bare(occupation: pl.Expr) -> pl.Expr:
    """A profession in lower case, without its article.

    >>> pl.select(bare(pl.lit(" An Actor"))).item()
    'actor'
    """
    return occupation.str.strip_chars().str.to_lowercase().str.replace(r"^an?\s+", "")


def frequency_table(occupations: pl.Series, frequencies: pl.DataFrame | None) -> pl.DataFrame:
    """The frequency of professions in each case, the most frequent first; equal ones by name.

    It is 0 if `frequencies` has no such profession. No rows without `frequencies`.

    Raises
    ------
    UsageError
        `frequencies` has none of the professions.
    """
    if frequencies is None:
        columns = {"case": pl.String, "rank": pl.Int64, "occupation": pl.String}
        return pl.DataFrame(schema={**columns, "frequency": pl.Float64})
    named = pl.DataFrame({"occupation": occupations}).with_columns(bare=bare(pl.col("occupation")))
    known = named["bare"].is_in(frequencies["occupation"].implode())
    if len(occupations) and not known.any():
        raise UsageError(
            f"None of the {len(occupations)} professions, such as {occupations[0]!r}, is in the "
            "table of frequencies: name its occupations alike, with or without article."
        )
    every = named.join(frequencies.select("case").unique(), how="cross")
    counts = frequencies.rename({"occupation": "bare"})
    return (
        every.join(counts, on=["bare", "case"], how="left")
        .with_columns(pl.col("frequency").fill_null(0.0))
        .sort("case", "frequency", "occupation", descending=[False, True, False])
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("case"))
        .select("case", "rank", "occupation", "frequency")
    )


def trajectory_table(
    series: Sequence[Series], professions: pl.DataFrame, chosen: Sequence[str] | None
) -> pl.DataFrame:
    """P(he) and P(she) over training, of the prior and of a few professions of every series.

    `relative` is the score divided by the largest of its pronoun over the training steps; a
    release, whose step is null, is divided by the same. By default the `chosen` are those whose CV
    of R over the first plateau is the largest and the smallest.
    """
    parts = []
    for s in series:
        for role, occupation in _examples(s, professions, chosen):
            at = s.names.index(occupation)
            values, steps = s.values[:, at], [*s.steps.tolist()]
            # Not zero: a pronoun without any probability has no relative score.
            largest = np.fmax.reduce(values, initial=0.0)
            relative_to = np.where(largest > 0, largest, np.nan)
            if s.release is not None and not np.isnan(s.release[at, 0]):
                values, steps = np.vstack([values, s.release[at]]), [*steps, None]
            parts += [
                pl.DataFrame({
                    **s.key, "step": steps, "role": role, "occupation": occupation,
                    "pronoun": pronoun, "score": values[:, column],
                    "relative": values[:, column] / relative_to[column],
                })
                for column, pronoun in enumerate(PRONOUNS)
            ]  # fmt: skip
    return pl.concat(parts)


def _examples(
    series: Series, professions: pl.DataFrame, chosen: Sequence[str] | None
) -> Iterator[tuple[str, str]]:
    """The role and the name of the prior and of each profession that is shown."""
    yield "prior", PRIOR
    if chosen is not None:
        yield from (("chosen", name) for name in chosen if name in series.names)
        return
    own = professions.filter(**series.key).filter(pl.col("plateau") == pl.first("plateau"))
    own = own.filter(pl.col("cv_r").is_finite())
    ends = (("largest cv_r", True), ("smallest cv_r", False))
    for role, descending in ends[: len(own)]:
        ranked = own.sort("cv_r", descending=descending, maintain_order=True)
        yield role, ranked["occupation"][0]


def _literals(values: Mapping[str, object]) -> list[pl.Expr]:
    return [pl.lit(v, pl.Int64 if isinstance(v, int) else None).alias(k) for k, v in values.items()]
