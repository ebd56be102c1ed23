"""From the long rows of scores to dense arrays: one series per model, run and verb.

Axis letters: `m` checkpoints, `t` professions. A cell without a score is NaN.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.fluctuation.cells import PRIOR, Cells, cell_name, cells_of
from logitbank.analysis.families.fluctuation.scores import MASK, PRONOUNS
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.errors import UsageError


@dataclass(frozen=True)
class Series:
    """The scores of one model, run and verb over training."""

    model: str
    run: str
    verb: str
    steps: Codes
    """(m,) ascending: checkpoints with professions; with priors, where there is no profession."""
    scores: Floats
    """(m, t, 2): P(he) and P(she), NaN where there is none."""
    prior: Floats
    """(m, 2): the same for the prior template."""
    present: NDArray[np.bool_]
    """(t,) professions with a score at any checkpoint, or that the model was asked."""
    unused: Codes
    """Steps that have the prior and no profession, though others have professions."""
    release: Floats | None
    """(t + 1, 2) scores of a public release, the run's or the model's, the prior last; or None."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.model} {self.run} “{self.verb}”"

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
        """(m, t) no score, of a profession that was asked or has one elsewhere in the series."""
        return np.isnan(self.certainty) & self.present


class Scores(NamedTuple):
    """All series of a frame, over one list of professions."""

    occupations: pl.Series
    """(t,) sorted, with article."""
    series: tuple[Series, ...]
    """By model, run and verb; only those with training steps."""
    released: pl.DataFrame
    """model, run, verb, professions (count) and prior (whether there) of each public release."""
    an_priors: int
    """Prior rows with “an”, which are not used."""
    merged: int
    """Rows that repeat another exactly."""
    asked: pl.DataFrame
    """model, verb, occupation: what is known to have been asked, scored or not."""


NOTHING = pl.DataFrame(schema=dict.fromkeys(("model", "verb", "occupation"), pl.String))


def series_of(scores: Iterable[pl.DataFrame], expected: pl.DataFrame | None = None) -> Scores:
    """Lay scores out densely.

    Parameters
    ----------
    scores
        Frames with the columns of `SCORES`, in any order of rows, each of checkpoints of its own.
        One is laid out and let go before the next one is asked for.
    expected
        model, verb and occupation of what each model was asked, where that is known.

    Raises
    ------
    UsageError
        No rows, no training step, a score outside [0, 1], two different scores of the same
        thing, a checkpoint in two frames, one pronoun without the other, or a checkpoint with
        professions and no prior.
    """
    cells = cells_of(scores, NOTHING["occupation"] if expected is None else expected["occupation"])
    expected = NOTHING if expected is None else expected
    if not len(cells.steps):
        models = ", ".join(sorted({model for model, _, _ in cells.names}))
        raise UsageError(
            f"there is no training step, only the public release of {models}; fluctuation needs "
            "the checkpoints of a run"
        )
    built = [
        _with_present(_series(name, values, cells), cells.occupations, expected)
        for name, values in zip(cells.names, cells.values, strict=True)
    ]
    released = [
        (s.model, s.run, s.verb, int(present[:-1].sum()), bool(present[-1]))
        for s in built
        if s.release is not None
        for present in [~np.isnan(s.release[:, 0])]
    ]
    schema = {
        "model": pl.String, "run": pl.String, "verb": pl.String,
        "professions": pl.Int64, "prior": pl.Boolean,
    }  # fmt: skip
    table = pl.DataFrame(released, schema=schema, orient="row")
    built = _with_public_release(built)
    trained = tuple(s for s in built if len(s.steps))
    return Scores(cells.occupations, trained, table, cells.an_priors, cells.merged, expected)


def _series(key: tuple[str, str, str], dense: Floats, cells: Cells) -> Series:
    """One series from its (steps + release, professions + prior, 2) scores."""
    model, run, verb = key
    steps = cells.steps
    _check_pronouns(key, dense, steps, cells.occupations)
    present = ~np.isnan(dense[..., 0])
    trained, release = present[:-1], present[-1]
    professions, priors = trained[:, :-1].any(axis=1), trained[:, -1]
    rows = professions if professions.any() else priors
    without_prior = np.flatnonzero(rows & ~priors)
    if len(without_prior):
        raise UsageError(
            f"there is no prior for “{verb}” at {model} {run} step {steps[without_prior[0]]} "
            f"({len(without_prior)} such checkpoints); N needs the scores of “{MASK} {verb} "
            f"{PRIOR}.”: add its rows to the table, or extract that prompt"
        )
    scores = dense[:-1] if rows.all() else dense[:-1][rows]  # a copy is as large as all scores
    return Series(
        *(model, run, verb, steps[rows], scores[:, :-1], scores[:, -1]),
        present=np.asarray(trained[:, :-1].any(axis=0)),
        unused=steps[priors & ~rows],
        release=dense[-1] if release.any() else None,
    )


def _with_public_release(series: list[Series]) -> list[Series]:
    """A release that belongs to no run of its model, beside every run that has none."""
    alone = {(s.model, s.verb): s.release for s in series if not len(s.steps)}
    return [
        s if s.release is not None else replace(s, release=alone.get((s.model, s.verb)))
        for s in series
    ]


def _check_pronouns(
    key: tuple[str, ...], dense: Floats, steps: Codes, occupations: pl.Series
) -> None:
    present = ~np.isnan(dense)
    half = np.argwhere(present[..., 0] != present[..., 1])
    if len(half):
        row, column = (int(i) for i in half[0])
        model, run, verb = key
        step = int(steps[row]) if row < len(steps) else None
        occupation = occupations[column] if column < len(occupations) else PRIOR
        missing = PRONOUNS[int(present[row, column, 0])]
        cell = {"model": model, "run": run, "step": step, "verb": verb, "occupation": occupation}
        raise UsageError(
            f"{cell_name({**cell, 'pronoun': missing})} has no score, and the other pronoun has "
            f"one ({len(half)} such cells); add that row"
        )


def _with_present(series: Series, occupations: pl.Series, expected: pl.DataFrame) -> Series:
    of_series = expected.filter(pl.col("model") == series.model, pl.col("verb") == series.verb)
    if of_series.is_empty():
        return series
    known = occupations.is_in(of_series["occupation"].implode()).to_numpy()
    return replace(series, present=series.present | known)


def _ratio(scores: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = scores[..., 0] / scores[..., 1]
    return ratio
